/* A connection: reading, writing, deadlines, and the end. */
#include <stdlib.h>

#include "base/json.h"
#include "http/internal.h"

static uint64_t now_ms(const lvn_http_conn *conn)
{
    return uv_now(lvn_loop_uv(conn->server->loop));
}

size_t lvn_http_conn_buffered(const lvn_http_conn *conn)
{
    size_t in_flight =
        conn->is_writing ? uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp) : 0;
    return in_flight + conn->out.len;
}

void lvn_http_conn_mark_dirty(lvn_http_conn *conn)
{
    if (conn->is_dirty || conn->state == CONN_CLOSED)
        return;
    conn->is_dirty = true;
    conn->next_dirty = conn->server->dirty;
    conn->server->dirty = conn;
}

static void on_timer(uv_timer_t *timer);

/* The timer is only ever moved forward here; one that fires early looks again and sleeps on. */
static void arm_timer(lvn_http_conn *conn, uint64_t due)
{
    if (conn->timer_due && conn->timer_due <= due)
        return;
    uint64_t now = now_ms(conn);
    conn->timer_due = due;
    uv_timer_start(&conn->timer, on_timer, due > now ? due - now : 0, 0);
}

void lvn_http_conn_set_deadline(lvn_http_conn *conn, int64_t delay_ms)
{
    conn->deadline = now_ms(conn) + (uint64_t)delay_ms;
    arm_timer(conn, conn->deadline);
}

static void handle_closed(uv_handle_t *handle)
{
    lvn_http_conn *conn = handle->data;
    if (--conn->open_handles)
        return;
    lvn_http_server *server = conn->server;
    lvn_buf_done(&conn->head);
    lvn_buf_done(&conn->body);
    lvn_buf_done(&conn->pending);
    lvn_buf_done(&conn->out);
    lvn_buf_done(&conn->writing);
    free(conn);
    lvn_http_server_let_go(server);
}

static void unlink_dirty(lvn_http_conn *conn)
{
    lvn_http_conn **at = &conn->server->dirty;
    while (*at && *at != conn)
        at = &(*at)->next_dirty;
    if (*at)
        *at = conn->next_dirty;
    conn->is_dirty = false;
}

static void close_conn(lvn_http_conn *conn, bool is_reset)
{
    if (conn->state == CONN_CLOSED)
        return;
    conn->state = CONN_CLOSED;
    if (conn->is_dirty)
        unlink_dirty(conn);
    *(conn->previous ? &conn->previous->next : &conn->server->conns) = conn->next;
    if (conn->next)
        conn->next->previous = conn->previous;
    conn->server->conn_count--;
    if (!is_reset || uv_tcp_close_reset(&conn->tcp, handle_closed))
        uv_close((uv_handle_t *)&conn->tcp, handle_closed);
    uv_close((uv_handle_t *)&conn->timer, handle_closed);
    lvn_http_exchange *exchange = conn->exchange;
    conn->exchange = NULL;
    if (exchange)
        lvn_http_exchange_disconnect(exchange, true);
}

void lvn_http_conn_close(lvn_http_conn *conn)
{
    close_conn(conn, false);
}

static void stall_watch(lvn_http_conn *conn)
{
    conn->stall_mark = uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
    conn->stall_at = now_ms(conn) + (uint64_t)conn->server->config.idle_timeout_ms;
    arm_timer(conn, conn->stall_at);
}

/* Slow bodies are given more time as they come in: at least 16 KiB a second. */
static bool extend_body(lvn_http_conn *conn)
{
    uint64_t allowed = (uint64_t)conn->server->config.body_timeout_ms + conn->body_bytes / 16;
    conn->deadline = conn->body_started + allowed;
    return conn->deadline > now_ms(conn);
}

static void deadline_passed(lvn_http_conn *conn)
{
    conn->deadline = 0;
    if (conn->state == CONN_BODY && extend_body(conn))
        return;
    bool has_begun = conn->state == CONN_BODY || (conn->state == CONN_HEAD && conn->head_bytes);
    if (has_begun)
        lvn_http_conn_fail(conn, 408, "Request Timeout");
    else if (conn->state != CONN_BUSY)
        lvn_http_conn_close(conn);
}

static void on_timer(uv_timer_t *timer)
{
    lvn_http_conn *conn = timer->data;
    conn->timer_due = 0;
    uint64_t now = now_ms(conn);
    if (conn->is_writing && now >= conn->stall_at) {
        if (uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp) >= conn->stall_mark) {
            close_conn(conn, true); /* or the system would go on trying to send */
            return;
        }
        stall_watch(conn);
    }
    bool is_due = conn->deadline && now >= conn->deadline;
    if (is_due && conn->is_writing && conn->state != CONN_BODY)
        conn->deadline =
            now +
            (uint64_t)conn->server->config.idle_timeout_ms; /* a slow reader: see stall_watch */
    else if (is_due)
        deadline_passed(conn);
    if (conn->state != CONN_CLOSED && conn->deadline)
        arm_timer(conn, conn->deadline);
    if (conn->state != CONN_CLOSED && conn->is_writing)
        arm_timer(conn, conn->stall_at);
}

static void all_sent(lvn_http_conn *conn);

static void on_write(uv_write_t *write, int status)
{
    lvn_http_conn *conn = write->data;
    conn->is_writing = false;
    lvn_buf_clear(&conn->writing);
    if (conn->writing.capacity > 4 * LVN_HTTP_READ_BYTES)
        lvn_buf_done(&conn->writing);
    if (conn->state == CONN_CLOSED)
        return;
    if (status < 0) {
        lvn_http_conn_close(conn);
        return;
    }
    lvn_http_conn_advance(conn);
}

/* Sends what the socket takes now; the rest follows when it takes more. */
void lvn_http_conn_flush(lvn_http_conn *conn)
{
    if (conn->is_writing || conn->state == CONN_CLOSED)
        return;
    if (conn->out.has_failed) {
        lvn_http_conn_close(conn);
        return;
    }
    if (conn->out.len) {
        size_t most = conn->out.len < UINT32_MAX / 2 ? conn->out.len : UINT32_MAX / 2;
        uv_buf_t bytes = uv_buf_init(conn->out.ptr, (unsigned)most);
        int sent = uv_try_write((uv_stream_t *)&conn->tcp, &bytes, 1);
        if (sent < 0 && sent != UV_EAGAIN) {
            lvn_http_conn_close(conn);
            return;
        }
        size_t done = sent > 0 ? (size_t)sent : 0;
        if (done < conn->out.len) {
            lvn_buf rest = conn->out;
            conn->out = conn->writing;
            conn->writing = rest;
            bytes = uv_buf_init(rest.ptr + done, (unsigned)(rest.len - done));
            conn->is_writing = true;
            conn->write.data = conn;
            if (uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &bytes, 1, on_write)) {
                lvn_http_conn_close(conn);
                return;
            }
            stall_watch(conn);
            return;
        }
        lvn_buf_clear(&conn->out);
        if (conn->out.capacity > 4 * LVN_HTTP_READ_BYTES)
            lvn_buf_done(&conn->out);
    }
    all_sent(conn);
}

/* A big body goes from the handler's memory to the socket; only what the socket does not take is
 * copied. */
void lvn_http_conn_append(lvn_http_conn *conn, lvn_str body)
{
    if (body.len >= LVN_HTTP_READ_BYTES && body.len < UINT32_MAX / 2 && !conn->is_writing &&
        conn->out.len < LVN_HTTP_READ_BYTES) {
        uv_buf_t parts[] = {uv_buf_init(conn->out.ptr, (unsigned)conn->out.len),
                            uv_buf_init((char *)(uintptr_t)body.ptr, (unsigned)body.len)};
        int sent = uv_try_write((uv_stream_t *)&conn->tcp, parts,
                                2); /* an error shows again at the next flush */
        size_t done = sent > 0 ? (size_t)sent : 0,
               from_out = done < conn->out.len ? done : conn->out.len;
        lvn_buf_consume(&conn->out, from_out);
        body = lvn_str_from(body, done - from_out);
    }
    lvn_buf_append_str(&conn->out, body);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    (void)status;
    (void)request;
}

/* Closing with unread input would reset the connection and could destroy the answer on its way: so
 * our side is shut first, and what still comes in is dropped for a moment. */
static void linger(lvn_http_conn *conn)
{
    conn->state = CONN_LINGER;
    if (conn->has_read_end ||
        uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown)) {
        lvn_http_conn_close(conn);
        return;
    }
    lvn_buf_done(&conn->pending);
    lvn_http_conn_set_deadline(conn, 1000);
}

static void start_reading(lvn_http_conn *conn);

static void all_sent(lvn_http_conn *conn)
{
    if (conn->state == CONN_ENDING) {
        linger(conn);
        start_reading(conn);
    } else if (conn->exchange && conn->exchange->on_drain && conn->exchange->is_streaming) {
        conn->exchange->on_drain(conn->exchange->drain_arg);
    }
}

void lvn_http_conn_answered(lvn_http_conn *conn)
{
    if (conn->keeps_alive) {
        lvn_http_parse_reset(conn);
        lvn_http_conn_set_deadline(conn, conn->server->config.idle_timeout_ms);
    } else {
        conn->state = CONN_ENDING;
    }
    lvn_http_conn_mark_dirty(conn);
}

void lvn_http_conn_fail(lvn_http_conn *conn, int status, const char *detail)
{
    if (conn->state == CONN_ENDING || conn->state == CONN_LINGER || conn->state == CONN_CLOSED)
        return;
    lvn_buf body;
    lvn_buf_init(&body, 1024);
    lvn_buf_lit(&body, "{\"detail\":");
    lvn_json_write_str(&body, lvn_str_of(detail));
    lvn_buf_append_char(&body, '}');
    lvn_http_write_head(conn->server, &conn->out, status, "application/json");
    if (status == 503)
        lvn_buf_lit(&conn->out, "retry-after: 1\r\n");
    lvn_buf_printf(&conn->out, "content-length: %zu\r\nconnection: close\r\n\r\n", body.len);
    lvn_buf_append_str(&conn->out, lvn_buf_str(&body));
    lvn_buf_done(&body);
    conn->deadline = 0;
    conn->state = CONN_ENDING;
    lvn_http_conn_mark_dirty(conn);
}

static void parse_pending(lvn_http_conn *conn)
{
    if (conn->is_parsing)
        return;
    conn->is_parsing = true;
    while (conn->pending.len && (conn->state == CONN_HEAD || conn->state == CONN_BODY)) {
        lvn_buf data = conn->pending; /* taken out: the parser's callbacks may not see it move */
        conn->pending = (lvn_buf){.max = data.max};
        size_t used = lvn_http_parse(conn, data.ptr, data.len);
        lvn_buf_consume(&data, used);
        if (conn->state != CONN_CLOSED && data.len)
            conn->pending = data;
        else
            lvn_buf_done(&data);
    }
    conn->is_parsing = false;
}

void lvn_http_conn_advance(lvn_http_conn *conn)
{
    lvn_http_conn_flush(conn);
    if (conn->state == CONN_CLOSED)
        return;
    /* A client that pipelines but does not read its answers gets no new ones made. */
    if (!conn->is_writing)
        parse_pending(conn);
    bool is_over =
        conn->has_read_end || (conn->server->is_closing && !conn->head_bytes && !conn->pending.len);
    if (conn->state == CONN_HEAD && is_over && !conn->is_writing && !conn->out.len)
        lvn_http_conn_close(conn);
    else if (conn->state != CONN_CLOSED && conn->pending.len < LVN_HTTP_MAX_PENDING / 2)
        start_reading(conn);
}

static void feed(lvn_http_conn *conn, const char *data, size_t len)
{
    if (conn->state == CONN_LINGER || conn->state == CONN_ENDING)
        return;
    size_t used = 0;
    bool can_parse = !conn->pending.len && !conn->is_writing &&
                     (conn->state == CONN_HEAD || conn->state == CONN_BODY);
    if (can_parse) {
        conn->is_parsing = true;
        used = lvn_http_parse(conn, data, len);
        conn->is_parsing = false;
    }
    if (conn->state == CONN_CLOSED || used == len)
        return;
    lvn_buf_append(&conn->pending, data + used, len - used);
    if (conn->pending.len >= LVN_HTTP_MAX_PENDING) {
        uv_read_stop((uv_stream_t *)&conn->tcp);
        conn->is_reading = false;
    }
}

static void alloc_read(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    const lvn_http_conn *conn = handle->data;
    *out = uv_buf_init(conn->server->read_buffer, LVN_HTTP_READ_BYTES);
}

/* A client that has shut its side may still read the answer: the handler is told, and what it
 * answers is sent. */
static void read_ended(lvn_http_conn *conn)
{
    conn->has_read_end = true;
    uv_read_stop((uv_stream_t *)&conn->tcp);
    conn->is_reading = false;
    if (conn->exchange) {
        lvn_http_exchange_disconnect(conn->exchange, false);
        if (conn->state != CONN_CLOSED)
            lvn_http_conn_mark_dirty(conn);
    } else if (conn->state == CONN_BODY || conn->state == CONN_LINGER ||
               (conn->state == CONN_HEAD && !conn->pending.len)) {
        if (conn->out.len || conn->is_writing)
            lvn_http_conn_mark_dirty(conn);
        else
            lvn_http_conn_close(conn);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    lvn_http_conn *conn = stream->data;
    if (n > 0)
        feed(conn, bytes->base, (size_t)n);
    else if (n == UV_EOF)
        read_ended(conn);
    else if (n < 0)
        lvn_http_conn_close(conn);
}

static void start_reading(lvn_http_conn *conn)
{
    if (conn->is_reading || conn->has_read_end || conn->state == CONN_CLOSED)
        return;
    conn->is_reading = uv_read_start((uv_stream_t *)&conn->tcp, alloc_read, on_read) == 0;
}

static lvn_http_conn *conn_new(lvn_http_server *server)
{
    lvn_http_conn *conn = lvn_zalloc(sizeof(*conn));
    conn->server = server;
    uv_loop_t *uv = lvn_loop_uv(server->loop);
    uv_tcp_init(uv, &conn->tcp);
    uv_timer_init(uv, &conn->timer);
    conn->tcp.data = conn->timer.data = conn;
    conn->open_handles = 2;
    lvn_buf_init(&conn->head, server->config.max_header_bytes + LVN_HTTP_READ_BYTES);
    lvn_buf_init(&conn->body, server->config.max_body_bytes);
    lvn_buf_init(&conn->pending, LVN_HTTP_MAX_PENDING + LVN_HTTP_READ_BYTES);
    lvn_buf_init(&conn->out, LVN_BUF_NO_LIMIT);
    lvn_buf_init(&conn->writing, LVN_BUF_NO_LIMIT);
    lvn_http_parse_reset(conn);
    conn->next = server->conns;
    if (conn->next)
        conn->next->previous = conn;
    server->conns = conn;
    server->conn_count++;
    lvn_http_server_retain(server);
    return conn;
}

void lvn_http_conn_accept(lvn_http_server *server)
{
    lvn_http_conn *conn = conn_new(server);
    if (uv_accept((uv_stream_t *)&server->listener, (uv_stream_t *)&conn->tcp)) {
        lvn_http_conn_close(conn);
        return;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_tcp_keepalive(&conn->tcp, 1,
                     60); /* a parked request has no other way to learn that its peer vanished */
    if (server->conn_count > server->config.max_connections) {
        lvn_http_conn_fail(conn, 503, "Too many connections");
        return;
    }
    lvn_http_conn_set_deadline(conn, server->config.idle_timeout_ms);
    start_reading(conn);
}
