/* The brain: algorithms that read the store and improve the policy. They know the store, the trainer and a way to publish; of
 * runners, agents and the gateway they know nothing.
 *
 * All functions here block, run on the algorithm's own thread, and look at `stop` at least once a second: once it is
 * true they leave the store tidy (what they enqueued is cancelled) and return LVN_CANCELLED. */
#ifndef LVN_ALGO_ALGO_H
#define LVN_ALGO_ALGO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "algo/metrics.h"
#include "base/err.h"
#include "config/train.h"
#include "data/dataset.h"
#include "engine/serve.h"
#include "engine/train.h"
#include "store/store.h"

typedef struct lvn_algo {
    const lvn_train_options *options;
    lvn_store *store;
    lvn_serve *serve;     /* for the chat template and token ids only */
    lvn_trainer *trainer; /* NULL when only evaluating */
    lvn_metrics *metrics;
    atomic_bool *stop;
    const char *run_folder;

    /* Writes the trainer's adapter, serves it from now on, and records it in the store as the resources of new rollouts. */
    lvn_code (*publish)(void *user, int64_t version, lvn_err *err);
    void *publish_user;
    int64_t version; /* what is being served; 0 is the bare model */
} lvn_algo;

/* ---- supervised fine-tuning (the warm start) ---- */

/* Trains on `examples` by the options' sft.* for optimiser steps [from_step, ...). Progress goes to the metrics. `on_step` (may
 * be NULL) runs after every step with the number of steps done. Publishes nothing. */
lvn_code lvn_algo_sft(lvn_algo *algo, const lvn_dataset *examples, int64_t from_step,
                      lvn_code (*on_step)(void *user, int64_t done, lvn_err *err), void *user, lvn_err *err) LVN_MUST_USE;
int64_t lvn_algo_sft_steps(const lvn_train_options *options, const lvn_dataset *examples);

/* ---- group relative policy optimisation ---- */

/* One step (0-based number `step`): samples rollouts of the step's tasks, trains, publishes the next version. The tasks of a step
 * depend on seed and step alone. */
lvn_code lvn_algo_grpo_step(lvn_algo *algo, const lvn_dataset *tasks, int64_t step, lvn_err *err) LVN_MUST_USE;

/* ---- evaluation ---- */

typedef struct lvn_eval_result {
    double score;    /* mean reward, failed rollouts count 0 */
    size_t count, failed;
    double seconds;
    double answer_tokens; /* mean a rollout */
} lvn_eval_result;

/* Runs each task once in mode `val`. `limit` 0: all. `set` names it in the metrics; answers of the tasks are recorded there
 * too, so that a report can show them. */
lvn_code lvn_algo_evaluate(lvn_algo *algo, const lvn_dataset *tasks, const char *set, int64_t step, int64_t limit,
                           lvn_eval_result *out, lvn_err *err) LVN_MUST_USE;

#endif
