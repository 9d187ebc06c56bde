/* Answers in OpenAI's form, whole and streamed. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/utf8.h"
#include "gateway/call.h"

/* ---- text ---- */

size_t lvn_choice_stop_at(const lvn_choice *c)
{
    const lvn_chat_request *chat = &c->call->chat;
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < chat->stop_count; i++) {
        const char *at = c->text.len ? memmem(c->text.ptr, c->text.len, chat->stops[i].ptr, chat->stops[i].len) : NULL;
        if (at && (size_t)(at - c->text.ptr) < first)
            first = (size_t)(at - c->text.ptr);
    }
    return first;
}

/* Bytes [0, len) with what is no UTF-8 replaced, as a client expects text. */
static lvn_str clean(lvn_arena *arena, lvn_str s)
{
    if (lvn_utf8_is_valid(s))
        return s;
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    for (size_t i = 0; i < s.len;) {
        size_t len = lvn_utf8_sequence(s.ptr + i, s.ptr + s.len);
        if (len)
            lvn_buf_append(&b, s.ptr + i, len);
        else
            lvn_buf_lit(&b, "\xef\xbf\xbd");
        i += len ? len : 1;
    }
    lvn_str copy = lvn_arena_dup(arena, lvn_buf_str(&b));
    lvn_buf_done(&b);
    return copy;
}

lvn_str lvn_choice_text(const lvn_choice *c)
{
    lvn_str text = lvn_buf_str(&c->text);
    size_t stop = lvn_choice_stop_at(c);
    if (stop < text.len)
        text.len = stop;
    return clean(c->call->arena, text);
}

const char *lvn_choice_finish(const lvn_choice *c)
{
    if (!c->is_done)
        return NULL;
    return c->result.finish == LVN_FINISH_LENGTH ? "length" : "stop";
}

/* How much of a text that goes on may be sent: whole characters, and not what may be the beginning of a stop. */
static size_t sendable(const lvn_choice *c)
{
    size_t len = c->text.len, stop = lvn_choice_stop_at(c);
    if (stop != SIZE_MAX)
        return stop;
    if (c->is_done)
        return len;
    size_t longest = 0;
    for (size_t i = 0; i < c->call->chat.stop_count; i++)
        longest = c->call->chat.stops[i].len > longest ? c->call->chat.stops[i].len : longest;
    len -= longest ? (longest - 1 < len ? longest - 1 : len) : 0;
    for (size_t back = 1; back <= 3 && back <= len; back++) { /* cut before a character that is not whole yet */
        unsigned char byte = (unsigned char)c->text.ptr[len - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        if (byte >= 0xc0 && !lvn_utf8_sequence(c->text.ptr + len - back, c->text.ptr + len))
            len -= back;
        break;
    }
    return len > c->sent ? len : c->sent;
}

/* ---- parts ---- */

static void write_token(lvn_buf *b, const lvn_chat_call *call, int32_t id, float logp)
{
    lvn_str text = lvn_serve_token_text(call->gateway->serve, id);
    lvn_json_write_key(b, "token");
    lvn_json_write_str(b, clean(call->arena, text));
    lvn_json_write_key(b, "logprob");
    lvn_json_write_double(b, isfinite(logp) ? (double)logp : -9999.0);
    lvn_json_write_key(b, "bytes");
    lvn_buf_append_char(b, '[');
    for (size_t i = 0; i < text.len; i++)
        lvn_buf_printf(b, "%s%d", i ? "," : "", (unsigned char)text.ptr[i]);
    lvn_buf_append_char(b, ']');
}

void lvn_choice_write_logprobs(lvn_buf *b, const lvn_chat_call *call, const lvn_choice *choice, size_t from, size_t to)
{
    lvn_buf_append_char(b, '[');
    for (size_t i = from; i < to; i++) {
        const lvn_call_token *t = &choice->tokens[i];
        lvn_buf_append_str(b, i > from ? LVN_STR(",{") : LVN_STR("{"));
        write_token(b, call, t->id, t->logp);
        lvn_json_write_key(b, "top_logprobs");
        lvn_buf_append_char(b, '[');
        for (int k = 0; k < t->top_count; k++) {
            lvn_buf_append_str(b, k ? LVN_STR(",{") : LVN_STR("{"));
            write_token(b, call, t->top[k].id, t->top[k].logp);
            lvn_buf_append_char(b, '}');
        }
        lvn_buf_lit(b, "]}");
    }
    lvn_buf_append_char(b, ']');
}

static void write_logprobs(lvn_buf *b, const lvn_chat_call *call, const lvn_choice *choice, size_t from, size_t to)
{
    lvn_json_write_key(b, "logprobs");
    if (!call->chat.wants_logprobs) {
        lvn_buf_lit(b, "null");
        return;
    }
    lvn_buf_lit(b, "{\"content\":");
    lvn_choice_write_logprobs(b, call, choice, from, to);
    lvn_buf_lit(b, ",\"refusal\":null}");
}

static void write_head(lvn_buf *b, const lvn_chat_call *call, const char *object)
{
    lvn_buf_append_char(b, '{');
    lvn_json_write_key(b, "id");
    lvn_json_write_str(b, lvn_str_of(call->id));
    lvn_json_write_key(b, "object");
    lvn_json_write_str(b, lvn_str_of(object));
    lvn_json_write_key(b, "created");
    lvn_json_write_int(b, (int64_t)call->begin_time);
    lvn_json_write_key(b, "model");
    lvn_json_write_str(b, call->chat.model);
    lvn_buf_lit(b, ",\"system_fingerprint\":null");
}

static void write_usage(lvn_buf *b, const lvn_chat_call *call)
{
    size_t answered = 0, cached = 0;
    for (int i = 0; i < call->chat.choices; i++) {
        answered += call->choices[i].token_count;
        cached += call->choices[i].result.cached_tokens;
    }
    lvn_json_write_key(b, "usage");
    lvn_buf_printf(b, "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,\"prompt_tokens_details\":"
                      "{\"cached_tokens\":%zu},\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
                   call->prompt_count, answered, call->prompt_count + answered, cached);
}

/* ---- the whole answer ---- */

void lvn_call_answer(lvn_chat_call *call)
{
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    write_head(&b, call, "chat.completion");
    lvn_buf_lit(&b, ",\"choices\":[");
    for (int i = 0; i < call->chat.choices; i++) {
        const lvn_choice *c = &call->choices[i];
        lvn_buf_printf(&b, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "", i);
        lvn_json_write_str(&b, lvn_choice_text(c));
        lvn_buf_lit(&b, ",\"refusal\":null}");
        write_logprobs(&b, call, c, 0, c->token_count);
        lvn_json_write_key(&b, "finish_reason");
        lvn_json_write_str(&b, lvn_str_of(lvn_choice_finish(c)));
        lvn_buf_append_char(&b, '}');
    }
    lvn_buf_append_char(&b, ']');
    write_usage(&b, call);
    lvn_buf_append_char(&b, '}');
    lvn_http_respond(call->request, 200, "application/json", lvn_buf_str(&b));
    lvn_buf_done(&b);
}

/* ---- the stream ---- */

static void send_event(lvn_chat_call *call, lvn_buf *b)
{
    lvn_buf event;
    lvn_buf_init(&event, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&event, "data: ");
    lvn_buf_append_str(&event, lvn_buf_str(b));
    lvn_buf_lit(&event, "\n\n");
    lvn_http_stream_write(call->request, lvn_buf_str(&event));
    lvn_buf_done(&event);
    lvn_buf_clear(b);
}

static void begin_chunk(lvn_buf *b, const lvn_chat_call *call, const lvn_choice *c)
{
    write_head(b, call, "chat.completion.chunk");
    lvn_buf_printf(b, ",\"choices\":[{\"index\":%d,\"delta\":", c->index);
}

static void end_chunk(lvn_buf *b, const lvn_chat_call *call, const char *finish)
{
    lvn_json_write_key(b, "finish_reason");
    lvn_json_write_str(b, lvn_str_of(finish));
    lvn_buf_lit(b, "}]");
    if (call->chat.wants_usage)
        lvn_buf_lit(b, ",\"usage\":null");
    lvn_buf_append_char(b, '}');
}

static void stream_choice(lvn_chat_call *call, lvn_choice *c, lvn_buf *b)
{
    if (!c->has_begun) {
        c->has_begun = true;
        begin_chunk(b, call, c);
        lvn_buf_lit(b, "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null");
        end_chunk(b, call, NULL);
        send_event(call, b);
    }
    size_t end = sendable(c);
    if (end > c->sent) {
        lvn_str piece = clean(call->arena, (lvn_str){c->text.ptr + c->sent, end - c->sent});
        begin_chunk(b, call, c);
        lvn_buf_lit(b, "{\"content\":");
        lvn_json_write_str(b, piece);
        lvn_buf_append_char(b, '}');
        write_logprobs(b, call, c, c->sent_tokens, c->drained);
        end_chunk(b, call, NULL);
        send_event(call, b);
        c->sent = end;
        c->sent_tokens = c->drained;
    }
    if (c->is_done && !c->has_ended && c->drained == c->token_count) {
        c->has_ended = true;
        begin_chunk(b, call, c);
        lvn_buf_lit(b, "{}");
        write_logprobs(b, call, c, c->sent_tokens, c->drained); /* of the end token and what was withheld */
        end_chunk(b, call, lvn_choice_finish(c));
        send_event(call, b);
    }
}

void lvn_call_stream(lvn_chat_call *call)
{
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    for (int i = 0; i < call->chat.choices; i++)
        stream_choice(call, &call->choices[i], &b);
    lvn_buf_done(&b);
}

void lvn_call_stream_end(lvn_chat_call *call)
{
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    if (call->chat.wants_usage) {
        write_head(&b, call, "chat.completion.chunk");
        lvn_buf_lit(&b, ",\"choices\":[]");
        write_usage(&b, call);
        lvn_buf_append_char(&b, '}');
        send_event(call, &b);
    }
    lvn_http_stream_write(call->request, LVN_STR("data: [DONE]\n\n"));
    lvn_http_stream_end(call->request);
    lvn_buf_done(&b);
}
