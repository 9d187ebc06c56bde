/* Runners: claim rollouts from the store, run the user's agent for each, report how it went.
 *
 * A runner has N slots, each a thread with at most one agent process. Whatever an agent does (does not start,
 * crashes, hangs, writes without end, answers nonsense, leaves processes behind) ends as a failed attempt with its
 * reason and log; the store's rules decide about a retry, and the slot goes on with the next rollout. */
#ifndef LVN_RUNNER_RUNNER_H
#define LVN_RUNNER_RUNNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "model/model.h"
#include "store/store.h"

typedef enum lvn_agent_kind {
    LVN_AGENT_COMMAND, /* one process a rollout: task on standard input, answer as its last output line */
    LVN_AGENT_WARM,    /* a Python function in a process that stays up, one a slot */
} lvn_agent_kind;

/* Which agent, and what its processes get. All borrowed. */
typedef struct lvn_agent_spec {
    lvn_agent_kind kind;
    const char *const *argv;  /* command: NULL-terminated; or NULL, then `shell` */
    const char *shell;        /* command: a line for sh -c */
    const char *file;         /* warm: the Python file */
    const char *function;     /* warm: its function of one argument, the task; NULL: solve */
    const char *python;       /* warm: the interpreter; NULL: python3 */
    const char *shim;         /* warm: path of levin_worker.py; NULL: the one built in */
    bool is_forked;           /* warm: imported once, then forked; see the README for whom */
    const char *directory;    /* where it runs; NULL: ours */
    const char *const *env;   /* NAME=VALUE added to our environment, but for the addresses; NULL: none */
    int64_t ready_timeout_ms; /* warm: for importing; 0: 120 s */
    size_t recycle_after;     /* warm: a fresh process after so many tasks; 0: never */
    size_t max_output_bytes;  /* standard output and error of one task; 0: 4 MiB */
} lvn_agent_spec;

/* Scores what the agent answered: its text, or JSON when it is not a text. `out_feedback` (may stay empty) is kept
 * with the reward. Anything but LVN_OK makes the attempt failed with the words of `err`. Runs on a slot's thread,
 * several at once; may block. */
typedef lvn_code (*lvn_score_fn)(void *user, const lvn_rollout *rollout, lvn_str output, double *out_reward,
                                 char *out_feedback, size_t feedback_size, lvn_err *err);

typedef struct lvn_runner_config {
    lvn_agent_spec agent;
    size_t workers;            /* slots, 1 to 1024 */
    size_t first_worker;       /* the slots are called Worker-<first_worker> and up */
    const char *gateway_url;   /* http://host:port, without a slash at the end */
    const char *model;         /* LLM_MODEL; NULL: policy */
    const char *api_key;       /* OPENAI_API_KEY and ANTHROPIC_API_KEY; NULL: levin */
    const char *log_directory; /* <rollout>-<attempt>.log and worker-<n>.log; created */
    int64_t timeout_ms;        /* of the agent on one attempt; 0: none. The rollout's own holds too */
    int64_t term_ms;           /* between SIGTERM and SIGKILL after a timeout; 0: 2 s */
    int64_t grace_ms;          /* after cancel: before SIGINT, then before SIGTERM, then before SIGKILL; 0: 1 s each */
    int64_t heartbeat_ms;      /* 0: 10 s; -1: none */
    lvn_score_fn score;        /* NULL: the reward is what the agent answered as "reward", if anything */
    void *score_user;
    /* Told once in words when the agent keeps dying without one answer, from any slot's thread. NULL: logged only. */
    void (*on_crash_loop)(void *user, const char *message);
    void *on_crash_loop_user;
} lvn_runner_config;

typedef struct lvn_runner lvn_runner;

typedef struct lvn_runner_stats {
    uint64_t succeeded, failed, timeouts, cancelled; /* attempts */
    uint64_t processes;                              /* started */
    size_t busy;                                     /* slots with a rollout */
    int64_t cpu_ns;   /* of our own threads, without scoring */
    int64_t score_ns; /* CPU time of scoring on our threads */
} lvn_runner_stats;

/* Finds out before a run whether the agent can be started: a command's program (and the script an interpreter is
 * given) exists and may be executed, a shell line parses; a warm worker is started until it is ready. Blocks, at
 * most the ready timeout. LVN_NOT_FOUND; LVN_INVALID; LVN_UNAVAILABLE: a worker that starts but does not get
 * ready. The message is one line for a user. */
lvn_code lvn_runner_check_agent(const lvn_runner_config *config, lvn_err *err) LVN_MUST_USE;

/* Starts the slots. The configuration is copied, but not what its agent, hooks and texts point to: that must live
 * until stop. `store` is borrowed and must stay open until stop has returned. This program becomes a child
 * subreaper and stays one. LVN_INVALID: a configuration that makes no sense; LVN_IO: no threads, no log directory. */
lvn_code lvn_runner_start(const lvn_runner_config *config, lvn_store *store, lvn_runner **out,
                          lvn_err *err) LVN_MUST_USE;

/* Claim nothing more; what runs goes on. Any thread, signal handlers too; idempotent; does not block. */
void lvn_runner_drain(lvn_runner *runner);
/* As drain; what runs gets grace_ms to end by itself, then SIGINT, SIGTERM and SIGKILL. Its attempts become failed
 * with the error "cancelled". Any thread, signal handlers too; idempotent; does not block. */
void lvn_runner_cancel(lvn_runner *runner);
/* Drains, waits for what runs at most `drain_ms` (-1: without end; 0: cancel at once), cancels the rest, joins the
 * threads and frees. Blocks; after a cancel for at most three times grace_ms, unless a score hook or the store
 * takes longer. NULL is fine. */
void lvn_runner_stop(lvn_runner *runner, int64_t drain_ms);

/* Any thread. */
void lvn_runner_get_stats(const lvn_runner *runner, lvn_runner_stats *out);

#endif
