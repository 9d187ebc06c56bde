/* From bytes to requests: drives llhttp, and refuses what it lets through but a proxy in front
 * might read differently. */
#include <stdio.h>
#include <strings.h>

#include "http/internal.h"

static int refuse(lvn_http_conn *conn, int status, const char *text)
{
    conn->fault_status = status;
    conn->fault_text = text;
    return HPE_USER;
}

static int keep(lvn_http_conn *conn, const char *at, size_t len)
{
    lvn_buf_append(&conn->head, at, len);
    return conn->head.has_failed ? refuse(conn, 431, "Request header fields too large") : 0;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    lvn_http_conn *conn = parser->data;
    conn->target_len += len;
    return keep(conn, at, len);
}

static int on_name(llhttp_t *parser, const char *at, size_t len)
{
    lvn_http_conn *conn = parser->data;
    if (conn->state != CONN_HEAD) /* trailers are dropped */
        return 0;
    if (!conn->is_in_name) {
        if (conn->header_count == LVN_HTTP_MAX_HEADERS)
            return refuse(conn, 431, "Too many request header fields");
        conn->headers[conn->header_count++] = (header_place){.name_at = conn->head.len};
        conn->is_in_name = true;
    }
    conn->headers[conn->header_count - 1].name_len += len;
    return keep(conn, at, len);
}

static int on_name_complete(llhttp_t *parser)
{
    lvn_http_conn *conn = parser->data;
    conn->is_in_name = false;
    return 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t len)
{
    lvn_http_conn *conn = parser->data;
    if (conn->state != CONN_HEAD)
        return 0;
    header_place *header = &conn->headers[conn->header_count - 1];
    if (!header->value_len)
        header->value_at = conn->head.len;
    header->value_len += len;
    return keep(conn, at, len);
}

static int on_headers_complete(llhttp_t *parser)
{
    parser->upgrade = 0; /* offers to upgrade are declined by answering in HTTP/1.1 */
    return HPE_PAUSED;
}

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
    lvn_http_conn *conn = parser->data;
    lvn_buf_append(&conn->body, at, len);
    conn->body_bytes += len;
    return conn->body.has_failed ? refuse(conn, 413, "Request body too large") : 0;
}

static int on_message_complete(llhttp_t *parser)
{
    lvn_http_conn *conn = parser->data;
    conn->has_message = true;
    return HPE_PAUSED;
}

void lvn_http_parse_settings(llhttp_settings_t *settings)
{
    llhttp_settings_init(settings);
    settings->on_url = on_url;
    settings->on_header_field = on_name;
    settings->on_header_field_complete = on_name_complete;
    settings->on_header_value = on_value;
    settings->on_headers_complete = on_headers_complete;
    settings->on_body = on_body;
    settings->on_message_complete = on_message_complete;
}

void lvn_http_parse_reset(lvn_http_conn *conn)
{
    lvn_buf_clear(&conn->head);
    if (conn->body.capacity > LVN_HTTP_READ_BYTES)
        lvn_buf_done(&conn->body);
    lvn_buf_clear(&conn->body);
    conn->target_len = conn->header_count = conn->head_bytes = conn->overhead_bytes =
        conn->body_bytes = 0;
    conn->is_in_name = conn->has_message = false;
    conn->last_byte = '\0';
    conn->state = CONN_HEAD;
    /* A fresh state instead of resuming behind the message: nothing of it can leak into the next
     * request. */
    llhttp_init(&conn->parser, HTTP_REQUEST, &conn->server->settings);
    conn->parser.data = conn;
}

/* Folded lines and bare line feeds are read differently by different programs. */
static bool is_head_plain(lvn_http_conn *conn, const char *data, size_t len)
{
    char last = conn->last_byte;
    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if ((c == '\n' && last != '\r') || (last == '\n' && (c == ' ' || c == '\t')))
            return false;
        last = c;
    }
    conn->last_byte = last;
    return true;
}

static lvn_str header_name(const lvn_http_conn *conn, size_t i)
{
    return (lvn_str){conn->head.ptr + conn->headers[i].name_at, conn->headers[i].name_len};
}

static lvn_str header_value(const lvn_http_conn *conn, size_t i)
{
    return (lvn_str){conn->head.ptr + conn->headers[i].value_at, conn->headers[i].value_len};
}

static bool is_text(lvn_str s, const char *text)
{
    return s.len == strlen(text) && strncasecmp(s.ptr, text, s.len) == 0;
}

static bool send_continue(lvn_http_conn *conn, lvn_str value)
{
    if (!is_text(value, "100-continue")) {
        lvn_http_conn_fail(conn, 417, "Expectation Failed");
        return false;
    }
    bool has_body = (conn->parser.flags & F_CHUNKED) || conn->parser.content_length > 0;
    if (has_body && conn->parser.http_minor == 1) {
        lvn_buf_lit(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
        lvn_http_conn_mark_dirty(conn);
    }
    return true;
}

/* True when the request may go on; else it has been answered with an error. */
static bool check_headers(lvn_http_conn *conn)
{
    int hosts = 0, encodings = 0;
    lvn_str expect = LVN_STR_ABSENT;
    for (size_t i = 0; i < conn->header_count; i++) {
        lvn_str name = header_name(conn, i);
        hosts += is_text(name, "host");
        if (is_text(name, "expect"))
            expect = header_value(conn, i);
        if (!is_text(name, "transfer-encoding"))
            continue;
        encodings++;
        if (!is_text(header_value(conn, i), "chunked"))
            return lvn_http_conn_fail(conn, 501, "Transfer coding not supported"), false;
    }
    if (encodings > 1 || (encodings && conn->parser.http_minor == 0))
        return lvn_http_conn_fail(conn, 400, "Invalid HTTP request: transfer encoding"), false;
    if (hosts > 1 || (!hosts && conn->parser.http_minor == 1))
        return lvn_http_conn_fail(conn, 400, "Invalid HTTP request: one Host header is needed"),
               false;
    return lvn_str_is_absent(expect) || send_continue(conn, expect);
}

static bool head_complete(lvn_http_conn *conn)
{
    const llhttp_t *parser = &conn->parser;
    if (parser->http_major != 1 || parser->http_minor > 1)
        return lvn_http_conn_fail(conn, 505, "HTTP Version Not Supported"), false;
    if (parser->method == HTTP_CONNECT)
        return lvn_http_conn_fail(conn, 405, "Method Not Allowed"), false;
    if ((parser->flags & F_CONTENT_LENGTH) &&
        parser->content_length > conn->server->config.max_body_bytes)
        return lvn_http_conn_fail(conn, 413, "Request body too large"), false;
    if (!check_headers(conn))
        return false;
    conn->state = CONN_BODY;
    conn->body_started = uv_now(lvn_loop_uv(conn->server->loop));
    lvn_http_conn_set_deadline(conn, conn->server->config.body_timeout_ms);
    return true;
}

/* Counts what was just parsed against the limits. */
static bool within_limits(lvn_http_conn *conn, bool was_head, const char *data, size_t taken,
                          size_t body_before)
{
    if (was_head) {
        conn->head_bytes += taken;
        if (conn->head_bytes > conn->server->config.max_header_bytes)
            return lvn_http_conn_fail(conn, 431, "Request header fields too large"), false;
        if (!is_head_plain(conn, data, taken))
            return lvn_http_conn_fail(conn, 400,
                                      "Invalid HTTP request: line ending or folded header"),
                   false;
        return true;
    }
    /* Chunk extensions and trailers have no length of their own; a chunk of one byte needs six
     * around it. */
    conn->overhead_bytes += taken - (conn->body_bytes - body_before);
    if (conn->overhead_bytes > conn->server->config.max_header_bytes + 8 * conn->body_bytes)
        return lvn_http_conn_fail(conn, 413, "Too much chunk framing"), false;
    return true;
}

static void fail_parse(lvn_http_conn *conn, llhttp_errno_t error)
{
    if (error == HPE_USER && conn->fault_status) {
        lvn_http_conn_fail(conn, conn->fault_status, conn->fault_text);
        return;
    }
    if (error == HPE_INVALID_VERSION || error == HPE_PAUSED_H2_UPGRADE) {
        lvn_http_conn_fail(conn, 505, "HTTP Version Not Supported");
        return;
    }
    char detail[160];
    const char *reason = llhttp_get_error_reason(&conn->parser);
    snprintf(detail, sizeof(detail), "Invalid HTTP request: %s",
             reason ? reason : llhttp_errno_name(error));
    lvn_http_conn_fail(conn, 400, detail);
}

static void message_complete(lvn_http_conn *conn)
{
    conn->keeps_alive = llhttp_should_keep_alive(&conn->parser) && !conn->server->is_closing;
    conn->state = CONN_BUSY;
    conn->deadline = 0;
    lvn_http_exchange *exchange = lvn_http_exchange_new(conn);
    lvn_http_exchange_run(exchange);
}

/* One step: up to the end of a head, of a message, or of the data. */
static size_t parse_some(lvn_http_conn *conn, const char *data, size_t len)
{
    bool was_head = conn->state == CONN_HEAD;
    size_t body_before = conn->body_bytes;
    llhttp_errno_t error = llhttp_execute(&conn->parser, data, len);
    size_t taken = error == HPE_OK ? len : (size_t)(llhttp_get_error_pos(&conn->parser) - data);
    if (taken > len)
        taken = len;
    if (error != HPE_OK && error != HPE_PAUSED) {
        fail_parse(conn, error);
        return len;
    }
    if (!within_limits(conn, was_head, data, taken, body_before))
        return len;
    if (error == HPE_OK)
        return taken;
    llhttp_resume(&conn->parser);
    if (conn->has_message)
        message_complete(conn);
    else
        head_complete(conn);
    return taken;
}

size_t lvn_http_parse(lvn_http_conn *conn, const char *data, size_t len)
{
    size_t used = 0;
    conn_state before;
    do {
        before = conn->state;
        if (before == CONN_HEAD && !conn->head_bytes && used < len)
            lvn_http_conn_set_deadline(conn, conn->server->config.header_timeout_ms);
        used += parse_some(conn, data + used, len - used);
        /* A request without a body is complete behind its head, with no byte left: hence once more
         * on a change. */
    } while ((conn->state == CONN_HEAD || conn->state == CONN_BODY) &&
             (used < len || (conn->state == CONN_BODY && before == CONN_HEAD)));
    return used;
}
