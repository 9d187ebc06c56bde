/* From protobuf to the protocol's span objects, which then go through the same validation as spans
 * sent as JSON. */
#include "api/otlp_decode.h"

#include <ctype.h>
#include <stdlib.h>

#include "api/schema.h"
#include "api/span_read.h"
#include "base/json.h"
#include "base/map.h"
#include "base/utf8.h"
#include "otlp_trace.pb-c.h"

/* A message of two bytes an item would otherwise unpack to a hundred times its size. */
enum { MAX_DECODED_BYTES = 256 * 1024 * 1024 };

typedef struct decoder {
    lvn_arena *arena;   /* for what is kept */
    lvn_arena *scratch; /* for the span at hand */
    lvn_err *err;
    lvn_code code; /* the first failure */
} decoder;

static void fail(decoder *d, lvn_code code, const char *message)
{
    if (!d->code)
        d->code = lvn_fail(d->err, code, "%s", message);
}

/* ---- memory for protobuf-c ---- */

static void *take(void *data, size_t size)
{
    lvn_arena *arena = data;
    return size > MAX_DECODED_BYTES || lvn_arena_used(arena) + size > MAX_DECODED_BYTES
               ? NULL
               : lvn_arena_alloc(arena, size);
}

static void give(void *data, void *memory)
{
    (void)data;
    (void)memory;
}

/* ---- values ---- */

static lvn_json text_of(decoder *d, ProtobufCBinaryData bytes)
{
    lvn_str text = {bytes.len ? (const char *)bytes.data : "", bytes.len};
    if (!lvn_utf8_is_valid(text))
        fail(d, LVN_INVALID, "a text is not UTF-8");
    return (lvn_json){.kind = LVN_JSON_STRING, .string = text};
}

/* In hex, with zeros in front up to `digits`. */
static lvn_json hex_of(decoder *d, ProtobufCBinaryData bytes, size_t digits)
{
    static const char hex[] = "0123456789abcdef";
    size_t need = bytes.len * 2, len = need > digits ? need : digits;
    char *out = lvn_arena_alloc(d->scratch, len + 1);
    memset(out, '0', len - need);
    for (size_t i = 0; i < bytes.len; i++) {
        out[len - need + 2 * i] = hex[bytes.data[i] >> 4];
        out[len - need + 2 * i + 1] = hex[bytes.data[i] & 15];
    }
    out[len] = '\0';
    return (lvn_json){.kind = LVN_JSON_STRING, .string = {out, len}};
}

static const lvn_json null_value = {.kind = LVN_JSON_NULL};

static lvn_json scalar_of(decoder *d, const Levin__Otlp__AnyValue *value)
{
    switch (value->value_case) {
    case LEVIN__OTLP__ANY_VALUE__VALUE_STRING_VALUE:
        return text_of(d, value->string_value);
    case LEVIN__OTLP__ANY_VALUE__VALUE_BOOL_VALUE:
        return (lvn_json){.kind = LVN_JSON_BOOL, .boolean = value->bool_value};
    case LEVIN__OTLP__ANY_VALUE__VALUE_INT_VALUE:
        return (lvn_json){.kind = LVN_JSON_INT, .integer = value->int_value};
    case LEVIN__OTLP__ANY_VALUE__VALUE_DOUBLE_VALUE:
        return (lvn_json){.kind = LVN_JSON_DOUBLE, .number = value->double_value};
    case LEVIN__OTLP__ANY_VALUE__VALUE_BYTES_VALUE:
        return hex_of(d, value->bytes_value, 0);
    default:
        fail(d, LVN_INTERNAL, "an attribute has a value that cannot be stored");
        return null_value;
    }
}

static lvn_json array_of(decoder *d, ProtobufCBinaryData bytes)
{
    ProtobufCAllocator allocator = {.alloc = take, .free = give, .allocator_data = d->scratch};
    const Levin__Otlp__ArrayValue *array =
        levin__otlp__array_value__unpack(&allocator, bytes.len, bytes.data);
    if (!array) {
        fail(d, LVN_INVALID, "an array cannot be read");
        return null_value;
    }
    lvn_json *items = lvn_arena_array(d->scratch, array->n_values, sizeof(*items));
    for (size_t i = 0; i < array->n_values; i++)
        items[i] = scalar_of(d, array->values[i]);
    return (lvn_json){.kind = LVN_JSON_ARRAY, .array = {items, array->n_values}};
}

static lvn_json value_of(decoder *d, const Levin__Otlp__KeyValue *pair)
{
    const Levin__Otlp__AnyValue empty = LEVIN__OTLP__ANY_VALUE__INIT;
    const Levin__Otlp__AnyValue *value = pair->value ? pair->value : &empty;
    if (value->value_case == LEVIN__OTLP__ANY_VALUE__VALUE_ARRAY_VALUE)
        return array_of(d, value->array_value);
    return scalar_of(d, value);
}

static lvn_json_member *find_member(lvn_json_member *members, size_t count, lvn_str key)
{
    for (size_t i = 0; i < count; i++)
        if (lvn_str_eq(members[i].key, key))
            return &members[i];
    return NULL;
}

/* The last of equal keys wins, at the first one's place. */
static lvn_json attributes_of(decoder *d, size_t n, Levin__Otlp__KeyValue **pairs)
{
    lvn_json_member *members = lvn_arena_array(d->scratch, n, sizeof(*members));
    size_t count = 0;
    bool is_small = n <= 16;
    lvn_map seen;
    lvn_map_init(&seen);
    for (size_t i = 0; i < n && !d->code; i++) {
        lvn_str key = text_of(d, pairs[i]->key).string;
        lvn_json_member *member =
            is_small ? find_member(members, count, key) : lvn_map_get(&seen, key);
        if (!member) {
            member = &members[count++];
            member->key = key;
            if (!is_small)
                lvn_map_put(&seen, key, member);
        }
        member->value = value_of(d, pairs[i]);
    }
    lvn_map_done(&seen);
    return (lvn_json){.kind = LVN_JSON_OBJECT, .object = {members, count}};
}

static lvn_json time_of(uint64_t value)
{
    if (!value)
        return null_value;
    double seconds = value > UINT64_C(1000000000000) ? (double)value / 1e9 : (double)value;
    return (lvn_json){.kind = LVN_JSON_DOUBLE, .number = seconds};
}

/* ---- objects ---- */

enum { MAX_MEMBERS = 16 };

typedef struct object {
    lvn_json_member *members;
    size_t count;
} object;

static object object_new(decoder *d)
{
    return (object){.members = lvn_arena_array(d->scratch, MAX_MEMBERS, sizeof(lvn_json_member))};
}

static void put(object *o, const char *key, lvn_json value)
{
    o->members[o->count++] = (lvn_json_member){lvn_str_of(key), value};
}

static lvn_json object_json(object o)
{
    return (lvn_json){.kind = LVN_JSON_OBJECT, .object = {o.members, o.count}};
}

static lvn_json context_of(decoder *d, ProtobufCBinaryData trace_id, ProtobufCBinaryData span_id)
{
    object o = object_new(d);
    put(&o, "trace_id", hex_of(d, trace_id, 32));
    put(&o, "span_id", hex_of(d, span_id, 16));
    put(&o, "is_remote", (lvn_json){.kind = LVN_JSON_BOOL, .boolean = false});
    put(&o, "trace_state", (lvn_json){.kind = LVN_JSON_OBJECT});
    return object_json(o);
}

static lvn_json status_of(decoder *d, const Levin__Otlp__Status *status)
{
    static const char *const names[] = {"UNSET", "OK", "ERROR"};
    int code = status && status->code >= 0 && status->code <= 2 ? status->code : 0;
    object o = object_new(d);
    put(&o, "status_code", (lvn_json){.kind = LVN_JSON_STRING, .string = lvn_str_of(names[code])});
    put(&o, "description",
        status && status->message.len ? text_of(d, status->message) : null_value);
    return object_json(o);
}

static lvn_json events_of(decoder *d, const Levin__Otlp__Span *span)
{
    lvn_json *items = lvn_arena_array(d->scratch, span->n_events, sizeof(*items));
    for (size_t i = 0; i < span->n_events; i++) {
        const Levin__Otlp__Event *event = span->events[i];
        object o = object_new(d);
        put(&o, "name", text_of(d, event->name));
        put(&o, "attributes", attributes_of(d, event->n_attributes, event->attributes));
        put(&o, "timestamp", time_of(event->time_unix_nano));
        items[i] = object_json(o);
    }
    return (lvn_json){.kind = LVN_JSON_ARRAY, .array = {items, span->n_events}};
}

static lvn_json links_of(decoder *d, const Levin__Otlp__Span *span)
{
    lvn_json *items = lvn_arena_array(d->scratch, span->n_links, sizeof(*items));
    for (size_t i = 0; i < span->n_links; i++) {
        const Levin__Otlp__Link *from = span->links[i];
        object o = object_new(d);
        put(&o, "context", context_of(d, from->trace_id, from->span_id));
        put(&o, "attributes",
            from->n_attributes ? attributes_of(d, from->n_attributes, from->attributes)
                               : null_value);
        items[i] = object_json(o);
    }
    return (lvn_json){.kind = LVN_JSON_ARRAY, .array = {items, span->n_links}};
}

/* ---- ids ---- */

static const lvn_json *find_id(const lvn_json *own, const lvn_json *resource, const char *name)
{
    const lvn_json *found = lvn_json_get(own, name);
    return found ? found : lvn_json_get(resource, name);
}

/* As Python's str() writes it. */
static void write_python(lvn_buf *buf, const lvn_json *value, bool is_inner)
{
    switch (value->kind) {
    case LVN_JSON_BOOL:
        lvn_buf_append_str(buf, value->boolean ? LVN_STR("True") : LVN_STR("False"));
        break;
    case LVN_JSON_STRING:
        lvn_buf_append_str(buf, is_inner ? LVN_STR("'") : LVN_STR(""));
        lvn_buf_append_str(buf, value->string);
        lvn_buf_append_str(buf, is_inner ? LVN_STR("'") : LVN_STR(""));
        break;
    case LVN_JSON_ARRAY:
        lvn_buf_append_char(buf, '[');
        for (size_t i = 0; i < value->array.count; i++) {
            lvn_buf_append_str(buf, i ? LVN_STR(", ") : LVN_STR(""));
            write_python(buf, &value->array.items[i], true);
        }
        lvn_buf_append_char(buf, ']');
        break;
    default:
        lvn_json_write(buf, value);
    }
}

static lvn_json id_text(decoder *d, const lvn_json *id)
{
    if (id->kind == LVN_JSON_STRING)
        return *id;
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    write_python(&buf, id, false);
    lvn_json text = {.kind = LVN_JSON_STRING,
                     .string = lvn_arena_dup(d->scratch, lvn_buf_str(&buf))};
    lvn_buf_done(&buf);
    return text;
}

/* What Python's int(str(value)) gives; -1 when that fails, does not fit or is negative. */
static int64_t sequence_of(const lvn_json *value)
{
    if (!value || (value->kind != LVN_JSON_INT && value->kind != LVN_JSON_STRING))
        return -1;
    if (value->kind == LVN_JSON_INT)
        return value->integer < 0 ? -1 : value->integer;
    lvn_str s = value->string;
    while (s.len && isspace((unsigned char)s.ptr[0]))
        s = lvn_str_from(s, 1);
    while (s.len && isspace((unsigned char)s.ptr[s.len - 1]))
        s.len--;
    bool is_minus = s.len && s.ptr[0] == '-';
    if (s.len && (s.ptr[0] == '+' || s.ptr[0] == '-'))
        s = lvn_str_from(s, 1);
    int64_t number = 0;
    for (size_t i = 0; i < s.len; i++) {
        bool is_inner_score = s.ptr[i] == '_' && i && i + 1 < s.len && s.ptr[i - 1] != '_';
        if (is_inner_score)
            continue;
        if (!isdigit((unsigned char)s.ptr[i]) || number > (INT64_MAX - 9) / 10)
            return -1;
        number = number * 10 + (s.ptr[i] - '0');
    }
    return !s.len || (is_minus && number) ? -1 : number;
}

/* ---- spans ---- */

static lvn_json span_json(decoder *d, const Levin__Otlp__Span *span, const lvn_json *attributes,
                          const lvn_json ids[2], int64_t sequence, lvn_json resource)
{
    object o = object_new(d);
    put(&o, "rollout_id", ids[0]);
    put(&o, "attempt_id", ids[1]);
    put(&o, "sequence_id", (lvn_json){.kind = LVN_JSON_INT, .integer = sequence});
    put(&o, "trace_id", hex_of(d, span->trace_id, 32));
    put(&o, "span_id", hex_of(d, span->span_id, 16));
    put(&o, "parent_id",
        span->parent_span_id.len ? hex_of(d, span->parent_span_id, 16) : null_value);
    put(&o, "name", text_of(d, span->name));
    put(&o, "status", status_of(d, span->status));
    put(&o, "attributes", *attributes);
    put(&o, "events", events_of(d, span));
    put(&o, "links", links_of(d, span));
    put(&o, "start_time", time_of(span->start_time_unix_nano));
    put(&o, "end_time", time_of(span->end_time_unix_nano));
    put(&o, "context", context_of(d, span->trace_id, span->span_id));
    put(&o, "parent", null_value);
    put(&o, "resource", resource);
    return object_json(o);
}

static void add_span(decoder *d, const Levin__Otlp__Span *span, lvn_json resource,
                     lvn_otlp_batch *out)
{
    lvn_json attributes = attributes_of(d, span->n_attributes, span->attributes);
    const lvn_json *common = lvn_json_get(&resource, "attributes");
    const lvn_json *rollout = find_id(&attributes, common, "agentlightning.rollout_id");
    const lvn_json *attempt = find_id(&attributes, common, "agentlightning.attempt_id");
    if (d->code || !rollout || !attempt)
        return;
    int64_t sequence = sequence_of(find_id(&attributes, common, "agentlightning.span_sequence_id"));
    lvn_json ids[2] = {id_text(d, rollout), id_text(d, attempt)};
    lvn_json whole = span_json(d, span, &attributes, ids, sequence < 0 ? 0 : sequence, resource),
             valid;
    lvn_schema_report report = {.arena = d->scratch};
    if (d->code)
        return;
    if (!lvn_schema_read(&report, &lvn_schema_span, &whole, &(lvn_schema_place){.name = "span"},
                         &valid)) {
        fail(d, LVN_INTERNAL, "an attribute has a value that cannot be stored");
        return;
    }
    if (lvn_api_span_of_json(d->arena, &valid, &out->spans[out->count])) {
        out->needs_sequence[out->count] = sequence < 0;
        out->count++;
    }
}

static void add_resource_spans(decoder *d, const Levin__Otlp__ResourceSpans *from,
                               lvn_arena *resource_arena, lvn_otlp_batch *out)
{
    lvn_arena *per_span = d->scratch;
    d->scratch = resource_arena; /* the resource is shared by many spans */
    object o = object_new(d);
    put(&o, "attributes",
        from->resource ? attributes_of(d, from->resource->n_attributes, from->resource->attributes)
                       : (lvn_json){.kind = LVN_JSON_OBJECT});
    put(&o, "schema_url", text_of(d, from->schema_url));
    d->scratch = per_span;
    for (size_t s = 0; s < from->n_scope_spans; s++)
        for (size_t i = 0; i < from->scope_spans[s]->n_spans && !d->code; i++) {
            lvn_arena_reset(d->scratch);
            add_span(d, from->scope_spans[s]->spans[i], object_json(o), out);
        }
}

static size_t count_spans(const Levin__Otlp__ExportTraceServiceRequest *request)
{
    size_t count = 0;
    for (size_t r = 0; r < request->n_resource_spans; r++)
        for (size_t s = 0; s < request->resource_spans[r]->n_scope_spans; s++)
            count += request->resource_spans[r]->scope_spans[s]->n_spans;
    return count;
}

lvn_code lvn_otlp_decode(lvn_arena *arena, lvn_str body, lvn_otlp_batch *out, lvn_err *err)
{
    *out = (lvn_otlp_batch){0};
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *message = lvn_arena_new(body.len + 4096);
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *scratch = lvn_arena_new(16 * 1024);
    ProtobufCAllocator allocator = {.alloc = take, .free = give, .allocator_data = message};
    const Levin__Otlp__ExportTraceServiceRequest *request =
        levin__otlp__export_trace_service_request__unpack(&allocator, body.len,
                                                          (const uint8_t *)body.ptr);
    if (!request && lvn_arena_used(message) > MAX_DECODED_BYTES / 2)
        return lvn_fail(err, LVN_TOO_LARGE, "the request takes too much memory; send it in parts");
    if (!request)
        return lvn_fail(err, LVN_INVALID, "Error parsing message");
    size_t count = count_spans(request);
    if (count > LVN_OTLP_MAX_SPANS)
        return lvn_fail(err, LVN_TOO_LARGE, "%zu spans in one request; at most %d", count,
                        LVN_OTLP_MAX_SPANS);
    out->spans = lvn_arena_array(arena, count, sizeof(*out->spans));
    out->needs_sequence = lvn_arena_array(arena, count, sizeof(*out->needs_sequence));
    decoder d = {.arena = arena, .scratch = scratch, .err = err};
    for (size_t r = 0; r < request->n_resource_spans && !d.code; r++)
        add_resource_spans(&d, request->resource_spans[r], message, out);
    return d.code;
}
