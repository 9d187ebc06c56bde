/* The listening socket, and the beginning and end of a server. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/internal.h"

void lvn_http_config_default(lvn_http_config *config)
{
    *config = (lvn_http_config){
        .host = "127.0.0.1",
        .port = 4747,
        .max_body_bytes = 64 * 1024 * 1024,
        .max_header_bytes = 64 * 1024,
        .max_connections = 4096,
        .header_timeout_ms = 10000,
        .body_timeout_ms = 30000,
        .idle_timeout_ms = 30000,
    };
}

void lvn_http_server_retain(lvn_http_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->live++;
    pthread_mutex_unlock(&server->lock);
}

void lvn_http_server_let_go(lvn_http_server *server)
{
    pthread_mutex_lock(&server->lock);
    if (--server->live <= 1)
        pthread_cond_signal(&server->is_idle);
    pthread_mutex_unlock(&server->lock);
}

static lvn_code bind_error(const lvn_http_config *config, int error, lvn_err *err)
{
    if (error == EADDRINUSE)
        return lvn_fail(err, LVN_CONFLICT,
                        "port %d on %s is in use; choose another one or stop what listens there",
                        config->port, config->host);
    return lvn_fail(err, LVN_IO, "cannot listen on %s port %d: %s", config->host, config->port,
                    strerror(error));
}

static int bind_first(const struct addrinfo *list, int *out_fd)
{
    int error = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                                a->ai_protocol);
        if (fd < 0) {
            error = errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
            *out_fd = fd;
            return 0;
        }
        error = errno;
        close(fd);
    }
    return error;
}

static lvn_code open_socket(const lvn_http_config *config, int *out_fd, lvn_err *err)
{
    char port[16];
    snprintf(port, sizeof(port), "%d", config->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list = NULL;
    int failed = getaddrinfo(config->host, port, &hints, &list);
    if (failed)
        return lvn_fail(err, LVN_INVALID, "cannot listen on \"%s\": %s", config->host,
                        gai_strerror(failed));
    int error = bind_first(list, out_fd);
    freeaddrinfo(list);
    return error ? bind_error(config, error, err) : LVN_OK;
}

static int bound_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    char port[16] = "0";
    if (getsockname(fd, (struct sockaddr *)&address, &len) == 0)
        getnameinfo((struct sockaddr *)&address, len, NULL, 0, port, sizeof(port), NI_NUMERICSERV);
    return (int)strtol(port, NULL, 10);
}

static void flush_all(uv_prepare_t *handle)
{
    lvn_http_server *server = handle->data;
    while (server->dirty) {
        lvn_http_conn *conn = server->dirty;
        server->dirty = conn->next_dirty;
        conn->is_dirty = false;
        lvn_http_conn_advance(conn);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    lvn_http_server *server = listener->data;
    if (status < 0)
        lvn_log(LVN_WARN, "http_accept_failed", "error=\"%s\"", uv_strerror(status));
    else
        lvn_http_conn_accept(server);
}

static void handle_closed(uv_handle_t *handle)
{
    lvn_http_server_let_go(handle->data);
}

static void open_on_loop(void *arg)
{
    lvn_http_server *server = arg;
    uv_loop_t *uv = lvn_loop_uv(server->loop);
    uv_tcp_init(uv, &server->listener);
    uv_prepare_init(uv, &server->flusher);
    server->listener.data = server->flusher.data = server;
    lvn_http_server_retain(server);
    lvn_http_server_retain(server);
    uv_tcp_open(&server->listener, server->fd);
    uv_prepare_start(&server->flusher, flush_all);
}

lvn_code lvn_http_open(const lvn_http_config *config, lvn_loop *loop, lvn_http_server **out,
                       lvn_err *err)
{
    int fd = -1;
    lvn_code code = open_socket(config, &fd, err);
    if (code)
        return code;
    lvn_http_server *server = lvn_zalloc(sizeof(*server));
    server->loop = loop;
    server->config = *config;
    server->host = lvn_strdup(config->host);
    server->config.host = server->host;
    server->fd = fd;
    server->port = bound_port(fd);
    server->read_buffer = lvn_alloc(LVN_HTTP_READ_BYTES);
    server->root = lvn_http_node_new();
    lvn_http_parse_settings(&server->settings);
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->is_idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    lvn_loop_call(loop, open_on_loop, server);
    *out = server;
    return LVN_OK;
}

int lvn_http_port(const lvn_http_server *server)
{
    return server->port;
}

lvn_loop *lvn_http_loop(const lvn_http_server *server)
{
    return server->loop;
}

void lvn_http_route(lvn_http_server *server, const char *method, const char *pattern,
                    lvn_http_handler handler, void *user)
{
    lvn_http_node_add(server->root, method, pattern, handler, user);
}

void lvn_http_fallback(lvn_http_server *server, lvn_http_handler handler, void *user)
{
    server->fallback = handler;
    server->fallback_user = user;
}

void lvn_http_guard(lvn_http_server *server, lvn_http_guard_fn guard, void *user)
{
    server->guard = guard;
    server->guard_user = user;
}

static void start_on_loop(void *arg)
{
    lvn_http_server *server = arg;
    int failed = uv_listen((uv_stream_t *)&server->listener, SOMAXCONN, on_connection);
    if (failed)
        lvn_log(LVN_ERROR, "http_listen_failed", "port=%d error=\"%s\"", server->port,
                uv_strerror(failed));
    server->is_started = !failed;
}

void lvn_http_start(lvn_http_server *server)
{
    lvn_loop_call(server->loop, start_on_loop, server);
}

/* Connections without a request close now, the others when they have answered. */
static void begin_close(void *arg)
{
    lvn_http_server *server = arg;
    server->is_closing = true;
    uv_close((uv_handle_t *)&server->listener, handle_closed);
    for (lvn_http_conn *conn = server->conns, *next; conn; conn = next) {
        next = conn->next;
        conn->keeps_alive = false;
        if (conn->state != CONN_HEAD || conn->head_bytes)
            continue;
        if (conn->is_writing || conn->out.len) { /* the last answer is still on its way out */
            conn->state = CONN_ENDING;
            lvn_http_conn_mark_dirty(conn);
        } else {
            lvn_http_conn_close(conn);
        }
    }
    lvn_http_server_let_go(server); /* the one held by close itself */
}

static void force_close(void *arg)
{
    lvn_http_server *server = arg;
    while (server->conns)
        lvn_http_conn_close(server->conns);
    uv_close((uv_handle_t *)&server->flusher, handle_closed);
}

/* Waits until at most `rest` things are alive; false when the time is up. */
static bool wait_for(lvn_http_server *server, size_t rest, int timeout_ms)
{
    int64_t until_ns = lvn_clock_monotonic_ns() + timeout_ms * LVN_NS_PER_MS;
    struct timespec until = {.tv_sec = until_ns / LVN_NS_PER_S, .tv_nsec = until_ns % LVN_NS_PER_S};
    int timed_out = 0;
    pthread_mutex_lock(&server->lock);
    while (server->live > rest && !timed_out)
        timed_out = pthread_cond_timedwait(&server->is_idle, &server->lock, &until);
    bool is_done = server->live <= rest;
    pthread_mutex_unlock(&server->lock);
    return is_done;
}

void lvn_http_close(lvn_http_server *server, int grace_ms)
{
    if (!server)
        return;
    lvn_http_server_retain(server);
    lvn_loop_call(server->loop, begin_close, server);
    wait_for(server, 1, grace_ms); /* the flusher stays */
    lvn_loop_call(server->loop, force_close, server);
    if (!wait_for(server, 0, 10000)) {
        /* Handlers still hold requests. Their memory is left alone, so that a late answer finds it.
         */
        lvn_log(LVN_ERROR, "http_requests_held", "port=%d", server->port);
        return;
    }
    while (server->spare_count)
        lvn_arena_free(server->spare[--server->spare_count]);
    lvn_http_node_free(server->root);
    free(server->read_buffer);
    free(server->host);
    pthread_cond_destroy(&server->is_idle);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
