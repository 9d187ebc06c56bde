/* Private to the engine: a model of its own with a LoRA adapter merged into its matrices. llama.cpp computes an adapter beside the
 * matrices, which costs a third of the speed of a model this small; a merged one runs like the bare model. */
#ifndef LVN_ENGINE_MERGE_H
#define LVN_ENGINE_MERGE_H

#include "base/err.h"
#include "engine/pool.h"

struct llama_model;

/* Reads the GGUF files of a model and of an adapter for it; every matrix W that the adapter has a pair for becomes W + scale · B · A,
 * rounded once to W's type. *out takes as much memory as the model's file and is freed with llama_model_free. *out is NULL with
 * LVN_OK when this can't be done: a quantised W, or a pair that does not fit; the adapter is then served beside the model.
 * LVN_INVALID: not an adapter. LVN_NO_MEMORY. Blocks (0.3 s for 135M parameters on two cores); the pool is the caller's for that time. */
lvn_code lvn_merge_open(const char *model_path, const char *adapter_path, lvn_pool *pool, struct llama_model **out, lvn_err *err)
    LVN_MUST_USE;

#endif
