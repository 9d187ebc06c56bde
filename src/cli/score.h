/* The bridge between a runner's score hook and the scorers: which one, and what the task says. */
#ifndef LVN_CLI_SCORE_H
#define LVN_CLI_SCORE_H

#include <stddef.h>

#include "base/err.h"
#include "model/model.h"

/* An lvn_score_fn; `user` is the run's lvn_train_options. Gold and database come from the rollout's metadata, where the agent does
 * not see them. */
lvn_code lvn_score_rollout(void *user, const lvn_rollout *rollout, lvn_str output, double *out_reward, char *out_feedback,
                           size_t feedback_size, lvn_err *err);

#endif
