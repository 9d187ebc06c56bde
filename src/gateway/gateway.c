#include "gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "gateway/call.h"

enum { KNOWN_ATTEMPTS = 4096 };

void lvn_gateway_config_default(lvn_gateway_config *config)
{
    *config = (lvn_gateway_config){.model_name = "policy", .train = {1, 1, 0}, .val = {0, 1, 0}, .other = {1, 1, 0}};
}

static void chat_recorded(lvn_http_request *request)
{
    lvn_chat_call_begin(request->user, request, true);
}

static void chat_plain(lvn_http_request *request)
{
    lvn_chat_call_begin(request->user, request, false);
}

static void list_models(lvn_http_request *request)
{
    const lvn_gateway *g = request->user;
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&b, "{\"object\":\"list\",\"data\":[{\"id\":");
    lvn_json_write_str(&b, lvn_str_of(g->config.model_name));
    lvn_buf_printf(&b, ",\"object\":\"model\",\"created\":%ld,\"owned_by\":\"levin\"}]}", (long)(lvn_clock_unix_ns() / LVN_NS_PER_S));
    lvn_http_respond(request, 200, "application/json", lvn_buf_str(&b));
    lvn_buf_done(&b);
}

lvn_code lvn_gateway_open(const lvn_gateway_config *config, lvn_http_server *server, lvn_store *store, lvn_serve *serve,
                          lvn_gateway **out, lvn_err *err)
{
    (void)err;
    lvn_gateway *g = lvn_zalloc(sizeof(*g));
    g->config = *config;
    g->server = server;
    g->store = store;
    g->serve = serve;
    pthread_mutex_init(&g->lock, NULL);
    lvn_attempts_init(&g->attempts, KNOWN_ATTEMPTS);
    lvn_http_route(server, "POST", "/rollout/{rollout_id}/attempt/{attempt_id}/v1/chat/completions", chat_recorded, g);
    lvn_http_route(server, "GET", "/rollout/{rollout_id}/attempt/{attempt_id}/v1/models", list_models, g);
    lvn_http_route(server, "POST", "/v1/chat/completions", chat_plain, g);
    lvn_http_route(server, "GET", "/v1/models", list_models, g);
    *out = g;
    return LVN_OK;
}

void lvn_gateway_close(lvn_gateway *g)
{
    if (!g)
        return;
    lvn_attempts_done(&g->attempts);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

void lvn_gateway_set_policy(lvn_gateway *g, int64_t version, lvn_str resources_id)
{
    pthread_mutex_lock(&g->lock);
    size_t i = g->next_policy++ % LVN_POLICY_IDS;
    g->policies[i].version = version;
    g->policies[i].is_set = true;
    snprintf(g->policies[i].resources_id, sizeof(g->policies[i].resources_id), "%.*s", LVN_STR_ARG(resources_id));
    pthread_mutex_unlock(&g->lock);
}
