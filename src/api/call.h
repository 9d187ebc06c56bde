/* Private to src/api: one request on its way through prepare (validate, fill in the operation), the
 * store, and answer.
 *
 * prepare is pure work on the request's memory. For big bodies it runs on the pool, else on the
 * loop; then nothing else touches the request's arena. answer runs on the loop. */
#ifndef LVN_API_CALL_H
#define LVN_API_CALL_H

#include <uv.h>

#include "api/api.h"
#include "api/schema.h"

typedef struct lvn_api_call lvn_api_call;

typedef enum lvn_api_input {
    LVN_INPUT_NONE,
    LVN_INPUT_BODY,
    LVN_INPUT_OPTIONAL_BODY, /* no body, or null, leaves the input empty */
    LVN_INPUT_QUERY,
} lvn_api_input;

typedef struct lvn_api_route {
    const char *method, *pattern;
    lvn_api_input input_from;
    const lvn_schema *schema;
    void (*prepare)(lvn_api_call *call); /* fills in call->op, or fails the call */
    void (*answer)(lvn_api_call *call);  /* the operation succeeded */
    /* Optional: other answers to a failed operation than lvn_api_answer_error gives; false: none
     * here. */
    bool (*answer_failure)(lvn_api_call *call);
} lvn_api_route;

struct lvn_api {
    lvn_http_server *server;
    lvn_store *store;
    lvn_api_config config;
    struct lvn_api_bound *bound; /* what the server holds for each route */
    struct lvn_events *events;
    lvn_api_call *parked;        /* waits and dequeues that the store has not answered; loop only */
    bool is_stopping;            /* loop only */
};

struct lvn_api_call {
    lvn_op op; /* first: the store hands this back */
    lvn_api *api;
    lvn_http_request *request;
    lvn_arena *arena; /* the request's */
    const lvn_api_route *route;
    lvn_json input;  /* validated; an empty object when there was none */
    int fail_status; /* not 0: prepare refused, and this is the answer */
    const char *fail_type;
    lvn_str fail_body;
    lvn_str (*encode)(lvn_api_call *call,
                      lvn_str body); /* on the loop, before a refusal is sent; may be NULL */
    bool is_finished;                /* answered by prepare without the store */
    uv_work_t work;
    lvn_api_call *previous_parked, *next_parked;
    bool is_parked;
    void *state; /* the route's own */
};

/* The handler for all routes of the tables; request->user is a struct lvn_api_bound. */
void lvn_api_handle(lvn_http_request *request);

typedef struct lvn_api_bound {
    lvn_api *api;
    const lvn_api_route *route;
} lvn_api_bound;

/* Answers for prepare. `detail` is plain text. */
void lvn_api_fail(lvn_api_call *call, int status, lvn_str json_body);
void lvn_api_fail_detail(lvn_api_call *call, int status, const char *detail);
/* 422 with the errors of `report`. */
void lvn_api_fail_invalid(lvn_api_call *call, const lvn_schema_report *report);
/* 400 when one of `names` (ends with NULL) is present and null. True: refused. */
bool lvn_api_refuse_null(lvn_api_call *call, const char *const *names);

/* Answers for the loop. */
void lvn_api_answer_json(lvn_api_call *call, int status,
                         lvn_buf *body); /* releases the buffer's memory */
void lvn_api_answer_500(lvn_api_call *call, const char *error_type, lvn_str message);
void lvn_api_answer_error(lvn_api_call *call); /* by op.code and op.err */

/* Text of a value; absent for null and for none. */
lvn_str lvn_api_text(const lvn_json *object, const char *name);
/* Canonical JSON text in the arena; absent for null and for none. */
lvn_str lvn_api_json_text(lvn_arena *arena, const lvn_json *value);
double lvn_api_time(const lvn_json *object,
                    const char *name); /* LVN_TIME_NULL for null and for none */
int64_t lvn_api_int(const lvn_json *object, const char *name,
                    int64_t fallback); /* clamped to int64_t */
void lvn_api_read_page(const lvn_json *input, lvn_page *out);
void lvn_api_read_texts(lvn_arena *arena, const lvn_json *list, lvn_str_list *out);
void lvn_api_read_filter(const lvn_json *input, const char *name, const char *contains,
                         lvn_text_filter *out);

/* "items": the page's frame around what was written between the two. */
void lvn_api_begin_page(lvn_buf *buf);
void lvn_api_end_page(lvn_buf *buf, const lvn_page *page, int64_t total);

/* The route tables, each ending with method NULL. */
extern const lvn_api_route lvn_api_rollout_routes[], lvn_api_attempt_routes[],
    lvn_api_span_routes[], lvn_api_resource_routes[], lvn_api_worker_routes[],
    lvn_api_other_routes[], lvn_api_otlp_routes[];

/* Shared between rollouts.c and waits.c. */
void lvn_api_write_rollouts(lvn_buf *buf, const lvn_op *op);

#endif
