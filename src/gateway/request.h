/* Private to gateway: a chat completion request as OpenAI defines it. Fields we do not know are ignored. */
#ifndef LVN_GATEWAY_REQUEST_H
#define LVN_GATEWAY_REQUEST_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum { LVN_CHAT_MAX_STOPS = 16, LVN_CHAT_MAX_CHOICES = 8 };

typedef struct lvn_chat_turn {
    lvn_str role, content; /* parts of a content list are joined by a newline */
} lvn_chat_turn;

typedef struct lvn_chat_request {
    lvn_str model;
    lvn_chat_turn *turns;
    size_t turn_count;
    bool has_temperature, has_top_p, has_seed;
    double temperature, top_p;
    int64_t seed;
    int64_t max_tokens; /* 0: not given */
    lvn_str stops[LVN_CHAT_MAX_STOPS];
    size_t stop_count;
    int choices;
    bool wants_logprobs;
    int top_logprobs;
    bool is_stream, wants_usage;
} lvn_chat_request;

/* What an OpenAI client is told about an error. */
typedef struct lvn_chat_error {
    int status;
    const char *type, *param, *code; /* param and code may be NULL */
    char message[400];
} lvn_chat_error;

/* False: `error` is filled. Everything is in `arena`. */
bool lvn_chat_request_parse(lvn_arena *arena, lvn_str body, lvn_chat_request *out, lvn_chat_error *error);

/* {"error": {...}} */
lvn_str lvn_chat_error_write(lvn_arena *arena, const lvn_chat_error *error);
bool lvn_chat_fail(lvn_chat_error *error, int status, const char *type, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
