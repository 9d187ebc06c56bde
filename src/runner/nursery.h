/* A process that has imported the agent once and forks a warm worker from itself for each slot that wants one: a
 * worker then costs some milliseconds and the memory it changes, not the seconds and the megabytes of its imports.
 * Private to the runner.
 *
 * Workers are forked twice, so that they become ours (we are the child subreaper). Forking is only offered when
 * the imports have left no second thread behind; agents whose imports open what must not be shared (sockets,
 * database connections) are not for it, so that the user asks for it. */
#ifndef LVN_RUNNER_NURSERY_H
#define LVN_RUNNER_NURSERY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct lvn_nursery lvn_nursery;

typedef struct lvn_nursery_config {
    const char *const *argv, *const *env; /* of the shim, as for a worker but with --fork; borrowed until close */
    const char *directory;
    int64_t ready_timeout_ms;
    const char *log_path; /* what the imports say; NULL: nowhere */
} lvn_nursery_config;

/* Starts the process on a thread of its own and returns at once. */
lvn_code lvn_nursery_open(const lvn_nursery_config *config, lvn_nursery **out, lvn_err *err) LVN_MUST_USE;
/* Ends it; its workers must have been collected. NULL is fine. */
void lvn_nursery_close(lvn_nursery *nursery);

/* Readable, for good, once it is known whether fork will work. NULL: -1. */
int lvn_nursery_settled_fd(const lvn_nursery *nursery);
/* Known, without waiting. */
bool lvn_nursery_is_settled(const lvn_nursery *nursery);

/* Forks a worker that leads a session, has `fds` as its standard descriptors and `marker` ("NAME=VALUE") in its
 * environment. Blocks for some milliseconds, at most ten seconds. Any thread. LVN_UNAVAILABLE: the nursery does
 * not work (any more): start the worker the ordinary way. */
lvn_code lvn_nursery_fork(lvn_nursery *nursery, const char *marker, const int fds[3], pid_t *out,
                          lvn_err *err) LVN_MUST_USE;
/* The worker has been collected. */
void lvn_nursery_forget(lvn_nursery *nursery, pid_t worker);
/* Whether `pid` is a worker that its slot will collect. Any thread; NULL: false. */
bool lvn_nursery_owns(lvn_nursery *nursery, pid_t pid);

#endif
