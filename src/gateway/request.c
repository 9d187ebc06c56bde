#include "gateway/request.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"

bool lvn_chat_fail(lvn_chat_error *error, int status, const char *type, const char *param, const char *code, const char *format, ...)
{
    *error = (lvn_chat_error){.status = status, .type = type, .param = param, .code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    return false;
}

lvn_str lvn_chat_error_write(lvn_arena *arena, const lvn_chat_error *error)
{
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&b, "{\"error\":{");
    const struct { const char *key, *value; } fields[] = {
        {"message", error->message}, {"type", error->type}, {"param", error->param}, {"code", error->code}};
    for (size_t i = 0; i < 4; i++) {
        lvn_json_write_key(&b, fields[i].key);
        lvn_json_write_str(&b, lvn_str_of(fields[i].value));
    }
    lvn_buf_lit(&b, "}}");
    lvn_str text = lvn_arena_dup(arena, lvn_buf_str(&b));
    lvn_buf_done(&b);
    return text;
}

static bool invalid(lvn_chat_error *error, const char *param, const char *text)
{
    return lvn_chat_fail(error, 400, "invalid_request_error", param, NULL, "Invalid '%s': %s", param, text);
}

static bool is_null(const lvn_json *v)
{
    return !v || v->kind == LVN_JSON_NULL;
}

/* A number in [low, high]; absent and null leave `out` alone and *has false. */
static bool read_number(const lvn_json *body, const char *key, double low, double high, bool *has, double *out, lvn_chat_error *error)
{
    const lvn_json *v = lvn_json_get(body, key);
    *has = !is_null(v);
    if (!*has)
        return true;
    if (v->kind != LVN_JSON_INT && v->kind != LVN_JSON_DOUBLE)
        return invalid(error, key, "a number is expected");
    *out = v->kind == LVN_JSON_INT ? (double)v->integer : v->number;
    if (!(*out >= low && *out <= high))
        return lvn_chat_fail(error, 400, "invalid_request_error", key, NULL, "Invalid '%s': it must lie between %g and %g", key, low,
                             high);
    return true;
}

static bool read_int(const lvn_json *body, const char *key, int64_t low, int64_t high, bool *has, int64_t *out, lvn_chat_error *error)
{
    double value = 0;
    if (!read_number(body, key, (double)low, (double)high, has, &value, error))
        return false;
    if (*has && value != floor(value))
        return invalid(error, key, "a whole number is expected");
    if (*has && lvn_json_get(body, key)->kind == LVN_JSON_DOUBLE && value >= 0x1p63) /* INT64_MAX as a double is rounded up to it */
        return invalid(error, key, "it is too large");
    if (*has)
        *out = lvn_json_get(body, key)->kind == LVN_JSON_INT ? lvn_json_get(body, key)->integer : (int64_t)value;
    return true;
}

static bool read_bool(const lvn_json *body, const char *key, bool *out, lvn_chat_error *error)
{
    const lvn_json *v = lvn_json_get(body, key);
    if (is_null(v))
        return true;
    if (v->kind != LVN_JSON_BOOL)
        return invalid(error, key, "true or false is expected");
    *out = v->boolean;
    return true;
}

/* Text, or a list of text parts. */
static bool read_content(lvn_arena *arena, const lvn_json *content, lvn_str *out, lvn_chat_error *error)
{
    *out = LVN_STR("");
    if (is_null(content))
        return true;
    if (content->kind == LVN_JSON_STRING) {
        *out = content->string;
        return true;
    }
    if (content->kind != LVN_JSON_ARRAY)
        return invalid(error, "messages", "content must be a text or a list of parts");
    for (size_t i = 0; i < content->array.count; i++) {
        const lvn_json *text = lvn_json_get(&content->array.items[i], "text");
        if (!text || text->kind != LVN_JSON_STRING)
            return invalid(error, "messages", "the local model takes text parts only");
        *out = i ? lvn_arena_printf(arena, "%.*s\n%.*s", LVN_STR_ARG(*out), LVN_STR_ARG(text->string)) : text->string;
    }
    return true;
}

static bool read_messages(lvn_arena *arena, const lvn_json *body, lvn_chat_request *out, lvn_chat_error *error)
{
    const lvn_json *list = lvn_json_get(body, "messages");
    if (is_null(list))
        return lvn_chat_fail(error, 400, "invalid_request_error", "messages", NULL, "Missing required parameter: 'messages'.");
    if (list->kind != LVN_JSON_ARRAY || !list->array.count)
        return invalid(error, "messages", "a list of at least one message is expected");
    out->turn_count = list->array.count;
    out->turns = lvn_arena_array(arena, out->turn_count, sizeof(*out->turns));
    for (size_t i = 0; i < out->turn_count; i++) {
        const lvn_json *m = &list->array.items[i];
        out->turns[i].role = lvn_json_get_str(m, "role", LVN_STR_ABSENT);
        if (lvn_str_is_absent(out->turns[i].role))
            return invalid(error, "messages", "every message needs a role");
        if (!read_content(arena, lvn_json_get(m, "content"), &out->turns[i].content, error))
            return false;
    }
    return true;
}

static bool read_stops(const lvn_json *body, lvn_chat_request *out, lvn_chat_error *error)
{
    const lvn_json *stop = lvn_json_get(body, "stop");
    if (is_null(stop))
        return true;
    bool is_list = stop->kind == LVN_JSON_ARRAY;
    size_t count = is_list ? stop->array.count : 1;
    if (count > LVN_CHAT_MAX_STOPS)
        return invalid(error, "stop", "too many of them");
    for (size_t i = 0; i < count; i++) {
        const lvn_json *text = is_list ? &stop->array.items[i] : stop;
        if (text->kind != LVN_JSON_STRING)
            return invalid(error, "stop", "a text or a list of texts is expected");
        if (text->string.len)
            out->stops[out->stop_count++] = text->string;
    }
    return true;
}

static bool read_lengths(const lvn_json *body, lvn_chat_request *out, lvn_chat_error *error)
{
    bool has, has_newer;
    int64_t newer = 0, n = 1, top = 0;
    if (!read_int(body, "max_tokens", 1, INT32_MAX, &has, &out->max_tokens, error) ||
        !read_int(body, "max_completion_tokens", 1, INT32_MAX, &has_newer, &newer, error))
        return false;
    if (has_newer)
        out->max_tokens = newer;
    if (!read_int(body, "n", 1, LVN_CHAT_MAX_CHOICES, &has, &n, error) || !read_int(body, "top_logprobs", 0, 20, &has, &top, error))
        return false;
    out->choices = (int)n;
    out->top_logprobs = (int)top;
    return true;
}

bool lvn_chat_request_parse(lvn_arena *arena, lvn_str text, lvn_chat_request *out, lvn_chat_error *error)
{
    lvn_json body;
    lvn_err err;
    *out = (lvn_chat_request){.choices = 1};
    if (lvn_json_parse(arena, text, &body, NULL, &err))
        return lvn_chat_fail(error, 400, "invalid_request_error", NULL, NULL, "The body is not JSON: %s", err.message);
    if (body.kind != LVN_JSON_OBJECT)
        return lvn_chat_fail(error, 400, "invalid_request_error", NULL, NULL, "The body must be a JSON object.");
    out->model = lvn_json_get_str(&body, "model", LVN_STR_ABSENT);
    if (lvn_str_is_absent(out->model))
        return lvn_chat_fail(error, 400, "invalid_request_error", "model", NULL, "Missing required parameter: 'model'.");
    if (!read_messages(arena, &body, out, error) || !read_stops(&body, out, error) || !read_lengths(&body, out, error) ||
        !read_number(&body, "temperature", 0, 2, &out->has_temperature, &out->temperature, error) ||
        !read_number(&body, "top_p", 0, 1, &out->has_top_p, &out->top_p, error) ||
        !read_int(&body, "seed", INT64_MIN, INT64_MAX, &out->has_seed, &out->seed, error) ||
        !read_bool(&body, "logprobs", &out->wants_logprobs, error) || !read_bool(&body, "stream", &out->is_stream, error))
        return false;
    if (out->has_top_p && out->top_p <= 0)
        return invalid(error, "top_p", "it must be above 0");
    const lvn_json *stream = lvn_json_get(&body, "stream_options");
    out->wants_usage = lvn_json_get_bool(stream, "include_usage", false);
    return true;
}
