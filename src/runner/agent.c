#include "runner/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/map.h"
#include "runner/text.h"

extern char **environ;

void lvn_agent_defaults(lvn_runner_config *config)
{
    lvn_agent_spec *agent = &config->agent;
    agent->python = agent->python ? agent->python : "python3";
    agent->function = agent->function ? agent->function : "solve";
    agent->ready_timeout_ms = agent->ready_timeout_ms ? agent->ready_timeout_ms : 120000;
    agent->max_output_bytes = agent->max_output_bytes ? agent->max_output_bytes : (size_t)4 << 20;
    config->model = config->model ? config->model : "policy";
    config->api_key = config->api_key ? config->api_key : "levin";
    config->gateway_url = config->gateway_url ? config->gateway_url : "http://127.0.0.1:4747";
    config->term_ms = config->term_ms ? config->term_ms : 2000;
    config->grace_ms = config->grace_ms ? config->grace_ms : 1000;
    config->heartbeat_ms = config->heartbeat_ms ? config->heartbeat_ms : 10000;
}

const char *const *lvn_agent_argv(const lvn_runner_config *config, const char *shim, bool is_nursery, lvn_arena *arena)
{
    const lvn_agent_spec *agent = &config->agent;
    if (agent->kind == LVN_AGENT_COMMAND && agent->argv)
        return agent->argv;
    const char **argv = lvn_arena_array(arena, 6, sizeof(*argv));
    size_t n = 0;
    if (agent->kind == LVN_AGENT_COMMAND) {
        argv[n++] = "sh";
        argv[n++] = "-c";
        argv[n++] = agent->shell;
    } else {
        argv[n++] = agent->python;
        argv[n++] = shim;
        if (is_nursery)
            argv[n++] = "--fork";
        argv[n++] = lvn_arena_printf(arena, "%s:%s", agent->file, agent->function).ptr;
    }
    return argv;
}

/* ---- environment ---- */

typedef struct env_var {
    const char *name;
    lvn_str value;
} env_var;

enum { MAX_VARS = 24 };
typedef struct env_vars {
    env_var items[MAX_VARS];
    size_t count;
} env_vars;

static void put(env_vars *vars, const char *name, lvn_str value)
{
    vars->items[vars->count++] = (env_var){name, value};
}

/* An agent behind a proxy would send the calls meant for our gateway there. */
static void put_no_proxy(env_vars *vars, lvn_arena *arena)
{
    static const char *const proxies[] = {"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"};
    bool has_proxy = false;
    for (size_t i = 0; i < sizeof(proxies) / sizeof(*proxies); i++)
        has_proxy |= getenv(proxies[i]) != NULL;
    if (!has_proxy)
        return;
    const char *old = getenv("NO_PROXY") ? getenv("NO_PROXY") : getenv("no_proxy");
    lvn_str list = lvn_arena_printf(arena, "%s%s127.0.0.1,localhost", old ? old : "", old && *old ? "," : "");
    put(vars, "NO_PROXY", list);
    put(vars, "no_proxy", list);
}

/* What every process of the agent gets, whichever attempts it serves. */
static void put_common(env_vars *vars, const lvn_runner_config *config, lvn_arena *arena)
{
    const char *url = config->gateway_url;
    put(vars, "OPENAI_BASE_URL", lvn_arena_printf(arena, "%s/v1", url));
    put(vars, "OPENAI_API_BASE", lvn_arena_printf(arena, "%s/v1", url));
    put(vars, "ANTHROPIC_BASE_URL", lvn_str_of(url));
    put(vars, "OPENAI_API_KEY", lvn_str_of(config->api_key));
    put(vars, "ANTHROPIC_API_KEY", lvn_str_of(config->api_key));
    put(vars, "LLM_MODEL", lvn_str_of(config->model));
    put(vars, "OTEL_EXPORTER_OTLP_ENDPOINT", lvn_str_of(url));
    put(vars, "OTEL_EXPORTER_OTLP_PROTOCOL", LVN_STR("http/protobuf"));
    put_no_proxy(vars, arena);
}

/* What differs from attempt to attempt. */
static void put_attempt(env_vars *vars, const lvn_agent_job *job, lvn_arena *arena)
{
    lvn_str r = job->attempt->rollout_id, a = job->attempt->attempt_id;
    lvn_str base = lvn_arena_printf(arena, "%s/rollout/%.*s/attempt/%.*s", job->config->gateway_url, LVN_STR_ARG(r),
                                    LVN_STR_ARG(a));
    lvn_str v1 = lvn_arena_printf(arena, "%s/v1", base.ptr);
    put(vars, "OPENAI_BASE_URL", v1);
    put(vars, "OPENAI_API_BASE", v1);
    put(vars, "ANTHROPIC_BASE_URL", base);
    put(vars, "OTEL_RESOURCE_ATTRIBUTES",
        lvn_arena_printf(arena, "agentlightning.rollout_id=%.*s,agentlightning.attempt_id=%.*s", LVN_STR_ARG(r),
                         LVN_STR_ARG(a)));
    put(vars, "AGL_ROLLOUT_ID", lvn_arena_dup(arena, r));
    put(vars, "AGL_ATTEMPT_ID", lvn_arena_dup(arena, a));
    put(vars, "AGL_WORKER_ID", lvn_str_of(job->worker_id));
}

static size_t name_len(const char *entry)
{
    return strcspn(entry, "=");
}

/* Later entries win over earlier ones of the same name: ours, what the user adds, and last what makes an attempt
 * one. */
typedef struct env_list {
    lvn_map places; /* name -> index + 1 */
    const char **items;
    size_t count;
} env_list;

static void add_entry(env_list *list, const char *entry)
{
    lvn_str name = {entry, name_len(entry)};
    uintptr_t place = (uintptr_t)lvn_map_get(&list->places, name);
    if (place) {
        list->items[place - 1] = entry;
        return;
    }
    list->items[list->count++] = entry;
    lvn_map_put(&list->places, name, (void *)(uintptr_t)list->count);
}

static size_t count_entries(const char *const *entries)
{
    size_t n = 0;
    while (entries && entries[n])
        n++;
    return n;
}

static const char *const *join_env(const lvn_runner_config *config, const env_vars *vars, lvn_arena *arena)
{
    const char *const *ours = (const char *const *)(uintptr_t)environ;
    const char *const *extra = config->agent.env;
    size_t most = count_entries(ours) + count_entries(extra) + vars->count + 1;
    env_list list = {.items = lvn_arena_array(arena, most, sizeof(char *))};
    lvn_map_init(&list.places);
    for (size_t i = 0; ours && ours[i]; i++)
        add_entry(&list, ours[i]);
    for (size_t i = 0; extra && extra[i]; i++)
        add_entry(&list, extra[i]);
    for (size_t i = 0; i < vars->count; i++)
        add_entry(&list, lvn_arena_printf(arena, "%s=%.*s", vars->items[i].name,
                                          LVN_STR_ARG(vars->items[i].value)).ptr);
    lvn_map_done(&list.places);
    list.items[list.count] = NULL;
    return list.items;
}

const char *const *lvn_agent_env(const lvn_runner_config *config, lvn_arena *arena)
{
    env_vars vars = {.count = 0};
    put_common(&vars, config, arena);
    return join_env(config, &vars, arena);
}

/* ---- command ---- */

/* A file with the task, for programs that would rather not read standard input. */
static lvn_code write_task_file(lvn_str task, lvn_arena *arena, const char **out_path, lvn_err *err)
{
    const char *folder = getenv("TMPDIR");
    lvn_str path = lvn_arena_printf(arena, "%s/levin-task-XXXXXX", folder && *folder ? folder : "/tmp");
    char *name = (char *)(uintptr_t)path.ptr;
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return lvn_fail(err, LVN_IO, "the task file %s could not be made: %s", name, strerror(errno));
    *out_path = name;
    for (size_t at = 0; at < task.len;) {
        ssize_t n = write(fd, task.ptr + at, task.len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            lvn_fail(err, LVN_IO, "the task file %s could not be written: %s", name, strerror(errno));
            close(fd);
            unlink(name);
            return LVN_IO;
        }
        at += (size_t)n;
    }
    close(fd);
    return LVN_OK;
}

static size_t cancel_steps(const lvn_runner_config *config, lvn_process_step out[3])
{
    int ms = (int)config->grace_ms;
    out[0] = (lvn_process_step){0, ms};
    out[1] = (lvn_process_step){SIGINT, ms};
    out[2] = (lvn_process_step){SIGTERM, ms};
    return 3;
}

static lvn_code read_last_line(lvn_process *process, lvn_arena *arena, lvn_result *out, lvn_err *err)
{
    lvn_str line = lvn_text_last_line(lvn_buf_str(lvn_process_output(process)));
    if (!line.len)
        return lvn_fail(err, LVN_INVALID, "the agent printed no answer");
    lvn_json object;
    lvn_code code = lvn_result_read_line(arena, line, &object, err);
    if (!code)
        code = lvn_result_parse(arena, &object, out, err);
    return code ? lvn_fail_context(err, "the last line the agent printed is") : LVN_OK;
}

/* The process has ended by itself: what does that mean? */
static lvn_code judge_exit(lvn_process *process, lvn_arena *arena, lvn_result *out, lvn_err *err)
{
    lvn_process_exit end;
    lvn_process_end(process, NULL, 0, &end);
    if (end.is_known && (end.was_killed || end.status)) {
        char how[96];
        lvn_process_describe_exit(&end, how, sizeof(how));
        const char *words = lvn_process_last_words(process);
        return lvn_fail(err, LVN_IO, "the agent %s%s%s", how, *words ? ": " : "", words);
    }
    return read_last_line(process, arena, out, err);
}

static lvn_code supervise(const lvn_agent_job *job, lvn_process *process, lvn_arena *arena, int64_t deadline_ns,
                          lvn_result *out, lvn_err *err)
{
    const lvn_runner_config *config = job->config;
    lvn_process_exit ignored;
    for (;;) {
        unsigned events = lvn_process_pump(process, job->cancel_fd, deadline_ns);
        if (events & LVN_PROCESS_OVERFLOW)
            return lvn_fail(err, LVN_TOO_LARGE, "the agent wrote more than %zu bytes", config->agent.max_output_bytes);
        if (events & LVN_PROCESS_EXITED)
            return judge_exit(process, arena, out, err);
        if (events & LVN_PROCESS_DEADLINE) {
            lvn_process_end(process, &(lvn_process_step){SIGTERM, (int)config->term_ms}, 1, &ignored);
            return lvn_fail(err, LVN_TIMEOUT, "the agent ran out of time");
        }
        if (events & LVN_PROCESS_WOKEN) {
            lvn_process_step steps[3];
            lvn_process_end(process, steps, cancel_steps(config, steps), &ignored);
            return lvn_fail(err, LVN_CANCELLED, "cancelled");
        }
    }
}

static lvn_str task_of(const lvn_rollout *rollout)
{
    return lvn_str_is_absent(rollout->input) ? LVN_STR("null") : rollout->input;
}

static int64_t deadline_of(const lvn_agent_job *job)
{
    int64_t own = job->config->timeout_ms > 0 ? lvn_clock_monotonic_ns() + job->config->timeout_ms * LVN_NS_PER_MS
                                              : INT64_MAX;
    return own < job->hard_deadline_ns ? own : job->hard_deadline_ns;
}

static lvn_code run_command(const lvn_agent_job *job, lvn_arena *arena, lvn_result *out, lvn_err *err)
{
    const lvn_runner_config *config = job->config;
    lvn_str task = task_of(job->rollout);
    const char *task_file = NULL;
    lvn_code code = write_task_file(task, arena, &task_file, err);
    if (code)
        return code;
    env_vars vars = {.count = 0};
    put_common(&vars, config, arena);
    put_attempt(&vars, job, arena);
    put(&vars, "LEVIN_TASK_FILE", lvn_str_of(task_file));
    lvn_process_spec spec = {
        .argv = lvn_agent_argv(config, NULL, false, arena),
        .env = join_env(config, &vars, arena),
        .directory = config->agent.directory,
        .limit_bytes = config->agent.max_output_bytes,
    };
    lvn_process *process = NULL;
    code = lvn_process_spawn(&spec, &process, err);
    if (!code) {
        lvn_process_set_log(process, job->log, true);
        lvn_process_feed(process, task, false);
        lvn_process_feed(process, LVN_STR("\n"), true);
        code = supervise(job, process, arena, deadline_of(job), out, err);
        lvn_process_free(process);
    } else {
        lvn_fail_context(err, "the agent could not be started");
        code = LVN_UNAVAILABLE; /* INVALID is kept for what an agent that runs does */
    }
    unlink(task_file);
    return code;
}

/* ---- warm ---- */

static lvn_str env_json(const env_vars *vars, lvn_arena *arena)
{
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&text, '{');
    for (size_t i = 0; i < vars->count; i++) {
        lvn_json_write_key(&text, vars->items[i].name);
        lvn_json_write_str(&text, vars->items[i].value);
    }
    lvn_buf_append_char(&text, '}');
    lvn_str copy = lvn_arena_dup(arena, lvn_buf_str(&text));
    lvn_buf_done(&text);
    return copy;
}

static lvn_code run_warm(const lvn_agent_job *job, lvn_arena *arena, lvn_result *out, lvn_err *err)
{
    lvn_code code = lvn_warm_await_ready(job->warm, job->cancel_fd, err);
    if (!code) {
        env_vars vars = {.count = 0};
        put_attempt(&vars, job, arena);
        lvn_warm_task task = {
            .task = task_of(job->rollout),
            .env = env_json(&vars, arena),
            .deadline_ns = deadline_of(job),
            .cancel_fd = job->cancel_fd,
            .log = job->log,
        };
        code = lvn_warm_call(job->warm, &task, arena, out, err);
    }
    if (code == LVN_CANCELLED) {
        lvn_process_step steps[3];
        lvn_warm_end(job->warm, steps, cancel_steps(job->config, steps));
    }
    return code;
}

lvn_code lvn_agent_run(const lvn_agent_job *job, lvn_arena *arena, lvn_result *out, lvn_err *err)
{
    return job->warm ? run_warm(job, arena, out, err) : run_command(job, arena, out, err);
}
