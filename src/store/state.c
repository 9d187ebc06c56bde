#include "store/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/rules.h"
#include "store/rows.h"

typedef enum undo_kind { UNDO_ADD_ROLLOUT, UNDO_ROLLOUT, UNDO_ADD_ATTEMPT, UNDO_ATTEMPT, UNDO_ADD_WORKER, UNDO_WORKER,
                         UNDO_ADD_RESOURCES, UNDO_RESOURCES, UNDO_COUNTER, UNDO_ENQUEUE, UNDO_POP, UNDO_SPAN,
                         UNDO_KEY } undo_kind;

struct undo {
    undo_kind kind;
    void *row;     /* rollout_row, worker_row, resources_row or counter_row */
    void *old;     /* the value before; freed at commit, put back at rollback */
    size_t index;  /* attempt; queue slot */
    int64_t number, number2; /* counter; order; touched; place; bytes */
    bool flag;
};

#define GROW(items, count, capacity)                                                                                   \
    do {                                                                                                               \
        if ((count) == (capacity)) {                                                                                   \
            (capacity) = (capacity) ? (capacity) * 2 : 16;                                                             \
            (items) = lvn_realloc((items), (capacity) * sizeof(*(items)));                                             \
        }                                                                                                              \
    } while (0)

static undo *remember(lvn_state *s, undo_kind kind, void *row)
{
    GROW(s->log, s->log_count, s->log_capacity);
    undo *u = &s->log[s->log_count++];
    *u = (undo){.kind = kind, .row = row};
    return u;
}

/* ---- the heap ---- */

static void heap_push(lvn_state *s, heap_entry entry)
{
    GROW(s->heap, s->heap_count, s->heap_capacity);
    size_t i = s->heap_count++;
    while (i && s->heap[(i - 1) / 2].deadline > entry.deadline) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = entry;
}

static void heap_pop(lvn_state *s)
{
    heap_entry last = s->heap[--s->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_count)
            break;
        if (child + 1 < s->heap_count && s->heap[child + 1].deadline < s->heap[child].deadline)
            child++;
        if (s->heap[child].deadline >= last.deadline)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->heap_count)
        s->heap[i] = last;
}

/* An entry counts while it is not later than the row's own: a deadline that moved further away leaves its old entry, which is
 * looked at once and pushed again; so heartbeats cost nothing here. */
void lvn_state_watch(lvn_state *s, rollout_row *row)
{
    double deadline = lvn_rules_deadline(row->value, lvn_state_latest(row));
    if (deadline >= row->deadline)
        return;
    row->deadline = deadline;
    heap_push(s, (heap_entry){deadline, row});
}

rollout_row *lvn_state_due(lvn_state *s, double now)
{
    while (s->heap_count && s->heap[0].deadline < now) {
        heap_entry top = s->heap[0];
        heap_pop(s);
        if (top.deadline > top.row->deadline)
            continue; /* a nearer entry of this row was pushed later and has been dealt with */
        top.row->deadline = INFINITY;
        lvn_attempt_status ignored;
        if (lvn_rules_overdue(top.row->value, lvn_state_latest(top.row), now, &ignored))
            return top.row;
        lvn_state_watch(s, top.row);
        if (top.row->deadline < now) { /* rounding: the sum is past, the difference is not yet */
            top.row->deadline = now;
            heap_push(s, (heap_entry){now, top.row});
        }
    }
    return NULL;
}

double lvn_state_next_deadline(const lvn_state *s)
{
    return s->heap_count ? s->heap[0].deadline : INFINITY;
}

/* ---- finding ---- */

lvn_attempt *lvn_state_attempt(const rollout_row *row, lvn_str attempt_id, bool allow_latest)
{
    if (allow_latest && lvn_str_is(attempt_id, "latest"))
        return lvn_state_latest(row);
    for (size_t i = row->attempt_count; i-- > 0;) /* mostly the newest is meant */
        if (lvn_str_eq(row->attempts[i]->attempt_id, attempt_id))
            return row->attempts[i];
    return NULL;
}

int64_t lvn_state_counter(const lvn_state *s, lvn_str rollout_id)
{
    const counter_row *c = lvn_map_get(&s->counters, rollout_id);
    return c ? c->value : 0;
}

bool lvn_state_has_queued(const lvn_state *s)
{
    return s->queue_head < s->queue_tail;
}

/* ---- placing rows in memory, also while loading ---- */

/* Keeps `open` true after the row's status has changed, or before the row goes away. */
static void note_open(lvn_state *s, rollout_row *row, bool is_open)
{
    if (is_open == (row->open_place > 0))
        return;
    if (is_open) {
        GROW(s->open, s->open_count, s->open_capacity);
        s->open[s->open_count++] = row;
        row->open_place = s->open_count;
    } else {
        rollout_row *last = s->open[--s->open_count];
        s->open[row->open_place - 1] = last;
        last->open_place = row->open_place;
        row->open_place = 0;
    }
}

static rollout_row *place_rollout(lvn_state *s, const lvn_rollout *value, int64_t order, bool has_finished_once)
{
    rollout_row *row = lvn_zalloc(sizeof(*row));
    row->value = lvn_rollout_copy(value);
    row->order = order;
    row->has_finished_once = has_finished_once;
    row->deadline = INFINITY;
    GROW(s->rollout_list, s->rollout_count, s->rollout_capacity);
    s->rollout_list[s->rollout_count++] = row;
    lvn_map_put(&s->rollouts, row->value->rollout_id, row);
    note_open(s, row, !lvn_rollout_is_finished(value->status));
    return row;
}

static void place_attempt(lvn_state *s, rollout_row *row, const lvn_attempt *value)
{
    GROW(row->attempts, row->attempt_count, row->attempt_capacity);
    row->attempts[row->attempt_count++] = lvn_attempt_copy(value);
    s->attempt_total++;
}

static worker_row *place_worker(lvn_state *s, const lvn_worker *value, int64_t order)
{
    worker_row *row = lvn_zalloc(sizeof(*row));
    row->value = lvn_worker_copy(value);
    row->order = order;
    GROW(s->worker_list, s->worker_count, s->worker_capacity);
    s->worker_list[s->worker_count++] = row;
    lvn_map_put(&s->workers, row->value->worker_id, row);
    return row;
}

static resources_row *place_resources(lvn_state *s, const lvn_resources *value, int64_t order, int64_t touched)
{
    resources_row *row = lvn_zalloc(sizeof(*row));
    row->value = lvn_resources_copy(value);
    row->order = order;
    row->touched = touched;
    GROW(s->resources_list, s->resources_count, s->resources_capacity);
    s->resources_list[s->resources_count++] = row;
    lvn_map_put(&s->resources, row->value->resources_id, row);
    if (!s->latest_resources || touched > s->latest_resources->touched)
        s->latest_resources = row;
    if (touched >= s->touch)
        s->touch = touched;
    return row;
}

static counter_row *place_counter(lvn_state *s, lvn_str rollout_id, int64_t value)
{
    counter_row *row = lvn_alloc(sizeof(*row) + rollout_id.len + 1);
    char *text = (char *)(row + 1);
    memcpy(text, rollout_id.ptr, rollout_id.len);
    text[rollout_id.len] = '\0';
    *row = (counter_row){{text, rollout_id.len}, value};
    lvn_map_put(&s->counters, row->rollout_id, row);
    return row;
}

static lvn_enqueue_key *place_key(lvn_state *s, const lvn_enqueue_key *key)
{
    lvn_enqueue_key *copy = lvn_alloc(sizeof(*copy) + key->key.len + 1);
    char *text = (char *)(copy + 1);
    memcpy(text, key->key.ptr, key->key.len);
    text[key->key.len] = '\0';
    *copy = *key;
    copy->key.ptr = text;
    lvn_map_put(&s->keys, copy->key, copy);
    return copy;
}

static void place_queued(lvn_state *s, rollout_row *row, int64_t place)
{
    if (s->queue_tail == s->queue_capacity && s->queue_head > s->queue_capacity / 2 && !s->log_count) {
        memmove(s->queue, s->queue + s->queue_head, (s->queue_tail - s->queue_head) * sizeof(*s->queue));
        s->queue_tail -= s->queue_head;
        s->queue_head = 0;
    }
    GROW(s->queue, s->queue_tail, s->queue_capacity);
    s->queue[s->queue_tail++] = row;
    row->place = place;
    s->next_place = place + 1;
}

/* ---- opening ---- */

static void load_rollout(void *user, const lvn_rollout *value, int64_t order, bool has_finished_once)
{
    place_rollout(user, value, order, has_finished_once);
}

static void load_attempt(void *user, const lvn_attempt *value)
{
    lvn_state *s = user;
    rollout_row *row = lvn_map_get(&s->rollouts, value->rollout_id);
    if (row)
        place_attempt(s, row, value);
}

static void load_worker(void *user, const lvn_worker *value, int64_t order)
{
    place_worker(user, value, order);
}

static void load_resources(void *user, const lvn_resources *value, int64_t order, int64_t touched)
{
    place_resources(user, value, order, touched);
}

static void load_queued(void *user, lvn_str rollout_id, int64_t place)
{
    lvn_state *s = user;
    rollout_row *row = lvn_map_get(&s->rollouts, rollout_id);
    if (row)
        place_queued(s, row, place);
}

static void load_counter(void *user, lvn_str rollout_id, int64_t value)
{
    place_counter(user, rollout_id, value);
}

static void load_key(void *user, const lvn_enqueue_key *key)
{
    place_key(user, key);
}

static void load_spans(void *user, int64_t count, int64_t bytes)
{
    lvn_state *s = user;
    s->span_total = count;
    s->span_bytes = bytes;
}

lvn_code lvn_state_open(lvn_state *s, lvn_backend *backend, lvn_err *err)
{
    *s = (lvn_state){.backend = backend, .next_place = 1};
    lvn_map_init(&s->rollouts);
    lvn_map_init(&s->workers);
    lvn_map_init(&s->resources);
    lvn_map_init(&s->counters);
    lvn_map_init(&s->keys);
    const lvn_loader loader = {.user = s, .rollout = load_rollout, .attempt = load_attempt, .worker = load_worker,
                               .resources = load_resources, .queued = load_queued, .counter = load_counter,
                               .spans = load_spans, .key = load_key};
    lvn_code code = backend->ops->load(backend, &loader, err);
    for (size_t i = 0; !code && i < s->rollout_count; i++)
        lvn_state_watch(s, s->rollout_list[i]);
    return code;
}

static void free_rollout(rollout_row *row)
{
    for (size_t i = 0; i < row->attempt_count; i++)
        free(row->attempts[i]);
    free(row->attempts);
    free(row->value);
    free(row);
}

void lvn_state_close(lvn_state *s)
{
    for (size_t i = 0; i < s->rollout_count; i++)
        free_rollout(s->rollout_list[i]);
    for (size_t i = 0; i < s->worker_count; i++) {
        free(s->worker_list[i]->value);
        free(s->worker_list[i]);
    }
    for (size_t i = 0; i < s->resources_count; i++) {
        free(s->resources_list[i]->value);
        free(s->resources_list[i]);
    }
    void *item;
    for (size_t i = 0; lvn_map_next(&s->counters, &i, NULL, &item);)
        free(item);
    for (size_t i = 0; lvn_map_next(&s->keys, &i, NULL, &item);)
        free(item);
    free(s->rollout_list);
    free(s->open);
    free(s->worker_list);
    free(s->resources_list);
    free(s->queue);
    free(s->heap);
    free(s->log);
    lvn_map_done(&s->rollouts);
    lvn_map_done(&s->workers);
    lvn_map_done(&s->resources);
    lvn_map_done(&s->counters);
    lvn_map_done(&s->keys);
    if (s->backend)
        s->backend->ops->close(s->backend);
    *s = (lvn_state){0};
}

/* ---- transactions ---- */

lvn_code lvn_state_begin(lvn_state *s, lvn_err *err)
{
    s->log_count = 0;
    return s->backend->ops->begin(s->backend, err);
}

/* Drops the heap entries of a row that goes away. Only when a commit failed, so a rebuild is good enough. */
static void unwatch(lvn_state *s, const rollout_row *row)
{
    heap_entry *entries = s->heap;
    size_t count = s->heap_count;
    s->heap = NULL;
    s->heap_count = s->heap_capacity = 0;
    for (size_t i = 0; i < count; i++)
        if (entries[i].row != row)
            heap_push(s, entries[i]);
    free(entries);
}

static void take_back(lvn_state *s, undo *u)
{
    rollout_row *rollout = u->row;
    worker_row *worker = u->row;
    resources_row *resources = u->row;
    counter_row *counter = u->row;
    switch (u->kind) {
    case UNDO_ADD_ROLLOUT:
        lvn_map_remove(&s->rollouts, rollout->value->rollout_id);
        note_open(s, rollout, false);
        s->rollout_count--;
        unwatch(s, rollout);
        free_rollout(rollout);
        break;
    case UNDO_ROLLOUT: {
        lvn_rollout *now = rollout->value;
        lvn_map_remove(&s->rollouts, now->rollout_id);
        rollout->value = u->old;
        rollout->has_finished_once = u->flag;
        lvn_map_put(&s->rollouts, rollout->value->rollout_id, rollout);
        note_open(s, rollout, !lvn_rollout_is_finished(rollout->value->status));
        free(now);
        rollout->deadline = INFINITY;
        lvn_state_watch(s, rollout);
        break;
    }
    case UNDO_ADD_ATTEMPT:
        free(rollout->attempts[--rollout->attempt_count]);
        s->attempt_total--;
        break;
    case UNDO_ATTEMPT:
        free(rollout->attempts[u->index]);
        rollout->attempts[u->index] = u->old;
        break;
    case UNDO_ADD_WORKER:
        lvn_map_remove(&s->workers, worker->value->worker_id);
        s->worker_count--;
        free(worker->value);
        free(worker);
        break;
    case UNDO_WORKER:
        lvn_map_remove(&s->workers, worker->value->worker_id);
        free(worker->value);
        worker->value = u->old;
        lvn_map_put(&s->workers, worker->value->worker_id, worker);
        break;
    case UNDO_ADD_RESOURCES:
        lvn_map_remove(&s->resources, resources->value->resources_id);
        s->resources_count--;
        s->latest_resources = u->old;
        free(resources->value);
        free(resources);
        break;
    case UNDO_RESOURCES:
        lvn_map_remove(&s->resources, resources->value->resources_id);
        free(resources->value);
        resources->value = u->old;
        resources->touched = u->number;
        lvn_map_put(&s->resources, resources->value->resources_id, resources);
        s->latest_resources = NULL;
        for (size_t i = 0; i < s->resources_count; i++)
            if (!s->latest_resources || s->resources_list[i]->touched > s->latest_resources->touched)
                s->latest_resources = s->resources_list[i];
        break;
    case UNDO_COUNTER:
        counter->value = u->number; /* 0 for a new one: the same as none */
        break;
    case UNDO_ENQUEUE:
        s->queue_tail--;
        s->next_place = u->number2;
        rollout->place = 0;
        break;
    case UNDO_POP:
        s->queue[--s->queue_head] = rollout;
        rollout->place = u->number;
        break;
    case UNDO_KEY:
        lvn_map_remove(&s->keys, ((lvn_enqueue_key *)u->row)->key);
        free(u->row);
        break;
    case UNDO_SPAN:
        s->span_total--;
        s->span_bytes -= u->number;
        break;
    }
}

void lvn_state_rollback(lvn_state *s)
{
    while (s->log_count)
        take_back(s, &s->log[--s->log_count]);
    s->has_finished_some = s->has_queued_some = false;
    s->backend->ops->rollback(s->backend);
}

/* What the row of log entry `i` was after that change: what the next change of it found, or what it is now. */
static const void *value_after(const lvn_state *s, size_t i, const void *now)
{
    const undo *u = &s->log[i];
    undo_kind change = u->kind == UNDO_ADD_ROLLOUT   ? UNDO_ROLLOUT
                       : u->kind == UNDO_ADD_ATTEMPT ? UNDO_ATTEMPT
                       : u->kind == UNDO_ADD_WORKER  ? UNDO_WORKER
                                                     : u->kind;
    for (size_t k = i + 1; k < s->log_count; k++)
        if (s->log[k].kind == change && s->log[k].row == u->row && (change != UNDO_ATTEMPT || s->log[k].index == u->index))
            return s->log[k].old;
    return now;
}

static void tell(const lvn_state *s, const lvn_event *event)
{
    s->on_event(s->on_event_user, event);
}

static void tell_change(const lvn_state *s, size_t i)
{
    const undo *u = &s->log[i];
    switch (u->kind) {
    case UNDO_ADD_ROLLOUT:
    case UNDO_ROLLOUT: {
        const lvn_rollout *old = u->old, *now = value_after(s, i, ((const rollout_row *)u->row)->value);
        if (!old || old->status != now->status)
            tell(s, &(lvn_event){.rollout = now});
        break;
    }
    case UNDO_ADD_ATTEMPT:
    case UNDO_ATTEMPT: {
        const lvn_attempt *old = u->old, *now = value_after(s, i, ((const rollout_row *)u->row)->attempts[u->index]);
        if (!old || old->status != now->status)
            tell(s, &(lvn_event){.attempt = now});
        break;
    }
    case UNDO_ADD_WORKER:
    case UNDO_WORKER: {
        const lvn_worker *old = u->old, *now = value_after(s, i, ((const worker_row *)u->row)->value);
        if (!old || old->status != now->status)
            tell(s, &(lvn_event){.worker = now});
        break;
    }
    case UNDO_ADD_RESOURCES:
    case UNDO_RESOURCES: tell(s, &(lvn_event){.resources = ((const resources_row *)u->row)->value}); break;
    case UNDO_COUNTER:
    case UNDO_ENQUEUE:
    case UNDO_POP:
    case UNDO_SPAN:
    case UNDO_KEY: break;
    }
}

lvn_code lvn_state_commit(lvn_state *s, lvn_err *err)
{
    lvn_code code = s->backend->ops->commit(s->backend, err);
    if (code) {
        lvn_state_rollback(s);
        return code;
    }
    for (size_t i = 0; s->on_event && i < s->log_count; i++)
        tell_change(s, i);
    for (size_t i = 0; i < s->log_count; i++)
        if (s->log[i].kind == UNDO_ROLLOUT || s->log[i].kind == UNDO_ATTEMPT || s->log[i].kind == UNDO_WORKER ||
            s->log[i].kind == UNDO_RESOURCES)
            free(s->log[i].old);
    s->log_count = 0;
    return LVN_OK;
}

/* ---- changes ---- */

lvn_code lvn_state_add_rollout(lvn_state *s, const lvn_rollout *value, rollout_row **out, lvn_err *err)
{
    int64_t order = s->rollout_count ? s->rollout_list[s->rollout_count - 1]->order + 1 : 1;
    lvn_code code = s->backend->ops->put_rollout(s->backend, value, order, false, err);
    if (code)
        return code;
    *out = place_rollout(s, value, order, false);
    remember(s, UNDO_ADD_ROLLOUT, *out);
    return LVN_OK;
}

lvn_code lvn_state_put_rollout(lvn_state *s, rollout_row *row, const lvn_rollout *value, lvn_err *err)
{
    bool has_finished_once = row->has_finished_once || lvn_rollout_is_finished(value->status);
    lvn_code code = s->backend->ops->put_rollout(s->backend, value, row->order, has_finished_once, err);
    if (code)
        return code;
    undo *u = remember(s, UNDO_ROLLOUT, row);
    u->old = row->value;
    u->flag = row->has_finished_once;
    lvn_rollout *copy = lvn_rollout_copy(value);
    lvn_map_remove(&s->rollouts, row->value->rollout_id);
    row->value = copy;
    row->has_finished_once = has_finished_once;
    lvn_map_put(&s->rollouts, copy->rollout_id, row);
    note_open(s, row, !lvn_rollout_is_finished(value->status));
    if (lvn_rollout_is_finished(value->status))
        s->has_finished_some = true;
    lvn_state_watch(s, row);
    return LVN_OK;
}

lvn_code lvn_state_put_attempt(lvn_state *s, rollout_row *row, const lvn_attempt *value, lvn_err *err)
{
    lvn_code code = s->backend->ops->put_attempt(s->backend, value, err);
    if (code)
        return code;
    size_t index = (size_t)value->sequence_id - 1;
    if (index >= row->attempt_count) {
        place_attempt(s, row, value);
        remember(s, UNDO_ADD_ATTEMPT, row)->index = index;
    } else {
        undo *u = remember(s, UNDO_ATTEMPT, row);
        u->old = row->attempts[index];
        u->index = index;
        row->attempts[index] = lvn_attempt_copy(value);
    }
    lvn_state_watch(s, row);
    return LVN_OK;
}

lvn_code lvn_state_put_worker(lvn_state *s, const lvn_worker *value, lvn_err *err)
{
    worker_row *row = lvn_map_get(&s->workers, value->worker_id);
    int64_t order = row ? row->order : s->worker_count ? s->worker_list[s->worker_count - 1]->order + 1 : 1;
    lvn_code code = s->backend->ops->put_worker(s->backend, value, order, err);
    if (code)
        return code;
    if (!row) {
        remember(s, UNDO_ADD_WORKER, place_worker(s, value, order));
        return LVN_OK;
    }
    undo *u = remember(s, UNDO_WORKER, row);
    u->old = row->value;
    lvn_worker *copy = lvn_worker_copy(value);
    lvn_map_remove(&s->workers, row->value->worker_id);
    row->value = copy;
    lvn_map_put(&s->workers, copy->worker_id, row);
    return LVN_OK;
}

lvn_code lvn_state_put_resources(lvn_state *s, const lvn_resources *value, lvn_err *err)
{
    resources_row *row = lvn_map_get(&s->resources, value->resources_id);
    int64_t order = row ? row->order : s->resources_count ? s->resources_list[s->resources_count - 1]->order + 1 : 1;
    int64_t touched = s->touch + 1;
    lvn_code code = s->backend->ops->put_resources(s->backend, value, order, touched, err);
    if (code)
        return code;
    s->touch = touched;
    if (!row) {
        resources_row *before = s->latest_resources;
        row = place_resources(s, value, order, touched);
        remember(s, UNDO_ADD_RESOURCES, row)->old = before;
        return LVN_OK;
    }
    undo *u = remember(s, UNDO_RESOURCES, row);
    u->old = row->value;
    u->number = row->touched;
    lvn_resources *copy = lvn_resources_copy(value);
    lvn_map_remove(&s->resources, row->value->resources_id);
    row->value = copy;
    row->touched = touched;
    lvn_map_put(&s->resources, copy->resources_id, row);
    s->latest_resources = row;
    return LVN_OK;
}

lvn_code lvn_state_set_counter(lvn_state *s, lvn_str rollout_id, int64_t value, lvn_err *err)
{
    lvn_code code = s->backend->ops->put_counter(s->backend, rollout_id, value, err);
    if (code)
        return code;
    counter_row *row = lvn_map_get(&s->counters, rollout_id);
    if (!row)
        row = place_counter(s, rollout_id, 0);
    remember(s, UNDO_COUNTER, row)->number = row->value;
    row->value = value;
    return LVN_OK;
}

const lvn_enqueue_key *lvn_state_key(const lvn_state *s, lvn_str key)
{
    return lvn_map_get(&s->keys, key);
}

lvn_code lvn_state_add_key(lvn_state *s, const lvn_enqueue_key *key, lvn_err *err)
{
    lvn_code code = s->backend->ops->put_key(s->backend, key, err);
    if (!code)
        remember(s, UNDO_KEY, place_key(s, key));
    return code;
}

rollout_row **lvn_state_from_order(const lvn_state *s, int64_t order, size_t count)
{
    size_t low = 0, high = s->rollout_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->rollout_list[middle]->order < order)
            low = middle + 1;
        else
            high = middle;
    }
    return count <= s->rollout_count - low ? s->rollout_list + low : NULL;
}

lvn_code lvn_state_enqueue(lvn_state *s, rollout_row *row, lvn_err *err)
{
    if (row->place)
        return LVN_OK;
    int64_t place = s->next_place;
    lvn_code code = s->backend->ops->put_queued(s->backend, row->value->rollout_id, place, err);
    if (code)
        return code;
    place_queued(s, row, place);
    remember(s, UNDO_ENQUEUE, row)->number2 = place;
    s->has_queued_some = true;
    return LVN_OK;
}

lvn_code lvn_state_pop(lvn_state *s, rollout_row **out, lvn_err *err)
{
    *out = NULL;
    if (!lvn_state_has_queued(s))
        return LVN_OK;
    rollout_row *row = s->queue[s->queue_head];
    lvn_code code = s->backend->ops->drop_queued(s->backend, row->place, err);
    if (code)
        return code;
    remember(s, UNDO_POP, row)->number = row->place;
    row->place = 0;
    s->queue_head++;
    *out = row;
    return LVN_OK;
}

lvn_code lvn_state_add_span(lvn_state *s, const lvn_span *span, lvn_err *err)
{
    lvn_code code = s->backend->ops->add_span(s->backend, span, err);
    if (code)
        return code;
    s->span_total++;
    s->span_bytes += (int64_t)span->rest.len;
    remember(s, UNDO_SPAN, NULL)->number = (int64_t)span->rest.len;
    return LVN_OK;
}
