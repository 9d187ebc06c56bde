/* The LLM gateway: agents' calls in, answers of the local engine out, one span a call in the store.
 *
 * Routes, each also without the prefix (then nothing is recorded, as there is no attempt to record it for):
 *   POST /rollout/{rollout_id}/attempt/{attempt_id}/v1/chat/completions
 *   GET  /rollout/{rollout_id}/attempt/{attempt_id}/v1/models
 * A call under a prefix names an attempt; an unknown one is refused (404), and the rollout's mode decides the default sampling
 * (below). The span is in the store before the last byte of the answer is sent.
 *
 * Threads: the handlers run on the server's loop; decoding callbacks post to it. The functions below may be called from any
 * thread and do not block. */
#ifndef LVN_GATEWAY_GATEWAY_H
#define LVN_GATEWAY_GATEWAY_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "engine/serve.h"
#include "http/server.h"
#include "store/store.h"

typedef struct lvn_gateway lvn_gateway;

/* What a call gets that does not say otherwise, by the mode of its rollout: an agent written for a provider names no temperature,
 * yet training must explore and validation must not. A call that names its own keeps it. */
typedef struct lvn_gateway_sampling {
    float temperature;
    float top_p;
    int max_tokens; /* bound on the answer when the call sets none; 0: what the context leaves */
} lvn_gateway_sampling;

typedef struct lvn_gateway_config {
    const char *model_name;                  /* what /v1/models lists and calls must name, e.g. "policy" */
    lvn_gateway_sampling train, val, other;  /* by mode; `other` also for calls without an attempt */
    uint64_t seed;                           /* of calls that give none: mixed with a counter */
} lvn_gateway_config;
void lvn_gateway_config_default(lvn_gateway_config *config); /* "policy"; temperature 1, 0 for val */

/* Adds the routes to a server that is not started yet. Borrows everything until close. */
lvn_code lvn_gateway_open(const lvn_gateway_config *config, lvn_http_server *server, lvn_store *store, lvn_serve *serve,
                          lvn_gateway **out, lvn_err *err) LVN_MUST_USE;
/* After the server has closed. NULL is fine. */
void lvn_gateway_close(lvn_gateway *gateway);

/* What spans say of who answers from now on: the id of the resources in the store that stand for policy `version`. Call it before
 * or after lvn_serve_publish; a span looks its id up by the version that really answered. Copied. */
void lvn_gateway_set_policy(lvn_gateway *gateway, int64_t version, lvn_str resources_id);

#endif
