/* Private to the engine: one llama.cpp context for a policy version, and the sequences in it. Decode thread only, but for creation. */
#ifndef LVN_ENGINE_POLICY_H
#define LVN_ENGINE_POLICY_H

#include "base/err.h"
#include "engine/serve.h"

struct llama_model;
struct llama_context;
struct llama_adapter_lora;

/* A sequence of the context's cache: working for a request, or idle with its tokens kept for who shares a prefix. */
typedef struct lvn_slot {
    int seq;
    int32_t *tokens; /* what the cache holds, context_tokens of room */
    int count;
    lvn_generation *request; /* NULL: idle */
    int64_t last_used;       /* the policy's turn in which it ended or was copied from */
} lvn_slot;

typedef struct lvn_policy {
    struct lvn_policy *next;
    int64_t version;
    struct llama_context *context;
    struct llama_model *merged;         /* its own weights, adapter included; NULL: the shared model's */
    struct llama_adapter_lora *adapter; /* beside the shared model; NULL: none */
    lvn_slot *slots;
    int slot_count;
    int cells;       /* the cache's size */
    int64_t turn;    /* counts batches */
    int active;      /* slots with a request */
    int waiting;     /* requests that are bound to it and wait */
    bool is_tight;   /* one had to give way: no others before a running one has ended */
} lvn_policy;

typedef struct lvn_policy_shape {
    struct llama_model *model;
    const char *merge_path; /* the model's file, when adapters are merged into a copy of it; NULL: adapters lie beside the model */
    int threads, parallel, context_tokens;
} lvn_policy_shape;

/* `adapter_path` NULL: none. LVN_INVALID: not an adapter of this model. */
lvn_code lvn_policy_new(const lvn_policy_shape *shape, const char *adapter_path, int64_t version, lvn_policy **out, lvn_err *err)
    LVN_MUST_USE;
void lvn_policy_free(lvn_policy *policy);

/* A slot for a prompt, with as much of it in the cache as can be had: *out_cached tokens, at most count - 1. Forgets what idle slots keep
 * when room is short. NULL: no slot is free, or the rest of the prompt and some tokens more for all that run would not fit. */
lvn_slot *lvn_policy_take(lvn_policy *policy, const int32_t *prompt, int count, int *out_cached);
/* Tokens that `prompt` shares with the cache of any slot. */
int lvn_policy_shared(const lvn_policy *policy, const int32_t *prompt, int count);
/* Before each batch: forgets what idle slots have kept for long, or too much of. All sequences' attention passes over all cells in
 * use, so that what is kept for nobody slows everybody: by a quarter when 32 answers lay there. */
void lvn_policy_tidy(lvn_policy *policy);
/* Forgets what idle slots keep; returns whether there was anything. */
bool lvn_policy_evict(lvn_policy *policy);
/* Drops what a slot's cache holds from `count` tokens on. */
void lvn_policy_cut(lvn_policy *policy, lvn_slot *slot, int count);

#endif
