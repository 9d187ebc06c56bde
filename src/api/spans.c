#include "api/call.h"
#include "api/span_read.h"

static lvn_str text_in(lvn_arena *arena, const lvn_json *in, const char *name)
{
    return lvn_arena_dup(arena, lvn_api_text(in, name));
}

/* Everything behind sequence_id, which comes third. */
static lvn_str rest_of(lvn_arena *arena, const lvn_json *in)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    for (size_t i = 3; i < in->object.count; i++) {
        lvn_buf_append_char(&buf, ',');
        lvn_json_write_str(&buf, in->object.members[i].key);
        lvn_buf_append_char(&buf, ':');
        lvn_json_write(&buf, &in->object.members[i].value);
    }
    lvn_str rest = lvn_arena_dup(arena, lvn_buf_str(&buf));
    lvn_buf_done(&buf);
    return rest;
}

bool lvn_api_span_of_json(lvn_arena *arena, const lvn_json *in, lvn_span *out)
{
    const lvn_json *sequence = lvn_json_get(in, "sequence_id");
    lvn_str status = lvn_api_text(lvn_json_get(in, "status"), "status_code");
    if (sequence->kind != LVN_JSON_INT)
        return false;
    *out = (lvn_span){
        .rollout_id = text_in(arena, in, "rollout_id"),
        .attempt_id = text_in(arena, in, "attempt_id"),
        .sequence_id = sequence->integer,
        .trace_id = text_in(arena, in, "trace_id"),
        .span_id = text_in(arena, in, "span_id"),
        .parent_id = text_in(arena, in, "parent_id"),
        .name = text_in(arena, in, "name"),
        .start_time = lvn_api_time(in, "start_time"),
        .end_time = lvn_api_time(in, "end_time"),
        .status = lvn_str_is(status, "OK")      ? LVN_SPAN_OK
                  : lvn_str_is(status, "ERROR") ? LVN_SPAN_ERROR
                                                : LVN_SPAN_UNSET,
        .rest = rest_of(arena, in),
    };
    return true;
}

/* A number that no column holds. */
static void fail_sequence(lvn_api_call *call, const lvn_schema_place *span_place, const lvn_json *span)
{
    lvn_buf errors;
    lvn_buf_init(&errors, LVN_BUF_NO_LIMIT);
    lvn_schema_report report = {.arena = call->arena, .errors = &errors};
    lvn_schema_place place = {.parent = span_place, .name = "sequence_id"};
    lvn_schema_complain(&report, "int_parsing_size", &place,
                        "Unable to parse input string as an integer, exceeded maximum size",
                        lvn_json_get(span, "sequence_id"), NULL);
    lvn_api_fail_invalid(call, &report);
    lvn_buf_done(&errors);
}

static void prepare_add(lvn_api_call *call)
{
    lvn_span *span = lvn_arena_zalloc(call->arena, sizeof(*span));
    if (!lvn_api_span_of_json(call->arena, &call->input, span)) {
        fail_sequence(call, &(lvn_schema_place){.name = "body"}, &call->input);
        return;
    }
    call->op.kind = LVN_OP_ADD_SPANS;
    call->op.in.add_spans.spans = span;
    call->op.in.add_spans.count = 1;
}

/* Many spans in one request, an addition of ours: as many requests one after the other, but in one transaction. */
static void prepare_add_many(lvn_api_call *call)
{
    const lvn_json *list = lvn_json_get(&call->input, "spans");
    lvn_span *spans = lvn_arena_array(call->arena, list->array.count, sizeof(*spans));
    for (size_t i = 0; i < list->array.count; i++) {
        lvn_schema_place body = {.name = "body"}, all = {.parent = &body, .name = "spans"};
        if (!lvn_api_span_of_json(call->arena, &list->array.items[i], &spans[i])) {
            fail_sequence(call, &(lvn_schema_place){.parent = &all, .index = i}, &list->array.items[i]);
            return;
        }
    }
    call->op.kind = LVN_OP_ADD_SPANS;
    call->op.in.add_spans.spans = spans;
    call->op.in.add_spans.count = list->array.count;
}

/* A list as long as the request's: each span as it was stored, or null for one that was there. */
static void answer_add_many(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&buf, '[');
    for (size_t i = 0, stored = 0; i < call->op.in.add_spans.count; i++) {
        if (i)
            lvn_buf_append_char(&buf, ',');
        if (call->op.out.spans.is_stored[i])
            lvn_span_write(&buf, &call->op.out.spans.items[stored++]);
        else
            lvn_buf_lit(&buf, "null");
    }
    lvn_buf_append_char(&buf, ']');
    lvn_api_answer_json(call, 201, &buf);
}

static void answer_add(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    if (call->op.out.spans.count)
        lvn_span_write(&buf, &call->op.out.spans.items[0]);
    else
        lvn_buf_lit(&buf, "null"); /* a duplicate */
    lvn_api_answer_json(call, 201, &buf);
}

static void prepare_query(lvn_api_call *call)
{
    const lvn_json *in = &call->input;
    call->op.kind = LVN_OP_QUERY_SPANS;
    call->op.in.query_spans.rollout_id = lvn_api_text(in, "rollout_id");
    call->op.in.query_spans.attempt_id = lvn_api_text(in, "attempt_id");
    lvn_api_read_filter(in, "trace_id", "trace_id_contains", &call->op.in.query_spans.trace_id);
    lvn_api_read_filter(in, "span_id", "span_id_contains", &call->op.in.query_spans.span_id);
    lvn_api_read_filter(in, "parent_id", "parent_id_contains", &call->op.in.query_spans.parent_id);
    lvn_api_read_filter(in, "name", "name_contains", &call->op.in.query_spans.name);
    call->op.in.query_spans.is_or = lvn_str_is(lvn_api_text(in, "filter_logic"), "or");
    lvn_api_read_page(in, &call->op.in.query_spans.page);
}

static void answer_page(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_api_begin_page(&buf);
    for (size_t i = 0; i < call->op.out.spans.count; i++) {
        if (i)
            lvn_buf_append_char(&buf, ',');
        lvn_span_write(&buf, &call->op.out.spans.items[i]);
    }
    lvn_api_end_page(&buf, &call->op.in.query_spans.page, call->op.out.spans.total);
    lvn_api_answer_json(call, 200, &buf);
}

static void prepare_next(lvn_api_call *call)
{
    call->op.kind = LVN_OP_NEXT_SEQUENCE;
    call->op.in.next_sequence.rollout_id = lvn_api_text(&call->input, "rollout_id");
}

static void answer_next(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, 64);
    lvn_buf_printf(&buf, "{\"sequence_id\":%lld}", (long long)call->op.out.sequence_id);
    lvn_api_answer_json(call, 200, &buf);
}

#define SPANS "/v1/agl/spans"

const lvn_api_route lvn_api_span_routes[] = {
    {"POST", SPANS, LVN_INPUT_BODY, &lvn_schema_span, prepare_add, answer_add, NULL},
    {"POST", SPANS "/batch", LVN_INPUT_BODY, &lvn_schema_spans, prepare_add_many, answer_add_many, NULL},
    {"GET", SPANS, LVN_INPUT_QUERY, &lvn_schema_query_spans, prepare_query, answer_page, NULL},
    {"POST", SPANS "/search", LVN_INPUT_BODY, &lvn_schema_query_spans, prepare_query, answer_page,
     NULL},
    {"POST", SPANS "/next", LVN_INPUT_BODY, &lvn_schema_next_sequence, prepare_next, answer_next,
     NULL},
    {.method = NULL},
};
