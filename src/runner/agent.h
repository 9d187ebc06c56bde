/* One attempt's worth of an agent: what it is given and how its answer is got, by command or warm worker. Private
 * to the runner. */
#ifndef LVN_RUNNER_AGENT_H
#define LVN_RUNNER_AGENT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "model/model.h"
#include "runner/attempt_log.h"
#include "runner/process.h"
#include "runner/result.h"
#include "runner/runner.h"
#include "runner/warm.h"

typedef struct lvn_agent_job {
    const lvn_runner_config *config; /* with its defaults filled in */
    const char *worker_id;
    lvn_warm *warm;          /* NULL for commands */
    const lvn_rollout *rollout;
    const lvn_attempt *attempt;
    int64_t hard_deadline_ns; /* the rollout's own timeout; INT64_MAX: none */
    int cancel_fd;
    lvn_attempt_log *log;
} lvn_agent_job;

/* Fills the zeroes of a configuration with what its header promises. */
void lvn_agent_defaults(lvn_runner_config *config);

/* NULL-terminated, in `arena`: what starts the agent. For warm ones `shim` is the path of the shim; `is_nursery`
 * makes it the process that forks them. */
const char *const *lvn_agent_argv(const lvn_runner_config *config, const char *shim, bool is_nursery, lvn_arena *arena);
/* The environment of a process that serves many attempts: ours, the spec's, and the addresses without an attempt. */
const char *const *lvn_agent_env(const lvn_runner_config *config, lvn_arena *arena);

/* Runs the agent. LVN_OK with the answer in `arena`; LVN_TIMEOUT; LVN_CANCELLED; any other code is a failure whose
 * message says what the agent did. Nothing that it started is left. */
lvn_code lvn_agent_run(const lvn_agent_job *job, lvn_arena *arena, lvn_result *out, lvn_err *err) LVN_MUST_USE;

#endif
