/* An HTTP/1.1 server on a loop: one port, routes by method and path, bodies read whole within a
 * limit, answers whole or streamed.
 *
 * Life of a request: the handler runs on the loop's thread once the body has arrived. The request
 * object belongs to the server and lives until it has been answered in full AND, if the handler
 * called lvn_http_hold, lvn_http_release was called. A handler that answers later (after a store
 * call on another thread) calls hold, posts back to the loop, answers there and releases; the
 * client may have gone away meanwhile, then answering does nothing. All functions below: loop
 * thread only. */
#ifndef LVN_HTTP_SERVER_H
#define LVN_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "loop/loop.h"

typedef struct lvn_http_server lvn_http_server;

typedef struct lvn_http_header {
    lvn_str name; /* as sent */
    lvn_str value;
} lvn_http_header;

enum { LVN_HTTP_MAX_PARAMS = 4 };

typedef struct lvn_http_request {
    lvn_arena *arena; /* lives as long as the request */
    lvn_loop *loop;
    lvn_str method;
    lvn_str path;  /* as sent, without the query, still percent-encoded */
    lvn_str query; /* without '?', still encoded; empty when none */
    const lvn_http_header *headers;
    size_t header_count;
    lvn_str body;
    lvn_str params[LVN_HTTP_MAX_PARAMS]; /* the {..} parts of the route in order, percent-decoded */
    size_t param_count;
    void *user; /* given at registration */
} lvn_http_request;

typedef void (*lvn_http_handler)(lvn_http_request *request);

typedef struct lvn_http_config {
    const char *host; /* "127.0.0.1" */
    int port;         /* 0: any free one */
    size_t max_body_bytes, max_header_bytes;
    int max_connections;
    int header_timeout_ms, body_timeout_ms, idle_timeout_ms;
} lvn_http_config;
void lvn_http_config_default(lvn_http_config *config);

/* Binds and listens. LVN_CONFLICT: the port is in use. Routes are added before `start`. Any thread
 * (it calls the loop). */
lvn_code lvn_http_open(const lvn_http_config *config, lvn_loop *loop, lvn_http_server **out,
                       lvn_err *err) LVN_MUST_USE;
int lvn_http_port(const lvn_http_server *server);
lvn_loop *lvn_http_loop(const lvn_http_server *server);

/* HEAD goes to the handler of GET unless it has one of its own. `pattern` has literal segments and
 * {name} segments, e.g. "/v1/agl/rollouts/{id}/attempts/{aid}". Literal segments win over
 * {..} ones, per method. An unknown path is answered 404, a known one with another method 405 with
 * Allow, as spec/store-api.md section 2 words them; `fallback` (may be unset) gets GETs on unknown
 * paths instead. Before start. */
void lvn_http_route(lvn_http_server *server, const char *method, const char *pattern,
                    lvn_http_handler handler, void *user);
void lvn_http_fallback(lvn_http_server *server, lvn_http_handler handler, void *user);
/* Runs before routing, for every request, those on unknown paths included. True: it has answered, and nobody else sees the request.
 * False: go on; headers it added are part of whatever the answer is. Before start. */
typedef bool (*lvn_http_guard_fn)(lvn_http_request *request, void *user);
void lvn_http_guard(lvn_http_server *server, lvn_http_guard_fn guard, void *user);
void lvn_http_start(lvn_http_server *server);
/* Stops accepting, gives requests in flight up to grace_ms, closes all. Blocks; any thread but the
 * loop's. */
void lvn_http_close(lvn_http_server *server, int grace_ms);

/* First header of that name, case-insensitive; absent when none. */
lvn_str lvn_http_header_get(const lvn_http_request *request, const char *name);
/* The last value of a query parameter, decoded in the request's arena; absent when none. */
lvn_str lvn_http_query_get(lvn_http_request *request, const char *name);
/* All query parameters in order, decoded in the request's arena: for (size_t i = 0;
 * lvn_http_query_next(r, &i, &name, &value);) */
bool lvn_http_query_next(lvn_http_request *request, size_t *position, lvn_str *out_name,
                         lvn_str *out_value);

/* Adds a header to the answer; before respond or stream_begin. Copied. */
void lvn_http_answer_header(lvn_http_request *request, const char *name, lvn_str value);
/* The whole answer; `body` is copied unless it lies in the request's arena. HEAD and 204 send no
 * body. */
void lvn_http_respond(lvn_http_request *request, int status, const char *content_type,
                      lvn_str body);

/* A streamed answer (chunked). write copies; it returns false when the client is gone (keep going
 * or stop: no harm). `end` finishes it. buffered() tells how many bytes wait for a slow reader: a
 * producer stops above its own limit until on_drain. */
void lvn_http_stream_begin(lvn_http_request *request, int status, const char *content_type);
bool lvn_http_stream_write(lvn_http_request *request, lvn_str bytes);
void lvn_http_stream_end(lvn_http_request *request);
/* Ends a stream by closing the connection without the final chunk, so that the client sees it was
 * cut. */
void lvn_http_stream_abort(lvn_http_request *request);
size_t lvn_http_stream_buffered(const lvn_http_request *request);
/* fn runs each time all that was written has been taken by the system, until the stream ends. NULL:
 * none. */
void lvn_http_stream_on_drain(lvn_http_request *request, void (*fn)(void *arg), void *arg);

/* Runs once on the loop when the client disconnects before the answer is complete. A client that
 * only shut its sending side counts as disconnected, but a whole answer given afterwards is still
 * sent to it. */
void lvn_http_on_disconnect(lvn_http_request *request, void (*fn)(void *arg), void *arg);
bool lvn_http_is_connected(const lvn_http_request *request);

void lvn_http_hold(lvn_http_request *request);
void lvn_http_release(lvn_http_request *request);

/* Decodes %XX (and '+' as a blank when `plus_is_blank`); malformed escapes stay as they are; bytes
 * that are not UTF-8 become U+FFFD. */
lvn_str lvn_http_percent_decode(lvn_arena *arena, lvn_str text, bool plus_is_blank);

#endif
