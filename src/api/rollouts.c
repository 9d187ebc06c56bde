#include "api/call.h"

enum { MAX_KEY = 255 };

static void read_config(lvn_arena *arena, const lvn_json *in, lvn_rollout_config *out)
{
    lvn_rollout_config_default(out);
    out->timeout_seconds = lvn_api_time(in, "timeout_seconds");
    out->unresponsive_seconds = lvn_api_time(in, "unresponsive_seconds");
    out->max_attempts = lvn_api_int(in, "max_attempts", 1);
    const lvn_json *retry = lvn_json_get(in, "retry_condition");
    if (!retry)
        return;
    uint8_t *statuses = lvn_arena_alloc(arena, retry->array.count);
    for (size_t i = 0; i < retry->array.count; i++) {
        lvn_attempt_status status = LVN_ATTEMPT_PREPARING;
        lvn_attempt_status_parse(retry->array.items[i].string, &status);
        statuses[i] = (uint8_t)status;
    }
    out->retry_condition = statuses;
    out->retry_count = retry->array.count;
}

static bool is_given(const lvn_json *value)
{
    return value && value->kind != LVN_JSON_NULL;
}

static void read_spec(lvn_arena *arena, const lvn_json *in, lvn_rollout_spec *out)
{
    const lvn_json *config = lvn_json_get(in, "config");
    *out = (lvn_rollout_spec){
        .input = lvn_api_json_text(arena, lvn_json_get(in, "input")),
        .resources_id = lvn_api_text(in, "resources_id"),
        .has_config = is_given(config),
        .metadata = lvn_api_json_text(arena, lvn_json_get(in, "metadata")),
    };
    lvn_mode_parse(lvn_api_text(in, "mode"), &out->mode);
    if (out->has_config)
        read_config(arena, config, &out->config);
}

static void write_rollout(lvn_buf *buf, const lvn_attempted *item)
{
    lvn_rollout_write(buf, &item->rollout, item->has_attempt ? &item->attempt : NULL);
}

void lvn_api_write_rollouts(lvn_buf *buf, const lvn_op *op)
{
    for (size_t i = 0; i < op->out.rollouts.count; i++) {
        if (i)
            lvn_buf_append_char(buf, ',');
        write_rollout(buf, &op->out.rollouts.items[i]);
    }
}

static void answer_list(lvn_api_call *call, int status)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&buf, '[');
    lvn_api_write_rollouts(&buf, &call->op);
    lvn_buf_append_char(&buf, ']');
    lvn_api_answer_json(call, status, &buf);
}

static void answer_one(lvn_api_call *call, int status)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    write_rollout(&buf, &call->op.out.rollouts.items[0]);
    lvn_api_answer_json(call, status, &buf);
}

static void answer_list_200(lvn_api_call *call)
{
    answer_list(call, 200);
}

static void answer_list_201(lvn_api_call *call)
{
    answer_list(call, 201);
}

static void answer_one_200(lvn_api_call *call)
{
    answer_one(call, 200);
}

static void answer_one_201(lvn_api_call *call)
{
    answer_one(call, 201);
}

/* FNV-1a: the same in every process, since it is kept. */
static uint64_t digest(lvn_str text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.ptr[i]) * 0x100000001b3u;
    return hash;
}

static void prepare_enqueue(lvn_api_call *call)
{
    const lvn_json *list = lvn_json_get(&call->input, "rollouts");
    lvn_rollout_spec *specs = lvn_arena_array(call->arena, list->array.count, sizeof(*specs));
    for (size_t i = 0; i < list->array.count; i++)
        read_spec(call->arena, &list->array.items[i], &specs[i]);
    call->op.kind = LVN_OP_ENQUEUE;
    call->op.in.enqueue.specs = specs;
    call->op.in.enqueue.count = list->array.count;
    call->op.in.enqueue.key = LVN_STR_ABSENT;
    /* An addition of ours: a client that got no answer may ask again. */
    lvn_str key = lvn_http_header_get(call->request, "idempotency-key");
    if (!key.len)
        return;
    if (key.len > MAX_KEY)
        lvn_api_fail_detail(call, 400, "Idempotency-Key is longer than 255 bytes");
    call->op.in.enqueue.key = key;
    call->op.in.enqueue.digest = digest(call->request->body);
}

static bool answer_other_enqueue(lvn_api_call *call)
{
    if (call->op.code != LVN_CONFLICT)
        return false;
    lvn_http_respond(call->request, 422, "application/json", LVN_STR("{\"detail\":\"The Idempotency-Key was used for another request\"}"));
    return true;
}

/* `?wait=SECONDS`, an addition of ours: an empty queue is waited for. */
static double read_wait(lvn_api_call *call)
{
    lvn_str text = lvn_http_query_get(call->request, "wait");
    if (lvn_str_is_absent(text))
        return 0;
    lvn_buf errors;
    lvn_buf_init(&errors, LVN_BUF_NO_LIMIT);
    lvn_schema_report report = {.arena = call->arena, .errors = &errors};
    lvn_json_member member = {LVN_STR("wait"), {.kind = LVN_JSON_STRING, .string = text}};
    lvn_json in = {.kind = LVN_JSON_OBJECT, .object = {&member, 1}}, out;
    if (!lvn_schema_read(&report, &lvn_schema_wait_option, &in,
                         &(lvn_schema_place){.name = "query"}, &out))
        lvn_api_fail_invalid(call, &report);
    lvn_buf_done(&errors);
    double seconds = call->fail_status ? 0 : lvn_json_get_number(&out, "wait", 0);
    double most = call->api->config.max_wait_s;
    return seconds < most ? seconds : most;
}

static void prepare_dequeue(lvn_api_call *call)
{
    call->op.kind = LVN_OP_DEQUEUE;
    call->op.in.dequeue.limit = lvn_api_int(&call->input, "limit", 1);
    call->op.in.dequeue.worker_id = lvn_api_text(&call->input, "worker_id");
    call->op.in.dequeue.wait_s = read_wait(call);
}

static void prepare_start(lvn_api_call *call)
{
    call->op.kind = LVN_OP_START_ROLLOUT;
    read_spec(call->arena, &call->input, &call->op.in.start_rollout.spec);
    call->op.in.start_rollout.worker_id = lvn_api_text(&call->input, "worker_id");
}

static void prepare_query(lvn_api_call *call)
{
    const lvn_json *in = &call->input, *statuses = lvn_json_get(in, "status_in");
    call->op.kind = LVN_OP_QUERY_ROLLOUTS;
    if (is_given(statuses)) {
        lvn_rollout_status *list =
            lvn_arena_array(call->arena, statuses->array.count, sizeof(*list));
        for (size_t i = 0; i < statuses->array.count; i++)
            lvn_rollout_status_parse(statuses->array.items[i].string, &list[i]);
        call->op.in.query_rollouts.status_in = list;
        call->op.in.query_rollouts.status_count = statuses->array.count;
        call->op.in.query_rollouts.has_status_in = true;
    }
    lvn_api_read_texts(call->arena, lvn_json_get(in, "rollout_id_in"),
                       &call->op.in.query_rollouts.rollout_id_in);
    call->op.in.query_rollouts.rollout_id_contains = lvn_api_text(in, "rollout_id_contains");
    call->op.in.query_rollouts.is_or = lvn_str_is(lvn_api_text(in, "filter_logic"), "or");
    lvn_api_read_page(in, &call->op.in.query_rollouts.page);
}

static void answer_page(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_api_begin_page(&buf);
    lvn_api_write_rollouts(&buf, &call->op);
    lvn_api_end_page(&buf, &call->op.in.query_rollouts.page, call->op.out.rollouts.total);
    lvn_api_answer_json(call, 200, &buf);
}

static void prepare_get(lvn_api_call *call)
{
    call->op.kind = LVN_OP_GET_ROLLOUT;
    call->op.in.get_rollout.rollout_id = call->request->params[0];
}

/* The reference server declares that this route never answers null, so its own null is an error
 * there. */
static bool answer_no_rollout(lvn_api_call *call)
{
    if (call->op.code != LVN_NOT_FOUND)
        return false;
    lvn_api_answer_500(
        call, "ResponseValidationError",
        LVN_STR("1 validation error: {'type': 'model_attributes_type', 'loc': ('response',), "
                "'msg': 'Input should be "
                "a valid dictionary or object to extract fields from', 'input': None}"));
    return true;
}

static void answer_get(lvn_api_call *call)
{
    if (call->op.out.rollouts.count) {
        answer_one(call, 200);
        return;
    }
    call->op.code = LVN_NOT_FOUND;
    answer_no_rollout(call);
}

static const struct {
    const char *name;
    unsigned bit;
} update_fields[] = {
    {"input", LVN_SET_INPUT},   {"mode", LVN_SET_MODE},     {"resources_id", LVN_SET_RESOURCES_ID},
    {"status", LVN_SET_STATUS}, {"config", LVN_SET_CONFIG}, {"metadata", LVN_SET_METADATA},
};

static void prepare_update(lvn_api_call *call)
{
    static const char *const not_null[] = {"status", "config", NULL};
    const lvn_json *in = &call->input;
    if (lvn_api_refuse_null(call, not_null))
        return;
    call->op.kind = LVN_OP_UPDATE_ROLLOUT;
    call->op.in.update_rollout.rollout_id = call->request->params[0];
    for (size_t i = 0; i < sizeof(update_fields) / sizeof(*update_fields); i++)
        if (lvn_json_get(in, update_fields[i].name))
            call->op.in.update_rollout.set |= update_fields[i].bit;
    lvn_rollout *values = &call->op.in.update_rollout.values;
    values->input = lvn_api_json_text(call->arena, lvn_json_get(in, "input"));
    lvn_mode_parse(lvn_api_text(in, "mode"), &values->mode);
    values->resources_id = lvn_api_text(in, "resources_id");
    lvn_rollout_status_parse(lvn_api_text(in, "status"), &values->status);
    read_config(call->arena, lvn_json_get(in, "config"), &values->config);
    values->metadata = lvn_api_json_text(call->arena, lvn_json_get(in, "metadata"));
}

static bool answer_no_update(lvn_api_call *call)
{
    if (call->op.code != LVN_NOT_FOUND)
        return false;
    lvn_str id = call->op.in.update_rollout.rollout_id;
    lvn_str message = lvn_arena_printf(
        call->arena, "Item does not exist with primary key(s): rollout_id='%.*s'", LVN_STR_ARG(id));
    lvn_api_answer_500(call, "ValueError", message);
    return true;
}

#define API "/v1/agl"

const lvn_api_route lvn_api_rollout_routes[] = {
    {"POST", API "/queues/rollouts/enqueue", LVN_INPUT_BODY, &lvn_schema_enqueue, prepare_enqueue,
     answer_list_201, answer_other_enqueue},
    {"POST", API "/queues/rollouts/dequeue", LVN_INPUT_OPTIONAL_BODY, &lvn_schema_dequeue,
     prepare_dequeue, answer_list_200, NULL},
    {"POST", API "/rollouts", LVN_INPUT_BODY, &lvn_schema_start_rollout, prepare_start,
     answer_one_201, NULL},
    {"GET", API "/rollouts", LVN_INPUT_QUERY, &lvn_schema_query_rollouts, prepare_query,
     answer_page, NULL},
    {"POST", API "/rollouts/search", LVN_INPUT_BODY, &lvn_schema_query_rollouts, prepare_query,
     answer_page, NULL},
    {"GET", API "/rollouts/{rollout_id}", LVN_INPUT_NONE, NULL, prepare_get, answer_get,
     answer_no_rollout},
    {"POST", API "/rollouts/{rollout_id}", LVN_INPUT_BODY, &lvn_schema_update_rollout,
     prepare_update, answer_one_200, answer_no_update},
    {.method = NULL},
};
