/* The memory backend: the hot state that the store keeps anyway is all there is, but for the spans, which live here. */
#include <stdlib.h>

#include "base/map.h"
#include "store/backend.h"
#include "store/rows.h"

typedef struct span_list {
    lvn_str rollout_id; /* owned, key of `lists` */
    lvn_span **items;
    size_t count, capacity;
    lvn_map ids; /* "attempt\0span" of each, to itself */
} span_list;

typedef struct memory_backend {
    lvn_backend base;
    lvn_map lists;
} memory_backend;

static lvn_code nothing(lvn_backend *b, lvn_err *err)
{
    (void)b, (void)err;
    return LVN_OK;
}

static void nothing_to_roll_back(lvn_backend *b)
{
    (void)b; /* begin and commit never fail here, so the store never asks */
}

static lvn_code load(lvn_backend *b, const lvn_loader *loader, lvn_err *err)
{
    (void)b, (void)loader, (void)err;
    return LVN_OK;
}

static lvn_code put_rollout(lvn_backend *b, const lvn_rollout *row, int64_t order, bool has_finished_once, lvn_err *err)
{
    (void)b, (void)row, (void)order, (void)has_finished_once, (void)err;
    return LVN_OK;
}

static lvn_code put_attempt(lvn_backend *b, const lvn_attempt *row, lvn_err *err)
{
    (void)b, (void)row, (void)err;
    return LVN_OK;
}

static lvn_code put_worker(lvn_backend *b, const lvn_worker *row, int64_t order, lvn_err *err)
{
    (void)b, (void)row, (void)order, (void)err;
    return LVN_OK;
}

static lvn_code put_resources(lvn_backend *b, const lvn_resources *row, int64_t order, int64_t touched, lvn_err *err)
{
    (void)b, (void)row, (void)order, (void)touched, (void)err;
    return LVN_OK;
}

static lvn_code put_numbered(lvn_backend *b, lvn_str rollout_id, int64_t number, lvn_err *err)
{
    (void)b, (void)rollout_id, (void)number, (void)err;
    return LVN_OK;
}

static lvn_code put_key(lvn_backend *b, const lvn_enqueue_key *key, lvn_err *err)
{
    (void)b, (void)key, (void)err;
    return LVN_OK;
}

static lvn_code drop_queued(lvn_backend *b, int64_t place, lvn_err *err)
{
    (void)b, (void)place, (void)err;
    return LVN_OK;
}

static span_list *list_of(memory_backend *m, lvn_str rollout_id)
{
    span_list *list = lvn_map_get(&m->lists, rollout_id);
    if (list)
        return list;
    list = lvn_zalloc(sizeof(*list));
    char *copy = lvn_alloc(rollout_id.len + 1);
    memcpy(copy, rollout_id.ptr, rollout_id.len);
    list->rollout_id = (lvn_str){copy, rollout_id.len};
    lvn_map_init(&list->ids);
    lvn_map_put(&m->lists, list->rollout_id, list);
    return list;
}

static lvn_code add_span(lvn_backend *b, const lvn_span *span, lvn_err *err)
{
    span_list *list = list_of((memory_backend *)b, span->rollout_id);
    size_t len = span->attempt_id.len + 1 + span->span_id.len;
    char *key = lvn_alloc(len);
    memcpy(key, span->attempt_id.ptr, span->attempt_id.len);
    key[span->attempt_id.len] = '\0';
    memcpy(key + span->attempt_id.len + 1, span->span_id.ptr, span->span_id.len);
    if (lvn_map_get(&list->ids, (lvn_str){key, len})) {
        free(key);
        return lvn_fail(err, LVN_CONFLICT, "the span is there already");
    }
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 4;
        list->items = lvn_realloc(list->items, list->capacity * sizeof(*list->items));
    }
    lvn_span *copy = lvn_span_copy(span);
    list->items[list->count++] = copy;
    lvn_map_put(&list->ids, (lvn_str){key, len}, key);
    return LVN_OK;
}

static lvn_code get_spans(lvn_backend *b, lvn_arena *arena, lvn_str rollout_id, lvn_span **out, size_t *out_count, lvn_err *err)
{
    (void)err;
    const span_list *list = lvn_map_get(&((memory_backend *)b)->lists, rollout_id);
    *out_count = list ? list->count : 0;
    *out = lvn_arena_array(arena, *out_count, sizeof(lvn_span));
    for (size_t i = 0; i < *out_count; i++)
        lvn_span_to_arena(arena, list->items[i], &(*out)[i]);
    return LVN_OK;
}

static void close_backend(lvn_backend *b)
{
    memory_backend *m = (memory_backend *)b;
    void *value;
    for (size_t i = 0; lvn_map_next(&m->lists, &i, NULL, &value);) {
        span_list *list = value;
        void *key;
        for (size_t k = 0; lvn_map_next(&list->ids, &k, NULL, &key);)
            free(key);
        lvn_map_done(&list->ids);
        for (size_t k = 0; k < list->count; k++)
            free(list->items[k]);
        free(list->items);
        free((char *)list->rollout_id.ptr);
        free(list);
    }
    lvn_map_done(&m->lists);
    free(m);
}

static const lvn_backend_ops memory_ops = {
    .name = "memory", .is_instant = true, .load = load, .begin = nothing, .commit = nothing, .rollback = nothing_to_roll_back,
    .put_rollout = put_rollout, .put_attempt = put_attempt, .put_worker = put_worker, .put_resources = put_resources,
    .put_queued = put_numbered, .drop_queued = drop_queued, .put_counter = put_numbered, .put_key = put_key, .add_span = add_span,
    .get_spans = get_spans, .close = close_backend,
};

lvn_code lvn_backend_memory_open(lvn_backend **out, lvn_err *err)
{
    (void)err;
    memory_backend *m = lvn_zalloc(sizeof(*m));
    m->base.ops = &memory_ops;
    lvn_map_init(&m->lists);
    *out = &m->base;
    return LVN_OK;
}
