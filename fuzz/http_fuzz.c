/* Bytes of a client against the server over a real socket. The first byte says where the data is
 * cut in two. What is checked: no crash, and the server always closes a connection whose client has
 * stopped sending. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "http/server.h"

static lvn_http_server *server;

static void echo(lvn_http_request *r)
{
    lvn_http_query_get(r, "q");
    lvn_http_header_get(r, "content-type");
    lvn_http_respond(r, 200, "text/plain", r->param_count ? r->params[0] : r->body);
}

static void stream(lvn_http_request *r)
{
    lvn_http_stream_begin(r, 200, "text/plain");
    lvn_http_stream_write(r, r->path);
    lvn_http_stream_end(r);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    lvn_loop *loop;
    lvn_http_config config;
    lvn_http_config_default(&config);
    config.port = 0;
    config.max_body_bytes = 4096;
    config.max_header_bytes = 2048;
    if (lvn_loop_start("fuzz", &loop, NULL) || lvn_http_open(&config, loop, &server, NULL))
        abort();
    lvn_http_route(server, "POST", "/a", echo, NULL);
    lvn_http_route(server, "GET", "/a", echo, NULL);
    lvn_http_route(server, "GET", "/a/{id}", echo, NULL);
    lvn_http_route(server, "GET", "/s", stream, NULL);
    lvn_http_start(server);
    return 0;
}

static void give(int fd, const uint8_t *data, size_t size)
{
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        size -= (size_t)n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)lvn_http_port(server)),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    /* Another address each time, or there would soon be no ports left but those in TIME_WAIT. */
    static uint32_t turn;
    struct sockaddr_in from = {
        .sin_family = AF_INET,
        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK + turn++ % 0xfffff0)},
    };
    int on = 1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    struct timeval limit = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
        connect(fd, (struct sockaddr *)&to, sizeof(to)))
        abort();
    size_t cut = 1 + data[0] % size;
    give(fd, data + 1, cut - 1);
    if (data[0] & 1)
        poll(NULL, 0, 1); /* so that the two parts arrive apart */
    give(fd, data + cut, size - cut);
    shutdown(fd, SHUT_WR);
    char answer[4096];
    ssize_t n;
    while ((n = recv(fd, answer, sizeof(answer), 0)) > 0)
        ;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        abort();
    close(fd);
    return 0;
}
