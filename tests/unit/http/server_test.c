/* The server over real sockets: what goes in and out is written byte by byte. */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "http/server.h"

typedef struct fixture {
    lvn_loop *loop;
    lvn_http_server *server;
    atomic_int disconnects, calls;
    atomic_size_t most_buffered, produced;
    lvn_http_request *held;
} fixture;

static void hello(lvn_http_request *r)
{
    ((fixture *)r->user)->calls++;
    lvn_http_respond(r, 200, "text/plain", LVN_STR("hello"));
}

static void echo(lvn_http_request *r)
{
    lvn_http_respond(r, 200, "application/octet-stream", r->body);
}

static void params(lvn_http_request *r)
{
    lvn_str text =
        lvn_arena_printf(r->arena, "%zu:%.*s:%.*s:%.*s", r->param_count, LVN_STR_ARG(r->params[0]),
                         LVN_STR_ARG(r->params[1]), LVN_STR_ARG(lvn_http_query_get(r, "q")));
    lvn_http_answer_header(r, "X-Split", LVN_STR("a\r\nb"));
    lvn_http_respond(r, 200, "text/plain", text);
}

static void literal(lvn_http_request *r)
{
    lvn_http_respond(r, 200, "text/plain", LVN_STR("literal"));
}

static void no_content(lvn_http_request *r)
{
    lvn_http_respond(r, 204, NULL, LVN_STR("must not be sent"));
}

static void forgets(lvn_http_request *r)
{
    (void)r;
}

static void stream(lvn_http_request *r)
{
    lvn_http_stream_begin(r, 200, "text/event-stream");
    lvn_http_stream_write(r, LVN_STR("one"));
    lvn_http_stream_write(r, LVN_STR(""));
    lvn_http_stream_write(r, LVN_STR("two"));
    lvn_http_stream_end(r);
}

static void cut(lvn_http_request *r)
{
    lvn_http_stream_begin(r, 200, "text/plain");
    lvn_http_stream_write(r, LVN_STR("half"));
    lvn_http_stream_abort(r);
}

static void gone(void *arg)
{
    lvn_http_request *r = arg;
    fixture *f = r->user;
    f->disconnects++;
    f->held = NULL;
    lvn_http_release(r);
}

static void hangs(lvn_http_request *r)
{
    fixture *f = r->user;
    f->held = r;
    lvn_http_hold(r);
    lvn_http_on_disconnect(r, gone, r);
    f->calls++;
}

static void answer_held(void *arg)
{
    lvn_http_request *r = arg;
    lvn_http_on_disconnect(r, NULL, NULL);
    lvn_http_respond(r, 200, "text/plain", LVN_STR("late"));
    lvn_http_release(r);
}

static void later(lvn_http_request *r)
{
    lvn_http_hold(r);
    lvn_loop_after(r->loop, 20, answer_held, r);
}

enum { STREAM_BYTES = 32 * 1024 * 1024, STREAM_LIMIT = 256 * 1024 };

static void produce(void *arg)
{
    lvn_http_request *r = arg;
    fixture *f = r->user;
    static char block[16 * 1024];
    while (f->produced < STREAM_BYTES && lvn_http_stream_buffered(r) < STREAM_LIMIT) {
        if (!lvn_http_stream_write(r, (lvn_str){block, sizeof(block)}))
            return;
        f->produced += sizeof(block);
        size_t have = lvn_http_stream_buffered(r);
        if (have > f->most_buffered)
            f->most_buffered = have;
    }
    if (f->produced >= STREAM_BYTES) {
        lvn_http_stream_on_drain(r, NULL, NULL);
        lvn_http_on_disconnect(r, NULL, NULL);
        lvn_http_stream_end(r);
        lvn_http_release(r);
    }
}

static void flood(lvn_http_request *r)
{
    lvn_http_hold(r);
    lvn_http_stream_begin(r, 200, "application/octet-stream");
    lvn_http_stream_on_drain(r, produce, r);
    lvn_http_on_disconnect(r, gone, r);
    produce(r);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    *state = f;
    lvn_http_config config;
    lvn_http_config_default(&config);
    config.port = 0;
    config.max_body_bytes = 1024 * 1024;
    config.max_header_bytes = 8192;
    config.max_connections = 8;
    config.header_timeout_ms = 300;
    config.body_timeout_ms = 300;
    config.idle_timeout_ms = 600;
    lvn_err err;
    if (lvn_loop_start("http-test", &f->loop, &err) ||
        lvn_http_open(&config, f->loop, &f->server, &err))
        return -1;
    lvn_http_route(f->server, "GET", "/hello", hello, f);
    lvn_http_route(f->server, "POST", "/echo", echo, f);
    lvn_http_route(f->server, "GET", "/things/{id}", params, f);
    lvn_http_route(f->server, "POST", "/things/{id}", params, f);
    lvn_http_route(f->server, "POST", "/things/search", literal, f);
    lvn_http_route(f->server, "GET", "/things/{id}/parts/{part}", params, f);
    lvn_http_route(f->server, "GET", "/none", no_content, f);
    lvn_http_route(f->server, "GET", "/forgets", forgets, f);
    lvn_http_route(f->server, "GET", "/stream", stream, f);
    lvn_http_route(f->server, "GET", "/cut", cut, f);
    lvn_http_route(f->server, "GET", "/hangs", hangs, f);
    lvn_http_route(f->server, "GET", "/later", later, f);
    lvn_http_route(f->server, "GET", "/flood", flood, f);
    lvn_http_start(f->server);
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    lvn_http_close(f->server, 200);
    lvn_loop_stop(f->loop);
    free(f);
    return 0;
}

static int dial(const fixture *f)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)lvn_http_port(f->server)),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void put(int fd, const char *text)
{
    size_t len = strlen(text);
    while (len) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* the server may have refused and closed already */
        text += n;
        len -= (size_t)n;
    }
}

/* Everything until the server closes. */
static const char *read_all(int fd)
{
    static lvn_buf all;
    if (!all.max)
        lvn_buf_init(&all, LVN_BUF_NO_LIMIT);
    lvn_buf_clear(&all);
    char part[4096];
    for (ssize_t n; (n = recv(fd, part, sizeof(part), 0)) > 0;)
        lvn_buf_append(&all, part, (size_t)n);
    close(fd);
    return lvn_buf_str(&all).ptr;
}

/* Until `text` has come `times` times. */
static const char *read_until(int fd, const char *text, int times)
{
    static char all[65536];
    size_t len = 0;
    all[0] = '\0';
    for (;;) {
        int found = 0;
        for (const char *at = all; (at = strstr(at, text)); at++)
            found++;
        if (found >= times)
            return all;
        ssize_t n = recv(fd, all + len, sizeof(all) - 1 - len, 0);
        if (n <= 0)
            return all;
        len += (size_t)n;
        all[len] = '\0';
    }
}

static const char *ask(const fixture *f, const char *request)
{
    int fd = dial(f);
    put(fd, request);
    return read_all(fd);
}

static void assert_starts(const char *text, const char *start)
{
    if (strncmp(text, start, strlen(start)) != 0)
        fail_msg("want %s..., got %.200s", start, text);
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("want ...%s..., got %.300s", part, text);
}

#define END "Host: x\r\nConnection: close\r\n\r\n"

static void get_is_answered(void **state)
{
    const char *answer = ask(*state, "GET /hello HTTP/1.1\r\n" END);
    assert_starts(answer, "HTTP/1.1 200 OK\r\n");
    assert_has(answer, "content-length: 5\r\n");
    assert_has(answer, "connection: close\r\n");
    assert_has(answer, "\r\n\r\nhello");
}

static void one_connection_serves_many_requests(void **state)
{
    int fd = dial(*state);
    for (int i = 0; i < 5; i++) {
        put(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_has(read_until(fd, "hello", 1), "200 OK");
    }
    close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    int fd = dial(*state);
    put(fd, "GET /later HTTP/1.1\r\nHost: x\r\n\r\nPOST /echo HTTP/1.1\r\nHost: "
            "x\r\nContent-Length: 3\r\n\r\nabc"
            "GET /hello HTTP/1.1\r\n" END);
    const char *answer = read_all(fd);
    const char *late = strstr(answer, "late"), *abc = strstr(answer, "abc"),
               *hi = strstr(answer, "\r\n\r\nhello");
    assert_true(late && abc && hi && late < abc && abc < hi);
}

static void a_request_may_come_byte_by_byte(void **state)
{
    int fd = dial(*state);
    const char *text = "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END
                       "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n";
    for (; *text; text++)
        assert_int_equal(send(fd, text, 1, 0), 1);
    assert_has(read_all(fd), "\r\n\r\nabcde");
}

static void http_1_0_closes_unless_asked(void **state)
{
    const char *answer = ask(*state, "GET /hello HTTP/1.0\r\n\r\n");
    assert_has(answer, "connection: close\r\n");
    int fd = dial(*state);
    put(fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_has(read_until(fd, "hello", 1), "connection: keep-alive");
    put(fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    answer = read_all(fd);
    assert_has(answer, "\r\n\r\nonetwo");
    assert_null(strstr(answer, "chunked"));
}

static void continue_is_sent_when_expected(void **state)
{
    int fd = dial(*state);
    put(fd, "POST /echo HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n" END);
    assert_starts(read_until(fd, "\r\n\r\n", 1), "HTTP/1.1 100 Continue\r\n\r\n");
    put(fd, "ok");
    assert_has(read_all(fd), "\r\n\r\nok");
    assert_starts(ask(*state, "POST /echo HTTP/1.1\r\nContent-Length: 2\r\nExpect: magic\r\n" END),
                  "HTTP/1.1 417");
}

static void head_and_204_send_no_body(void **state)
{
    const char *answer = ask(*state, "HEAD /hello HTTP/1.1\r\n" END);
    assert_has(answer, "content-length: 5\r\n");
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    answer = ask(*state, "GET /none HTTP/1.1\r\n" END);
    assert_starts(answer, "HTTP/1.1 204 No Content");
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    assert_null(strstr(answer, "content-length"));
}

static void routes_and_parameters(void **state)
{
    assert_has(ask(*state, "GET /things/a%20b?q=1&q=x%2By+z HTTP/1.1\r\n" END),
               "\r\n\r\n1:a b::x+y z");
    assert_has(ask(*state, "GET /things/1/parts/%C3%A9 HTTP/1.1\r\n" END), "\r\n\r\n2:1:\xc3\xa9:");
    assert_has(ask(*state, "GET /things/%FF HTTP/1.1\r\n" END), "\r\n\r\n1:\xef\xbf\xbd:");
    assert_has(ask(*state, "POST /things/search HTTP/1.1\r\n" END), "\r\n\r\nliteral");
    assert_has(ask(*state, "GET /things/search HTTP/1.1\r\n" END), "\r\n\r\n1:search:");
    assert_starts(ask(*state, "GET /things/a%2Fb HTTP/1.1\r\n" END), "HTTP/1.1 404");
    assert_starts(ask(*state, "GET /things/ HTTP/1.1\r\n" END), "HTTP/1.1 404");
    assert_has(ask(*state, "GET /things/x HTTP/1.1\r\n" END), "X-Split: a  b\r\n");
}

static void unknown_paths_and_methods(void **state)
{
    const char *answer = ask(*state, "GET /nothing HTTP/1.1\r\n" END);
    assert_starts(answer, "HTTP/1.1 404 ");
    assert_has(answer, "{\"detail\":\"Not Found\"}");
    answer = ask(*state, "DELETE /things/1 HTTP/1.1\r\n" END);
    assert_starts(answer, "HTTP/1.1 405 ");
    assert_has(answer, "Allow: GET, POST\r\n");
    assert_has(answer, "{\"detail\":\"Method Not Allowed\"}");
}

static void a_handler_that_forgets_to_answer_is_a_500(void **state)
{
    assert_starts(ask(*state, "GET /forgets HTTP/1.1\r\n" END), "HTTP/1.1 500 ");
}

static void streams_are_chunked(void **state)
{
    assert_has(ask(*state, "GET /stream HTTP/1.1\r\n" END),
               "\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
    const char *answer = ask(*state, "GET /cut HTTP/1.1\r\n" END);
    assert_has(answer, "4\r\nhalf\r\n");
    assert_null(strstr(answer, "0\r\n\r\n"));
}

/* Each must be refused with 400 (or what stands there), and nothing behind it may be read as a
 * request. */
static void ambiguous_requests_are_refused(void **state)
{
    static const struct {
        const char *want, *request;
    } cases[] = {
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
                "chunked\r\n\r\n0\r\n\r\n"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: "
                "3\r\n\r\n0\r\n\r\n"},
        {"400",
         "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"},
        {"400",
         "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                "chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                "chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                "chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"},
        {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                "chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n"},
        {"4",
         "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"},
        {"501",
         "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
        {"501", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
        {"4", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
              "chunked\r\n\r\n0\r\n\r\n"},
        {"400", "POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {"400", "GET /hello HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n 2\r\n\r\n"},
        {"400", "GET /hello HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n\t2\r\n\r\n"},
        {"400", "GET /hello HTTP/1.1\r\nHost : x\r\n\r\n"},
        {"400", "GET /hello HTTP/1.1\r\n\r\n"},
        {"400", "GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"},
        {"400", "GET /hello HTTP/1.1\nHost: x\n\n"},
        {"400", "GET /hello HTTP/1.1\r\nHost: x\r\nX: a\x01z\r\n\r\n"},
        {"400", "G\x01T /hello HTTP/1.1\r\nHost: x\r\n\r\n"},
        {"400", "\x16\x03\x01\x02\r\n\r\n"},
        {"505", "GET /hello HTTP/2.0\r\nHost: x\r\n\r\n"},
        {"505", "GET /hello HTTP/9.9\r\nHost: x\r\n\r\n"},
        {"405", "CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int fd = dial(f);
        put(fd, cases[i].request);
        put(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        const char *answer = read_all(fd);
        char start[32];
        snprintf(start, sizeof(start), "HTTP/1.1 %s", cases[i].want);
        if (strncmp(answer, start, strlen(start)) != 0)
            fail_msg("case %zu: want %s, got %.200s", i, start, answer);
        assert_int_equal(f->calls, 0);
    }
}

static void an_offer_to_upgrade_is_declined(void **state)
{
    assert_has(
        ask(*state,
            "GET /hello HTTP/1.1\r\nUpgrade: h2c\r\nHost: x\r\nConnection: Upgrade, close\r\n\r\n"),
        "\r\n\r\nhello");
}

static void limits_are_answered_with_clear_errors(void **state)
{
    fixture *f = *state;
    lvn_buf big;
    lvn_buf_init(&big, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&big, "GET /hello HTTP/1.1\r\nHost: x\r\nX: ");
    for (int i = 0; i < 9000; i++)
        lvn_buf_append_char(&big, 'a');
    lvn_buf_lit(&big, "\r\n\r\n");
    assert_starts(ask(f, big.ptr), "HTTP/1.1 431 ");
    lvn_buf_clear(&big);
    lvn_buf_lit(&big, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 200; i++)
        lvn_buf_lit(&big, "a: b\r\n");
    lvn_buf_lit(&big, "\r\n");
    assert_starts(ask(f, big.ptr), "HTTP/1.1 431 ");
    assert_starts(ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n"),
                  "HTTP/1.1 413 ");
    lvn_buf_clear(&big);
    lvn_buf_lit(&big, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        lvn_buf_lit(&big, "60000\r\n");
        for (int k = 0; k < 0x60000; k++)
            lvn_buf_append_char(&big, 'b');
        lvn_buf_lit(&big, "\r\n");
    }
    assert_starts(ask(f, big.ptr), "HTTP/1.1 413 ");
    lvn_buf_clear(&big);
    lvn_buf_lit(&big, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;");
    for (int i = 0; i < 20000; i++)
        lvn_buf_lit(&big, "x");
    assert_starts(ask(f, big.ptr), "HTTP/1.1 413 ");
    lvn_buf_done(&big);
}

static void too_many_connections_are_told_so(void **state)
{
    int fds[8];
    for (int i = 0; i < 8; i++) {
        fds[i] = dial(*state);
        put(fds[i], "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        read_until(fds[i], "hello", 1);
    }
    const char *answer = read_all(dial(*state));
    assert_starts(answer, "HTTP/1.1 503 ");
    assert_has(answer, "retry-after: 1\r\n");
    for (int i = 0; i < 8; i++)
        close(fds[i]);
}

static void slow_clients_are_cut_off(void **state)
{
    int fd = dial(*state);
    put(fd, "GET /hello HT");
    assert_starts(read_all(fd), "HTTP/1.1 408 ");
    fd = dial(*state);
    put(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    assert_starts(read_all(fd), "HTTP/1.1 408 ");
    fd = dial(*state);
    put(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    int64_t start_ns = lvn_clock_monotonic_ns();
    assert_has(read_all(fd), "hello"); /* and closed when idle */
    assert_true(lvn_clock_monotonic_ns() - start_ns > 500 * LVN_NS_PER_MS);
    assert_string_equal(read_all(dial(*state)), "");
}

/* A loris sends a byte now and then: the limit is on the whole head, not on the gaps. */
static void trickled_heads_are_cut_off(void **state)
{
    int fd = dial(*state);
    int64_t start_ns = lvn_clock_monotonic_ns();
    put(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (poll(&wait, 1, 40) == 0 && lvn_clock_monotonic_ns() - start_ns < 5 * LVN_NS_PER_S)
        put(fd, "a: b\r\n");
    assert_starts(read_all(fd), "HTTP/1.1 408 ");
    assert_true(lvn_clock_monotonic_ns() - start_ns < 3 * LVN_NS_PER_S);
}

static void wait_for(atomic_int *value, int want)
{
    int64_t until = lvn_clock_monotonic_ns() + 10 * LVN_NS_PER_S;
    while (*value < want && lvn_clock_monotonic_ns() < until)
        usleep(1000);
    assert_int_equal(*value, want);
}

static void a_handler_is_told_that_the_client_left(void **state)
{
    fixture *f = *state;
    int fd = dial(f);
    put(fd, "GET /hangs HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f->calls, 1);
    assert_int_equal(f->disconnects, 0);
    close(fd);
    wait_for(&f->disconnects, 1);
}

static void a_client_that_only_stops_sending_gets_its_answer(void **state)
{
    int fd = dial(*state);
    put(fd, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(fd, SHUT_WR);
    assert_has(read_all(fd), "\r\n\r\nlate");
}

static void a_slow_reader_holds_the_producer_back(void **state)
{
    fixture *f = *state;
    int fd = dial(f);
    put(fd, "GET /flood HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    usleep(200 * 1000);
    assert_true(f->produced < STREAM_BYTES);
    size_t total = 0;
    static char part[65536];
    for (ssize_t n; (n = recv(fd, part, sizeof(part), 0)) > 0;)
        total += (size_t)n;
    close(fd);
    assert_true(total > STREAM_BYTES);
    assert_true(f->most_buffered <= STREAM_LIMIT + 32 * 1024);
}

static void a_reader_that_never_reads_is_dropped(void **state)
{
    fixture *f = *state;
    int fd = dial(f);
    put(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    int64_t until = lvn_clock_monotonic_ns() + 10 * LVN_NS_PER_S;
    struct pollfd wait = {.fd = fd, .events = 0};
    bool is_reset = false;
    while (!is_reset && lvn_clock_monotonic_ns() < until) {
        poll(&wait, 1, 20);
        is_reset = wait.revents & (POLLERR | POLLHUP);
    }
    assert_true(is_reset);
    assert_int_equal(f->calls, 0);
    close(fd);
}

static void a_big_answer_arrives_whole(void **state)
{
    lvn_buf big;
    lvn_buf_init(&big, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(
        &big,
        "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 1000000; i++)
        lvn_buf_append_char(&big, (char)('a' + i % 26));
    const char *answer = ask(*state, big.ptr);
    const char *body = strstr(answer, "\r\n\r\n") + 4;
    assert_int_equal(strlen(body), 1000000);
    assert_memory_equal(body, strstr(big.ptr, "\r\n\r\n") + 4, 1000000);
    lvn_buf_done(&big);
}

static void closing_lets_requests_in_flight_finish(void **state)
{
    fixture *f = *state;
    int fd = dial(f), idle = dial(f);
    put(idle, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    read_until(idle, "hello", 1);
    put(fd, "GET /hangs HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f->calls, 2);
    lvn_loop_post(f->loop, answer_held, f->held);
    lvn_http_close(f->server, 2000);
    assert_has(read_all(fd), "\r\n\r\nlate");
    read_all(idle);
    lvn_loop_stop(f->loop);
    setup(state); /* a second server in the same process, for the teardown to close */
    free(f);
}

static void closing_cuts_requests_that_take_too_long(void **state)
{
    fixture *f = *state;
    int fd = dial(f);
    put(fd, "GET /hangs HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&f->calls, 1);
    lvn_http_close(f->server, 50);
    assert_int_equal(f->disconnects, 1);
    close(fd);
    lvn_loop_stop(f->loop);
    setup(state);
    free(f);
}

static void a_port_in_use_is_a_conflict(void **state)
{
    fixture *f = *state;
    lvn_http_config config;
    lvn_http_config_default(&config);
    config.port = lvn_http_port(f->server);
    lvn_http_server *other;
    lvn_err err;
    assert_int_equal(lvn_http_open(&config, f->loop, &other, &err), LVN_CONFLICT);
    assert_has(err.message, "in use");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(get_is_answered),
        TEST(one_connection_serves_many_requests),
        TEST(pipelined_requests_are_answered_in_order),
        TEST(a_request_may_come_byte_by_byte),
        TEST(http_1_0_closes_unless_asked),
        TEST(continue_is_sent_when_expected),
        TEST(head_and_204_send_no_body),
        TEST(routes_and_parameters),
        TEST(unknown_paths_and_methods),
        TEST(a_handler_that_forgets_to_answer_is_a_500),
        TEST(streams_are_chunked),
        TEST(ambiguous_requests_are_refused),
        TEST(an_offer_to_upgrade_is_declined),
        TEST(limits_are_answered_with_clear_errors),
        TEST(too_many_connections_are_told_so),
        TEST(slow_clients_are_cut_off),
        TEST(trickled_heads_are_cut_off),
        TEST(a_handler_is_told_that_the_client_left),
        TEST(a_client_that_only_stops_sending_gets_its_answer),
        TEST(a_slow_reader_holds_the_producer_back),
        TEST(a_reader_that_never_reads_is_dropped),
        TEST(a_big_answer_arrives_whole),
        TEST(closing_lets_requests_in_flight_finish),
        TEST(closing_cuts_requests_that_take_too_long),
        TEST(a_port_in_use_is_a_conflict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
