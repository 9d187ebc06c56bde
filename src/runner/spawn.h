/* Starting a child: private to process.c. */
#ifndef LVN_RUNNER_SPAWN_H
#define LVN_RUNNER_SPAWN_H

#include <sys/types.h>

#include "base/err.h"
#include "runner/process.h"

typedef struct lvn_spawned {
    pid_t pid;
    int pidfd;                 /* close-on-exec */
    int in_fd, out_fd, err_fd; /* our ends: close-on-exec, non-blocking */
} lvn_spawned;

/* `marker` is NAME=VALUE, put in front of spec->env. Errors as lvn_process_spawn. */
lvn_code lvn_spawn(const lvn_process_spec *spec, const char *marker, lvn_spawned *out, lvn_err *err) LVN_MUST_USE;

/* A worker forked by a nursery instead. Errors as lvn_process_fork. */
lvn_code lvn_spawn_fork(struct lvn_nursery *nursery, const char *marker, lvn_spawned *out, lvn_err *err) LVN_MUST_USE;

#endif
