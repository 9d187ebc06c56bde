/* From the rewards of a group to advantages. Pure functions. */
#ifndef LVN_ALGO_ADVANTAGE_H
#define LVN_ALGO_ADVANTAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Group relative advantage (Shao et al. 2024, eq. 3): (r - mean) / (std + 1e-6), with the sample's std (k - 1); without
 * `normalize_std` r - mean. One reward: its advantage is the reward itself over (1 + 1e-6), as mean 0 and std 1 are then assumed. Returns
 * false, with zeros in `out`, when all rewards are equal and k > 1: such a group has no signal. */
bool lvn_advantage_grpo(const double *rewards, size_t count, bool normalize_std, double *out);

#endif
