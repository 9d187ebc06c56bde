/* levin train: the main job. Reads the options, checks everything that can be checked, then warm start, reinforcement,
 * validation, checkpoints and the report, in one process tree. */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "algo/algo.h"
#include "algo/rollouts.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/app.h"
#include "cli/commands.h"
#include "cli/cpu.h"
#include "cli/run_folder.h"
#include "cli/stop.h"
#include "report/report.h"

enum { SAVE_EVERY = 10, GRACE_MS = 3000 };
/* Database, F16 copy of a small model, checkpoints and trainer states of a run. */
static const uint64_t NEED_BYTES = UINT64_C(600) << 20;

typedef struct train_args {
    const char *file, *run, *data, *strategy, *role;
    const char *sets[64];
    size_t set_count;
    const char *seed;
    bool is_resume, is_quiet;
} train_args;

typedef struct training {
    lvn_arena *arena;
    lvn_train_options options;
    lvn_dataset train, val, val_extra, warm;
    lvn_run_folder folder;
    lvn_app app;
    lvn_trainer *trainer;
    lvn_metrics *metrics;
    lvn_algo algo;
    lvn_progress progress;
    int64_t begin_ns;
} training;

/* ---- command line ---- */

enum { KEY_STRATEGY = 1000, KEY_ROLE, KEY_SET, KEY_DATA, KEY_SEED, KEY_RUN, KEY_RESUME, KEY_QUIET };

static const struct argp_option cli_options[] = {
    {"data", KEY_DATA, "DIR", 0, "Folder of the task files (option data.folder)", 0},
    {"run", KEY_RUN, "DIR", 0, "Folder of the run; default: runs/NAME-DATE-TIME", 0},
    {"resume", KEY_RESUME, NULL, 0, "Go on with the run in that folder", 0},
    {"seed", KEY_SEED, "N", 0, "Option seed", 0},
    {"set", KEY_SET, "KEY=VALUE", 0, "Override an option of FILE; may be repeated", 0},
    {"strategy", KEY_STRATEGY, "shm", 0, "How roles talk; `shm` (one process) is the only one yet", 0},
    {"role", KEY_ROLE, "both", 0, "Roles of this process; `both` is the only one yet", 0},
    {"quiet", KEY_QUIET, NULL, 0, "No progress on the terminal", 0},
    {0},
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
    train_args *a = state->input;
    switch (key) {
    case KEY_DATA: a->data = arg; break;
    case KEY_RUN: a->run = arg; break;
    case KEY_SEED: a->seed = arg; break;
    case KEY_RESUME: a->is_resume = true; break;
    case KEY_QUIET: a->is_quiet = true; break;
    case KEY_STRATEGY:
        if (strcmp(arg, "shm"))
            argp_error(state, "--strategy %s is not there yet; only shm is", arg);
        break;
    case KEY_ROLE:
        if (strcmp(arg, "both"))
            argp_error(state, "--role %s is not there yet; only both is", arg);
        break;
    case KEY_SET:
        if (a->set_count == sizeof(a->sets) / sizeof(*a->sets))
            argp_error(state, "too many --set");
        a->sets[a->set_count++] = arg;
        break;
    case ARGP_KEY_ARG:
        if (a->file)
            argp_error(state, "one FILE only");
        a->file = arg;
        break;
    case ARGP_KEY_END:
        if (!a->file)
            argp_error(state, "which FILE? See examples/sql/train.yaml");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp argp = {cli_options, parse_arg, "FILE",
                                 "Train an agent as FILE (YAML) says.\vdocs/options.md lists what FILE may say.", NULL, NULL,
                                 NULL};

/* ---- options and tasks ---- */

static lvn_code read_options(training *t, const train_args *args, lvn_err *err)
{
    size_t count;
    const lvn_option *table = lvn_train_option_table(&count);
    lvn_options_default(table, count, t->arena, &t->options);
    lvn_code code = lvn_options_read(table, count, t->arena, args->file, &t->options, err);
    for (size_t i = 0; i < args->set_count && !code; i++)
        code = lvn_options_set(table, count, t->arena, args->sets[i], &t->options, err);
    if (!code && args->seed)
        code = lvn_options_set(table, count, t->arena, lvn_arena_printf(t->arena, "seed=%s", args->seed).ptr, &t->options, err);
    if (!code && args->data)
        t->options.data.folder = args->data;
    return code;
}

static lvn_code read_tasks(training *t, lvn_err *err)
{
    const lvn_train_options *o = &t->options;
    lvn_dataset_config config = {.hidden = o->data.hidden, .folder = *o->data.folder ? o->data.folder : ".", .seed = (uint64_t)o->seed,
                                 .needs_sql = !strcmp(o->reward.kind, "sql_exec"), .one_table = o->data.one_table,
                                 .with_joins = o->data.with_joins, .limit = o->data.train_limit};
    lvn_code code = lvn_dataset_load(t->arena, &config, o->data.train, &t->train, err);
    config.limit = 0;
    if (!code)
        code = lvn_dataset_load(t->arena, &config, o->data.val, &t->val, err);
    if (!code && *o->data.val_extra)
        code = lvn_dataset_load(t->arena, &config, o->data.val_extra, &t->val_extra, err);
    if (code || !o->sft.is_on || *o->sft.start_from)
        return code;
    if (!*o->data.warm) {
        t->warm = t->train;
        return LVN_OK;
    }
    if (o->data.warm_new_databases) {
        config.not_databases_of[0] = &t->train;
        config.not_databases_of[1] = &t->val;
        config.not_databases_of[2] = &t->val_extra;
    }
    config.limit = o->data.warm_limit;
    const char *slash = strrchr(o->data.warm, '/');
    /* Databases of the warm start lie beside its own file. */
    config.folder = slash ? lvn_arena_printf(t->arena, "%s/%.*s", config.folder, (int)(slash - o->data.warm), o->data.warm).ptr
                          : config.folder;
    return lvn_dataset_load(t->arena, &config, slash ? slash + 1 : o->data.warm, &t->warm, err);
}

static const char *default_run(lvn_arena *arena, const char *name)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm local;
    strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    return lvn_arena_printf(arena, "runs/%s-%s", name, stamp).ptr;
}

/* The value in {"key":value}. */
static lvn_str value_part(const lvn_buf *object)
{
    const char *value = strchr(object->ptr, ':') + 1;
    return (lvn_str){value, object->len - (size_t)(value - object->ptr) - 1};
}

/* Says which options differ from those the run began with; the new ones hold. */
static void tell_differences(training *t)
{
    lvn_train_options old;
    lvn_err err;
    if (lvn_run_load_config(t->arena, t->folder.path, &old, &err))
        return;
    size_t count;
    const lvn_option *table = lvn_train_option_table(&count);
    for (size_t i = 0; i < count; i++) {
        lvn_buf was, is;
        lvn_buf_init(&was, LVN_BUF_NO_LIMIT);
        lvn_buf_init(&is, LVN_BUF_NO_LIMIT);
        lvn_options_write_json(&table[i], 1, &old, &was);
        lvn_options_write_json(&table[i], 1, &t->options, &is);
        if (!lvn_str_eq(lvn_buf_str(&was), lvn_buf_str(&is)))
            lvn_metrics_say(t->metrics, "changed since the run began: %s was %.*s, is now %.*s", table[i].key,
                            LVN_STR_ARG(value_part(&was)), LVN_STR_ARG(value_part(&is)));
        lvn_buf_done(&was);
        lvn_buf_done(&is);
    }
}

/* ---- policy versions ---- */

static lvn_code publish(void *user, int64_t version, lvn_err *err)
{
    training *t = user;
    const char *path = lvn_run_path(t->arena, t->folder.path, "policy/adapter.gguf");
    lvn_code code = lvn_trainer_save_gguf(t->trainer, path, err);
    if (!code)
        code = lvn_app_publish(&t->app, path, version, err);
    if (!code)
        t->algo.version = t->progress.version = version;
    return code;
}

static double spent_seconds(const training *t)
{
    return t->progress.seconds + lvn_ns_to_s(lvn_clock_monotonic_ns() - t->begin_ns);
}

static lvn_code save(training *t, lvn_err *err)
{
    lvn_progress p = t->progress;
    p.seconds = spent_seconds(t);
    return lvn_run_save_progress(t->folder.path, &p, t->trainer, err);
}

/* ---- validation ---- */

static lvn_code measure(training *t, const lvn_dataset *tasks, const char *set, int64_t step, int64_t limit, double *out,
                        lvn_err *err)
{
    lvn_eval_result r;
    lvn_code code = lvn_algo_evaluate(&t->algo, tasks, set, step, limit, &r, err);
    if (code)
        return code;
    lvn_metrics_say(t->metrics, "validation  %s %.3f  (%zu questions, %zu failed, %.1f s)", set, r.score, r.count, r.failed,
                    r.seconds);
    *out = r.score;
    return LVN_OK;
}

/* `step` -1: the bare model. With `is_full` all questions of all sets. A trained policy leaves a checkpoint. */
static lvn_code validate(training *t, int64_t step, bool is_full, lvn_err *err)
{
    double score, ignored;
    int64_t limit = step < 0 ? t->options.eval.base : is_full ? t->options.data.val_limit : t->options.eval.limit;
    lvn_code code = measure(t, &t->val, "val", step, limit, &score, err);
    if (!code && is_full && t->val_extra.count)
        code = measure(t, &t->val_extra, "val_extra", step, limit, &ignored, err);
    if (code || step < 0)
        return code;
    bool is_best = score > t->progress.best_score;
    if (is_best) {
        t->progress.best_score = score;
        t->progress.best_version = t->algo.version;
    }
    return lvn_run_save_checkpoint(t->folder.path, t->algo.version, is_best, t->trainer,
                                   lvn_serve_model_name(t->app.serve), err);
}

/* ---- phases ---- */

static lvn_code after_sft_step(void *user, int64_t done, lvn_err *err)
{
    training *t = user;
    t->progress.sft_done = done;
    return done % (SAVE_EVERY * 2) == 0 ? save(t, err) : LVN_OK;
}

static lvn_code warm_start(training *t, lvn_err *err)
{
    const char *given = t->options.sft.start_from;
    if (*given && !t->progress.sft_done) {
        lvn_metrics_say(t->metrics, "warm start  from %s", given);
        lvn_code code = lvn_trainer_load_gguf(t->trainer, given, err);
        if (code)
            return code;
        t->progress.sft_done = 1;
        return publish(t, 1, err);
    }
    if (*given || !t->options.sft.is_on)
        return LVN_OK;
    int64_t steps = lvn_algo_sft_steps(&t->options, &t->warm);
    if (t->progress.sft_done >= steps)
        return LVN_OK;
    lvn_metrics_say(t->metrics, "warm start  %zu examples, %ld steps", t->warm.count, (long)steps);
    lvn_code code = lvn_algo_sft(&t->algo, &t->warm, t->progress.sft_done, after_sft_step, t, err);
    if (code)
        return code;
    lvn_trainer_reset_optimizer(t->trainer);
    code = publish(t, 1, err);
    return code ? code : save(t, err);
}

static lvn_code reinforce(training *t, lvn_err *err)
{
    const lvn_train_options *o = &t->options;
    if (o->grpo.steps > 0 && t->progress.grpo_done >= o->grpo.steps && !t->progress.is_complete)
        return validate(t, o->grpo.steps, true, err); /* stopped during the last validation */
    for (int64_t step = t->progress.grpo_done; step < o->grpo.steps; step++) {
        lvn_code code = lvn_algo_grpo_step(&t->algo, &t->train, step, err);
        if (code)
            return code;
        t->progress.grpo_done = step + 1;
        bool is_last = step + 1 == o->grpo.steps;
        if (is_last || (step + 1) % o->eval.every == 0)
            code = validate(t, step + 1, is_last, err);
        if (!code && ((step + 1) % SAVE_EVERY == 0 || is_last))
            code = save(t, err);
        if (code)
            return code;
    }
    return LVN_OK;
}

static lvn_code run_phases(training *t, lvn_err *err)
{
    lvn_code code = LVN_OK;
    if (t->options.eval.base > 0 && !t->progress.is_base_measured) {
        code = validate(t, -1, true, err);
        t->progress.is_base_measured = !code;
    }
    if (!code)
        code = warm_start(t, err);
    if (!code && t->algo.version > 0 && !t->progress.is_sft_measured) {
        code = validate(t, 0, true, err);
        t->progress.is_sft_measured = !code;
        if (!code)
            code = save(t, err);
    }
    return code ? code : reinforce(t, err);
}

static void write_end(training *t)
{
    lvn_buf *b = lvn_metrics_begin(t->metrics, "end");
    lvn_json_write_key(b, "seconds");
    lvn_json_write_double(b, spent_seconds(t));
    lvn_json_write_key(b, "best_version");
    lvn_json_write_int(b, t->progress.best_version);
    lvn_json_write_key(b, "best_score");
    lvn_json_write_double(b, t->progress.best_score);
    lvn_json_write_key(b, "cpu");
    lvn_cpu_write_json(b);
    lvn_metrics_end(t->metrics);
}

static lvn_code complete(training *t, lvn_err *err)
{
    t->progress.is_complete = true;
    lvn_code code = save(t, err);
    write_end(t);
    if (!code)
        code = lvn_report_write(t->folder.path, err);
    if (!code)
        lvn_metrics_say(t->metrics, "done in %.1f minutes; best validation %.3f (version %ld)\nreport      %s/report.html",
                        spent_seconds(t) / 60, t->progress.best_score, (long)t->progress.best_version, t->folder.path);
    return code;
}

/* ---- building up and tearing down ---- */

static lvn_code open_trainer(training *t, lvn_err *err)
{
    const lvn_train_options *o = &t->options;
    lvn_trainer_config config = {
        .model_path = o->model.path, .rank = (int)o->model.rank, .alpha = (float)o->model.alpha,
        .threads = o->model.threads ? (int)o->model.threads : lvn_app_cores(), .seed = (uint64_t)o->seed, .beta1 = 0.9f,
        .beta2 = (float)o->grpo.beta2, .epsilon = 1e-8f, .max_grad_norm = (float)o->grpo.max_grad_norm,
    };
    return lvn_trainer_open(&config, &t->trainer, err);
}

/* Takes up where the last life stopped: trainer, version, and no rollout of the old life left in the queue. */
static lvn_code take_up(training *t, lvn_err *err)
{
    lvn_code code = lvn_run_load_progress(t->folder.path, &t->progress, t->trainer, err);
    if (code == LVN_EMPTY)
        code = LVN_OK;
    size_t cancelled = 0;
    if (!code)
        code = lvn_rollouts_cancel_left_over(t->app.store, &cancelled, err);
    if (!code && t->progress.version > 0)
        code = publish(t, t->progress.version, err);
    if (!code)
        lvn_metrics_say(t->metrics, "resuming    %ld warm-start and %ld reinforcement steps done, %zu old rollouts cancelled",
                        (long)t->progress.sft_done, (long)t->progress.grpo_done, cancelled);
    return code;
}

static lvn_code build(training *t, const train_args *args, lvn_err *err)
{
    lvn_code code = read_options(t, args, err);
    if (!code)
        code = read_tasks(t, err);
    if (!code)
        code = lvn_app_check(t->arena, &t->options, err);
    const char *run = args->run ? args->run : default_run(t->arena, t->options.name);
    if (!code)
        code = lvn_run_folder_open(t->arena, run, args->is_resume, NEED_BYTES, &t->folder, err);
    if (!code)
        code = lvn_metrics_open(lvn_run_path(t->arena, t->folder.path, "metrics.jsonl"), args->is_quiet, &t->metrics, err);
    if (code)
        return code;
    if (args->is_resume)
        tell_differences(t);
    lvn_metrics_say(t->metrics, "run         %s\ntasks       %zu to train on, %zu to validate on%s", t->folder.path,
                    t->train.count, t->val.count, t->val_extra.count ? ", and a second validation" : "");
    const char *store = lvn_arena_printf(t->arena, "sqlite:%s/levin.db", t->folder.path).ptr;
    code = lvn_app_open(&t->options, t->folder.path, store, &t->app, err);
    if (!code)
        code = open_trainer(t, err);
    if (code)
        return code;
    t->algo = (lvn_algo){.options = &t->options, .store = t->app.store, .serve = t->app.serve, .trainer = t->trainer,
                         .metrics = t->metrics, .stop = lvn_stop_flag(), .run_folder = t->folder.path, .publish = publish,
                         .publish_user = t};
    t->progress = (lvn_progress){.best_score = -1, .best_version = -1};
    code = lvn_run_save_config(t->folder.path, &t->options, err);
    if (!code)
        lvn_metrics_say(t->metrics, "model       %s, %s kernels\nstore       %s", lvn_serve_model_name(t->app.serve),
                        lvn_trainer_kernel(t->trainer), t->app.url);
    if (!code)
        code = lvn_app_publish(&t->app, NULL, 0, err);
    return !code && args->is_resume ? take_up(t, err) : code;
}

static void tear_down(training *t)
{
    lvn_app_close(&t->app, GRACE_MS);
    lvn_trainer_close(t->trainer);
    lvn_metrics_close(t->metrics);
    lvn_run_folder_close(&t->folder);
    lvn_arena_free(t->arena);
}

int lvn_cli_train(int argc, char **argv)
{
    train_args args = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    training t = {.arena = lvn_arena_new(1 << 16), .folder.lock_fd = -1, .begin_ns = lvn_clock_monotonic_ns()};
    lvn_stop_on_signals();
    lvn_err err = {0};
    lvn_code code = build(&t, &args, &err);
    bool is_built = code == LVN_OK;
    if (!code)
        code = run_phases(&t, &err);
    if (!code)
        code = complete(&t, &err);
    /* What a step had begun is not in the trainer's weights yet: they are those of the last whole step. */
    lvn_err unsaved;
    if (code == LVN_CANCELLED && is_built && save(&t, &unsaved))
        fprintf(stderr, "levin: the state was not saved: %s\n", unsaved.message);
    if (code == LVN_CANCELLED && is_built)
        lvn_metrics_say(t.metrics, "stopped; go on with: levin train %s --run %s --resume", args.file, t.folder.path);
    else if (code)
        fprintf(stderr, "levin: %s\n", err.message);
    tear_down(&t);
    return code == LVN_OK ? 0 : code == LVN_CANCELLED ? 130 : 1;
}
