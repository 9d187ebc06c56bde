/* What a run tells: one JSON object a line in <run>/metrics.jsonl, and the same on the terminal, as one live line where the
 * output is a terminal and as plain lines where it is not. One thread at a time. */
#ifndef LVN_ALGO_METRICS_H
#define LVN_ALGO_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct lvn_metrics lvn_metrics;

/* Appends to `path`. `is_quiet`: nothing on the terminal. */
lvn_code lvn_metrics_open(const char *path, bool is_quiet, lvn_metrics **out, lvn_err *err) LVN_MUST_USE;
void lvn_metrics_close(lvn_metrics *metrics);

/* Starts a record of `kind` with its time; add fields with lvn_json_write_key and friends, then end. The line is written at once. */
lvn_buf *lvn_metrics_begin(lvn_metrics *metrics, const char *kind);
void lvn_metrics_end(lvn_metrics *metrics);

/* Replaces the live line; not shown when the output is no terminal. */
void lvn_metrics_live(lvn_metrics *metrics, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line that stays. */
void lvn_metrics_say(lvn_metrics *metrics, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
