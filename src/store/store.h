/* The store: the only place where the brain (algorithm) and the limbs (runners, gateway) meet.
 *
 * A store is driven by operations. The caller fills an lvn_op, submits it, and is told when it is done: the change is then
 * durable (where the backend is) and visible to every later operation. Operations of one store are atomic and take effect
 * in one order. What an operation means is spec/state-machine.md; the rules are src/model's, backends know none.
 *
 * Ownership: `in` borrows from the caller until the operation is done. Everything in `out` is allocated in op->arena, which the caller
 * owns and must not touch in between. The op itself is the caller's memory.
 * Threads: submit from any thread, never blocks. `done` runs on the store's executor thread, must not block and must not
 * call lvn_store_call; it may submit. */
#ifndef LVN_STORE_STORE_H
#define LVN_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "model/model.h"

typedef struct lvn_store lvn_store;

typedef struct lvn_store_config {
    const char *url;        /* "memory" or "sqlite:PATH" */
    bool is_relaxed;        /* SQLite: synchronous=NORMAL instead of FULL */
    int watchdog_ms;        /* longest time between looks at deadlines; 0: 100 */
    size_t max_queue;       /* operations waiting; more is LVN_FULL. 0: 65536 */
    double (*now)(void *);  /* NULL: the wall clock. For tests. Unix seconds */
    void *now_user;
} lvn_store_config;

/* Opens or creates. SQLite: one file, WAL, a schema version. LVN_INVALID: a damaged or foreign file, or one of a newer version; LVN_CONFLICT:
 * another process has it; LVN_FULL: no disk space; LVN_IO. The message says which and what to do. */
lvn_code lvn_store_open(const lvn_store_config *config, lvn_store **out, lvn_err *err) LVN_MUST_USE;
/* Ends parked waits with LVN_CANCELLED, commits what was submitted, joins. Blocks. NULL is fine. */
void lvn_store_close(lvn_store *store);

typedef enum lvn_op_kind {
    LVN_OP_ENQUEUE,           /* many rollouts, all or none */
    LVN_OP_START_ROLLOUT,     /* one rollout with its first attempt */
    LVN_OP_DEQUEUE,           /* may be parked, see wait_s */
    LVN_OP_START_ATTEMPT,
    LVN_OP_GET_ROLLOUT,
    LVN_OP_QUERY_ROLLOUTS,
    LVN_OP_UPDATE_ROLLOUT,
    LVN_OP_QUERY_ATTEMPTS,
    LVN_OP_GET_LATEST_ATTEMPT,
    LVN_OP_UPDATE_ATTEMPT,
    LVN_OP_ADD_SPANS,
    LVN_OP_QUERY_SPANS,
    LVN_OP_NEXT_SEQUENCE,
    LVN_OP_ADD_RESOURCES,
    LVN_OP_UPDATE_RESOURCES,
    LVN_OP_GET_RESOURCES,     /* id absent: the latest */
    LVN_OP_QUERY_RESOURCES,
    LVN_OP_HEARTBEAT,         /* update of a worker */
    LVN_OP_GET_WORKER,
    LVN_OP_QUERY_WORKERS,
    LVN_OP_WAIT,              /* parked until all are finished or the time is up */
    LVN_OP_STATISTICS,
} lvn_op_kind;

/* A rollout as it is asked for. */
typedef struct lvn_rollout_spec {
    lvn_str input; /* JSON; absent: null */
    lvn_mode mode;
    lvn_str resources_id;      /* absent: the latest at that moment */
    bool has_config;
    lvn_rollout_config config; /* when has_config */
    lvn_str metadata;          /* absent: {} */
} lvn_rollout_spec;

/* Which fields of an update are present. */
enum {
    LVN_SET_INPUT = 1, LVN_SET_MODE = 2, LVN_SET_RESOURCES_ID = 4, LVN_SET_STATUS = 8, LVN_SET_CONFIG = 16,
    LVN_SET_METADATA = 32, LVN_SET_WORKER_ID = 64, LVN_SET_HEARTBEAT = 128, LVN_SET_STATS = 256,
};

typedef struct lvn_page {
    lvn_str sort_by;    /* a field name as on the wire; absent: the kind's default order, see has_no_sort */
    bool has_no_sort;   /* "sort_by": null: insertion order even where the kind has a default */
    bool is_descending;
    int64_t limit;      /* -1: all */
    int64_t offset;
} lvn_page;

typedef struct lvn_str_list {
    const lvn_str *items;
    size_t count;
    bool is_given; /* given and empty selects nothing; not given is no filter */
} lvn_str_list;

/* Exact and substring filters on one text field; absent: no such filter. */
typedef struct lvn_text_filter {
    lvn_str equals, contains;
} lvn_text_filter;

/* A rollout with its latest attempt, if it has one. */
typedef struct lvn_attempted {
    lvn_rollout rollout;
    bool has_attempt;
    lvn_attempt attempt;
} lvn_attempted;

typedef struct lvn_op lvn_op;
struct lvn_op {
    lvn_op_kind kind;
    lvn_arena *arena;
    void (*done)(lvn_op *op); /* NULL only for lvn_store_call */
    void *user;

    union {
        /* key: an enqueue that was done before under the same key is not done again; its rollouts are given as they are now.
         * Absent: none. `digest` is that of the request: with another one the key is LVN_CONFLICT. */
        struct { const lvn_rollout_spec *specs; size_t count; lvn_str key; uint64_t digest; } enqueue;
        struct { lvn_rollout_spec spec; lvn_str worker_id; /* absent: none */ } start_rollout;
        /* wait_s > 0: when nothing is queued, parked until something is or the time is up (an addition of ours). */
        struct { int64_t limit; lvn_str worker_id; double wait_s; } dequeue;
        struct { lvn_str rollout_id, worker_id; } start_attempt;
        struct { lvn_str rollout_id; } get_rollout;
        struct {
            const lvn_rollout_status *status_in; size_t status_count; bool has_status_in;
            lvn_str_list rollout_id_in; lvn_str rollout_id_contains;
            bool is_or; lvn_page page;
        } query_rollouts;
        struct { lvn_str rollout_id; unsigned set; lvn_rollout values; } update_rollout;
        struct { lvn_str rollout_id; lvn_page page; } query_attempts;
        struct { lvn_str rollout_id; } get_latest_attempt;
        /* attempt_id "latest" is accepted. values: status, worker_id, last_heartbeat_time, metadata. */
        struct { lvn_str rollout_id, attempt_id; unsigned set; lvn_attempt values; } update_attempt;
        /* Spans are stored in order; duplicates (rollout, attempt, span id) are dropped one by one. With needs_sequence[i] the store
         * numbers span i, all numbers before anything is stored. Spans of an unknown rollout or attempt fail the operation at
         * their (rollout, attempt) group with LVN_NOT_FOUND; earlier groups stay. Numbers lift the counter in any case. */
        struct { const lvn_span *spans; size_t count; const bool *needs_sequence; /* NULL: none */ } add_spans;
        struct {
            lvn_str rollout_id, attempt_id; /* attempt absent: all; "latest" */
            lvn_text_filter trace_id, span_id, parent_id, name;
            bool is_or; lvn_page page;
        } query_spans;
        struct { lvn_str rollout_id; } next_sequence;
        struct { lvn_str resources_id; /* add: absent, made up */ lvn_str resources; } put_resources;
        struct { lvn_str resources_id; } get_resources;
        struct { lvn_text_filter resources_id; lvn_page page; } query_resources;
        struct { lvn_str worker_id; bool has_stats; lvn_str stats; } heartbeat;
        struct { lvn_str worker_id; } get_worker;
        struct {
            const lvn_worker_status *status_in; size_t status_count; bool has_status_in;
            lvn_str worker_id_contains; bool is_or; lvn_page page;
        } query_workers;
        struct { const lvn_str *rollout_ids; size_t count; double timeout_s; /* NaN: no end; <= 0: do not wait */ } wait;
    } in;

    /* ---- filled by the store ---- */
    lvn_code code; /* LVN_OK; LVN_NOT_FOUND; LVN_CONFLICT (a key used for something else); LVN_INVALID (bad paging, sort field); LVN_INTERNAL with kind "TypeError" (values
                      that cannot be compared); LVN_EMPTY is not used: an empty list is LVN_OK */
    lvn_err err;
    union {
        /* enqueue, start_rollout, dequeue, start_attempt, get_rollout (0 or 1), query_rollouts, update_rollout, wait. `total` before
         * paging. Enqueue, update and wait leave has_attempt false. */
        struct { lvn_attempted *items; size_t count; int64_t total; } rollouts;
        struct { lvn_attempt *items; size_t count; int64_t total; } attempts;
        /* add_spans: those stored (sequence filled in); is_stored[i] per input span. */
        struct { lvn_span *items; size_t count; int64_t total; bool *is_stored; } spans;
        struct { lvn_resources *items; size_t count; int64_t total; } resources;
        struct { lvn_worker *items; size_t count; int64_t total; } workers;
        int64_t sequence_id;
        struct { int64_t rollouts, attempts, spans, resources, workers, span_bytes; double uptime_s; const char *backend; } statistics;
    } out;

    struct { lvn_op *next; int64_t submitted_ns; void *parked; } internal;
};

/* LVN_FULL: too many waiting; LVN_UNAVAILABLE: closing. Then `done` does not run. */
lvn_code lvn_store_submit(lvn_store *store, lvn_op *op, lvn_err *err) LVN_MUST_USE;
/* Applies the operation at once, on the calling thread, where that is short: one of bounded size that reads what is in memory anyway, or
 * any such on a store in memory; and nobody at it. True: op->code and op->out are there, `done` does not run. False: nothing was done; submit it. Saves two thread
 * switches, which are most of the cost of a small operation. Any thread but the executor's. */
bool lvn_store_try(lvn_store *store, lvn_op *op) LVN_MUST_USE;
/* Submits and waits. Not from the executor or a loop. Returns op->code; the words are in op->err. */
lvn_code lvn_store_call(lvn_store *store, lvn_op *op) LVN_MUST_USE;
/* Gives up a parked wait or dequeue: `done` follows with LVN_CANCELLED unless it ran already (then: nothing). Only while the
 * op is alive and from a place that knows `done` has not been processed. Any thread. */
void lvn_store_cancel(lvn_store *store, lvn_op *op);

/* A status that has changed, or something new: one of the four, as it is after the change. */
typedef struct lvn_event {
    const lvn_rollout *rollout;
    const lvn_attempt *attempt;
    const lvn_worker *worker;
    const lvn_resources *resources;
} lvn_event;
/* fn runs for each such change once it is durable, in the order of the changes, on the thread that applied them; what it gets is borrowed for
 * the call. It must be quick and must not call the store. One listener, NULL: none; after return the one before is not called any
 * more. Not from a listener or the executor. */
void lvn_store_listen(lvn_store *store, void (*fn)(void *user, const lvn_event *event), void *user);

/* CPU time of the executor's thread so far, for accounting. */
int64_t lvn_store_cpu_ns(const lvn_store *store);

#endif
