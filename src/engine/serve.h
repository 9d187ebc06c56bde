/* The local sampler: llama.cpp behind one decode thread, continuous batching over all calls in flight.
 *
 * A server holds one base model and, for each live policy version, one llama.cpp context with that version's weights: a
 * merged copy, or the base with a LoRA adapter beside it. New requests go to the current version; after lvn_serve_publish the older context finishes what it began
 * and is then released. Prompts that share a prefix of token ids with cached ones reuse it (per context).
 *
 * Threads: every function may be called from any thread and none blocks on decoding, except where stated. Callbacks run
 * on the decode thread and must not block. */
#ifndef LVN_ENGINE_SERVE_H
#define LVN_ENGINE_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

typedef struct lvn_serve lvn_serve;

typedef struct lvn_serve_config {
    const char *model_path; /* GGUF, any type; an F16 copy is made once in cache_dir when the file is quantised */
    const char *cache_dir;  /* made when missing */
    bool keep_type;         /* serve the file as it is, no F16 copy */
    size_t merge_bytes;     /* a model of at most this size is copied for each version with the adapter merged into it: faster by
                               a third; larger (or quantised) ones share one copy, with the adapter beside it. 0: never merge */
    int threads;            /* for decoding; >= 1 */
    int max_parallel;       /* sequences decoded at once, 1..32 */
    int context_tokens;     /* per sequence: prompt and answer, e.g. 1024 */
    int max_queue;          /* requests waiting for a slot; more is LVN_FULL */
} lvn_serve_config;

lvn_code lvn_serve_open(const lvn_serve_config *config, lvn_serve **out, lvn_err *err) LVN_MUST_USE;
/* Cancels what runs (their done callbacks see LVN_CANCELLED), joins the thread. Blocks. NULL is fine. */
void lvn_serve_close(lvn_serve *serve);

/* Makes `adapter_path` (a LoRA GGUF; NULL: the bare model) the policy for requests submitted from now on. `version` is the
 * caller's number, reported in every result. Blocks for the load (10 ms; 0.3 s where adapters are merged).
 * LVN_INVALID: not an adapter of this model; the old policy then stays. Adapter file is read whole: it may be deleted afterwards. */
lvn_code lvn_serve_publish(lvn_serve *serve, const char *adapter_path, int64_t version, lvn_err *err) LVN_MUST_USE;
int64_t lvn_serve_version(const lvn_serve *serve);

/* ---- text and tokens; any thread, no locks ---- */

typedef struct lvn_chat_message {
    lvn_str role;    /* system, user, assistant, tool, developer (taken as system) */
    lvn_str content; /* may be empty */
    const int32_t *token_ids; /* for an assistant turn that this server produced: the sampled ids, used instead of
                                 tokenising `content` again, so that the next prompt continues the recorded tokens
                                 exactly; NULL otherwise */
    size_t token_count;
} lvn_chat_message;

/* The model's own chat template, ending where the assistant's answer begins. ids are in `arena`.
 * LVN_INVALID: a role the template does not know. */
lvn_code lvn_serve_chat_tokens(lvn_serve *serve, lvn_arena *arena, const lvn_chat_message *messages, size_t count,
                               int32_t **out_ids, size_t *out_count, lvn_err *err) LVN_MUST_USE;
/* Plain text; special tokens are parsed only when `parse_special`. */
lvn_code lvn_serve_tokenize(lvn_serve *serve, lvn_arena *arena, lvn_str text, bool parse_special, int32_t **out_ids,
                            size_t *out_count, lvn_err *err) LVN_MUST_USE;
/* The bytes of one token; empty for control tokens. Borrowed from the model, lives as long as the server. */
lvn_str lvn_serve_token_text(const lvn_serve *serve, int32_t token);
int32_t lvn_serve_eot_token(const lvn_serve *serve); /* ends an assistant turn */
int lvn_serve_vocab_size(const lvn_serve *serve);
int lvn_serve_context_tokens(const lvn_serve *serve);
const char *lvn_serve_model_name(const lvn_serve *serve); /* general.name of the GGUF */
bool lvn_serve_is_end(const lvn_serve *serve, int32_t token);

/* ---- requests ---- */

typedef struct lvn_sampling {
    float temperature; /* 0: greedy */
    float top_p;       /* 1: off */
    int top_k;         /* 0: off */
    uint64_t seed;
    int max_tokens;    /* >= 1 */
    int top_logprobs;  /* alternatives reported a token, 0..20 */
} lvn_sampling;

typedef struct lvn_token_info {
    int32_t id;
    float logp; /* natural log; at the sampling temperature, before top-p and top-k (greedy: at temperature 1) */
    const struct lvn_token_alt { int32_t id; float logp; } *top; /* top_logprobs entries, best first */
} lvn_token_info;

typedef enum lvn_finish { LVN_FINISH_STOP, LVN_FINISH_LENGTH, LVN_FINISH_CANCELLED, LVN_FINISH_ERROR } lvn_finish;

typedef struct lvn_generation lvn_generation; /* handle of a running request */

typedef struct lvn_generation_result {
    lvn_finish finish;
    lvn_code code;            /* LVN_OK unless cancelled or failed */
    const char *message;      /* for LVN_FINISH_ERROR */
    int64_t version;          /* the policy that answered */
    size_t prompt_tokens, cached_tokens, answer_tokens; /* answer_tokens counts an end token that was sampled */
    int64_t queued_ns, first_token_ns, total_ns; /* since submit */
} lvn_generation_result;

typedef struct lvn_generation_request {
    const int32_t *prompt; /* copied */
    size_t prompt_count;
    lvn_sampling sampling;
    const lvn_str *stops; /* texts that end the answer, copied; the caller cuts the text, the tokens stay */
    size_t stop_count;
    int64_t deadline_monotonic_ns; /* 0: none */
    /* Both run on the decode thread. on_token may be NULL. Every token that was sampled is reported, the end token
     * included. on_done runs exactly once, last; the handle is gone after it. */
    void (*on_token)(void *user, const lvn_token_info *token);
    void (*on_done)(void *user, const lvn_generation_result *result);
    void *user;
} lvn_generation_request;

/* LVN_FULL: the queue is at its bound; LVN_TOO_LARGE: the prompt leaves no room for an answer; LVN_UNAVAILABLE: closing.
 * On failure no callback runs. out_handle may be NULL. */
lvn_code lvn_serve_submit(lvn_serve *serve, const lvn_generation_request *request, lvn_generation **out_handle,
                          lvn_err *err) LVN_MUST_USE;
/* Idempotent; on_done follows soon with LVN_CANCELLED. Valid until on_done has returned. */
void lvn_serve_cancel(lvn_serve *serve, lvn_generation *handle);

typedef struct lvn_serve_stats {
    uint64_t requests, prompt_tokens, cached_tokens, answer_tokens;
    int64_t decode_cpu_ns; /* CPU time of the decode thread and its helpers is not separable; thread of the loop only */
    int64_t busy_ns;       /* wall time spent decoding */
    int running, waiting;
} lvn_serve_stats;
void lvn_serve_get_stats(lvn_serve *serve, lvn_serve_stats *out);

#endif
