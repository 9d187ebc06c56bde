/* The rules: what happens to a rollout, its attempts and its worker when something happens (spec/state-machine.md). Pure functions of
 * the rows and the time: no I/O, no clock, no memory. The rows that come out borrow their text from the rows that went in and from
 * the event.
 *
 * On purpose different from Agent-Lightning v0.3 (docs/compatibility.md): a late span does not lose a queued retry, and an update
 * without a status leaves the rollout alone. */
#ifndef LVN_MODEL_RULES_H
#define LVN_MODEL_RULES_H

#include <stdbool.h>

#include "model/model.h"

/* The rows an event is about. */
typedef struct lvn_rows {
    const lvn_rollout *rollout;
    const lvn_attempt *latest;  /* NULL: the rollout has none */
    const lvn_attempt *attempt; /* the one the event names; may be `latest` */
    const lvn_worker *worker;   /* of the event, see each function; NULL: unknown so far */
} lvn_rows;

/* What to write. Rows without their flag are not filled. */
typedef struct lvn_changes {
    bool has_rollout, has_attempt, has_worker;
    lvn_rollout rollout;
    lvn_attempt attempt;
    lvn_worker worker;
    bool is_queued;   /* the rollout goes to the end of the queue unless it has a place there */
    bool is_finished; /* the rollout has (again) got a finished status: wake who waits */
} lvn_changes;

/* A new attempt for the rollout: by dequeue, by hand, or with the rollout. `worker_id` absent or empty: no worker; else rows->worker is that
 * worker. The attempt's row is new. */
void lvn_rules_new_attempt(const lvn_rows *rows, lvn_str attempt_id, lvn_str worker_id, double now, lvn_changes *out);

/* A span was stored for rows->attempt. */
void lvn_rules_span(const lvn_rows *rows, double now, lvn_changes *out);

/* Fields of rows->attempt are replaced. rows->worker is the worker that the attempt has afterwards. */
typedef struct lvn_attempt_update {
    bool has_status, has_worker_id, has_heartbeat, has_metadata;
    lvn_attempt_status status;
    lvn_str worker_id, metadata;
    double heartbeat;
} lvn_attempt_update;
void lvn_rules_update_attempt(const lvn_rows *rows, const lvn_attempt_update *update, double now, lvn_changes *out);

/* The rollout gets a status by hand. */
void lvn_rules_set_status(const lvn_rollout *rollout, lvn_rollout_status status, double now, lvn_changes *out);

/* When the watchdog must look at the rollout next: the earliest time at which lvn_rules_overdue may become true; +infinity for never. */
double lvn_rules_deadline(const lvn_rollout *rollout, const lvn_attempt *latest);
/* The status an overdue latest attempt gets; false when it is not overdue. */
bool lvn_rules_overdue(const lvn_rollout *rollout, const lvn_attempt *latest, double now, lvn_attempt_status *out);

/* Workers. `worker` NULL: new. */
void lvn_rules_heartbeat(const lvn_worker *worker, lvn_str worker_id, bool has_stats, lvn_str stats, double now,
                         lvn_worker *out);
/* A dequeue by `worker_id`: gave work (then it is busy already by lvn_rules_new_attempt) or not. */
void lvn_rules_dequeued(const lvn_worker *worker, lvn_str worker_id, bool got_work, double now, lvn_worker *out);

#endif
