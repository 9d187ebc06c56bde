#include "api/call.h"

static void prepare_add(lvn_api_call *call)
{
    call->op.kind = LVN_OP_ADD_RESOURCES;
    call->op.in.put_resources.resources_id = LVN_STR_ABSENT;
    call->op.in.put_resources.resources = lvn_api_json_text(call->arena, &call->input);
}

static void prepare_update(lvn_api_call *call)
{
    call->op.kind = LVN_OP_UPDATE_RESOURCES;
    call->op.in.put_resources.resources_id = call->request->params[0];
    call->op.in.put_resources.resources = lvn_api_json_text(call->arena, &call->input);
}

static void prepare_get(lvn_api_call *call)
{
    call->op.kind = LVN_OP_GET_RESOURCES;
    call->op.in.get_resources.resources_id =
        call->request->param_count ? call->request->params[0] : LVN_STR_ABSENT;
}

static void prepare_query(lvn_api_call *call)
{
    call->op.kind = LVN_OP_QUERY_RESOURCES;
    lvn_api_read_filter(&call->input, "resources_id", "resources_id_contains",
                        &call->op.in.query_resources.resources_id);
    lvn_api_read_page(&call->input, &call->op.in.query_resources.page);
}

static void answer_one(lvn_api_call *call, int status)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    if (call->op.code == LVN_OK && call->op.out.resources.count)
        lvn_resources_write(&buf, &call->op.out.resources.items[0]);
    else
        lvn_buf_lit(&buf, "null");
    lvn_api_answer_json(call, status, &buf);
}

static void answer_200(lvn_api_call *call)
{
    answer_one(call, 200);
}

static void answer_201(lvn_api_call *call)
{
    answer_one(call, 201);
}

static bool answer_null(lvn_api_call *call)
{
    if (call->op.code != LVN_NOT_FOUND)
        return false;
    answer_one(call, 200);
    return true;
}

static void answer_page(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_api_begin_page(&buf);
    for (size_t i = 0; i < call->op.out.resources.count; i++) {
        if (i)
            lvn_buf_append_char(&buf, ',');
        lvn_resources_write(&buf, &call->op.out.resources.items[i]);
    }
    lvn_api_end_page(&buf, &call->op.in.query_resources.page, call->op.out.resources.total);
    lvn_api_answer_json(call, 200, &buf);
}

#define RESOURCES "/v1/agl/resources"

const lvn_api_route lvn_api_resource_routes[] = {
    {"POST", RESOURCES, LVN_INPUT_BODY, &lvn_schema_resources, prepare_add, answer_201, NULL},
    {"GET", RESOURCES, LVN_INPUT_QUERY, &lvn_schema_query_resources, prepare_query, answer_page,
     NULL},
    {"GET", RESOURCES "/latest", LVN_INPUT_NONE, NULL, prepare_get, answer_200, answer_null},
    {"GET", RESOURCES "/{resources_id}", LVN_INPUT_NONE, NULL, prepare_get, answer_200,
     answer_null},
    {"POST", RESOURCES "/{resources_id}", LVN_INPUT_BODY, &lvn_schema_resources, prepare_update,
     answer_200, NULL},
    {.method = NULL},
};
