/* A worker process that stays up and takes one task after the other, so that what an agent imports is paid for
 * once.
 *
 * Protocol, JSON lines: the worker prints {"ready": true} when it can take tasks, or {"ready": false, "error":
 * ".."}; gets {"id": n, "task": .., "env": {..}} on standard input; answers {"id": n, "ok": true, "output": ..,
 * "reward"?: ..} or {"id": n, "ok": false, "error": "..", "traceback": ".."} on standard output, where nothing
 * else may appear; ends when its input closes. Any breach, a death, a timeout or output past the limit ends the
 * process; the next use starts another, after a pause that doubles with each death that no answer came between.
 *
 * One thread at a time, the same from the first start to free (the process dies with the thread that started it). */
#ifndef LVN_RUNNER_WARM_H
#define LVN_RUNNER_WARM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "runner/attempt_log.h"
#include "runner/process.h"
#include "runner/result.h"

typedef struct lvn_warm lvn_warm;

typedef struct lvn_warm_config {
    const char *const *argv, *const *env; /* as in lvn_process_spec */
    const char *directory;
    size_t limit_bytes;        /* of what it writes while it does one task */
    int64_t ready_timeout_ms;
    size_t recycle_after;      /* a fresh process after this many answers; 0: never */
    lvn_process_step term;     /* how it is ended when it must be: this, then SIGKILL */
    const char *log_path;      /* what it says outside tasks; NULL: nowhere */
    struct lvn_nursery *nursery; /* where processes are forked from while that works; NULL: each is started anew */
} lvn_warm_config;

/* `config` and all it points to must outlive the worker. Starts nothing. */
lvn_warm *lvn_warm_new(const lvn_warm_config *config);
/* Ends the process, first by closing its input. NULL is fine. Returns NULL. */
lvn_warm *lvn_warm_free(lvn_warm *warm);

/* Starts the process if there is none and no pause is due, without waiting for it. Failing is told by the next call. */
void lvn_warm_start(lvn_warm *warm);

/* Sleeps until `wake_fd` is readable, meanwhile reading what the worker says and noticing when it dies; a dead one is
 * started again unless it keeps dying. */
void lvn_warm_idle(lvn_warm *warm, int wake_fd);

/* Waits until the worker is ready, starting it if need be. LVN_UNAVAILABLE: it could not be started, died, broke
 * the protocol or was not ready in time, the message says which; LVN_CANCELLED: cancel_fd became readable. */
lvn_code lvn_warm_await_ready(lvn_warm *warm, int cancel_fd, lvn_err *err) LVN_MUST_USE;

typedef struct lvn_warm_task {
    lvn_str task;     /* JSON without line breaks */
    lvn_str env;      /* JSON object of texts */
    int64_t deadline_ns; /* monotonic; INT64_MAX: none */
    int cancel_fd;    /* -1: none. Readable: the task is given up */
    lvn_attempt_log *log; /* gets standard error while the task runs; NULL: nowhere */
} lvn_warm_task;

/* Does one task on a worker that is ready (see await_ready). What out_result points to is in `arena`. LVN_OK.
 * LVN_INVALID: the function raised, or its answer is not one; the worker goes on. All others end it: LVN_TIMEOUT;
 * LVN_CANCELLED (the process still runs: lvn_warm_end says how it goes); LVN_TOO_LARGE: over limit_bytes; LVN_IO:
 * it died; LVN_CONFLICT: breach of the protocol. */
lvn_code lvn_warm_call(lvn_warm *warm, const lvn_warm_task *task, lvn_arena *arena, lvn_result *out_result,
                       lvn_err *err) LVN_MUST_USE;

/* Ends the process by the steps given. Nothing happens when there is none. */
void lvn_warm_end(lvn_warm *warm, const lvn_process_step *steps, size_t step_count);

/* Deaths and failed starts since the last answer; those ended by us for a timeout or a cancel do not count. */
unsigned lvn_warm_deaths(const lvn_warm *warm);
/* Processes started so far. */
unsigned lvn_warm_starts(const lvn_warm *warm);
pid_t lvn_warm_pid(const lvn_warm *warm); /* 0: none */

#endif
