/* Private to report: what metrics.jsonl says, by kind. After a resume a step may be there twice: the later one counts. */
#ifndef LVN_REPORT_HISTORY_H
#define LVN_REPORT_HISTORY_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

typedef struct lvn_eval_point {
    lvn_str set;
    int64_t step; /* -1: the bare model; 0: after the warm start; n: after n reinforcement steps */
    double score;
    int64_t count, version;
} lvn_eval_point;

typedef struct lvn_step_point {
    int64_t step;
    double reward, sample_s, train_s, answer_tokens, kl, clipped, entropy, max_abs_dlogp;
    int64_t rollouts, failed, signal, groups;
} lvn_step_point;

typedef struct lvn_sft_point {
    int64_t step;
    double loss;
} lvn_sft_point;

typedef struct lvn_answer {
    lvn_str set, task, question, gold, answer;
    int64_t step;
    double reward;
} lvn_answer;

typedef struct lvn_history {
    lvn_eval_point *evals;
    size_t eval_count;
    lvn_step_point *steps;
    size_t step_count;
    lvn_sft_point *sft;
    size_t sft_count;
    lvn_answer *answers;
    size_t answer_count;
    lvn_json config; /* kind NULL when there is none */
    lvn_json summary; /* of the end, kind NULL before */
} lvn_history;

lvn_code lvn_history_read(lvn_arena *arena, const char *run, lvn_history *out, lvn_err *err) LVN_MUST_USE;

/* The sets in order of appearance; at most `max`. */
size_t lvn_history_sets(const lvn_history *h, lvn_str *out, size_t max);
/* NULL when not measured. */
const lvn_eval_point *lvn_history_eval(const lvn_history *h, lvn_str set, int64_t step);
const lvn_eval_point *lvn_history_last_eval(const lvn_history *h, lvn_str set);

#endif
