#include "cli/commands.h"

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access/access.h"
#include "api/api.h"
#include "base/arena.h"
#include "base/log.h"
#include "cli/app.h"
#include "cli/notify.h"
#include "gateway/gateway.h"
#include "http/server.h"
#include "loop/loop.h"
#include "store/store.h"

enum { GRACE_MS = 5000, MAX_ORIGINS = 64 };

typedef struct options {
    const char *store, *host, *model, *token_file, *key;
    const char *origins[MAX_ORIGINS];
    size_t origin_count;
    int64_t port, max_body_mb, max_connections;
    bool is_relaxed, is_insecure;
} options;

enum { OPT_STORE = 1, OPT_HOST, OPT_PORT, OPT_MODEL, OPT_TOKENS, OPT_KEY, OPT_ORIGIN, OPT_INSECURE, OPT_DURABILITY, OPT_BODY, OPT_CONNECTIONS };

static const struct argp_option known[] = {
    {"store", OPT_STORE, "URL", 0, "memory or sqlite:PATH (default sqlite:./levin.db)", 0},
    {"host", OPT_HOST, "HOST", 0, "address to listen on (default 127.0.0.1)", 0},
    {"port", OPT_PORT, "PORT", 0, "port to listen on, 0 for any free one (default 4747)", 0},
    {"model", OPT_MODEL, "FILE", 0,
     "a GGUF file that answers LLM calls as `policy`; `auto`: the small one of tools/deps", 0},
    {"durability", OPT_DURABILITY, "full|relaxed", 0,
     "full (default): an answered write survives a power cut; relaxed: a crash of the process only", 0},
    {NULL, 0, NULL, 0, "Who may ask", 1},
    {"token-file", OPT_TOKENS, "FILE", 0, "bearer tokens, a line each: ROLE TOKEN, with admin, algorithm, runner or read-only as the role; read again on SIGHUP", 1},
    {"key", OPT_KEY, "TOKEN", 0, "one bearer token that may do everything; others on this machine can see it, a file is better", 1},
    {"insecure", OPT_INSECURE, NULL, 0, "listen on an address that others can reach, without tokens", 1},
    {"cors-origin", OPT_ORIGIN, "ORIGIN", 0, "web pages from there may call the server; * for all; may be given again", 1},
    {NULL, 0, NULL, 0, "Limits", 2},
    {"max-body-mb", OPT_BODY, "N", 0, "largest request body (default 64)", 2},
    {"max-connections", OPT_CONNECTIONS, "N", 0, "connections at once (default 4096)", 2},
    {0},
};

static int64_t read_number(struct argp_state *state, const char *name, const char *text, int64_t least, int64_t most)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        argp_error(state, "--%s wants a number from %lld to %lld, not \"%s\"", name, (long long)least, (long long)most, text);
    return value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    options *o = state->input;
    switch (key) {
    case OPT_STORE: o->store = arg; return 0;
    case OPT_HOST: o->host = arg; return 0;
    case OPT_MODEL: o->model = arg; return 0;
    case OPT_TOKENS: o->token_file = arg; return 0;
    case OPT_KEY: o->key = arg; return 0;
    case OPT_INSECURE: o->is_insecure = true; return 0;
    case OPT_PORT: o->port = read_number(state, "port", arg, 0, 65535); return 0;
    case OPT_BODY: o->max_body_mb = read_number(state, "max-body-mb", arg, 1, 4096); return 0;
    case OPT_CONNECTIONS: o->max_connections = read_number(state, "max-connections", arg, 1, 1000000); return 0;
    case OPT_ORIGIN:
        if (o->origin_count == MAX_ORIGINS)
            argp_error(state, "more than %d times --cors-origin", MAX_ORIGINS);
        o->origins[o->origin_count++] = arg;
        return 0;
    case OPT_DURABILITY:
        if (strcmp(arg, "full") != 0 && strcmp(arg, "relaxed") != 0)
            argp_error(state, "--durability is full or relaxed, not \"%s\"", arg);
        o->is_relaxed = !strcmp(arg, "relaxed");
        return 0;
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
    lvn_access *access;
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

static bool is_loopback(const char *host)
{
    return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

static lvn_code start(service *s, const options *o, lvn_err *err)
{
    if (!is_loopback(o->host) && !o->token_file && !o->key && !o->is_insecure)
        return lvn_fail(err, LVN_INVALID, "others can reach %s: give --token-file, or say --insecure if everybody there may do everything",
                        o->host);
    lvn_store_config store_config = {.url = o->store, .is_relaxed = o->is_relaxed};
    lvn_access_config access_config = {.token_file = o->token_file, .key = o->key, .origins = o->origins, .origin_count = o->origin_count};
    lvn_http_config http_config;
    lvn_http_config_default(&http_config);
    http_config.host = o->host;
    http_config.port = (int)o->port;
    if (o->max_body_mb)
        http_config.max_body_bytes = (size_t)o->max_body_mb << 20;
    if (o->max_connections)
        http_config.max_connections = (int)o->max_connections;
    lvn_code code = o->model ? open_model(s, o->model, err) : LVN_OK;
    if (!code)
        code = lvn_store_open(&store_config, &s->store, err);
    if (!code)
        code = lvn_loop_start("levin-loop", &s->loop, err);
    if (!code)
        code = lvn_http_open(&http_config, s->loop, &s->server, err);
    if (!code)
        code = lvn_access_open(&access_config, s->server, &s->access, err);
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
    lvn_access_close(s->access);
}

static void wait_for_signal(const service *s, const sigset_t *signals)
{
    int number;
    while (!sigwait(signals, &number) && number == SIGHUP) {
        lvn_err err;
        if (lvn_access_reload(s->access, &err))
            lvn_log(LVN_ERROR, "reload_failed", "error=\"%s\"", err.message);
        else
            lvn_log(LVN_INFO, "reloaded", "tokens=1");
    }
    lvn_notify("STOPPING=1");
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
    sigaddset(&signals, SIGHUP);
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
        lvn_notify("READY=1");
        wait_for_signal(&s, &signals);
    }
    stop(&s);
    return code ? 1 : 0;
}
