/* One child process with pipes on its three standard descriptors, supervised from one thread.
 *
 * A child leads a session (so a process group) of its own and is killed by the kernel when the thread that started
 * it ends. It inherits no descriptor but the three. Nothing here blocks except pump and end, which poll with
 * deadlines; a child that does not read its input, closes its output or writes without end cannot hang them. One
 * thread at a time per process, and the same one from spawn to free.
 *
 * What a child leaves behind is killed with it: its process group and session, its descendants, and orphans that
 * still carry the marker variable of its environment. The calling program must be a child subreaper
 * (lvn_strays_adopt) for the orphans to be found. A process that left the session, cleared its environment and
 * whose parent is gone escapes. */
#ifndef LVN_RUNNER_PROCESS_H
#define LVN_RUNNER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "runner/attempt_log.h"

typedef struct lvn_process lvn_process;
struct lvn_nursery;

typedef struct lvn_process_spec {
    const char *const *argv; /* NULL-terminated; argv[0] without a slash is looked up in PATH */
    const char *const *env;  /* NAME=VALUE, NULL-terminated: the whole environment but for the marker */
    const char *directory;   /* NULL: ours */
    size_t limit_bytes;      /* standard output and error together, see LVN_PROCESS_OVERFLOW */
    bool has_extra_fd;       /* extra_fd is inherited too, as descriptor 3 */
    int extra_fd;
} lvn_process_spec;

/* LVN_NOT_FOUND: no such program or directory; LVN_INVALID: it cannot be executed; LVN_IO: the system refused (too many
 * processes or descriptors). Nothing is left behind then. */
lvn_code lvn_process_spawn(const lvn_process_spec *spec, lvn_process **out, lvn_err *err) LVN_MUST_USE;

/* The same by forking from a nursery, of which the spec's program, environment and folder are. LVN_UNAVAILABLE: see
 * lvn_nursery_fork; LVN_IO. */
lvn_code lvn_process_fork(struct lvn_nursery *nursery, size_t limit_bytes, lvn_process **out,
                          lvn_err *err) LVN_MUST_USE;

/* Where a program would be found: writes its path to `out`. Relative paths start from `directory` (NULL: ours).
 * LVN_NOT_FOUND; LVN_INVALID: found but not executable or a folder. */
lvn_code lvn_process_find(const char *name, const char *directory, char *out, size_t out_size,
                          lvn_err *err) LVN_MUST_USE;

/* Queues bytes (copied) for the child's standard input; `is_last` closes it behind them. What a child that has
 * closed its input did not read is dropped. */
void lvn_process_feed(lvn_process *process, lvn_str bytes, bool is_last);

/* Standard error goes to `log` from now on, standard output too when `has_output` is set. NULL: nowhere. Borrowed. */
void lvn_process_set_log(lvn_process *process, lvn_attempt_log *log, bool has_output);
/* Starts the count for limit_bytes anew. */
void lvn_process_reset_limit(lvn_process *process);

/* Whether what it started outlives it, because others look after that. False at first. */
void lvn_process_leave_children(lvn_process *process, bool leaves_children);

enum {
    LVN_PROCESS_OUTPUT = 1,    /* more bytes in lvn_process_output */
    LVN_PROCESS_CLOSED = 2,    /* standard output has ended (said each time) */
    LVN_PROCESS_EXITED = 4,    /* call end to collect it */
    LVN_PROCESS_WOKEN = 8,     /* wake_fd is readable */
    LVN_PROCESS_DEADLINE = 16, /* the deadline has passed */
    LVN_PROCESS_OVERFLOW = 32, /* over limit_bytes; from here on output is dropped */
};

/* Sleeps until something of the above happens, moves bytes, and says what happened (maybe nothing: call again).
 * wake_fd may be -1; deadline on the monotonic clock, INT64_MAX: none. */
unsigned lvn_process_pump(lvn_process *process, int wake_fd, int64_t deadline_ns);

/* Standard output not consumed yet; the owner consumes from it. At most limit_bytes. */
lvn_buf *lvn_process_output(lvn_process *process);
/* The last line that is not blank on standard error, cut to a few hundred bytes, valid UTF-8; "" when there is none. */
const char *lvn_process_last_words(lvn_process *process);
pid_t lvn_process_pid(const lvn_process *process);

/* One step of ending a process: the signal to its group (0: none), then how long it has to comply. */
typedef struct lvn_process_step {
    int signal;
    int wait_ms;
} lvn_process_step;

typedef struct lvn_process_exit {
    bool is_known;   /* false: the system would not tell, or it would not die (logged) */
    bool was_killed; /* a signal ended it: `signal`; else `status` */
    int signal, status;
} lvn_process_exit;

/* Goes through the steps until the process has ended, then SIGKILL; in any case kills what is left of its group
 * and descendants, reads what they wrote and collects the exit status. A process that has exited already goes
 * through no step. */
void lvn_process_end(lvn_process *process, const lvn_process_step *steps, size_t step_count, lvn_process_exit *out);
/* Ends it (at once) if that was not done; NULL is fine. Returns NULL. */
lvn_process *lvn_process_free(lvn_process *process);

/* "exited with status 3" or "was killed by signal 11 (Segmentation fault)". */
void lvn_process_describe_exit(const lvn_process_exit *end, char *out, size_t out_size);

#endif
