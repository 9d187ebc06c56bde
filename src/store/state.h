/* Private to store: the hot rows in memory and the one way to change them. Every change goes to the backend's transaction and is
 * remembered until the commit, so that a commit that fails leaves memory as the disk is. Executor thread only. */
#ifndef LVN_STORE_STATE_H
#define LVN_STORE_STATE_H

#include "base/map.h"
#include "store/backend.h"
#include "store/store.h"

typedef struct rollout_row {
    lvn_rollout *value;
    lvn_attempt **attempts; /* by sequence; attempts[i]->sequence_id == i + 1 */
    size_t attempt_count, attempt_capacity;
    int64_t order;
    int64_t place;          /* in the queue; 0: not there */
    bool has_finished_once; /* then nobody waits for it any more while it is open */
    double deadline;        /* of the heap entry that counts */
    size_t open_place;      /* one more than its index in `open`; 0: finished */
} rollout_row;

typedef struct worker_row {
    lvn_worker *value;
    int64_t order;
} worker_row;

typedef struct resources_row {
    lvn_resources *value;
    int64_t order, touched;
} resources_row;

typedef struct counter_row {
    lvn_str rollout_id; /* owned */
    int64_t value;
} counter_row;

typedef struct heap_entry {
    double deadline;
    rollout_row *row;
} heap_entry;

typedef struct undo undo;

typedef struct lvn_state {
    lvn_backend *backend;
    lvn_map rollouts, workers, resources, counters, keys; /* by id; keys: of enqueues */
    rollout_row **rollout_list; /* in the order of creation */
    size_t rollout_count, rollout_capacity;
    rollout_row **open; /* those that are not finished, in no order: few among many */
    size_t open_count, open_capacity;
    worker_row **worker_list;
    size_t worker_count, worker_capacity;
    resources_row **resources_list;
    size_t resources_count, resources_capacity;
    resources_row *latest_resources;
    int64_t touch;

    /* The queue: rollouts by place, from `queue_head` on; a hole (NULL) is an entry that was taken. */
    rollout_row **queue;
    size_t queue_head, queue_tail, queue_capacity;
    int64_t next_place;

    heap_entry *heap;
    size_t heap_count, heap_capacity;

    int64_t attempt_total, span_total, span_bytes;
    bool has_finished_some; /* since the last look: waits may be over */
    bool has_queued_some;   /* parked dequeues may get work */

    undo *log;
    size_t log_count, log_capacity;
    void (*on_event)(void *user, const lvn_event *event); /* see lvn_store_listen */
    void *on_event_user;
} lvn_state;

lvn_code lvn_state_open(lvn_state *s, lvn_backend *backend, lvn_err *err) LVN_MUST_USE;
void lvn_state_close(lvn_state *s); /* closes the backend too */

lvn_code lvn_state_begin(lvn_state *s, lvn_err *err) LVN_MUST_USE;
/* On failure memory is as before begin. */
lvn_code lvn_state_commit(lvn_state *s, lvn_err *err) LVN_MUST_USE;
void lvn_state_rollback(lvn_state *s);

static inline lvn_attempt *lvn_state_latest(const rollout_row *row)
{
    return row->attempt_count ? row->attempts[row->attempt_count - 1] : NULL;
}
/* "latest" is accepted where `allow_latest`. NULL: no such attempt. */
lvn_attempt *lvn_state_attempt(const rollout_row *row, lvn_str attempt_id, bool allow_latest);

/* Changes. Rows are copied. */
lvn_code lvn_state_add_rollout(lvn_state *s, const lvn_rollout *row, rollout_row **out, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_state_put_rollout(lvn_state *s, rollout_row *row, const lvn_rollout *value, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_state_put_attempt(lvn_state *s, rollout_row *row, const lvn_attempt *value, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_state_put_worker(lvn_state *s, const lvn_worker *value, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_state_put_resources(lvn_state *s, const lvn_resources *value, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_state_set_counter(lvn_state *s, lvn_str rollout_id, int64_t value, lvn_err *err) LVN_MUST_USE;
int64_t lvn_state_counter(const lvn_state *s, lvn_str rollout_id);
/* NULL: no enqueue had that key. */
const lvn_enqueue_key *lvn_state_key(const lvn_state *s, lvn_str key);
lvn_code lvn_state_add_key(lvn_state *s, const lvn_enqueue_key *key, lvn_err *err) LVN_MUST_USE; /* a new one; copied */
/* The rollouts of that order and behind it, as many as `count`. */
rollout_row **lvn_state_from_order(const lvn_state *s, int64_t order, size_t count);
/* To the end of the queue unless it has a place. */
lvn_code lvn_state_enqueue(lvn_state *s, rollout_row *row, lvn_err *err) LVN_MUST_USE;
/* Takes the head; NULL: empty. */
lvn_code lvn_state_pop(lvn_state *s, rollout_row **out, lvn_err *err) LVN_MUST_USE;
bool lvn_state_has_queued(const lvn_state *s);
lvn_code lvn_state_add_span(lvn_state *s, const lvn_span *span, lvn_err *err) LVN_MUST_USE; /* LVN_CONFLICT: duplicate */

/* The watchdog's heap. `watch` after every change of a running rollout; `due` pops a rollout whose deadline is before `now`. */
void lvn_state_watch(lvn_state *s, rollout_row *row);
rollout_row *lvn_state_due(lvn_state *s, double now);
double lvn_state_next_deadline(const lvn_state *s); /* INFINITY: none */

#endif
