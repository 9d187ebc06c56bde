/* Private to the engine: the F16 copy of a quantised model, made once and kept. */
#ifndef LVN_ENGINE_F16COPY_H
#define LVN_ENGINE_F16COPY_H

#include "base/arena.h"
#include "base/err.h"

/* The path to serve `model_path` from, in `arena`: itself when its weights are F16, BF16 or F32, else a copy in `cache_dir`, made now
 * if it is not there (a few seconds). Serving from F16 keeps sampler and trainer together: their log-probs differ by 0.002 on average, from a
 * 4-bit file by 0.04. LVN_NOT_FOUND, LVN_INVALID (no GGUF), LVN_FULL. */
lvn_code lvn_f16_copy(lvn_arena *arena, const char *model_path, const char *cache_dir, int threads, const char **out, lvn_err *err)
    LVN_MUST_USE;

#endif
