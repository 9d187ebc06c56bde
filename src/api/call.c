#include "api/call.h"

#include "api/events.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/utf8.h"

/* Bodies above this are validated on the pool: at about 200 MB/s the loop would stand still for
 * more than a millisecond. */
enum { POOL_BYTES = 256 * 1024 };

/* A value takes up to a hundred bytes once parsed, and as few as two in the text. */
enum { MAX_VALUES = 4000000 };

/* ---- failing ---- */

void lvn_api_fail(lvn_api_call *call, int status, lvn_str json_body)
{
    call->fail_status = status;
    call->fail_type = "application/json";
    call->fail_body = json_body;
}

void lvn_api_fail_detail(lvn_api_call *call, int status, const char *detail)
{
    lvn_buf body;
    lvn_buf_init(&body, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&body, "{\"detail\":");
    lvn_json_write_str(&body, lvn_str_of(detail));
    lvn_buf_append_char(&body, '}');
    lvn_api_fail(call, status, lvn_arena_dup(call->arena, lvn_buf_str(&body)));
    lvn_buf_done(&body);
}

void lvn_api_fail_invalid(lvn_api_call *call, const lvn_schema_report *report)
{
    lvn_str errors = lvn_buf_str(report->errors);
    lvn_buf body;
    lvn_buf_init(&body, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&body, "{\"detail\":[");
    lvn_buf_append_str(&body, errors);
    lvn_buf_lit(&body, "]}");
    lvn_api_fail(call, 422, lvn_arena_dup(call->arena, lvn_buf_str(&body)));
    lvn_buf_done(&body);
}

bool lvn_api_refuse_null(lvn_api_call *call, const char *const *names)
{
    for (; *names; names++) {
        const lvn_json *value = lvn_json_get(&call->input, *names);
        if (!value || value->kind != LVN_JSON_NULL)
            continue;
        lvn_str detail =
            lvn_arena_printf(call->arena, "%s is invalid; it cannot be a null value.", *names);
        lvn_api_fail_detail(call, 400, detail.ptr);
        return true;
    }
    return false;
}

/* ---- input ---- */

static bool is_json_type(lvn_str type)
{
    const char *semicolon = type.len ? memchr(type.ptr, ';', type.len) : NULL;
    if (semicolon)
        type.len = (size_t)(semicolon - type.ptr);
    while (type.len && (type.ptr[type.len - 1] == ' ' || type.ptr[type.len - 1] == '\t'))
        type.len--;
    static const char plain[] = "application/json", prefix[] = "application/", suffix[] = "+json";
    if (type.len == sizeof(plain) - 1 && strncasecmp(type.ptr, plain, type.len) == 0)
        return true;
    return type.len > sizeof(prefix) + sizeof(suffix) - 2 &&
           strncasecmp(type.ptr, prefix, sizeof(prefix) - 1) == 0 &&
           strncasecmp(type.ptr + type.len - (sizeof(suffix) - 1), suffix, sizeof(suffix) - 1) == 0;
}

static void validate(lvn_api_call *call, const lvn_json *in, const char *where)
{
    lvn_buf errors;
    lvn_buf_init(&errors, LVN_BUF_NO_LIMIT);
    lvn_schema_report report = {.arena = call->arena, .errors = &errors};
    lvn_schema_place place = {.name = where};
    if (!lvn_schema_read(&report, call->route->schema, in, &place, &call->input))
        lvn_api_fail_invalid(call, &report);
    lvn_buf_done(&errors);
}

static void fail_missing_body(lvn_api_call *call)
{
    lvn_api_fail(call, 422,
                 LVN_STR("{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\"],\"msg\":\"Field "
                         "required\",\"input\":null}]}"));
}

static void fail_not_json(lvn_api_call *call, size_t offset, const lvn_err *err)
{
    lvn_str why = lvn_str_of(err->message);
    const char *end = strstr(err->message, " (character");
    if (end)
        why.len = (size_t)(end - err->message);
    lvn_buf body;
    lvn_buf_init(&body, 4096);
    lvn_buf_printf(&body,
                   "{\"detail\":[{\"type\":\"json_invalid\",\"loc\":[\"body\",%zu],\"msg\":\"JSON "
                   "decode error\",\"input\":{},"
                   "\"ctx\":{\"error\":",
                   offset);
    lvn_json_write_str(&body, why);
    lvn_buf_lit(&body, "}}]}");
    lvn_api_fail(call, 422, lvn_arena_dup(call->arena, lvn_buf_str(&body)));
    lvn_buf_done(&body);
}

static bool is_all_utf8(const lvn_json *value)
{
    if (value->kind == LVN_JSON_STRING)
        return lvn_utf8_is_valid(value->string);
    for (size_t i = 0; value->kind == LVN_JSON_ARRAY && i < value->array.count; i++)
        if (!is_all_utf8(&value->array.items[i]))
            return false;
    for (size_t i = 0; value->kind == LVN_JSON_OBJECT && i < value->object.count; i++)
        if (!lvn_utf8_is_valid(value->object.members[i].key) ||
            !is_all_utf8(&value->object.members[i].value))
            return false;
    return true;
}

/* Half a surrogate pair passes as an escape, but no answer could ever say it again. */
static bool has_lone_surrogate(lvn_str text, const lvn_json *value)
{
    return text.len && memchr(text.ptr, '\\', text.len) &&
           (lvn_str_contains(text, LVN_STR("\\ud")) || lvn_str_contains(text, LVN_STR("\\uD"))) &&
           !is_all_utf8(value);
}

static bool has_too_many_values(lvn_str text)
{
    size_t count = 0;
    if (text.len <= MAX_VALUES)
        return false;
    for (size_t i = 0; i < text.len; i++)
        count += (text.ptr[i] == ',') | (text.ptr[i] == '[') | (text.ptr[i] == '{');
    return count > MAX_VALUES;
}

static void read_body(lvn_api_call *call)
{
    bool is_optional = call->route->input_from == LVN_INPUT_OPTIONAL_BODY;
    lvn_str body = call->request->body;
    lvn_json parsed = {.kind = LVN_JSON_NULL};
    if (body.len && !is_json_type(lvn_http_header_get(call->request, "content-type"))) {
        /* Text where an object is wanted; what is not text cannot be shown. */
        parsed = (lvn_json){.kind = LVN_JSON_STRING,
                            .string = lvn_utf8_is_valid(body) ? body : LVN_STR("")};
    } else if (body.len) {
        lvn_err err;
        size_t offset = 0;
        lvn_str text =
            lvn_str_starts_with(body, LVN_STR("\xef\xbb\xbf")) ? lvn_str_from(body, 3) : body;
        if (has_too_many_values(text)) {
            lvn_api_fail_detail(call, 413, "Too many values in the body; send them in parts");
            return;
        }
        lvn_code code = lvn_json_parse(call->arena, text, &parsed, &offset, &err);
        if (code == LVN_INVALID && lvn_utf8_is_valid(text)) {
            fail_not_json(call, offset, &err);
            return;
        }
        if (code ||
            has_lone_surrogate(
                text, &parsed)) { /* compressed, in another encoding, or nested without end */
            lvn_api_fail_detail(call, 400, "There was an error parsing the body");
            return;
        }
    }
    if (!body.len && !is_optional)
        fail_missing_body(call);
    else if (!is_optional || parsed.kind != LVN_JSON_NULL)
        validate(call, &parsed, "body");
}

static const lvn_schema_field *field_named(const lvn_schema *schema, lvn_str name)
{
    for (const lvn_schema_field *field = schema->fields; field->name; field++)
        if (lvn_str_is(name, field->name))
            return field;
    return NULL;
}

static void add_to_list(lvn_arena *arena, lvn_json *list, lvn_json item)
{
    size_t count = list->array.count;
    if (!(count & (count - 1))) { /* full at every power of two */
        lvn_json *grown = lvn_arena_array(arena, count ? count * 2 : 1, sizeof(*grown));
        if (count)
            memcpy(grown, list->array.items, count * sizeof(*grown));
        list->array.items = grown;
    }
    list->array.items[list->array.count++] = item;
}

/* Query parameters become an object of texts, and of lists of texts where the schema has a list. */
static void read_query(lvn_api_call *call)
{
    const lvn_schema *schema = call->route->schema;
    size_t most = 0, count = 0;
    for (const lvn_schema_field *field = schema->fields; field->name; field++)
        most++;
    lvn_json_member *members = lvn_arena_array(call->arena, most, sizeof(*members));
    lvn_str name, value;
    for (size_t at = 0; lvn_http_query_next(call->request, &at, &name, &value);) {
        const lvn_schema_field *field = field_named(schema, name);
        if (!field)
            continue;
        size_t k = 0;
        while (k < count && !lvn_str_eq(members[k].key, name))
            k++;
        lvn_json text = {.kind = LVN_JSON_STRING, .string = value};
        bool is_list = field->schema.kind == LVN_SCHEMA_LIST;
        if (k == count)
            members[count++] =
                (lvn_json_member){name, is_list ? (lvn_json){.kind = LVN_JSON_ARRAY} : text};
        if (is_list)
            add_to_list(call->arena, &members[k].value, text);
        else
            members[k].value = text;
    }
    lvn_json in = {.kind = LVN_JSON_OBJECT, .object = {members, count}};
    validate(call, &in, "query");
}

lvn_str lvn_api_text(const lvn_json *object, const char *name)
{
    return lvn_json_get_str(object, name, LVN_STR_ABSENT);
}

lvn_str lvn_api_json_text(lvn_arena *arena, const lvn_json *value)
{
    if (!value || value->kind == LVN_JSON_NULL)
        return LVN_STR_ABSENT;
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_json_write(&buf, value);
    lvn_str text = lvn_arena_dup(arena, lvn_buf_str(&buf));
    lvn_buf_done(&buf);
    return text;
}

double lvn_api_time(const lvn_json *object, const char *name)
{
    return lvn_json_get_number(object, name, LVN_TIME_NULL);
}

int64_t lvn_api_int(const lvn_json *object, const char *name, int64_t fallback)
{
    const lvn_json *value = lvn_json_get(object, name);
    if (value && value->kind == LVN_JSON_BIGINT)
        return value->string.ptr[0] == '-' ? INT64_MIN : INT64_MAX;
    return value && value->kind == LVN_JSON_INT ? value->integer : fallback;
}

void lvn_api_read_page(const lvn_json *input, lvn_page *out)
{
    const lvn_json *sort_by = lvn_json_get(input, "sort_by");
    out->sort_by = lvn_api_text(input, "sort_by");
    out->has_no_sort = sort_by && sort_by->kind == LVN_JSON_NULL;
    out->is_descending = lvn_str_is(lvn_api_text(input, "sort_order"), "desc");
    out->limit = lvn_api_int(input, "limit", -1);
    out->offset = lvn_api_int(input, "offset", 0);
}

void lvn_api_read_texts(lvn_arena *arena, const lvn_json *list, lvn_str_list *out)
{
    *out = (lvn_str_list){0};
    if (!list || list->kind != LVN_JSON_ARRAY)
        return;
    lvn_str *items = lvn_arena_array(arena, list->array.count, sizeof(*items));
    for (size_t i = 0; i < list->array.count; i++)
        items[i] = list->array.items[i].string;
    *out = (lvn_str_list){.items = items, .count = list->array.count, .is_given = true};
}

void lvn_api_read_filter(const lvn_json *input, const char *name, const char *contains,
                         lvn_text_filter *out)
{
    out->equals = lvn_api_text(input, name);
    out->contains = lvn_api_text(input, contains);
}

/* ---- answers ---- */

void lvn_api_answer_json(lvn_api_call *call, int status, lvn_buf *body)
{
    if (body->has_failed)
        lvn_api_answer_500(call, "MemoryError",
                           LVN_STR("the answer is too large; ask for it in pages"));
    else
        lvn_http_respond(call->request, status, "application/json", lvn_buf_str(body));
    lvn_buf_done(body);
}

void lvn_api_answer_500(lvn_api_call *call, const char *error_type, lvn_str message)
{
    lvn_buf body, trace;
    lvn_buf_init(&body, LVN_BUF_NO_LIMIT);
    lvn_buf_init(&trace, LVN_BUF_NO_LIMIT);
    lvn_buf_printf(&trace, "Traceback (most recent call last):\n%s: %.*s\n", error_type,
                   LVN_STR_ARG(message));
    lvn_buf_lit(&body, "{\"detail\":\"Internal server error\",\"error_type\":");
    lvn_json_write_str(&body, lvn_str_of(error_type));
    lvn_buf_lit(&body, ",\"traceback\":");
    lvn_json_write_str(&body, lvn_buf_str(&trace));
    lvn_buf_append_char(&body, '}');
    lvn_http_respond(call->request, 500, "application/json", lvn_buf_str(&body));
    lvn_buf_done(&body);
    lvn_buf_done(&trace);
}

static void answer_busy(lvn_http_request *request, const char *detail)
{
    lvn_http_answer_header(request, "Retry-After", LVN_STR("1"));
    lvn_str body = lvn_arena_printf(request->arena, "{\"detail\":\"%s\"}", detail);
    lvn_http_respond(request, 503, "application/json", body);
}

/* What the store's codes are on the wire. That an unknown thing is a 500 is the protocol's choice.
 */
void lvn_api_answer_error(lvn_api_call *call)
{
    lvn_str message = lvn_str_of(call->op.err.message);
    switch (call->op.code) {
    case LVN_INVALID:
        lvn_api_fail_detail(call, 400, message.ptr);
        lvn_http_respond(call->request, 400, call->fail_type, call->fail_body);
        return;
    case LVN_NOT_FOUND:
        lvn_api_answer_500(call, "ValueError", message);
        return;
    case LVN_INTERNAL:
        lvn_api_answer_500(call, "TypeError", message);
        return;
    case LVN_FULL:
        answer_busy(call->request, "The store has too much to do");
        return;
    case LVN_UNAVAILABLE:
    case LVN_CANCELLED:
        answer_busy(call->request, "The store is closing");
        return;
    default:
        lvn_log(LVN_ERROR, "store_failed", "path=\"%.*s\" code=%s error=\"%s\"",
                LVN_STR_ARG(call->request->path), lvn_code_name(call->op.code), message.ptr);
        lvn_api_answer_500(call, "RuntimeError", message);
    }
}

void lvn_api_begin_page(lvn_buf *buf)
{
    lvn_buf_lit(buf, "{\"items\":[");
}

void lvn_api_end_page(lvn_buf *buf, const lvn_page *page, int64_t total)
{
    lvn_buf_printf(buf, "],\"limit\":%lld,\"offset\":%lld,\"total\":%lld}", (long long)page->limit,
                   (long long)page->offset, (long long)total);
}

/* ---- the way through ---- */

static void answer(lvn_api_call *call)
{
    if (call->op.code == LVN_OK)
        call->route->answer(call);
    else if (!call->route->answer_failure || !call->route->answer_failure(call))
        lvn_api_answer_error(call);
}

static void unpark(lvn_api_call *call)
{
    if (!call->is_parked)
        return;
    call->is_parked = false;
    lvn_http_on_disconnect(call->request, NULL, NULL);
    *(call->previous_parked ? &call->previous_parked->next_parked : &call->api->parked) =
        call->next_parked;
    if (call->next_parked)
        call->next_parked->previous_parked = call->previous_parked;
}

static void finish(void *arg)
{
    lvn_api_call *call = arg;
    lvn_http_request *request = call->request;
    unpark(call);
    answer(call);
    lvn_http_release(request);
}

/* On the store's thread. */
static void operation_done(lvn_op *op)
{
    lvn_api_call *call = (lvn_api_call *)op;
    lvn_loop_post(call->request->loop, finish, call);
}

static void client_left(void *arg)
{
    lvn_api_call *call = arg;
    lvn_store_cancel(call->api->store, &call->op);
}

static bool may_park(const lvn_op *op)
{
    return op->kind == LVN_OP_WAIT || (op->kind == LVN_OP_DEQUEUE && op->in.dequeue.wait_s > 0);
}

static void park(lvn_api_call *call)
{
    call->is_parked = true;
    lvn_http_on_disconnect(call->request, client_left, call);
    call->next_parked = call->api->parked;
    if (call->next_parked)
        call->next_parked->previous_parked = call;
    call->api->parked = call;
}

static void do_not_wait(lvn_op *op)
{
    if (op->kind == LVN_OP_WAIT)
        op->in.wait.timeout_s = 0;
    else
        op->in.dequeue.wait_s = 0;
}

static void stop_waiting(void *arg)
{
    lvn_api *api = arg;
    api->is_stopping = true;
    lvn_events_stop(api->events);
    for (lvn_api_call *call = api->parked; call; call = call->next_parked)
        lvn_store_cancel(api->store, &call->op);
}

void lvn_api_stop_waiting(lvn_api *api)
{
    if (api)
        lvn_loop_call(lvn_http_loop(api->server), stop_waiting, api);
}

/* What comes behind prepare; on the loop. */
static void proceed(lvn_api_call *call)
{
    lvn_http_request *request = call->request;
    if (call->fail_status || call->is_finished) {
        if (call->fail_status && call->encode)
            call->fail_body = call->encode(call, call->fail_body);
        if (call->fail_status)
            lvn_http_respond(request, call->fail_status, call->fail_type, call->fail_body);
        else
            call->route->answer(call);
        lvn_http_release(request);
        return;
    }
    call->op.arena = call->arena;
    call->op.done = operation_done;
    if (may_park(&call->op) && call->api->is_stopping) {
        do_not_wait(&call->op);
    } else if (may_park(&call->op)) {
        if (!lvn_http_is_connected(request)) { /* it left while its body was validated */
            lvn_http_release(request);
            return;
        }
        park(call);
    }
    if (lvn_store_try(call->api->store, &call->op)) {
        finish(call);
        return;
    }
    lvn_err err;
    lvn_code code = lvn_store_submit(call->api->store, &call->op, &err);
    if (code == LVN_OK)
        return;
    call->op.code = code;
    call->op.err = err;
    finish(call);
}

static void prepare(lvn_api_call *call)
{
    const lvn_api_route *route = call->route;
    call->input = (lvn_json){.kind = LVN_JSON_OBJECT};
    if (route->input_from == LVN_INPUT_QUERY)
        read_query(call);
    else if (route->input_from != LVN_INPUT_NONE)
        read_body(call);
    if (!call->fail_status && route->prepare)
        route->prepare(call);
}

static void work(uv_work_t *work)
{
    prepare(work->data);
}

static void work_done(uv_work_t *work, int status)
{
    (void)status;
    proceed(work->data);
}

void lvn_api_handle(lvn_http_request *request)
{
    const lvn_api_bound *bound = request->user;
    lvn_api_call *call = lvn_arena_zalloc(request->arena, sizeof(*call));
    call->api = bound->api;
    call->route = bound->route;
    call->request = request;
    call->arena = request->arena;
    lvn_http_hold(request);
    call->work.data = call;
    if (request->body.len < POOL_BYTES ||
        uv_queue_work(lvn_loop_uv(request->loop), &call->work, work, work_done)) {
        prepare(call);
        proceed(call);
    }
}
