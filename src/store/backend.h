/* What is behind a store: rows on a disk, or nowhere. A backend knows no rules. It is driven by the executor thread alone; between
 * begin and commit everything is one transaction. */
#ifndef LVN_STORE_BACKEND_H
#define LVN_STORE_BACKEND_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "model/model.h"

typedef struct lvn_backend lvn_backend;

/* What an idempotency key stands for: `count` rollouts from that order on, asked for by a request with that digest. */
typedef struct lvn_enqueue_key {
    lvn_str key;
    uint64_t digest;
    int64_t first, count;
} lvn_enqueue_key;

/* Where load() puts what it finds, in the order that each kind was made. Text is borrowed for the call. */
typedef struct lvn_loader {
    void *user;
    void (*rollout)(void *user, const lvn_rollout *row, int64_t order, bool has_finished_once);
    void (*attempt)(void *user, const lvn_attempt *row);
    void (*worker)(void *user, const lvn_worker *row, int64_t order);
    void (*resources)(void *user, const lvn_resources *row, int64_t order, int64_t touched);
    void (*queued)(void *user, lvn_str rollout_id, int64_t place);
    void (*counter)(void *user, lvn_str rollout_id, int64_t value);
    void (*spans)(void *user, int64_t count, int64_t bytes);
    void (*key)(void *user, const lvn_enqueue_key *key);
} lvn_loader;

typedef struct lvn_backend_ops {
    const char *name;
    bool is_instant; /* no call ever waits for a disk or a peer */
    lvn_code (*load)(lvn_backend *b, const lvn_loader *loader, lvn_err *err);
    lvn_code (*begin)(lvn_backend *b, lvn_err *err);
    /* Durable when it returns LVN_OK. On failure the transaction is rolled back. LVN_FULL: no space. */
    lvn_code (*commit)(lvn_backend *b, lvn_err *err);
    void (*rollback)(lvn_backend *b);

    /* Insert or replace. `order` is the row's place among its kind. */
    lvn_code (*put_rollout)(lvn_backend *b, const lvn_rollout *row, int64_t order, bool has_finished_once, lvn_err *err);
    lvn_code (*put_attempt)(lvn_backend *b, const lvn_attempt *row, lvn_err *err);
    lvn_code (*put_worker)(lvn_backend *b, const lvn_worker *row, int64_t order, lvn_err *err);
    lvn_code (*put_resources)(lvn_backend *b, const lvn_resources *row, int64_t order, int64_t touched, lvn_err *err);
    lvn_code (*put_queued)(lvn_backend *b, lvn_str rollout_id, int64_t place, lvn_err *err);
    lvn_code (*drop_queued)(lvn_backend *b, int64_t place, lvn_err *err);
    lvn_code (*put_counter)(lvn_backend *b, lvn_str rollout_id, int64_t value, lvn_err *err);

    lvn_code (*put_key)(lvn_backend *b, const lvn_enqueue_key *key, lvn_err *err);

    /* LVN_CONFLICT: that (rollout, attempt, span id) is there; nothing was stored. */
    lvn_code (*add_span)(lvn_backend *b, const lvn_span *span, lvn_err *err);
    /* All spans of a rollout in the order they were stored, with their text, in `arena`. */
    lvn_code (*get_spans)(lvn_backend *b, lvn_arena *arena, lvn_str rollout_id, lvn_span **out, size_t *out_count,
                          lvn_err *err);
    void (*close)(lvn_backend *b);
} lvn_backend_ops;

struct lvn_backend {
    const lvn_backend_ops *ops;
};

lvn_code lvn_backend_memory_open(lvn_backend **out, lvn_err *err) LVN_MUST_USE;
/* See lvn_store_open for the errors. */
lvn_code lvn_backend_sqlite_open(const char *path, bool is_relaxed, lvn_backend **out, lvn_err *err) LVN_MUST_USE;

#endif
