/* The Python program that turns a function into a warm worker (shim/levin_worker.py), carried in the binary so
 * that it needs no installed file. Private to the runner. */
#ifndef LVN_RUNNER_SHIM_H
#define LVN_RUNNER_SHIM_H

#include <stdbool.h>

#include "base/err.h"

typedef struct lvn_shim {
    char path[4096];
    char folder[4096]; /* to be removed; "": none */
} lvn_shim;

/* `path` NULL: writes the built-in one to a folder of its own under TMPDIR. LVN_NOT_FOUND: no such file; LVN_IO. */
lvn_code lvn_shim_open(const char *path, lvn_shim *out, lvn_err *err) LVN_MUST_USE;
/* Removes what was written. Workers that have started do not need it any more; the zeroed struct is fine. */
void lvn_shim_close(lvn_shim *shim);

#endif
