/* Private to gateway: one chat completion on its way. Lives on the loop; the decode thread only appends tokens to a choice and posts. */
#ifndef LVN_GATEWAY_CALL_H
#define LVN_GATEWAY_CALL_H

#include <pthread.h>

#include "base/buf.h"
#include "gateway/attempts.h"
#include "gateway/gateway.h"
#include "gateway/request.h"

enum { LVN_POLICY_IDS = 64 };

struct lvn_gateway {
    lvn_gateway_config config;
    lvn_http_server *server;
    lvn_store *store;
    lvn_serve *serve;
    lvn_attempts attempts;  /* loop only */
    uint64_t counter;       /* loop only; of calls without a seed */
    pthread_mutex_t lock;   /* guards the rest */
    struct { int64_t version; char resources_id[128]; bool is_set; } policies[LVN_POLICY_IDS];
    size_t next_policy;
};

typedef struct lvn_call_token {
    int32_t id;
    float logp;
    struct lvn_token_alt *top; /* top_logprobs entries or NULL; owned */
    int top_count;
} lvn_call_token;

typedef struct lvn_chat_call lvn_chat_call;

typedef struct lvn_choice {
    lvn_chat_call *call;
    int index;
    lvn_generation *handle;
    /* Guarded by the call's lock while decoding. */
    lvn_call_token *tokens;
    size_t token_count, token_capacity;
    bool is_done;
    lvn_generation_result result;
    char failure[160];
    /* Loop only. */
    size_t drained;     /* tokens whose text is in `text` */
    lvn_buf text;       /* bytes of the answer, before cutting at stops */
    size_t sent;        /* bytes of it that were streamed */
    size_t sent_tokens; /* whose log-probs were streamed */
    bool has_begun, has_ended;
} lvn_choice;

struct lvn_chat_call {
    lvn_gateway *gateway;
    lvn_http_request *request;
    lvn_arena *arena; /* the request's */
    lvn_chat_request chat;
    bool is_recorded; /* has an attempt */
    lvn_str rollout_id, attempt_id;
    lvn_mode mode;

    lvn_sampling sampling;
    int32_t *prompt;
    size_t prompt_count;
    lvn_choice *choices;
    int open_choices;
    bool is_aborted; /* the client is gone */
    char id[48];
    double begin_time, end_time;

    pthread_mutex_t lock;
    bool is_posted; /* a message to the loop is under way */
    lvn_op op;      /* store operations, one at a time */
};

/* Loop thread. Takes the request over: holds it until it is answered and the span is stored. */
void lvn_chat_call_begin(lvn_gateway *gateway, lvn_http_request *request, bool is_recorded);

/* answer.c: text of a choice up to now; whole when it has ended. */
lvn_str lvn_choice_text(const lvn_choice *choice);
const char *lvn_choice_finish(const lvn_choice *choice); /* "stop", "length"; NULL while it goes on */
size_t lvn_choice_stop_at(const lvn_choice *choice);     /* where the first stop begins, SIZE_MAX: nowhere */
void lvn_call_answer(lvn_chat_call *call);               /* the whole answer, not streamed */
void lvn_call_stream(lvn_chat_call *call);               /* what can be sent now */
void lvn_call_stream_end(lvn_chat_call *call);
void lvn_choice_write_logprobs(lvn_buf *b, const lvn_chat_call *call, const lvn_choice *choice, size_t from, size_t to);

/* record.c: the spans of a call, one a choice; all lies in the call's arena. */
lvn_code lvn_call_spans(lvn_chat_call *call, lvn_span *out, lvn_err *err) LVN_MUST_USE;

#endif
