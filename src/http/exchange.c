/* A request and its answer, as handlers see them. */
#include <stdlib.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "http/internal.h"

static lvn_http_exchange *exchange_of(const lvn_http_request *request)
{
    return (lvn_http_exchange *)(uintptr_t)request;
}

static lvn_arena *take_arena(lvn_http_server *server)
{
    return server->spare_count ? server->spare[--server->spare_count] : lvn_arena_new(8192);
}

static void give_arena(lvn_http_server *server, lvn_arena *arena)
{
    bool is_big = lvn_arena_used(arena) > 256 * 1024;
    if (is_big || server->spare_count == LVN_HTTP_SPARE_ARENAS) {
        lvn_arena_free(arena);
        return;
    }
    lvn_arena_reset(arena);
    server->spare[server->spare_count++] = arena;
}

static void copy_head(lvn_http_exchange *exchange, const lvn_http_conn *conn)
{
    lvn_http_request *request = &exchange->request;
    lvn_str head = lvn_arena_dup(request->arena, lvn_buf_str(&conn->head));
    lvn_str target = {head.ptr, conn->target_len};
    const char *question = target.len ? memchr(target.ptr, '?', target.len) : NULL;
    size_t path_len = question ? (size_t)(question - target.ptr) : target.len;
    request->method = lvn_str_of(llhttp_method_name(conn->parser.method));
    request->path = (lvn_str){target.ptr, path_len};
    request->query = lvn_str_from(target, path_len + 1);
    lvn_http_header *headers =
        lvn_arena_array(request->arena, conn->header_count, sizeof(*headers));
    for (size_t i = 0; i < conn->header_count; i++) {
        const header_place *at = &conn->headers[i];
        headers[i].name = (lvn_str){head.ptr + at->name_at, at->name_len};
        headers[i].value = (lvn_str){head.ptr + at->value_at, at->value_len};
    }
    request->headers = headers;
    request->header_count = conn->header_count;
}

/* Small bodies are copied so that the connection keeps its buffer; big ones change owner. */
static void take_body(lvn_http_request *request, lvn_buf *body)
{
    if (body->len < 16 * 1024) {
        request->body = lvn_arena_dup(request->arena, lvn_buf_str(body));
        return;
    }
    size_t len;
    char *memory = lvn_buf_take(body, &len);
    lvn_arena_on_free(request->arena, free, memory);
    request->body = (lvn_str){memory, len};
}

lvn_http_exchange *lvn_http_exchange_new(lvn_http_conn *conn)
{
    lvn_http_server *server = conn->server;
    lvn_arena *arena = take_arena(server);
    lvn_http_exchange *exchange = lvn_arena_zalloc(arena, sizeof(*exchange));
    exchange->request.arena = arena;
    exchange->request.loop = server->loop;
    exchange->server = server;
    exchange->conn = conn;
    exchange->is_head = conn->parser.method == HTTP_HEAD;
    exchange->is_http10 = conn->parser.http_minor == 0;
    lvn_buf_init(&exchange->extra, 64 * 1024);
    copy_head(exchange, conn);
    take_body(&exchange->request, &conn->body);
    conn->exchange = exchange;
    lvn_http_server_retain(server);
    return exchange;
}

static void maybe_free(lvn_http_exchange *exchange)
{
    bool is_over = exchange->is_complete || !exchange->conn;
    if (!is_over || exchange->holds)
        return;
    lvn_http_server *server = exchange->server;
    lvn_buf_done(&exchange->extra);
    give_arena(server, exchange->request.arena);
    lvn_http_server_let_go(server);
}

void lvn_http_hold(lvn_http_request *request)
{
    exchange_of(request)->holds++;
}

void lvn_http_release(lvn_http_request *request)
{
    lvn_http_exchange *exchange = exchange_of(request);
    exchange->holds--;
    if (!exchange->holds && exchange->is_gone && exchange->conn) {
        lvn_http_conn_close(exchange->conn); /* nobody waits for an answer any more */
        return;
    }
    if (!exchange->holds && exchange->conn && !exchange->is_complete) {
        lvn_log(LVN_ERROR, "http_unanswered", "path=\"%.*s\"", LVN_STR_ARG(request->path));
        if (exchange->is_streaming)
            lvn_http_stream_abort(request);
        else
            lvn_http_respond(request, 500, "application/json",
                             LVN_STR("{\"detail\":\"Internal Server Error\"}"));
        return;
    }
    maybe_free(exchange);
}

static void run_fallback(lvn_http_exchange *exchange)
{
    lvn_http_request *request = &exchange->request;
    const lvn_http_server *server = exchange->server;
    bool is_get = lvn_str_is(request->method, "GET") || lvn_str_is(request->method, "HEAD");
    if (server->fallback && is_get) {
        request->user = server->fallback_user;
        server->fallback(request);
    } else if (server->fallback) {
        lvn_http_answer_header(request, "Allow", LVN_STR("GET"));
        lvn_http_respond(request, 405, "application/json",
                         LVN_STR("{\"detail\":\"Method Not Allowed\"}"));
    } else {
        lvn_http_respond(request, 404, "application/json", LVN_STR("{\"detail\":\"Not Found\"}"));
    }
}

static void route(lvn_http_exchange *exchange)
{
    lvn_http_request *request = &exchange->request;
    lvn_http_match match;
    lvn_http_node_find(exchange->server->root, request->arena, request->method, request->path,
                       &match);
    if (match.handler) {
        memcpy(request->params, match.params, sizeof(match.params));
        request->param_count = match.param_count;
        request->user = match.user;
        match.handler(request);
    } else if (match.allow[0]) {
        lvn_http_answer_header(request, "Allow", lvn_str_of(match.allow));
        lvn_http_respond(request, 405, "application/json",
                         LVN_STR("{\"detail\":\"Method Not Allowed\"}"));
    } else {
        run_fallback(exchange);
    }
}

void lvn_http_exchange_run(lvn_http_exchange *exchange)
{
    lvn_http_request *request = &exchange->request;
    const lvn_http_server *server = exchange->server;
    lvn_http_hold(request);
    if (!server->guard || !server->guard(request, server->guard_user))
        route(exchange);
    lvn_http_release(request);
}

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Status";
}

void lvn_http_write_head(lvn_http_server *server, lvn_buf *out, int status,
                         const char *content_type)
{
    time_t now = time(NULL);
    if (now != server->date_s) {
        struct tm utc;
        gmtime_r(&now, &utc);
        strftime(server->date, sizeof(server->date), "%a, %d %b %Y %H:%M:%S GMT", &utc);
        server->date_s = now;
    }
    lvn_buf_printf(out, "HTTP/1.1 %d %s\r\ndate: %s\r\n", status, reason(status), server->date);
    if (content_type)
        lvn_buf_printf(out, "content-type: %s\r\n", content_type);
}

/* Appends text that must not break out of its line. */
static void append_line_text(lvn_buf *buf, lvn_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        lvn_buf_append_char(buf, c < 0x20 || c == 0x7f ? ' ' : (char)c);
    }
}

void lvn_http_answer_header(lvn_http_request *request, const char *name, lvn_str value)
{
    lvn_buf *extra = &exchange_of(request)->extra;
    append_line_text(extra, lvn_str_of(name));
    lvn_buf_lit(extra, ": ");
    append_line_text(extra, value);
    lvn_buf_lit(extra, "\r\n");
}

/* Everything up to the blank line. */
static void write_answer_head(lvn_http_exchange *exchange, int status, const char *content_type)
{
    lvn_http_conn *conn = exchange->conn;
    if (exchange->server->is_closing)
        conn->keeps_alive = false;
    lvn_http_write_head(exchange->server, &conn->out, status, content_type);
    lvn_buf_append_str(&conn->out, lvn_buf_str(&exchange->extra));
    if (!conn->keeps_alive)
        lvn_buf_lit(&conn->out, "connection: close\r\n");
    else if (exchange->is_http10)
        lvn_buf_lit(&conn->out, "connection: keep-alive\r\n");
}

static void complete(lvn_http_exchange *exchange)
{
    lvn_http_conn *conn = exchange->conn;
    exchange->is_complete = true;
    exchange->conn = NULL;
    conn->exchange = NULL;
    lvn_http_conn_answered(conn);
    maybe_free(exchange);
}

void lvn_http_respond(lvn_http_request *request, int status, const char *content_type, lvn_str body)
{
    lvn_http_exchange *exchange = exchange_of(request);
    lvn_http_conn *conn = exchange->conn;
    if (!conn || exchange->is_complete || exchange->is_streaming)
        return;
    write_answer_head(exchange, status, content_type);
    if (status != 204 && status != 304)
        lvn_buf_printf(&conn->out, "content-length: %zu\r\n", body.len);
    lvn_buf_lit(&conn->out, "\r\n");
    if (!exchange->is_head && status != 204 && status != 304)
        lvn_http_conn_append(conn, body);
    complete(exchange);
}

void lvn_http_stream_begin(lvn_http_request *request, int status, const char *content_type)
{
    lvn_http_exchange *exchange = exchange_of(request);
    lvn_http_conn *conn = exchange->conn;
    if (!conn || exchange->is_complete || exchange->is_streaming)
        return;
    exchange->is_streaming = true;
    exchange->is_chunked = !exchange->is_http10;
    if (!exchange->is_chunked)
        conn->keeps_alive = false;
    write_answer_head(exchange, status, content_type);
    if (exchange->is_chunked)
        lvn_buf_lit(&conn->out, "transfer-encoding: chunked\r\n");
    lvn_buf_lit(&conn->out, "\r\n");
    lvn_http_conn_mark_dirty(conn);
}

bool lvn_http_stream_write(lvn_http_request *request, lvn_str bytes)
{
    lvn_http_exchange *exchange = exchange_of(request);
    lvn_http_conn *conn = exchange->conn;
    if (!conn || exchange->is_gone || !exchange->is_streaming || exchange->is_complete)
        return false;
    if (!bytes.len || exchange->is_head)
        return true;
    if (exchange->is_chunked)
        lvn_buf_printf(&conn->out, "%zx\r\n", bytes.len);
    lvn_buf_append_str(&conn->out, bytes);
    if (exchange->is_chunked)
        lvn_buf_lit(&conn->out, "\r\n");
    lvn_http_conn_mark_dirty(conn);
    return true;
}

void lvn_http_stream_end(lvn_http_request *request)
{
    lvn_http_exchange *exchange = exchange_of(request);
    if (!exchange->conn || !exchange->is_streaming || exchange->is_complete)
        return;
    if (exchange->is_gone) { /* something may have been left out: the end must not look regular */
        lvn_http_stream_abort(request);
        return;
    }
    if (exchange->is_chunked && !exchange->is_head)
        lvn_buf_lit(&exchange->conn->out, "0\r\n\r\n");
    complete(exchange);
}

void lvn_http_stream_abort(lvn_http_request *request)
{
    lvn_http_exchange *exchange = exchange_of(request);
    lvn_http_conn *conn = exchange->conn;
    if (!conn || exchange->is_complete)
        return;
    exchange->is_complete = true;
    exchange->conn = NULL;
    conn->exchange = NULL;
    lvn_http_conn_flush(
        conn); /* what was said before the cut still goes out, if there is room for it */
    lvn_http_conn_close(conn);
    maybe_free(exchange);
}

size_t lvn_http_stream_buffered(const lvn_http_request *request)
{
    const lvn_http_conn *conn = exchange_of(request)->conn;
    return conn ? lvn_http_conn_buffered(conn) : 0;
}

void lvn_http_stream_on_drain(lvn_http_request *request, void (*fn)(void *arg), void *arg)
{
    lvn_http_exchange *exchange = exchange_of(request);
    exchange->on_drain = fn;
    exchange->drain_arg = arg;
}

void lvn_http_on_disconnect(lvn_http_request *request, void (*fn)(void *arg), void *arg)
{
    lvn_http_exchange *exchange = exchange_of(request);
    exchange->on_disconnect = fn;
    exchange->disconnect_arg = arg;
}

bool lvn_http_is_connected(const lvn_http_request *request)
{
    const lvn_http_exchange *exchange = exchange_of(request);
    return exchange->conn && !exchange->is_gone;
}

void lvn_http_exchange_disconnect(lvn_http_exchange *exchange, bool is_conn_closed)
{
    void (*fn)(void *arg) = exchange->on_disconnect;
    exchange->is_gone = true;
    exchange->on_disconnect = NULL;
    lvn_http_hold(&exchange->request);
    if (is_conn_closed)
        exchange->conn = NULL;
    if (fn)
        fn(exchange->disconnect_arg);
    lvn_http_release(&exchange->request); /* closes the connection if the handler let go just now */
}
