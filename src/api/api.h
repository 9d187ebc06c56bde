/* The store's wire protocol over HTTP (spec/store-api.md): the REST routes below /v1/agl, and OTLP
 * at /v1/traces. */
#ifndef LVN_API_API_H
#define LVN_API_API_H

#include "base/err.h"
#include "http/server.h"
#include "store/store.h"

typedef struct lvn_api lvn_api;

typedef struct lvn_api_config {
    size_t max_inflated_bytes; /* of a gzipped OTLP body; 0: 64 MiB */
    double max_wait_s;         /* longest `?wait=` of a dequeue; 0: 60 */
} lvn_api_config;

/* Registers every route; before lvn_http_start. `config` may be NULL. Free `out` after the server
 * has been closed, and close the store only after that. Handlers never block: a request becomes an
 * operation of the store, and is answered when that is done. */
lvn_code lvn_api_mount(lvn_http_server *server, lvn_store *store, const lvn_api_config *config,
                       lvn_api **out, lvn_err *err) LVN_MUST_USE;
void lvn_api_free(lvn_api *api); /* NULL is fine */
/* Requests that wait for a rollout to finish or to come are answered 503 now, streams of events end, and later ones do not
 * wait: call it before lvn_http_close and before the store is closed, whose grace they would use up. Blocks shortly; any thread
 * but the loop's. NULL is fine. */
void lvn_api_stop_waiting(lvn_api *api);

#endif
