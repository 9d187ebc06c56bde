#include "api/call.h"

static void prepare_get(lvn_api_call *call)
{
    call->op.kind = LVN_OP_GET_WORKER;
    call->op.in.get_worker.worker_id = call->request->params[0];
}

static void prepare_heartbeat(lvn_api_call *call)
{
    static const char *const not_null[] = {"heartbeat_stats", NULL};
    if (lvn_api_refuse_null(call, not_null))
        return;
    const lvn_json *stats = lvn_json_get(&call->input, "heartbeat_stats");
    call->op.kind = LVN_OP_HEARTBEAT;
    call->op.in.heartbeat.worker_id = call->request->params[0];
    call->op.in.heartbeat.has_stats = stats != NULL;
    call->op.in.heartbeat.stats = lvn_api_json_text(call->arena, stats);
}

static void prepare_query(lvn_api_call *call)
{
    const lvn_json *in = &call->input, *statuses = lvn_json_get(in, "status_in");
    call->op.kind = LVN_OP_QUERY_WORKERS;
    if (statuses && statuses->kind == LVN_JSON_ARRAY) {
        lvn_worker_status *list =
            lvn_arena_array(call->arena, statuses->array.count, sizeof(*list));
        for (size_t i = 0; i < statuses->array.count; i++)
            lvn_worker_status_parse(statuses->array.items[i].string, &list[i]);
        call->op.in.query_workers.status_in = list;
        call->op.in.query_workers.status_count = statuses->array.count;
        call->op.in.query_workers.has_status_in = true;
    }
    call->op.in.query_workers.worker_id_contains = lvn_api_text(in, "worker_id_contains");
    call->op.in.query_workers.is_or = lvn_str_is(lvn_api_text(in, "filter_logic"), "or");
    lvn_api_read_page(in, &call->op.in.query_workers.page);
}

static void answer_one(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    if (call->op.code == LVN_OK && call->op.out.workers.count)
        lvn_worker_write(&buf, &call->op.out.workers.items[0]);
    else
        lvn_buf_lit(&buf, "null");
    lvn_api_answer_json(call, 200, &buf);
}

static bool answer_null(lvn_api_call *call)
{
    if (call->op.code != LVN_NOT_FOUND)
        return false;
    answer_one(call);
    return true;
}

static void answer_page(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_api_begin_page(&buf);
    for (size_t i = 0; i < call->op.out.workers.count; i++) {
        if (i)
            lvn_buf_append_char(&buf, ',');
        lvn_worker_write(&buf, &call->op.out.workers.items[i]);
    }
    lvn_api_end_page(&buf, &call->op.in.query_workers.page, call->op.out.workers.total);
    lvn_api_answer_json(call, 200, &buf);
}

#define WORKERS "/v1/agl/workers"

const lvn_api_route lvn_api_worker_routes[] = {
    {"GET", WORKERS, LVN_INPUT_QUERY, &lvn_schema_query_workers, prepare_query, answer_page, NULL},
    {"POST", WORKERS "/search", LVN_INPUT_BODY, &lvn_schema_query_workers, prepare_query,
     answer_page, NULL},
    {"GET", WORKERS "/{worker_id}", LVN_INPUT_NONE, NULL, prepare_get, answer_one, answer_null},
    {"POST", WORKERS "/{worker_id}", LVN_INPUT_OPTIONAL_BODY, &lvn_schema_heartbeat,
     prepare_heartbeat, answer_one, NULL},
    {.method = NULL},
};
