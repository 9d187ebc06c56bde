/* The way of a call: parse, know the attempt, render the prompt, decode, store the span, answer. */
#include "gateway/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"

/* ---- answers that end a call ---- */

static void free_call(lvn_chat_call *call)
{
    for (int i = 0; call->choices && i < call->chat.choices; i++) {
        lvn_choice *c = &call->choices[i];
        for (size_t k = 0; k < c->token_count; k++)
            free(c->tokens[k].top);
        free(c->tokens);
        lvn_buf_done(&c->text);
    }
    pthread_mutex_destroy(&call->lock);
    lvn_http_request *request = call->request;
    lvn_http_on_disconnect(request, NULL, NULL); /* the answer may still be on its way out */
    free(call);
    lvn_http_release(request);
}

static void refuse(lvn_chat_call *call, const lvn_chat_error *error)
{
    if (error->status == 429 || error->status == 503)
        lvn_http_answer_header(call->request, "Retry-After", LVN_STR("1"));
    lvn_http_respond(call->request, error->status, "application/json", lvn_chat_error_write(call->arena, error));
    free_call(call);
}

static void refuse_code(lvn_chat_call *call, lvn_code code, const char *message)
{
    lvn_chat_error e;
    if (code == LVN_TOO_LARGE)
        lvn_chat_fail(&e, 400, "invalid_request_error", "messages", "context_length_exceeded", "%s", message);
    else if (code == LVN_INVALID)
        lvn_chat_fail(&e, 400, "invalid_request_error", NULL, NULL, "%s", message);
    else if (code == LVN_FULL)
        lvn_chat_fail(&e, 429, "rate_limit_error", NULL, "queue_full", "%s", message);
    else if (code == LVN_UNAVAILABLE)
        lvn_chat_fail(&e, 503, "server_error", NULL, "unavailable", "%s", message);
    else
        lvn_chat_fail(&e, 500, "server_error", NULL, lvn_code_name(code), "%s", message);
    refuse(call, &e);
}

/* ---- the end: span, then the last byte ---- */

static lvn_choice *first_failure(lvn_chat_call *call)
{
    for (int i = 0; i < call->chat.choices; i++)
        if (call->choices[i].result.code)
            return &call->choices[i];
    return NULL;
}

static void remember_answers(lvn_chat_call *call)
{
    lvn_known_attempt *known = lvn_attempts_find(&call->gateway->attempts, call->rollout_id, call->attempt_id);
    for (int i = 0; known && i < call->chat.choices; i++) {
        const lvn_choice *c = &call->choices[i];
        int32_t *ids = lvn_arena_array(call->arena, c->token_count, sizeof(*ids));
        for (size_t k = 0; k < c->token_count; k++)
            ids[k] = c->tokens[k].id;
        /* After a stop text the tokens say more than the text: such an answer is not spliced. */
        if (!c->result.code && lvn_choice_stop_at(c) == SIZE_MAX)
            lvn_attempts_remember(known, lvn_choice_text(c), ids, c->token_count);
    }
}

static void send_end(lvn_chat_call *call)
{
    const lvn_choice *failed = first_failure(call);
    if (call->is_aborted) {
        free_call(call);
        return;
    }
    if (failed && !call->chat.is_stream) {
        refuse_code(call, failed->result.code, failed->failure);
        return;
    }
    if (failed) {
        lvn_http_stream_abort(call->request);
    } else if (call->chat.is_stream) {
        lvn_call_stream(call);
        lvn_call_stream_end(call);
    } else {
        lvn_call_answer(call);
    }
    free_call(call);
}

static void on_stored(void *arg)
{
    lvn_chat_call *call = arg;
    if (call->op.code) {
        /* A call that is not recorded must not look as if it were: training would miss it silently. */
        lvn_log(LVN_ERROR, "span_not_stored", "rollout=%.*s attempt=%.*s error=\"%s\"", LVN_STR_ARG(call->rollout_id),
                LVN_STR_ARG(call->attempt_id), call->op.err.message);
        if (!call->is_aborted && call->chat.is_stream)
            lvn_http_stream_abort(call->request);
        else if (!call->is_aborted) {
            refuse_code(call, LVN_UNAVAILABLE, "the call could not be recorded");
            return;
        }
        free_call(call);
        return;
    }
    send_end(call);
}

static void post_stored(lvn_op *op)
{
    lvn_chat_call *call = op->user;
    lvn_loop_post(call->request->loop, on_stored, call);
}

static void finish_call(lvn_chat_call *call)
{
    call->end_time = lvn_ns_to_s(lvn_clock_unix_ns());
    if (!call->is_recorded) {
        send_end(call);
        return;
    }
    remember_answers(call);
    lvn_err err;
    lvn_span *spans = lvn_arena_array(call->arena, (size_t)call->chat.choices, sizeof(*spans));
    bool *needs = lvn_arena_array(call->arena, (size_t)call->chat.choices, sizeof(*needs));
    memset(needs, true, (size_t)call->chat.choices);
    call->op = (lvn_op){.kind = LVN_OP_ADD_SPANS, .arena = call->arena, .done = post_stored, .user = call};
    call->op.in.add_spans.spans = spans;
    call->op.in.add_spans.count = (size_t)call->chat.choices;
    call->op.in.add_spans.needs_sequence = needs;
    lvn_code code = lvn_call_spans(call, spans, &err);
    if (!code)
        code = lvn_store_submit(call->gateway->store, &call->op, &err);
    if (code) {
        call->op.code = code;
        call->op.err = err;
        on_stored(call);
    }
}

/* ---- decoding ---- */

/* Loop: takes over what the decode thread has appended. */
static void drain(void *arg)
{
    lvn_chat_call *call = arg;
    int done = 0;
    pthread_mutex_lock(&call->lock);
    call->is_posted = false;
    for (int i = 0; i < call->chat.choices; i++) {
        lvn_choice *c = &call->choices[i];
        for (; c->drained < c->token_count; c->drained++)
            lvn_buf_append_str(&c->text, lvn_serve_token_text(call->gateway->serve, c->tokens[c->drained].id));
        done += c->is_done;
    }
    pthread_mutex_unlock(&call->lock);
    if (done == call->open_choices) {
        finish_call(call);
        return;
    }
    if (call->chat.is_stream && !call->is_aborted) {
        pthread_mutex_lock(&call->lock); /* log-probs are read from the tokens, which may move as they grow */
        lvn_call_stream(call);
        pthread_mutex_unlock(&call->lock);
    }
}

/* Lock held. */
static void post_once(lvn_chat_call *call)
{
    if (call->is_posted)
        return;
    call->is_posted = true;
    lvn_loop_post(call->request->loop, drain, call);
}

static void on_token(void *user, const lvn_token_info *token)
{
    lvn_choice *c = user;
    lvn_chat_call *call = c->call;
    int count = call->sampling.top_logprobs;
    lvn_call_token t = {.id = token->id, .logp = token->logp, .top_count = count};
    if (count) {
        t.top = lvn_alloc((size_t)count * sizeof(*t.top));
        memcpy(t.top, token->top, (size_t)count * sizeof(*t.top));
    }
    pthread_mutex_lock(&call->lock);
    if (c->token_count == c->token_capacity) {
        c->token_capacity = c->token_capacity ? c->token_capacity * 2 : 32;
        c->tokens = lvn_realloc(c->tokens, c->token_capacity * sizeof(*c->tokens));
    }
    c->tokens[c->token_count++] = t;
    if (call->chat.is_stream)
        post_once(call);
    pthread_mutex_unlock(&call->lock);
}

static void on_done(void *user, const lvn_generation_result *result)
{
    lvn_choice *c = user;
    lvn_chat_call *call = c->call;
    pthread_mutex_lock(&call->lock);
    c->result = *result;
    c->handle = NULL;
    c->is_done = true;
    if (result->code)
        snprintf(c->failure, sizeof(c->failure), "%s", result->message ? result->message : lvn_code_name(result->code));
    c->result.message = NULL;
    post_once(call);
    pthread_mutex_unlock(&call->lock);
}

static void cancel_choices(lvn_chat_call *call)
{
    for (int i = 0; i < call->chat.choices; i++) {
        pthread_mutex_lock(&call->lock);
        lvn_generation *handle = call->choices[i].handle;
        if (handle) /* on_done takes the same lock before the handle goes */
            lvn_serve_cancel(call->gateway->serve, handle);
        pthread_mutex_unlock(&call->lock);
    }
}

static void on_disconnect(void *arg)
{
    lvn_chat_call *call = arg;
    call->is_aborted = true;
    cancel_choices(call);
}

static void set_sampling(lvn_chat_call *call)
{
    const lvn_gateway_config *config = &call->gateway->config;
    const lvn_gateway_sampling *by_mode = call->mode == LVN_MODE_TRAIN ? &config->train
                                          : call->mode == LVN_MODE_VAL ? &config->val
                                                                       : &config->other;
    const lvn_chat_request *chat = &call->chat;
    int room = lvn_serve_context_tokens(call->gateway->serve) - (int)call->prompt_count;
    int64_t most = chat->max_tokens ? chat->max_tokens : by_mode->max_tokens ? by_mode->max_tokens : room;
    call->sampling = (lvn_sampling){
        .temperature = chat->has_temperature ? (float)chat->temperature : by_mode->temperature,
        .top_p = chat->has_top_p ? (float)chat->top_p : by_mode->top_p,
        .max_tokens = (int)(most < room ? most : room > 0 ? room : 1),
        .top_logprobs = chat->wants_logprobs ? chat->top_logprobs : 0,
    };
}

/* Calls without a seed get one that depends on the run's and on how many came before. */
static uint64_t seed_of(lvn_chat_call *call, int choice)
{
    lvn_rng rng = {call->chat.has_seed ? (uint64_t)call->chat.seed : call->gateway->config.seed + call->gateway->counter++ * 2654435761u};
    uint64_t seed = lvn_rng_next(&rng);
    return seed + (uint64_t)choice;
}

static lvn_code render(lvn_chat_call *call, lvn_err *err)
{
    const lvn_known_attempt *known =
        call->is_recorded ? lvn_attempts_find(&call->gateway->attempts, call->rollout_id, call->attempt_id) : NULL;
    lvn_chat_message *messages = lvn_arena_array(call->arena, call->chat.turn_count, sizeof(*messages));
    for (size_t i = 0; i < call->chat.turn_count; i++) {
        messages[i] = (lvn_chat_message){.role = call->chat.turns[i].role, .content = call->chat.turns[i].content};
        bool is_answer = known && lvn_str_is(messages[i].role, "assistant");
        const lvn_known_answer *answer = is_answer ? lvn_attempts_answer(known, messages[i].content) : NULL;
        if (answer) {
            messages[i].token_ids = answer->ids;
            messages[i].token_count = answer->count;
        }
    }
    return lvn_serve_chat_tokens(call->gateway->serve, call->arena, messages, call->chat.turn_count, &call->prompt,
                                 &call->prompt_count, err);
}

static lvn_code submit_choice(lvn_chat_call *call, lvn_choice *c, lvn_err *err)
{
    lvn_generation_request r = {.prompt = call->prompt, .prompt_count = call->prompt_count, .sampling = call->sampling,
                                .stops = call->chat.stops, .stop_count = call->chat.stop_count, .on_token = on_token,
                                .on_done = on_done, .user = c};
    r.sampling.seed = seed_of(call, c->index);
    /* The lock keeps on_done from clearing the handle before it is set. */
    pthread_mutex_lock(&call->lock);
    lvn_code code = lvn_serve_submit(call->gateway->serve, &r, &c->handle, err);
    pthread_mutex_unlock(&call->lock);
    return code;
}

static void start(lvn_chat_call *call)
{
    lvn_err err;
    lvn_code code = render(call, &err);
    if (code) {
        refuse_code(call, code, err.message);
        return;
    }
    set_sampling(call);
    call->choices = lvn_arena_array(call->arena, (size_t)call->chat.choices, sizeof(*call->choices));
    for (int i = 0; i < call->chat.choices; i++) {
        call->choices[i].call = call;
        call->choices[i].index = i;
        lvn_buf_init(&call->choices[i].text, LVN_BUF_NO_LIMIT);
    }
    call->open_choices = call->chat.choices;
    for (int i = 0; i < call->chat.choices; i++) {
        code = submit_choice(call, &call->choices[i], &err);
        if (code && i == 0) {
            refuse_code(call, code, err.message);
            return;
        }
        if (code) { /* some run already: the call ends as failed when they have */
            call->choices[i].is_done = true;
            call->choices[i].result = (lvn_generation_result){.finish = LVN_FINISH_ERROR, .code = code};
            snprintf(call->choices[i].failure, sizeof(call->choices[i].failure), "%.*s", 150, err.message);
        }
    }
    if (call->chat.is_stream) {
        lvn_http_answer_header(call->request, "Cache-Control", LVN_STR("no-cache"));
        lvn_http_stream_begin(call->request, 200, "text/event-stream");
    }
    lvn_http_on_disconnect(call->request, on_disconnect, call);
    if (!lvn_http_is_connected(call->request))
        on_disconnect(call);
}

/* ---- knowing the attempt ---- */

static void refuse_attempt(lvn_chat_call *call)
{
    lvn_chat_error e;
    lvn_chat_fail(&e, 404, "invalid_request_error", NULL, "attempt_not_found", "Rollout %.*s has no attempt %.*s",
                  LVN_STR_ARG(call->rollout_id), LVN_STR_ARG(call->attempt_id));
    refuse(call, &e);
}

static void on_attempts(void *arg)
{
    lvn_chat_call *call = arg;
    if (call->op.code) {
        refuse_code(call, call->op.code, call->op.err.message);
        return;
    }
    for (size_t i = 0; i < call->op.out.attempts.count; i++)
        if (lvn_str_eq(call->op.out.attempts.items[i].attempt_id, call->attempt_id)) {
            lvn_attempts_add(&call->gateway->attempts, call->rollout_id, call->attempt_id, call->mode);
            start(call);
            return;
        }
    refuse_attempt(call);
}

static void post_attempts(lvn_op *op)
{
    lvn_chat_call *call = op->user;
    lvn_loop_post(call->request->loop, on_attempts, call);
}

static void submit_op(lvn_chat_call *call)
{
    lvn_err err;
    lvn_code code = lvn_store_submit(call->gateway->store, &call->op, &err);
    if (code)
        refuse_code(call, code == LVN_FULL ? LVN_UNAVAILABLE : code, err.message);
}

static void on_rollout(void *arg)
{
    lvn_chat_call *call = arg;
    if (call->op.code) {
        refuse_code(call, call->op.code, call->op.err.message);
        return;
    }
    if (!call->op.out.rollouts.count) {
        refuse_attempt(call);
        return;
    }
    call->mode = call->op.out.rollouts.items[0].rollout.mode;
    call->op = (lvn_op){.kind = LVN_OP_QUERY_ATTEMPTS, .arena = call->arena, .done = post_attempts, .user = call};
    call->op.in.query_attempts.rollout_id = call->rollout_id;
    call->op.in.query_attempts.page.limit = -1;
    submit_op(call);
}

static void post_rollout(lvn_op *op)
{
    lvn_chat_call *call = op->user;
    lvn_loop_post(call->request->loop, on_rollout, call);
}

void lvn_chat_call_begin(lvn_gateway *gateway, lvn_http_request *request, bool is_recorded)
{
    lvn_chat_call *call = lvn_zalloc(sizeof(*call));
    call->gateway = gateway;
    call->request = request;
    call->arena = request->arena;
    call->is_recorded = is_recorded;
    call->begin_time = lvn_ns_to_s(lvn_clock_unix_ns());
    pthread_mutex_init(&call->lock, NULL);
    strcpy(call->id, "chatcmpl-");
    lvn_id_hex(call->id + 9, 24);
    lvn_http_hold(request);
    lvn_chat_error error;
    if (!lvn_chat_request_parse(call->arena, request->body, &call->chat, &error)) {
        call->chat.choices = 0;
        refuse(call, &error);
        return;
    }
    if (!lvn_str_is(call->chat.model, gateway->config.model_name)) {
        lvn_chat_fail(&error, 404, "invalid_request_error", "model", "model_not_found",
                      "The model `%.*s` does not exist; this gateway serves `%s`.", LVN_STR_ARG(call->chat.model),
                      gateway->config.model_name);
        refuse(call, &error);
        return;
    }
    if (!is_recorded) {
        start(call);
        return;
    }
    call->rollout_id = request->params[0];
    call->attempt_id = request->params[1];
    const lvn_known_attempt *known = lvn_attempts_find(&gateway->attempts, call->rollout_id, call->attempt_id);
    if (known) {
        call->mode = known->mode;
        start(call);
        return;
    }
    call->op = (lvn_op){.kind = LVN_OP_GET_ROLLOUT, .arena = call->arena, .done = post_rollout, .user = call};
    call->op.in.get_rollout.rollout_id = call->rollout_id;
    submit_op(call);
}
