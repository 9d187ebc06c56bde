/* The nouns: rollout, attempt, span, worker, resources. Plain values; text is borrowed from whatever arena or row holds the
 * noun. Free-form JSON (input, metadata, ...) is kept as canonical compact text (base/json.h's writer), absent for null.
 * Times are Unix seconds as the protocol has them, double, LVN_TIME_NULL for null. */
#ifndef LVN_MODEL_MODEL_H
#define LVN_MODEL_MODEL_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define LVN_TIME_NULL ((double)NAN)
static inline bool lvn_time_is_null(double t)
{
    return isnan(t);
}

typedef enum lvn_rollout_status {
    LVN_ROLLOUT_QUEUING,
    LVN_ROLLOUT_PREPARING,
    LVN_ROLLOUT_RUNNING,
    LVN_ROLLOUT_FAILED,
    LVN_ROLLOUT_SUCCEEDED,
    LVN_ROLLOUT_CANCELLED,
    LVN_ROLLOUT_REQUEUING,
} lvn_rollout_status;

typedef enum lvn_attempt_status {
    LVN_ATTEMPT_PREPARING,
    LVN_ATTEMPT_RUNNING,
    LVN_ATTEMPT_FAILED,
    LVN_ATTEMPT_SUCCEEDED,
    LVN_ATTEMPT_UNRESPONSIVE,
    LVN_ATTEMPT_TIMEOUT,
} lvn_attempt_status;

typedef enum lvn_worker_status { LVN_WORKER_UNKNOWN, LVN_WORKER_IDLE, LVN_WORKER_BUSY } lvn_worker_status;
typedef enum lvn_mode { LVN_MODE_NONE, LVN_MODE_TRAIN, LVN_MODE_VAL, LVN_MODE_TEST } lvn_mode;
typedef enum lvn_span_status { LVN_SPAN_UNSET, LVN_SPAN_OK, LVN_SPAN_ERROR } lvn_span_status;

typedef struct lvn_rollout_config {
    double timeout_seconds, unresponsive_seconds; /* LVN_TIME_NULL: none */
    int64_t max_attempts;                         /* >= 1 */
    const uint8_t *retry_condition;               /* lvn_attempt_status values, as given, may repeat */
    size_t retry_count;
} lvn_rollout_config;

typedef struct lvn_rollout {
    lvn_str rollout_id;
    lvn_str input; /* JSON; absent: null */
    double start_time, end_time;
    lvn_mode mode;
    lvn_str resources_id; /* absent: null */
    lvn_rollout_status status;
    lvn_rollout_config config;
    lvn_str metadata; /* JSON object; absent: null */
} lvn_rollout;

typedef struct lvn_attempt {
    lvn_str rollout_id, attempt_id;
    int64_t sequence_id; /* 1, 2, ... within the rollout */
    double start_time, end_time;
    lvn_attempt_status status;
    lvn_str worker_id; /* absent: null; may be empty */
    double last_heartbeat_time;
    lvn_str metadata;
} lvn_attempt;

typedef struct lvn_worker {
    lvn_str worker_id;
    lvn_worker_status status;
    lvn_str heartbeat_stats; /* JSON object or absent */
    double last_heartbeat_time, last_dequeue_time, last_busy_time, last_idle_time;
    lvn_str current_rollout_id, current_attempt_id;
} lvn_worker;

typedef struct lvn_resources {
    lvn_str resources_id;
    double create_time, update_time;
    int64_t version;
    lvn_str resources; /* JSON object name -> resource */
} lvn_resources;

/* A span in the form it is served. `rest` is the JSON of all keys behind sequence_id, each with its comma:
 * `,"trace_id":"..",...` up to but without the closing brace; the other fields repeat what filters and sorts need. */
typedef struct lvn_span {
    lvn_str rollout_id, attempt_id;
    int64_t sequence_id;
    lvn_str trace_id, span_id, parent_id /* absent: null */, name;
    double start_time, end_time;
    lvn_span_status status;
    lvn_str rest;
} lvn_span;

/* Names as on the wire; `parse` returns false for others. */
const char *lvn_rollout_status_name(lvn_rollout_status status);
const char *lvn_attempt_status_name(lvn_attempt_status status);
const char *lvn_worker_status_name(lvn_worker_status status);
const char *lvn_mode_name(lvn_mode mode); /* NULL for LVN_MODE_NONE */
bool lvn_rollout_status_parse(lvn_str name, lvn_rollout_status *out);
bool lvn_attempt_status_parse(lvn_str name, lvn_attempt_status *out);
bool lvn_worker_status_parse(lvn_str name, lvn_worker_status *out);
bool lvn_mode_parse(lvn_str name, lvn_mode *out);

static inline bool lvn_rollout_is_queued(lvn_rollout_status s)
{
    return s == LVN_ROLLOUT_QUEUING || s == LVN_ROLLOUT_REQUEUING;
}
static inline bool lvn_rollout_is_running(lvn_rollout_status s)
{
    return s == LVN_ROLLOUT_PREPARING || s == LVN_ROLLOUT_RUNNING;
}
static inline bool lvn_rollout_is_finished(lvn_rollout_status s)
{
    return s == LVN_ROLLOUT_SUCCEEDED || s == LVN_ROLLOUT_FAILED || s == LVN_ROLLOUT_CANCELLED;
}

void lvn_rollout_config_default(lvn_rollout_config *config); /* null, null, 1, [] */

/* The wire form of each noun, appended as compact JSON with all keys in the protocol's order (spec/store-api.md section 3).
 * With `attempt` not NULL a rollout is written as an AttemptedRollout. */
void lvn_rollout_write(lvn_buf *buf, const lvn_rollout *rollout, const lvn_attempt *attempt);
void lvn_attempt_write(lvn_buf *buf, const lvn_attempt *attempt);
void lvn_worker_write(lvn_buf *buf, const lvn_worker *worker);
void lvn_resources_write(lvn_buf *buf, const lvn_resources *resources);
void lvn_span_write(lvn_buf *buf, const lvn_span *span);

#endif
