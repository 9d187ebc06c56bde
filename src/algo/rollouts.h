/* Private to algo: a batch of rollouts, from enqueueing to what came of them. */
#ifndef LVN_ALGO_ROLLOUTS_H
#define LVN_ALGO_ROLLOUTS_H

#include "adapter/trajectory.h"
#include "algo/algo.h"

typedef struct lvn_outcome {
    lvn_str rollout_id;
    bool has_succeeded;
    bool has_reward;
    double reward; /* 0 without one */
    lvn_trajectories trajectories; /* of the latest attempt */
    lvn_str answer; /* text of the last call's answer; absent when there was none */
} lvn_outcome;

/* Enqueues every task `samples` times in a row, waits for all and reads their spans. Outcomes are in that order, in `arena`.
 * `label` heads the live line. LVN_CANCELLED: `stop` was raised; what had not finished is cancelled. */
lvn_code lvn_rollouts_run(lvn_algo *algo, lvn_arena *arena, const lvn_task *const *tasks, size_t task_count, size_t samples,
                          lvn_mode mode, const char *label, lvn_outcome **out, lvn_err *err) LVN_MUST_USE;

/* Cancels rollouts that a former life of this run left queued or running. Returns how many. */
lvn_code lvn_rollouts_cancel_left_over(lvn_store *store, size_t *out_count, lvn_err *err) LVN_MUST_USE;

#endif
