#include "cli/commands.h"

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/arena.h"
#include "cli/app.h"
#include "gateway/gateway.h"
#include "http/server.h"
#include "loop/loop.h"
#include "store/store.h"

enum { GRACE_MS = 5000 };

typedef struct options {
    const char *store, *host, *model;
    int port;
} options;

enum { OPT_STORE = 1, OPT_HOST, OPT_PORT, OPT_MODEL };

static const struct argp_option known[] = {
    {"store", OPT_STORE, "URL", 0, "memory or sqlite:PATH (default sqlite:./levin.db)", 0},
    {"host", OPT_HOST, "HOST", 0, "address to listen on (default 127.0.0.1)", 0},
    {"port", OPT_PORT, "PORT", 0, "port to listen on, 0 for any free one (default 4747)", 0},
    {"model", OPT_MODEL, "FILE", 0,
     "a GGUF file that answers LLM calls as `policy`; `auto`: the small one of tools/deps", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    options *o = state->input;
    char *end;
    switch (key) {
    case OPT_STORE:
        o->store = arg;
        return 0;
    case OPT_HOST:
        o->host = arg;
        return 0;
    case OPT_MODEL:
        o->model = arg;
        return 0;
    case OPT_PORT: {
        long port = strtol(arg, &end, 10);
        if (end == arg || *end || port < 0 || port > 65535)
            argp_error(state, "--port wants a number from 0 to 65535, not \"%s\"", arg);
        o->port = (int)port;
        return 0;
    }
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What runs, in the order it is built; taken down in reverse. */
typedef struct service {
    lvn_serve *serve;
    lvn_gateway *gateway;
    lvn_store *store;
    lvn_loop *loop;
    lvn_http_server *server;
    lvn_api *api;
} service;

static lvn_code open_model(service *s, const char *model, lvn_err *err)
{
    size_t count;
    lvn_train_options o;
    const lvn_option *table = lvn_train_option_table(&count);
    lvn_arena *arena = lvn_arena_new(0);
    lvn_options_default(table, count, arena, &o);
    o.model.path = model;
    lvn_code code = lvn_app_find_model(arena, &o, err);
    if (!code)
        code = lvn_app_open_serve(&o, &s->serve, err);
    lvn_arena_free(arena);
    return code;
}

static lvn_code open_gateway(service *s, lvn_err *err)
{
    lvn_gateway_config config;
    lvn_gateway_config_default(&config);
    return lvn_gateway_open(&config, s->server, s->store, s->serve, &s->gateway, err);
}

static lvn_code start(service *s, const options *o, lvn_err *err)
{
    lvn_store_config store_config = {.url = o->store};
    lvn_http_config http_config;
    lvn_http_config_default(&http_config);
    http_config.host = o->host;
    http_config.port = o->port;
    lvn_code code = o->model ? open_model(s, o->model, err) : LVN_OK;
    if (!code)
        code = lvn_store_open(&store_config, &s->store, err);
    if (!code)
        code = lvn_loop_start("levin-loop", &s->loop, err);
    if (!code)
        code = lvn_http_open(&http_config, s->loop, &s->server, err);
    if (!code)
        code = lvn_api_mount(s->server, s->store, NULL, &s->api, err);
    if (!code && s->serve)
        code = open_gateway(s, err);
    if (!code)
        lvn_http_start(s->server);
    return code;
}

static void stop(service *s)
{
    lvn_api_stop_waiting(s->api);
    if (s->server)
        lvn_http_close(s->server, GRACE_MS);
    lvn_serve_close(s->serve);
    lvn_store_close(s->store);
    lvn_loop_stop(s->loop);
    lvn_gateway_close(s->gateway);
    lvn_api_free(s->api);
}

static void wait_for_signal(const sigset_t *signals)
{
    int number;
    sigwait(signals, &number);
    /* A second signal ends the process at once. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
}

int lvn_cli_serve(int argc, char **argv)
{
    options o = {.store = "sqlite:./levin.db", .host = "127.0.0.1", .port = 4747};
    const struct argp argp = {known,
                              parse,
                              NULL,
                              "Serves the store over HTTP until SIGINT or SIGTERM; requests in "
                              "flight are finished first.",
                              NULL,
                              NULL,
                              NULL};
    argp_err_exit_status = 2;
    if (argp_parse(&argp, argc, argv, 0, NULL, &o))
        return 2;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before threads, which inherit it */
    signal(SIGPIPE, SIG_IGN);
    service s = {0};
    lvn_err err = {0};
    lvn_code code = start(&s, &o, &err);
    if (code) {
        fprintf(stderr, "levin serve: %s\n", err.message);
    } else {
        printf("levin: serving %s on http://%s:%d\n", o.store, o.host, lvn_http_port(s.server));
        fflush(stdout);
        wait_for_signal(&signals);
    }
    stop(&s);
    return code ? 1 : 0;
}
