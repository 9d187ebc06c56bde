/* OTLP over HTTP: POST /v1/traces, and the sister routes that the protocol does not have. */
#include "api/call.h"
#include "api/otlp_decode.h"
#include "otlp_trace.pb-c.h"

#define PROTOBUF "application/x-protobuf"

static const char internal_error[] = "Internal Server Error";

static void fail_plain(lvn_api_call *call, int status, const char *text)
{
    lvn_api_fail(call, status, lvn_str_of(text));
    call->fail_type = "text/plain; charset=utf-8";
}

static bool wants_gzip(const lvn_http_request *request)
{
    lvn_str accepted = lvn_http_header_get(request, "accept-encoding");
    for (size_t i = 0; accepted.len >= 4 && i + 4 <= accepted.len; i++)
        if (strncasecmp(accepted.ptr + i, "gzip", 4) == 0)
            return true;
    return false;
}

/* Gzipped when the client takes that; adds the header, so it is the last step before the answer. */
static lvn_str encode_answer(lvn_api_call *call, lvn_str body)
{
    lvn_str packed;
    if (!wants_gzip(call->request) || lvn_gzip_deflate(call->arena, body, &packed, NULL))
        return body;
    lvn_http_answer_header(call->request, "Content-Encoding", LVN_STR("gzip"));
    return packed;
}

static void fail_status(lvn_api_call *call, const char *message)
{
    Levin__Otlp__RpcStatus status = LEVIN__OTLP__RPC_STATUS__INIT;
    status.message = (char *)(uintptr_t)message;
    size_t len = levin__otlp__rpc_status__get_packed_size(&status);
    char *body = lvn_arena_alloc(call->arena, len + 1);
    levin__otlp__rpc_status__pack(&status, (uint8_t *)body);
    lvn_api_fail(call, 400, (lvn_str){body, len});
    call->encode = encode_answer;
    call->fail_type = PROTOBUF;
}

static bool has_right_type(lvn_api_call *call)
{
    lvn_str type = lvn_http_header_get(call->request, "content-type");
    const char *semicolon = type.len ? memchr(type.ptr, ';', type.len) : NULL;
    if (semicolon)
        type.len = (size_t)(semicolon - type.ptr);
    while (type.len && type.ptr[type.len - 1] == ' ')
        type.len--;
    if (lvn_str_is(type, PROTOBUF))
        return true;
    lvn_str message = lvn_arena_printf(
        call->arena, "Unsupported Content-Type '%.*s', expected '" PROTOBUF "'", LVN_STR_ARG(type));
    fail_status(call, message.ptr);
    return false;
}

/* False: the call has failed. */
static bool inflate_body(lvn_api_call *call, lvn_str *body)
{
    lvn_str encoding = lvn_http_header_get(call->request, "content-encoding");
    if (encoding.len != 4 || strncasecmp(encoding.ptr, "gzip", 4) != 0)
        return true;
    lvn_code code =
        lvn_gzip_inflate(call->arena, *body, call->api->config.max_inflated_bytes, body, NULL);
    if (code == LVN_TOO_LARGE)
        fail_plain(call, 413, "Request body too large");
    else if (code)
        fail_plain(call, 500, internal_error);
    return code == LVN_OK;
}

static void prepare_traces(lvn_api_call *call)
{
    lvn_str body = call->request->body;
    if (!has_right_type(call) || !inflate_body(call, &body))
        return;
    lvn_otlp_batch batch;
    lvn_err err;
    lvn_code code = lvn_otlp_decode(call->arena, body, &batch, &err);
    if (code == LVN_INVALID) {
        lvn_str message =
            lvn_arena_printf(call->arena, "Unable to parse OTLP traces payload: %s", err.message);
        fail_status(call, message.ptr);
    } else if (code == LVN_TOO_LARGE) {
        fail_plain(call, 413,
                   err.message[0] ? lvn_arena_printf(call->arena, "%s", err.message).ptr
                                  : "Request body too large");
    } else if (code) {
        fail_plain(call, 500, internal_error);
    } else if (!batch.count) {
        call->is_finished = true;
    } else {
        call->op.kind = LVN_OP_ADD_SPANS;
        call->op.in.add_spans.spans = batch.spans;
        call->op.in.add_spans.count = batch.count;
        call->op.in.add_spans.needs_sequence = batch.needs_sequence;
    }
}

static void answer_traces(lvn_api_call *call)
{
    lvn_http_respond(call->request, 200, PROTOBUF, encode_answer(call, LVN_STR("")));
}

static bool answer_failed_traces(lvn_api_call *call)
{
    if (call->op.code != LVN_NOT_FOUND && call->op.code != LVN_INTERNAL)
        return false;
    lvn_http_respond(call->request, 500, "text/plain; charset=utf-8", lvn_str_of(internal_error));
    return true;
}

static void prepare_nothing(lvn_api_call *call)
{
    lvn_api_fail(call, 501, LVN_STR(""));
    call->fail_type = NULL;
}

const lvn_api_route lvn_api_otlp_routes[] = {
    {"POST", "/v1/traces", LVN_INPUT_NONE, NULL, prepare_traces, answer_traces,
     answer_failed_traces},
    {"POST", "/v1/metrics", LVN_INPUT_NONE, NULL, prepare_nothing, NULL, NULL},
    {"POST", "/v1/logs", LVN_INPUT_NONE, NULL, prepare_nothing, NULL, NULL},
    {"POST", "/v1/development/profiles", LVN_INPUT_NONE, NULL, prepare_nothing, NULL, NULL},
    {.method = NULL},
};
