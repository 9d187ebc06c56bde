/* levin ls, levin show, levin logs: look at a run's store and logs. They read the database of a run that has stopped, or the
 * server of one that is going on. */
#include <argp.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "store/store.h"

typedef struct inspect_args {
    const char *run, *rollout, *status;
    int64_t limit;
    bool is_json, wants_rollout;
} inspect_args;

static const struct argp_option ls_options[] = {
    {"run", 'r', "DIR", 0, "Folder of the run; default: the newest below runs/", 0},
    {"status", 's', "STATUS", 0, "Only rollouts of that status", 0},
    {"limit", 'n', "N", 0, "The newest N; default 20, 0 for all", 0},
    {"json", 'j', NULL, 0, "One JSON object a line, as the server would give it", 0},
    {0},
};

static const struct argp_option show_options[] = {
    {"run", 'r', "DIR", 0, "Folder of the run; default: the newest below runs/", 0},
    {"json", 'j', NULL, 0, "The spans as JSON, one a line", 0},
    {0},
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
    inspect_args *a = state->input;
    char *end;
    lvn_rollout_status ignored;
    switch (key) {
    case 'r': a->run = arg; break;
    case 'j': a->is_json = true; break;
    case 's':
        if (!lvn_rollout_status_parse(lvn_str_of(arg), &ignored))
            argp_error(state, "no status is called %s", arg);
        a->status = arg;
        break;
    case 'n':
        a->limit = strtoll(arg, &end, 10);
        if (*end || a->limit < 0)
            argp_error(state, "--limit wants a number");
        break;
    case ARGP_KEY_ARG:
        if (a->wants_rollout && !a->rollout)
            a->rollout = arg;
        else if (!a->run)
            a->run = arg;
        else
            argp_error(state, "too many arguments");
        break;
    case ARGP_KEY_END:
        if (a->wants_rollout && !a->rollout)
            argp_error(state, "which ROLLOUT? `levin ls` lists them");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const char *newest_run(lvn_arena *arena)
{
    glob_t found;
    const char *best = NULL;
    time_t best_time = 0;
    if (glob("runs/*/levin.db", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            struct stat info;
            if (stat(found.gl_pathv[i], &info) == 0 && info.st_mtime >= best_time) {
                best_time = info.st_mtime;
                best = lvn_arena_dup(arena, lvn_str_of(found.gl_pathv[i])).ptr;
                *strrchr((char *)best, '/') = '\0';
            }
        }
    globfree(&found);
    return best;
}

static lvn_code open_store(inspect_args *args, lvn_arena *arena, lvn_store **out, lvn_err *err)
{
    if (!args->run)
        args->run = newest_run(arena);
    if (!args->run)
        return lvn_fail(err, LVN_NOT_FOUND, "no run below runs/; name its folder with --run");
    const char *path = lvn_run_path(arena, args->run, "levin.db");
    if (access(path, R_OK))
        return lvn_fail(err, LVN_NOT_FOUND, "%s: no store there", path);
    lvn_store_config config = {.url = lvn_arena_printf(arena, "sqlite:%s", path).ptr};
    return lvn_store_open(&config, out, err);
}

static void clock_text(double t, char out[32])
{
    time_t seconds = (time_t)t;
    struct tm local;
    if (lvn_time_is_null(t))
        strcpy(out, "-");
    else
        strftime(out, 32, "%H:%M:%S", localtime_r(&seconds, &local));
}

static lvn_code list(const inspect_args *args, lvn_store *store, lvn_arena *arena, lvn_err *err)
{
    lvn_rollout_status status;
    lvn_op op = {.kind = LVN_OP_QUERY_ROLLOUTS, .arena = arena};
    op.in.query_rollouts.page = (lvn_page){.sort_by = LVN_STR("start_time"), .is_descending = true,
                                           .limit = args->limit ? args->limit : -1};
    if (args->status && lvn_rollout_status_parse(lvn_str_of(args->status), &status)) {
        op.in.query_rollouts.status_in = &status;
        op.in.query_rollouts.status_count = 1;
        op.in.query_rollouts.has_status_in = true;
    }
    if (lvn_store_call(store, &op))
        return lvn_fail(err, op.code, "%s", op.err.message);
    lvn_buf line;
    lvn_buf_init(&line, LVN_BUF_NO_LIMIT);
    for (size_t i = op.out.rollouts.count; i-- > 0;) {
        const lvn_attempted *r = &op.out.rollouts.items[i];
        lvn_buf_clear(&line);
        if (args->is_json) {
            lvn_rollout_write(&line, &r->rollout, r->has_attempt ? &r->attempt : NULL);
        } else {
            char start[32], end[32];
            clock_text(r->rollout.start_time, start);
            clock_text(r->rollout.end_time, end);
            const char *mode = lvn_mode_name(r->rollout.mode);
            lvn_buf_printf(&line, "%.*s  %-10s %-5s attempts %ld  %s to %s", LVN_STR_ARG(r->rollout.rollout_id),
                           lvn_rollout_status_name(r->rollout.status), mode ? mode : "-",
                           r->has_attempt ? (long)r->attempt.sequence_id : 0L, start, end);
        }
        puts(line.ptr);
    }
    lvn_buf_done(&line);
    if (!args->is_json)
        printf("%zu of %ld rollouts of %s\n", op.out.rollouts.count, (long)op.out.rollouts.total, args->run);
    return LVN_OK;
}

static void print_text(const char *label, lvn_str text)
{
    printf("    %s: ", label);
    for (size_t i = 0; i < text.len; i++) {
        putchar(text.ptr[i]);
        if (text.ptr[i] == '\n')
            fputs("      ", stdout);
    }
    putchar('\n');
}

/* gen_ai.prompt.0.role, gen_ai.prompt.0.content, ... as lines "role: content". */
static void print_turns(lvn_arena *arena, const lvn_json *attributes, const char *prefix)
{
    for (int i = 0;; i++) {
        const char *role_key = lvn_arena_printf(arena, "%s.%d.role", prefix, i).ptr;
        const char *content_key = lvn_arena_printf(arena, "%s.%d.content", prefix, i).ptr;
        lvn_str role = lvn_json_get_str(attributes, role_key, LVN_STR_ABSENT);
        if (lvn_str_is_absent(role))
            return;
        print_text(role.ptr, lvn_json_get_str(attributes, content_key, LVN_STR("")));
    }
}

static void print_span(lvn_arena *arena, const lvn_span *span)
{
    lvn_json whole;
    lvn_str text = lvn_arena_printf(arena, "{%.*s}", span->rest.len ? (int)span->rest.len - 1 : 0,
                                    span->rest.len ? span->rest.ptr + 1 : "");
    const lvn_json *attributes = NULL;
    if (lvn_json_parse(arena, text, &whole, NULL, NULL) == LVN_OK)
        attributes = lvn_json_get(&whole, "attributes");
    printf("  %ld %.*s  %.0f ms", (long)span->sequence_id, LVN_STR_ARG(span->name),
           (span->end_time - span->start_time) * 1000);
    int64_t version = lvn_json_get_int(attributes, "levin.policy.version", -1);
    if (version >= 0)
        printf("  version %ld", (long)version);
    const lvn_json *reward = lvn_json_get(attributes, "agentlightning.reward.0.value");
    if (reward)
        printf("  reward %g", lvn_json_get_number(attributes, "agentlightning.reward.0.value", 0));
    putchar('\n');
    if (!attributes)
        return;
    print_turns(arena, attributes, "gen_ai.prompt");
    const lvn_json *ids = lvn_json_get(attributes, "response_token_ids");
    print_turns(arena, attributes, "gen_ai.completion");
    if (ids && ids->kind == LVN_JSON_ARRAY)
        printf("    (%zu tokens answered)\n", ids->array.count);
}

static lvn_code show(const inspect_args *args, lvn_store *store, lvn_arena *arena, lvn_err *err)
{
    lvn_str id = lvn_str_of(args->rollout);
    lvn_op rollout = {.kind = LVN_OP_GET_ROLLOUT, .arena = arena, .in.get_rollout.rollout_id = id};
    lvn_op attempts = {.kind = LVN_OP_QUERY_ATTEMPTS, .arena = arena};
    attempts.in.query_attempts.rollout_id = id;
    attempts.in.query_attempts.page.limit = -1;
    if (lvn_store_call(store, &rollout) || rollout.out.rollouts.count == 0)
        return lvn_fail(err, LVN_NOT_FOUND, "no rollout %s in %s", args->rollout, args->run);
    if (lvn_store_call(store, &attempts))
        return lvn_fail(err, attempts.code, "%s", attempts.err.message);
    const lvn_rollout *r = &rollout.out.rollouts.items[0].rollout;
    if (!args->is_json)
        printf("%.*s  %s\n  input: %.*s\n", LVN_STR_ARG(r->rollout_id), lvn_rollout_status_name(r->status), LVN_STR_ARG(r->input));
    for (size_t i = 0; i < attempts.out.attempts.count; i++) {
        const lvn_attempt *a = &attempts.out.attempts.items[i];
        if (!args->is_json)
            printf("attempt %ld  %.*s  %s  worker %.*s%s%.*s\n", (long)a->sequence_id, LVN_STR_ARG(a->attempt_id),
                   lvn_attempt_status_name(a->status), LVN_STR_ARG(a->worker_id), a->metadata.len ? "  " : "",
                   LVN_STR_ARG(a->metadata));
        lvn_op spans = {.kind = LVN_OP_QUERY_SPANS, .arena = arena};
        spans.in.query_spans.rollout_id = id;
        spans.in.query_spans.attempt_id = a->attempt_id;
        spans.in.query_spans.page.limit = -1;
        if (lvn_store_call(store, &spans))
            return lvn_fail(err, spans.code, "%s", spans.err.message);
        for (size_t k = 0; k < spans.out.spans.count; k++) {
            if (args->is_json) {
                lvn_buf line;
                lvn_buf_init(&line, LVN_BUF_NO_LIMIT);
                lvn_span_write(&line, &spans.out.spans.items[k]);
                puts(line.ptr);
                lvn_buf_done(&line);
            } else {
                print_span(arena, &spans.out.spans.items[k]);
            }
        }
    }
    return LVN_OK;
}

static lvn_code logs(const inspect_args *args, lvn_store *store, lvn_arena *arena, lvn_err *err)
{
    (void)store;
    glob_t found;
    size_t shown = 0;
    if (glob(lvn_run_path(arena, args->run, "logs/%s-*.log", args->rollout), 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            lvn_str text;
            if (lvn_read_whole(arena, found.gl_pathv[i], 64 << 20, &text, err))
                continue;
            printf("==> %s\n", strrchr(found.gl_pathv[i], '/') + 1);
            fwrite(text.ptr, 1, text.len, stdout);
            shown++;
        }
    globfree(&found);
    return shown ? LVN_OK
                 : lvn_fail(err, LVN_NOT_FOUND, "no log of %s below %s/logs (an attempt that printed nothing leaves none)",
                            args->rollout, args->run);
}

static int run_command(int argc, char **argv, const struct argp *argp, bool wants_rollout,
                       lvn_code (*command)(const inspect_args *, lvn_store *, lvn_arena *, lvn_err *))
{
    inspect_args args = {.limit = 20, .wants_rollout = wants_rollout};
    argp_parse(argp, argc, argv, 0, NULL, &args);
    lvn_arena *arena = lvn_arena_new(1 << 16);
    lvn_store *store = NULL;
    lvn_err err = {0};
    lvn_code code = open_store(&args, arena, &store, &err);
    if (!code)
        code = command(&args, store, arena, &err);
    if (code)
        fprintf(stderr, "levin: %s\n", err.message);
    lvn_store_close(store);
    lvn_arena_free(arena);
    return code ? 1 : 0;
}

int lvn_cli_ls(int argc, char **argv)
{
    static const struct argp argp = {ls_options, parse_arg, "[RUN]", "List the rollouts of a run.", NULL, NULL, NULL};
    return run_command(argc, argv, &argp, false, list);
}

int lvn_cli_show(int argc, char **argv)
{
    static const struct argp argp = {show_options, parse_arg, "ROLLOUT [RUN]",
                                     "Show a rollout: its attempts, its LLM calls as text, its reward.", NULL, NULL, NULL};
    return run_command(argc, argv, &argp, true, show);
}

int lvn_cli_logs(int argc, char **argv)
{
    static const struct argp argp = {show_options, parse_arg, "ROLLOUT [RUN]", "Print what a rollout's attempts wrote.", NULL,
                                     NULL, NULL};
    return run_command(argc, argv, &argp, true, logs);
}
