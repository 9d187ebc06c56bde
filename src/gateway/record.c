/* A call as spans: what v0.3's adapters read, what OpenTelemetry's conventions name, and every token. */
#include <stdio.h>

#include "base/json.h"
#include "gateway/call.h"
#include "model/span_build.h"

enum { MAX_SPAN_BYTES = 16 << 20 };

static void add_turns(lvn_attrs *a, const lvn_chat_call *call)
{
    char key[64];
    for (size_t i = 0; i < call->chat.turn_count; i++) {
        snprintf(key, sizeof(key), "gen_ai.prompt.%zu.role", i);
        lvn_attrs_str(a, key, call->chat.turns[i].role);
        snprintf(key, sizeof(key), "gen_ai.prompt.%zu.content", i);
        lvn_attrs_str(a, key, call->chat.turns[i].content);
    }
}

static void add_request(lvn_attrs *a, const lvn_chat_call *call)
{
    lvn_attrs_str(a, "gen_ai.operation.name", LVN_STR("chat"));
    lvn_attrs_str(a, "gen_ai.provider.name", LVN_STR("levin"));
    lvn_attrs_str(a, "gen_ai.request.model", call->chat.model);
    lvn_attrs_double(a, "gen_ai.request.temperature", (double)call->sampling.temperature);
    lvn_attrs_double(a, "gen_ai.request.top_p", (double)call->sampling.top_p);
    lvn_attrs_int(a, "gen_ai.request.max_tokens", call->sampling.max_tokens);
    lvn_attrs_bool(a, "gen_ai.request.is_stream", call->chat.is_stream);
}

static void add_tokens(lvn_attrs *a, lvn_chat_call *call, const lvn_choice *c)
{
    int32_t *ids = lvn_arena_array(call->arena, c->token_count, sizeof(*ids));
    float *logp = lvn_arena_array(call->arena, c->token_count, sizeof(*logp));
    for (size_t i = 0; i < c->token_count; i++) {
        ids[i] = c->tokens[i].id;
        logp[i] = c->tokens[i].logp;
    }
    lvn_attrs_int32s(a, "prompt_token_ids", call->prompt, call->prompt_count);
    lvn_attrs_int32s(a, "response_token_ids", ids, c->token_count);
    lvn_attrs_floats(a, "levin.logprobs", logp, c->token_count);
    lvn_buf content;
    lvn_buf_init(&content, LVN_BUF_NO_LIMIT);
    lvn_choice_write_logprobs(&content, call, c, 0, c->token_count);
    lvn_attrs_str(a, "logprobs.content", lvn_buf_str(&content));
    lvn_buf_done(&content);
}

static void add_policy(lvn_attrs *a, lvn_gateway *g, int64_t version)
{
    char id[128] = "";
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < LVN_POLICY_IDS; i++)
        if (g->policies[i].is_set && g->policies[i].version == version)
            snprintf(id, sizeof(id), "%s", g->policies[i].resources_id);
    pthread_mutex_unlock(&g->lock);
    lvn_attrs_int(a, "levin.policy.version", version);
    if (*id)
        lvn_attrs_str(a, "levin.policy.resources_id", lvn_str_of(id));
}

static void add_response(lvn_attrs *a, lvn_chat_call *call, const lvn_choice *c)
{
    lvn_str reason = lvn_str_of(c->result.code ? "error" : lvn_choice_finish(c));
    lvn_attrs_str(a, "gen_ai.response.id", lvn_str_of(call->id));
    lvn_attrs_str(a, "gen_ai.response.model", call->chat.model);
    lvn_attrs_strs(a, "gen_ai.response.finish_reasons", &reason, 1);
    lvn_attrs_int(a, "gen_ai.usage.input_tokens", (int64_t)call->prompt_count);
    lvn_attrs_int(a, "gen_ai.usage.output_tokens", (int64_t)c->token_count);
    lvn_attrs_int(a, "gen_ai.usage.cache_read.input_tokens", (int64_t)c->result.cached_tokens);
    lvn_attrs_str(a, "gen_ai.completion.0.role", LVN_STR("assistant"));
    lvn_attrs_str(a, "gen_ai.completion.0.content", lvn_choice_text(c));
    lvn_attrs_str(a, "gen_ai.completion.0.finish_reason", reason);
    lvn_attrs_int(a, "levin.choice", c->index);
    lvn_attrs_double(a, "levin.queue_ms", (double)c->result.queued_ns / 1e6);
    lvn_attrs_double(a, "levin.first_token_ms", (double)c->result.first_token_ns / 1e6);
}

static lvn_code build_span(lvn_chat_call *call, const lvn_choice *c, lvn_span *out, lvn_err *err)
{
    lvn_span_builder b;
    lvn_span_builder_init(&b, MAX_SPAN_BYTES);
    add_request(&b.attributes, call);
    add_turns(&b.attributes, call);
    add_response(&b.attributes, call, c);
    add_policy(&b.attributes, call->gateway, c->result.version);
    add_tokens(&b.attributes, call, c);
    lvn_span_head head = {.rollout_id = call->rollout_id, .attempt_id = call->attempt_id, .name = LVN_STR("openai.chat.completion"),
                          .trace_id = LVN_STR_ABSENT, .span_id = LVN_STR_ABSENT, .parent_id = LVN_STR_ABSENT,
                          .status = c->result.code ? LVN_SPAN_ERROR : LVN_SPAN_OK,
                          .status_description = c->result.code ? lvn_str_of(c->failure) : LVN_STR_ABSENT,
                          .start_time = call->begin_time, .end_time = call->end_time};
    lvn_code code = lvn_span_builder_finish(&b, call->arena, &head, out, err);
    lvn_span_builder_done(&b);
    return code;
}

lvn_code lvn_call_spans(lvn_chat_call *call, lvn_span *out, lvn_err *err)
{
    lvn_code code = LVN_OK;
    for (int i = 0; i < call->chat.choices && !code; i++)
        code = build_span(call, &call->choices[i], &out[i], err);
    return code;
}
