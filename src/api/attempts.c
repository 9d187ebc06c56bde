#include "api/call.h"

static void answer_attempted(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_api_write_rollouts(&buf, &call->op);
    lvn_api_answer_json(call, 201, &buf);
}

static void prepare_start(lvn_api_call *call)
{
    call->op.kind = LVN_OP_START_ATTEMPT;
    call->op.in.start_attempt.rollout_id = call->request->params[0];
    call->op.in.start_attempt.worker_id = lvn_api_text(&call->input, "worker_id");
}

static void prepare_query(lvn_api_call *call)
{
    call->op.kind = LVN_OP_QUERY_ATTEMPTS;
    call->op.in.query_attempts.rollout_id = call->request->params[0];
    lvn_api_read_page(&call->input, &call->op.in.query_attempts.page);
}

static void answer_page(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_api_begin_page(&buf);
    for (size_t i = 0; i < call->op.out.attempts.count; i++) {
        if (i)
            lvn_buf_append_char(&buf, ',');
        lvn_attempt_write(&buf, &call->op.out.attempts.items[i]);
    }
    lvn_api_end_page(&buf, &call->op.in.query_attempts.page, call->op.out.attempts.total);
    lvn_api_answer_json(call, 200, &buf);
}

static void prepare_latest(lvn_api_call *call)
{
    call->op.kind = LVN_OP_GET_LATEST_ATTEMPT;
    call->op.in.get_latest_attempt.rollout_id = call->request->params[0];
}

static void answer_one_or_null(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    if (call->op.code == LVN_OK && call->op.out.attempts.count)
        lvn_attempt_write(&buf, &call->op.out.attempts.items[0]);
    else
        lvn_buf_lit(&buf, "null");
    lvn_api_answer_json(call, 200, &buf);
}

static bool answer_null(lvn_api_call *call)
{
    if (call->op.code != LVN_NOT_FOUND)
        return false;
    answer_one_or_null(call);
    return true;
}

static void prepare_update(lvn_api_call *call)
{
    static const char *const not_null[] = {"status", "worker_id", "last_heartbeat_time", "metadata",
                                           NULL};
    static const unsigned bits[] = {LVN_SET_STATUS, LVN_SET_WORKER_ID, LVN_SET_HEARTBEAT,
                                    LVN_SET_METADATA};
    const lvn_json *in = &call->input;
    if (lvn_api_refuse_null(call, not_null))
        return;
    call->op.kind = LVN_OP_UPDATE_ATTEMPT;
    call->op.in.update_attempt.rollout_id = call->request->params[0];
    call->op.in.update_attempt.attempt_id = call->request->params[1];
    for (size_t i = 0; not_null[i]; i++)
        if (lvn_json_get(in, not_null[i]))
            call->op.in.update_attempt.set |= bits[i];
    lvn_attempt *values = &call->op.in.update_attempt.values;
    lvn_attempt_status_parse(lvn_api_text(in, "status"), &values->status);
    values->worker_id = lvn_api_text(in, "worker_id");
    values->last_heartbeat_time = lvn_api_time(in, "last_heartbeat_time");
    values->metadata = lvn_api_json_text(call->arena, lvn_json_get(in, "metadata"));
}

#define ATTEMPTS "/v1/agl/rollouts/{rollout_id}/attempts"

const lvn_api_route lvn_api_attempt_routes[] = {
    {"POST", ATTEMPTS, LVN_INPUT_OPTIONAL_BODY, &lvn_schema_start_attempt, prepare_start,
     answer_attempted, NULL},
    {"GET", ATTEMPTS, LVN_INPUT_QUERY, &lvn_schema_query_attempts, prepare_query, answer_page,
     NULL},
    {"POST", ATTEMPTS "/search", LVN_INPUT_BODY, &lvn_schema_query_attempts, prepare_query,
     answer_page, NULL},
    {"GET", ATTEMPTS "/latest", LVN_INPUT_NONE, NULL, prepare_latest, answer_one_or_null,
     answer_null},
    {"POST", ATTEMPTS "/{attempt_id}", LVN_INPUT_BODY, &lvn_schema_update_attempt, prepare_update,
     answer_one_or_null, NULL},
    {.method = NULL},
};
