/* From the spans of one attempt to token-exact training sequences.
 *
 * Every LLM call left a span with the ids of its prompt and answer and the log-probability of each answered token. Calls are
 * walked in the order of their sequence numbers. Where a call's prompt starts with the previous call's prompt and answer, token by
 * token, it continues that sequence: the new prompt tokens are context (mask 0), the new answer is trained on (mask 1). Where it
 * does not, a new sequence begins and the first differing token is reported. Text is never tokenised. The same rule as
 * spec/trainer.md section 4, level "trajectory". */
#ifndef LVN_ADAPTER_TRAJECTORY_H
#define LVN_ADAPTER_TRAJECTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "model/model.h"

/* One LLM call as its span tells it. */
typedef struct lvn_call {
    int64_t sequence_id;
    double start_time;
    const int32_t *prompt;
    size_t prompt_count;
    const int32_t *answer;
    size_t answer_count;
    const float *logp;      /* answer_count entries, or NULL when the span has none or another number of them */
    int64_t policy_version; /* -1: not said */
    lvn_str finish_reason;  /* absent when not said */
} lvn_call;

typedef struct lvn_trajectory {
    const int32_t *prompt; /* of the first call */
    size_t prompt_count;
    const int32_t *tokens; /* everything behind it */
    const uint8_t *mask;
    const float *logp;     /* 0 where mask is 0; NULL when a merged call had none */
    size_t count;
    size_t trained_count;  /* tokens with mask 1 */
    size_t call_count;
    int64_t policy_version; /* the oldest of its calls, -1 when one does not say */
    bool was_cut;           /* the last answer ended by length */
} lvn_trajectory;

typedef struct lvn_trajectories {
    lvn_trajectory *items;
    size_t count;
    size_t call_count;     /* calls with tokens */
    size_t skipped_calls;  /* LLM calls whose span has no token ids (errors, foreign upstreams) */
    size_t mismatch_count; /* calls that did not continue the one before */
    size_t first_mismatch_at; /* position in the prompt of the first such call where ids differ */
} lvn_trajectories;

/* Reads the calls among `spans` (any order). A span is a call when its name contains "openai.chat.completion" or it carries
 * token ids. LVN_INVALID: a span's JSON or ids are damaged. */
lvn_code lvn_adapter_calls(lvn_arena *arena, const lvn_span *spans, size_t count, lvn_call **out, size_t *out_count,
                           size_t *out_skipped, lvn_err *err) LVN_MUST_USE;

/* Everything is in `arena` or borrowed from `calls`. Calls must be in order. */
void lvn_adapter_merge(lvn_arena *arena, const lvn_call *calls, size_t count, lvn_trajectories *out);

/* Both of the above. */
lvn_code lvn_adapter_trajectories(lvn_arena *arena, const lvn_span *spans, size_t count, lvn_trajectories *out,
                                  lvn_err *err) LVN_MUST_USE;

/* The reward of the last span that carries one (spec/adapters.md section 2, the form agentlightning.reward.N.value).
 * LVN_EMPTY: none. */
lvn_code lvn_adapter_final_reward(lvn_arena *arena, const lvn_span *spans, size_t count, double *out, lvn_err *err) LVN_MUST_USE;

#endif
