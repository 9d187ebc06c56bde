#include "model/span_build.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/ids.h"
#include "base/json.h"

void lvn_attrs_init(lvn_attrs *attrs, size_t max)
{
    lvn_buf_init(&attrs->json, max);
}

void lvn_attrs_done(lvn_attrs *attrs)
{
    lvn_buf_done(&attrs->json);
}

static lvn_buf *begin_member(lvn_attrs *attrs, const char *key)
{
    if (attrs->json.len == 0)
        lvn_buf_append_char(&attrs->json, '{');
    lvn_json_write_key(&attrs->json, key);
    return &attrs->json;
}

void lvn_attrs_str(lvn_attrs *attrs, const char *key, lvn_str value)
{
    if (!lvn_str_is_absent(value))
        lvn_json_write_str(begin_member(attrs, key), value);
}

void lvn_attrs_int(lvn_attrs *attrs, const char *key, int64_t value)
{
    lvn_json_write_int(begin_member(attrs, key), value);
}

void lvn_attrs_double(lvn_attrs *attrs, const char *key, double value)
{
    if (isfinite(value))
        lvn_json_write_double(begin_member(attrs, key), value);
}

void lvn_attrs_bool(lvn_attrs *attrs, const char *key, bool value)
{
    lvn_buf_append_str(begin_member(attrs, key), value ? LVN_STR("true") : LVN_STR("false"));
}

/* The list forms differ in how one element is written and in nothing else. */
#define WRITE_LIST(attrs, key, count, write_element)                                                                   \
    do {                                                                                                               \
        lvn_buf *out = begin_member(attrs, key);                                                                       \
        lvn_buf_append_char(out, '[');                                                                                 \
        for (size_t i = 0; i < (count); i++) {                                                                         \
            if (i)                                                                                                     \
                lvn_buf_append_char(out, ',');                                                                         \
            write_element;                                                                                             \
        }                                                                                                              \
        lvn_buf_append_char(out, ']');                                                                                 \
    } while (0)

void lvn_attrs_ints(lvn_attrs *attrs, const char *key, const int64_t *values, size_t count)
{
    WRITE_LIST(attrs, key, count, lvn_json_write_int(out, values[i]));
}

void lvn_attrs_int32s(lvn_attrs *attrs, const char *key, const int32_t *values, size_t count)
{
    WRITE_LIST(attrs, key, count, lvn_json_write_int(out, values[i]));
}

void lvn_attrs_doubles(lvn_attrs *attrs, const char *key, const double *values, size_t count)
{
    WRITE_LIST(attrs, key, count, lvn_json_write_double(out, isfinite(values[i]) ? values[i] : 0.0));
}

/* Through double, so that what is read back is the very float that was given. */
void lvn_attrs_floats(lvn_attrs *attrs, const char *key, const float *values, size_t count)
{
    WRITE_LIST(attrs, key, count, lvn_json_write_double(out, isfinite(values[i]) ? (double)values[i] : 0.0));
}

void lvn_attrs_strs(lvn_attrs *attrs, const char *key, const lvn_str *values, size_t count)
{
    WRITE_LIST(attrs, key, count,
               lvn_json_write_str(out, lvn_str_is_absent(values[i]) ? LVN_STR("") : values[i]));
}

static void write_attrs(lvn_buf *out, const lvn_attrs *attrs)
{
    if (!attrs || attrs->json.len == 0) {
        lvn_buf_lit(out, "{}");
        return;
    }
    lvn_buf_append_str(out, lvn_buf_str(&attrs->json));
    lvn_buf_append_char(out, '}');
}

void lvn_span_builder_init(lvn_span_builder *builder, size_t max)
{
    lvn_attrs_init(&builder->attributes, max);
    lvn_attrs_init(&builder->resource, max);
    lvn_buf_init(&builder->events, max);
}

void lvn_span_builder_done(lvn_span_builder *builder)
{
    lvn_attrs_done(&builder->attributes);
    lvn_attrs_done(&builder->resource);
    lvn_buf_done(&builder->events);
}

void lvn_span_builder_event(lvn_span_builder *builder, lvn_str name, double time, const lvn_attrs *attributes)
{
    lvn_buf *out = &builder->events;
    if (attributes && attributes->json.has_failed)
        out->has_failed = true;
    if (out->len)
        lvn_buf_append_char(out, ',');
    lvn_buf_lit(out, "{\"name\":");
    lvn_json_write_str(out, name);
    lvn_buf_lit(out, ",\"attributes\":");
    write_attrs(out, attributes);
    lvn_buf_lit(out, ",\"timestamp\":");
    lvn_json_write_double(out, time);
    lvn_buf_append_char(out, '}');
}

static void write_context(lvn_buf *out, lvn_str trace_id, lvn_str span_id)
{
    lvn_buf_lit(out, "{\"trace_id\":");
    lvn_json_write_str(out, trace_id);
    lvn_buf_lit(out, ",\"span_id\":");
    lvn_json_write_str(out, span_id);
    lvn_buf_lit(out, ",\"is_remote\":false,\"trace_state\":{}}");
}

static const char *status_code_name(lvn_span_status status)
{
    return status == LVN_SPAN_OK ? "OK" : status == LVN_SPAN_ERROR ? "ERROR" : "UNSET";
}

/* Everything behind sequence_id, see lvn_span.rest. */
static void write_rest(lvn_buf *out, const lvn_span_builder *builder, const lvn_span *span, lvn_str status_description)
{
    lvn_json_write_key(out, "trace_id");
    lvn_json_write_str(out, span->trace_id);
    lvn_json_write_key(out, "span_id");
    lvn_json_write_str(out, span->span_id);
    lvn_json_write_key(out, "parent_id");
    lvn_json_write_str(out, span->parent_id);
    lvn_json_write_key(out, "name");
    lvn_json_write_str(out, span->name);
    lvn_buf_printf(out, ",\"status\":{\"status_code\":\"%s\",\"description\":", status_code_name(span->status));
    lvn_json_write_str(out, status_description);
    lvn_buf_lit(out, "},\"attributes\":");
    write_attrs(out, &builder->attributes);
    lvn_buf_lit(out, ",\"events\":[");
    lvn_buf_append_str(out, lvn_buf_str(&builder->events));
    lvn_buf_lit(out, "],\"links\":[],\"start_time\":");
    lvn_json_write_double(out, span->start_time);
    lvn_buf_lit(out, ",\"end_time\":");
    lvn_json_write_double(out, span->end_time);
    lvn_buf_lit(out, ",\"context\":");
    write_context(out, span->trace_id, span->span_id);
    lvn_buf_lit(out, ",\"parent\":");
    if (lvn_str_is_absent(span->parent_id))
        lvn_buf_lit(out, "null");
    else
        write_context(out, span->trace_id, span->parent_id);
    lvn_buf_lit(out, ",\"resource\":{\"attributes\":");
    write_attrs(out, &builder->resource);
    lvn_buf_lit(out, ",\"schema_url\":\"\"}");
}

lvn_code lvn_span_builder_finish(const lvn_span_builder *builder, lvn_arena *arena, const lvn_span_head *head,
                                 lvn_span *out, lvn_err *err)
{
    if (builder->attributes.json.has_failed || builder->resource.json.has_failed || builder->events.has_failed)
        return lvn_fail(err, LVN_TOO_LARGE, "span \"%.*s\" is larger than %zu bytes", LVN_STR_ARG(head->name),
                        builder->attributes.json.max);
    char trace_id[33], span_id[17];
    lvn_span_trace_id(head->rollout_id, head->attempt_id, trace_id);
    lvn_id_hex(span_id, 16);
    lvn_span span = {
        .rollout_id = lvn_arena_dup(arena, head->rollout_id),
        .attempt_id = lvn_arena_dup(arena, head->attempt_id),
        .sequence_id = head->sequence_id,
        .trace_id = lvn_arena_dup(arena, head->trace_id.ptr ? head->trace_id : lvn_str_of(trace_id)),
        .span_id = lvn_arena_dup(arena, head->span_id.ptr ? head->span_id : lvn_str_of(span_id)),
        .parent_id = lvn_arena_dup(arena, head->parent_id),
        .name = lvn_arena_dup(arena, head->name),
        .start_time = head->start_time,
        .end_time = head->end_time,
        .status = head->status,
    };
    lvn_buf rest;
    lvn_buf_init(&rest, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&rest, ' '); /* so that the first key gets its comma */
    write_rest(&rest, builder, &span, head->status_description);
    if (rest.has_failed) {
        lvn_buf_done(&rest);
        return lvn_fail(err, LVN_TOO_LARGE, "span \"%.*s\" is too large", LVN_STR_ARG(head->name));
    }
    span.rest = lvn_arena_dup(arena, lvn_str_from(lvn_buf_str(&rest), 1));
    lvn_buf_done(&rest);
    *out = span;
    return LVN_OK;
}

static uint64_t fold(uint64_t h, lvn_str s)
{
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * UINT64_C(0x100000001b3);
    return (h ^ 0xff) * UINT64_C(0x100000001b3); /* keeps ("a","b") and ("ab","") apart */
}

static uint64_t mix(uint64_t h)
{
    lvn_rng rng = {h};
    return lvn_rng_next(&rng);
}

void lvn_span_trace_id(lvn_str rollout_id, lvn_str attempt_id, char *out)
{
    uint64_t h = fold(fold(UINT64_C(0xcbf29ce484222325), rollout_id), attempt_id);
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, mix(h), mix(~h));
}
