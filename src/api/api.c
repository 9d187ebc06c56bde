#include "api/api.h"

#include <stdlib.h>

#include "api/call.h"
#include "api/events.h"

static const lvn_api_route *const tables[] = {
    lvn_api_rollout_routes, lvn_api_attempt_routes, lvn_api_span_routes, lvn_api_resource_routes,
    lvn_api_worker_routes,  lvn_api_other_routes,   lvn_api_otlp_routes,
};
enum { TABLE_COUNT = sizeof(tables) / sizeof(*tables) };

lvn_code lvn_api_mount(lvn_http_server *server, lvn_store *store, const lvn_api_config *config,
                       lvn_api **out, lvn_err *err)
{
    if (!server || !store)
        return lvn_fail(err, LVN_INTERNAL, "the API needs a server and a store");
    lvn_api *api = lvn_zalloc(sizeof(*api));
    api->server = server;
    api->store = store;
    if (config)
        api->config = *config;
    if (!api->config.max_inflated_bytes)
        api->config.max_inflated_bytes = 64 * 1024 * 1024;
    if (!(api->config.max_wait_s > 0))
        api->config.max_wait_s = 60;
    size_t count = 0;
    for (size_t t = 0; t < TABLE_COUNT; t++)
        for (const lvn_api_route *route = tables[t]; route->method; route++)
            count++;
    api->bound = lvn_zalloc(count * sizeof(*api->bound));
    lvn_api_bound *bound = api->bound;
    for (size_t t = 0; t < TABLE_COUNT; t++)
        for (const lvn_api_route *route = tables[t]; route->method; route++, bound++) {
            *bound = (lvn_api_bound){.api = api, .route = route};
            lvn_http_route(server, route->method, route->pattern, lvn_api_handle, bound);
        }
    api->events = lvn_events_open(server, store);
    *out = api;
    return LVN_OK;
}

void lvn_api_free(lvn_api *api)
{
    if (!api)
        return;
    lvn_events_free(api->events);
    free(api->bound);
    free(api);
}
