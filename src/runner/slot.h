/* One slot: a thread that claims rollouts and runs the agent on them, one at a time. Private to the runner. */
#ifndef LVN_RUNNER_SLOT_H
#define LVN_RUNNER_SLOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runner/runner.h"
#include "runner/warm.h"

typedef enum lvn_slot_state { LVN_SLOT_RUN, LVN_SLOT_DRAIN, LVN_SLOT_CANCEL } lvn_slot_state;

/* What all slots of a runner share; lives longer than they do. */
typedef struct lvn_slot_shared {
    const lvn_runner_config *config; /* with its defaults */
    lvn_store *store;
    const char *const *warm_argv, *const *warm_env;
    struct lvn_nursery *nursery; /* or NULL */
    int drain_fd, cancel_fd; /* readable from then on */
    int left_fd;             /* counts the slots that have ended */
    atomic_int state;        /* lvn_slot_state, only growing */
    atomic_uint deaths;      /* agents that ended badly in a row, over all slots */
    atomic_bool is_loop_told;
    atomic_ullong succeeded, failed, timeouts, cancelled, processes;
    atomic_size_t busy;
    atomic_llong cpu_ns, score_ns;
} lvn_slot_shared;

typedef struct lvn_slot {
    lvn_slot_shared *shared;
    char worker_id[32];
    char log_path[4096]; /* of the warm worker */
    pthread_t thread;
    int wake_fd; /* eventfd: the dequeue is done */
    /* Guards is_waiting, and with it `claim` against a cancel after its end. Never held by the store's threads. */
    pthread_mutex_t lock;
    bool is_waiting;
    lvn_op claim;
    lvn_arena *arena; /* of the present rollout */
    lvn_warm *warm;
    lvn_warm_config warm_config;
    unsigned counted_starts;
} lvn_slot;

/* The thread's function; `arg` is the slot. */
void *lvn_slot_run(void *arg);
/* Ends a parked dequeue. Any thread but the store's. */
void lvn_slot_wake(lvn_slot *slot);

#endif
