/* levin eval RUN: how good is a checkpoint, measured through the run's own agent. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algo/algo.h"
#include "base/json.h"
#include "cli/app.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "cli/stop.h"

typedef struct eval_args {
    const char *run, *checkpoint, *file, *data;
    bool is_json;
} eval_args;

static const struct argp_option cli_options[] = {
    {"checkpoint", 'c', "WHICH", 0, "best (default), last, base, a version number, or an adapter file", 0},
    {"file", 'f', "FILE", 0, "Task file; default: the run's validation (data.val)", 0},
    {"data", 'd', "DIR", 0, "Folder of the task files (option data.folder)", 0},
    {"json", 'j', NULL, 0, "Print one JSON object", 0},
    {0},
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
    eval_args *a = state->input;
    switch (key) {
    case 'c': a->checkpoint = arg; break;
    case 'f': a->file = arg; break;
    case 'd': a->data = arg; break;
    case 'j': a->is_json = true; break;
    case ARGP_KEY_ARG:
        if (a->run)
            argp_error(state, "one RUN only");
        a->run = arg;
        break;
    case ARGP_KEY_END:
        if (!a->run)
            argp_error(state, "which RUN? A folder below runs/");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp argp = {cli_options, parse_arg, "RUN", "Evaluate a checkpoint of a run.", NULL, NULL, NULL};

static void print_result(const eval_args *args, const lvn_eval_result *r)
{
    if (!args->is_json) {
        printf("%s of %s: %.4f  (%zu questions, %zu failed, %.1f s)\n", args->checkpoint, args->run, r->score, r->count,
               r->failed, r->seconds);
        return;
    }
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&b, '{');
    lvn_json_write_key(&b, "checkpoint");
    lvn_json_write_str(&b, lvn_str_of(args->checkpoint));
    lvn_json_write_key(&b, "score");
    lvn_json_write_double(&b, r->score);
    lvn_json_write_key(&b, "count");
    lvn_json_write_int(&b, (int64_t)r->count);
    lvn_json_write_key(&b, "failed");
    lvn_json_write_int(&b, (int64_t)r->failed);
    lvn_json_write_key(&b, "seconds");
    lvn_json_write_double(&b, r->seconds);
    lvn_buf_append_char(&b, '}');
    puts(b.ptr);
    lvn_buf_done(&b);
}

static lvn_code evaluate(const eval_args *args, lvn_arena *arena, const lvn_train_options *o, const lvn_dataset *tasks,
                         const char *adapter, const char *scratch, lvn_err *err)
{
    lvn_app app;
    lvn_metrics *metrics = NULL;
    lvn_eval_result result;
    lvn_code code = lvn_app_open(o, scratch, "memory", &app, err);
    if (code)
        return code;
    code = lvn_metrics_open(lvn_run_path(arena, scratch, "metrics.jsonl"), args->is_json, &metrics, err);
    if (!code)
        code = lvn_app_publish(&app, *adapter ? adapter : NULL, 1, err);
    lvn_algo algo = {.options = o, .store = app.store, .serve = app.serve, .metrics = metrics, .stop = lvn_stop_flag(),
                     .run_folder = scratch, .version = 1};
    if (!code)
        code = lvn_algo_evaluate(&algo, tasks, "eval", 0, 0, &result, err);
    lvn_metrics_close(metrics);
    if (!code)
        print_result(args, &result);
    lvn_app_close(&app, 1000);
    return code;
}

static lvn_code run(const eval_args *args, lvn_arena *arena, lvn_err *err)
{
    lvn_train_options o;
    const char *adapter;
    lvn_dataset tasks;
    lvn_code code = lvn_run_load_config(arena, args->run, &o, err);
    if (!code)
        code = lvn_run_find_adapter(arena, args->run, args->checkpoint, &adapter, err);
    if (code)
        return code;
    lvn_dataset_config config = {.hidden = o.data.hidden, .folder = args->data ? args->data : o.data.folder,
                                 .needs_sql = !strcmp(o.reward.kind, "sql_exec"), .one_table = o.data.one_table,
                                 .with_joins = o.data.with_joins};
    code = lvn_dataset_load(arena, &config, args->file ? args->file : o.data.val, &tasks, err);
    if (!code)
        code = lvn_app_check(arena, &o, err);
    if (code)
        return code;
    char scratch[] = "/tmp/levin-eval-XXXXXX";
    if (!mkdtemp(scratch))
        return lvn_fail(err, LVN_IO, "/tmp: no folder could be made there");
    lvn_run_folder folder;
    code = lvn_run_folder_open(arena, scratch, false, 0, &folder, err);
    if (!code)
        code = evaluate(args, arena, &o, &tasks, adapter, folder.path, err);
    if (!code)
        fprintf(stderr, "logs and answers: %s\n", scratch);
    lvn_run_folder_close(&folder);
    return code;
}

int lvn_cli_eval(int argc, char **argv)
{
    eval_args args = {.checkpoint = "best"};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    lvn_stop_on_signals();
    lvn_arena *arena = lvn_arena_new(1 << 16);
    lvn_err err = {0};
    lvn_code code = run(&args, arena, &err);
    if (code)
        fprintf(stderr, "levin: %s\n", err.message);
    lvn_arena_free(arena);
    return code == LVN_OK ? 0 : code == LVN_CANCELLED ? 130 : 1;
}
