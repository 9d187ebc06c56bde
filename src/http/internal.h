/* Private to src/http: the server, its connections and requests. All of it lives on the server's
 * loop. */
#ifndef LVN_HTTP_INTERNAL_H
#define LVN_HTTP_INTERNAL_H

#include <llhttp.h>
#include <pthread.h>
#include <uv.h>

#include "base/buf.h"
#include "http/server.h"

enum {
    LVN_HTTP_MAX_HEADERS = 128,
    LVN_HTTP_READ_BYTES = 64 * 1024,
    LVN_HTTP_MAX_PENDING = 256 * 1024, /* pipelined bytes kept while a request is being answered */
    LVN_HTTP_SPARE_ARENAS = 64,
};

typedef struct lvn_http_conn lvn_http_conn;
typedef struct lvn_http_exchange lvn_http_exchange;
typedef struct lvn_http_node lvn_http_node;

/* A route that was found: its handler, or which methods the path knows. */
typedef struct lvn_http_match {
    lvn_http_handler handler; /* NULL: none */
    void *user;
    lvn_str params[LVN_HTTP_MAX_PARAMS];
    size_t param_count;
    char allow[96]; /* "GET, POST"; empty when the path is unknown */
} lvn_http_match;

struct lvn_http_server {
    lvn_loop *loop;
    lvn_http_config config;
    char *host;
    int fd, port;
    uv_tcp_t listener;
    uv_prepare_t flusher; /* before the loop waits, everything written in this turn goes out */
    llhttp_settings_t settings;
    char *read_buffer;
    lvn_http_node *root;
    lvn_http_handler fallback;
    void *fallback_user;
    lvn_http_guard_fn guard;
    void *guard_user;
    lvn_http_conn *conns, *dirty;
    int conn_count;
    lvn_arena *spare[LVN_HTTP_SPARE_ARENAS];
    size_t spare_count;
    char date[40]; /* the Date header's value, made once a second */
    int64_t date_s;
    bool is_started, is_closing;
    pthread_mutex_t lock;
    pthread_cond_t is_idle;
    size_t live; /* connections, requests and handles not yet released; guarded by lock */
};

typedef enum conn_state {
    CONN_HEAD, /* waiting for, or in, a request's head */
    CONN_BODY,
    CONN_BUSY,   /* a request is being answered */
    CONN_ENDING, /* the last answer is on its way out */
    CONN_LINGER, /* all is sent; what the client still sends is dropped, so that it can read the
                    answer */
    CONN_CLOSED,
} conn_state;

typedef struct header_place {
    size_t name_at, name_len, value_at, value_len; /* in conn->head */
} header_place;

struct lvn_http_conn {
    lvn_http_server *server;
    lvn_http_conn *previous, *next, *next_dirty;
    bool is_dirty;
    uv_tcp_t tcp;
    uv_timer_t timer;
    int open_handles;
    conn_state state;

    llhttp_t parser;
    lvn_buf head; /* target, names and values of the request being read */
    size_t target_len;
    header_place headers[LVN_HTTP_MAX_HEADERS];
    size_t header_count;
    bool is_in_name;
    char last_byte;        /* of the head so far: a blank behind a line feed is a folded line */
    size_t head_bytes;     /* received of this head */
    size_t overhead_bytes; /* chunk framing and trailers of this body */
    lvn_buf body;
    int fault_status; /* set by a parser callback that refuses */
    const char *fault_text;
    bool has_message; /* the parser paused behind a complete message */

    lvn_buf pending; /* bytes received but not parsed yet */
    bool is_reading, has_read_end, is_parsing;
    bool keeps_alive; /* after the present request */
    lvn_http_exchange *exchange;

    lvn_buf out, writing; /* gathered; handed to libuv */
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool is_writing;
    size_t stall_mark; /* bytes unsent when the write was last looked at */
    uint64_t stall_at; /* loop time by which that must have changed */

    uint64_t deadline, timer_due; /* loop time; 0: none */
    uint64_t body_started;
    size_t body_bytes;
};

/* A request with its answer. Lives in its own arena. */
struct lvn_http_exchange {
    lvn_http_request request; /* first: handlers hold a pointer to it */
    lvn_http_server *server;
    lvn_http_conn *conn; /* NULL when the connection is gone */
    lvn_buf extra;       /* added headers */
    int holds;
    bool is_head, is_http10;
    bool is_streaming, is_chunked, is_complete;
    bool is_gone; /* the client left before the answer was complete */
    void (*on_disconnect)(void *arg);
    void *disconnect_arg;
    void (*on_drain)(void *arg);
    void *drain_arg;
};

/* conn.c */
void lvn_http_conn_accept(lvn_http_server *server);
void lvn_http_conn_close(lvn_http_conn *conn);
void lvn_http_conn_mark_dirty(lvn_http_conn *conn);
/* Sends what is gathered and goes on with pipelined requests. */
void lvn_http_conn_advance(lvn_http_conn *conn);
void lvn_http_conn_flush(lvn_http_conn *conn);
void lvn_http_conn_append(lvn_http_conn *conn, lvn_str body);
size_t lvn_http_conn_buffered(const lvn_http_conn *conn);
void lvn_http_conn_set_deadline(lvn_http_conn *conn, int64_t delay_ms);
/* The answer is complete: waits for the next request, or ends. */
void lvn_http_conn_answered(lvn_http_conn *conn);
/* Answers an error that the connection does not survive. */
void lvn_http_conn_fail(lvn_http_conn *conn, int status, const char *detail);

/* parse.c */
void lvn_http_parse_settings(llhttp_settings_t *settings);
void lvn_http_parse_reset(lvn_http_conn *conn);
/* Parses as long as no request is being answered; returns the number of bytes taken. */
size_t lvn_http_parse(lvn_http_conn *conn, const char *data, size_t len);

/* exchange.c */
lvn_http_exchange *lvn_http_exchange_new(lvn_http_conn *conn);
void lvn_http_exchange_run(lvn_http_exchange *exchange);
/* The connection goes away: tells the handler, and forgets the connection. */
void lvn_http_exchange_disconnect(lvn_http_exchange *exchange, bool is_conn_closed);
void lvn_http_write_head(lvn_http_server *server, lvn_buf *out, int status,
                         const char *content_type);

/* route.c */
lvn_http_node *lvn_http_node_new(void);
void lvn_http_node_free(lvn_http_node *node);
void lvn_http_node_add(lvn_http_node *root, const char *method, const char *pattern,
                       lvn_http_handler handler, void *user);
/* `path` is percent-encoded; params are allocated in `arena`. */
void lvn_http_node_find(const lvn_http_node *root, lvn_arena *arena, lvn_str method, lvn_str path,
                        lvn_http_match *out);

/* server.c */
void lvn_http_server_retain(lvn_http_server *server);
void lvn_http_server_let_go(lvn_http_server *server);

#endif
