#include "store/rows.h"

#include <string.h>

/* The text fields of a row, by address, so that copying is one loop. */
enum { MAX_TEXTS = 8 };
typedef struct texts {
    lvn_str *fields[MAX_TEXTS];
    size_t count;
} texts;

static texts rollout_texts(lvn_rollout *r)
{
    return (texts){{&r->rollout_id, &r->input, &r->resources_id, &r->metadata}, 4};
}

static texts attempt_texts(lvn_attempt *a)
{
    return (texts){{&a->rollout_id, &a->attempt_id, &a->worker_id, &a->metadata}, 4};
}

static texts worker_texts(lvn_worker *w)
{
    return (texts){{&w->worker_id, &w->heartbeat_stats, &w->current_rollout_id, &w->current_attempt_id}, 4};
}

static texts resources_texts(lvn_resources *r)
{
    return (texts){{&r->resources_id, &r->resources}, 2};
}

static texts span_texts(lvn_span *s)
{
    return (texts){{&s->rollout_id, &s->attempt_id, &s->trace_id, &s->span_id, &s->parent_id, &s->name, &s->rest}, 7};
}

static size_t text_bytes(const texts *t)
{
    size_t total = 0;
    for (size_t i = 0; i < t->count; i++)
        total += lvn_str_is_absent(*t->fields[i]) ? 0 : t->fields[i]->len + 1;
    return total;
}

/* Moves the texts of a shallow copy to `room`, each with a zero behind it; returns the end. */
static char *place(const texts *t, char *room)
{
    for (size_t i = 0; i < t->count; i++) {
        lvn_str *field = t->fields[i];
        if (lvn_str_is_absent(*field))
            continue;
        memcpy(room, field->ptr, field->len);
        room[field->len] = '\0';
        field->ptr = room;
        room += field->len + 1;
    }
    return room;
}

lvn_rollout *lvn_rollout_copy(const lvn_rollout *row)
{
    lvn_rollout shallow = *row;
    texts t = rollout_texts(&shallow);
    lvn_rollout *copy = lvn_alloc(sizeof(*copy) + text_bytes(&t) + row->config.retry_count);
    *copy = *row;
    t = rollout_texts(copy);
    char *end = place(&t, (char *)(copy + 1));
    if (row->config.retry_count)
        memcpy(end, row->config.retry_condition, row->config.retry_count);
    copy->config.retry_condition = (const uint8_t *)end;
    return copy;
}

lvn_attempt *lvn_attempt_copy(const lvn_attempt *row)
{
    lvn_attempt shallow = *row;
    texts t = attempt_texts(&shallow);
    lvn_attempt *copy = lvn_alloc(sizeof(*copy) + text_bytes(&t));
    *copy = *row;
    t = attempt_texts(copy);
    place(&t, (char *)(copy + 1));
    return copy;
}

lvn_worker *lvn_worker_copy(const lvn_worker *row)
{
    lvn_worker shallow = *row;
    texts t = worker_texts(&shallow);
    lvn_worker *copy = lvn_alloc(sizeof(*copy) + text_bytes(&t));
    *copy = *row;
    t = worker_texts(copy);
    place(&t, (char *)(copy + 1));
    return copy;
}

lvn_resources *lvn_resources_copy(const lvn_resources *row)
{
    lvn_resources shallow = *row;
    texts t = resources_texts(&shallow);
    lvn_resources *copy = lvn_alloc(sizeof(*copy) + text_bytes(&t));
    *copy = *row;
    t = resources_texts(copy);
    place(&t, (char *)(copy + 1));
    return copy;
}

lvn_span *lvn_span_copy(const lvn_span *row)
{
    lvn_span shallow = *row;
    texts t = span_texts(&shallow);
    lvn_span *copy = lvn_alloc(sizeof(*copy) + text_bytes(&t));
    *copy = *row;
    t = span_texts(copy);
    place(&t, (char *)(copy + 1));
    return copy;
}

static void to_arena(lvn_arena *arena, const texts *t)
{
    place(t, lvn_arena_alloc(arena, text_bytes(t)));
}

void lvn_rollout_to_arena(lvn_arena *arena, const lvn_rollout *row, lvn_rollout *out)
{
    *out = *row;
    texts t = rollout_texts(out);
    to_arena(arena, &t);
    uint8_t *retry = lvn_arena_alloc(arena, row->config.retry_count);
    if (row->config.retry_count)
        memcpy(retry, row->config.retry_condition, row->config.retry_count);
    out->config.retry_condition = retry;
}

void lvn_attempt_to_arena(lvn_arena *arena, const lvn_attempt *row, lvn_attempt *out)
{
    *out = *row;
    texts t = attempt_texts(out);
    to_arena(arena, &t);
}

void lvn_worker_to_arena(lvn_arena *arena, const lvn_worker *row, lvn_worker *out)
{
    *out = *row;
    texts t = worker_texts(out);
    to_arena(arena, &t);
}

void lvn_resources_to_arena(lvn_arena *arena, const lvn_resources *row, lvn_resources *out)
{
    *out = *row;
    texts t = resources_texts(out);
    to_arena(arena, &t);
}

void lvn_span_to_arena(lvn_arena *arena, const lvn_span *row, lvn_span *out)
{
    *out = *row;
    texts t = span_texts(out);
    to_arena(arena, &t);
}
