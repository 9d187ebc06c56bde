/* The parts of a run in one process, built in order and torn down in reverse: sampler, store, loop, server, routes, gateway,
 * runner. */
#ifndef LVN_CLI_APP_H
#define LVN_CLI_APP_H

#include "api/api.h"
#include "base/arena.h"
#include "base/err.h"
#include "config/train.h"
#include "engine/serve.h"
#include "gateway/gateway.h"
#include "http/server.h"
#include "loop/loop.h"
#include "reward/reward.h"
#include "runner/runner.h"
#include "store/store.h"

typedef struct lvn_app {
    lvn_arena *arena;
    const lvn_train_options *options;
    const char *run; /* its folder */
    lvn_serve *serve;
    lvn_store *store;
    lvn_loop *loop;
    lvn_http_server *http;
    lvn_api *api;
    lvn_gateway *gateway;
    lvn_runner *runner;
    char url[64]; /* http://host:port */
} lvn_app;

/* What must be right before anything is started: the model file exists, the agent can be started, the options fit together.
 * Replaces "auto" in `options` by what was found, in `arena`. */
lvn_code lvn_app_check(lvn_arena *arena, lvn_train_options *options, lvn_err *err) LVN_MUST_USE;

/* `store_url` as lvn_store_open's. `options` and `run` are borrowed until close. On failure nothing is left. */
lvn_code lvn_app_open(const lvn_train_options *options, const char *run, const char *store_url, lvn_app *out,
                      lvn_err *err) LVN_MUST_USE;
/* Stops the runner first (agents get `grace_ms`), the store last. */
void lvn_app_close(lvn_app *app, int grace_ms);

/* Serves `adapter_path` (NULL: the bare model) as `version` and makes resources `policy-v<version>` the store's latest, so that
 * rollouts enqueued from now on are bound to them. */
lvn_code lvn_app_publish(lvn_app *app, const char *adapter_path, int64_t version, lvn_err *err) LVN_MUST_USE;

/* Parts of the above, for commands that only talk to the model. */
lvn_code lvn_app_find_model(lvn_arena *arena, lvn_train_options *options, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_app_open_serve(const lvn_train_options *options, lvn_serve **out, lvn_err *err) LVN_MUST_USE;

/* Cores this process may use. */
int lvn_app_cores(void);

#endif
