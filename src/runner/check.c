/* Can the agent be started? Asked before a run, so that one clear line comes instead of a thousand failed attempts. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "runner/agent.h"
#include "runner/runner.h"
#include "runner/shim.h"
#include "runner/strays.h"

enum { SHELL_CHECK_S = 10 };

static lvn_code check_file(const char *file, const char *directory, const char *what, lvn_err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s%s%s", directory && *file != '/' ? directory : "",
             directory && *file != '/' ? "/" : "", file);
    struct stat st;
    if (stat(path, &st))
        return lvn_fail(err, LVN_NOT_FOUND, "%s %s: %s", what, path, strerror(errno));
    if (!S_ISREG(st.st_mode) || access(path, R_OK))
        return lvn_fail(err, LVN_INVALID, "%s %s is not a file that can be read", what, path);
    return LVN_OK;
}

static bool is_interpreter(const char *program)
{
    static const char *const names[] = {"python", "node", "bash", "sh", "ruby", "perl", "deno", "bun"};
    const char *base = strrchr(program, '/') ? strrchr(program, '/') + 1 : program;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strncmp(base, names[i], strlen(names[i])) == 0)
            return strspn(base + strlen(names[i]), "0123456789.") == strlen(base + strlen(names[i]));
    return false;
}

/* The program; and when that is an interpreter, the script behind it. Options make it unclear which word that is. */
static lvn_code check_words(const char *const *argv, const char *directory, lvn_err *err)
{
    char found[PATH_MAX];
    lvn_code code = lvn_process_find(argv[0], directory, found, sizeof(found), err);
    if (code)
        return lvn_fail_context(err, "the agent");
    if (is_interpreter(argv[0]) && argv[1] && argv[1][0] != '-')
        return check_file(argv[1], directory, "the agent's file", err);
    return LVN_OK;
}

/* Has the shell parse the line without running it. */
static lvn_code check_syntax(const lvn_runner_config *config, lvn_arena *arena, lvn_err *err)
{
    const char *argv[] = {"sh", "-n", "-c", config->agent.shell, NULL};
    lvn_process_spec spec = {.argv = argv, .env = lvn_agent_env(config, arena), .directory = config->agent.directory,
                             .limit_bytes = 1 << 16};
    lvn_process *process = NULL;
    lvn_code code = lvn_process_spawn(&spec, &process, err);
    if (code)
        return lvn_fail_context(err, "the agent");
    lvn_process_feed(process, LVN_STR(""), true);
    int64_t deadline = lvn_clock_monotonic_ns() + SHELL_CHECK_S * LVN_NS_PER_S;
    const unsigned over = LVN_PROCESS_EXITED | LVN_PROCESS_DEADLINE | LVN_PROCESS_OVERFLOW;
    while (!(lvn_process_pump(process, -1, deadline) & over))
        ;
    lvn_process_exit end;
    lvn_process_end(process, NULL, 0, &end);
    if (end.is_known && (end.was_killed || end.status))
        code = lvn_fail(err, LVN_INVALID, "the agent's command is no shell line: %s", lvn_process_last_words(process));
    lvn_process_free(process);
    return code;
}

/* Words of a line that needs no shell, NULL-terminated; NULL when it does (quotes, variables, pipes, assignments
 * ..). */
static const char *const *plain_words(const char *line, lvn_arena *arena)
{
    if (strpbrk(line, "\"'`$\\|&;<>(){}*?[]#~!=\n"))
        return NULL;
    const char **words = lvn_arena_array(arena, strlen(line) / 2 + 2, sizeof(*words));
    size_t count = 0;
    for (const char *at = line + strspn(line, " \t"); *at; at += strspn(at, " \t")) {
        size_t len = strcspn(at, " \t");
        words[count++] = lvn_arena_dup(arena, (lvn_str){at, len}).ptr;
        at += len;
    }
    static const char *const builtins[] = {"exec", "cd",   "echo",    "exit", "read",
                                           "set",  "eval", "command", ".",    ":"};
    for (size_t i = 0; count && i < sizeof(builtins) / sizeof(*builtins); i++)
        if (strcmp(words[0], builtins[i]) == 0)
            return NULL;
    return words;
}

static lvn_code check_command(const lvn_runner_config *config, lvn_arena *arena, lvn_err *err)
{
    const lvn_agent_spec *agent = &config->agent;
    if (agent->argv && agent->argv[0])
        return check_words(agent->argv, agent->directory, err);
    if (!agent->shell || !agent->shell[strspn(agent->shell, " \t\n")])
        return lvn_fail(err, LVN_INVALID, "the agent's command is empty");
    lvn_code code = check_syntax(config, arena, err);
    const char *const *words = code ? NULL : plain_words(agent->shell, arena);
    return words ? check_words(words, agent->directory, err) : code;
}

static lvn_code check_warm(const lvn_runner_config *config, lvn_arena *arena, lvn_err *err)
{
    const lvn_agent_spec *agent = &config->agent;
    if (!agent->file || !*agent->file)
        return lvn_fail(err, LVN_INVALID, "the agent's Python file is not given");
    char found[PATH_MAX];
    lvn_code code = check_file(agent->file, agent->directory, "the agent's file", err);
    if (!code)
        code = lvn_process_find(agent->python, agent->directory, found, sizeof(found), err);
    lvn_shim shim = {0};
    if (!code)
        code = lvn_shim_open(agent->shim, &shim, err);
    if (code)
        return code;
    lvn_warm_config warm_config = {
        .argv = lvn_agent_argv(config, shim.path, false, arena),
        .env = lvn_agent_env(config, arena),
        .directory = agent->directory,
        .limit_bytes = agent->max_output_bytes,
        .ready_timeout_ms = agent->ready_timeout_ms,
        .term = {SIGTERM, (int)config->term_ms},
    };
    lvn_warm *warm = lvn_warm_new(&warm_config);
    code = lvn_warm_await_ready(warm, -1, err);
    lvn_warm_free(warm);
    lvn_shim_close(&shim);
    return code ? lvn_fail_context(err, "the agent %s cannot be started", agent->file) : LVN_OK;
}

lvn_code lvn_runner_check_agent(const lvn_runner_config *given, lvn_err *err)
{
    lvn_runner_config config = *given;
    lvn_agent_defaults(&config);
    lvn_strays_adopt();
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    return config.agent.kind == LVN_AGENT_WARM ? check_warm(&config, arena, err) : check_command(&config, arena, err);
}
