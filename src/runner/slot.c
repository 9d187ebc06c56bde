#include "runner/slot.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "model/span_build.h"
#include "runner/agent.h"
#include "runner/text.h"

enum {
    CLAIM_WAIT_S = 60,    /* a parked dequeue comes back this often; it costs nothing but a turn */
    CLAIM_RETRY_MS = 1000, /* after the store refused */
    STORE_TRIES = 6,
    STORE_FIRST_PAUSE_MS = 50,
    CRASH_LOOP_DEATHS = 5,
    KEPT_OUTPUT_BYTES = 64 * 1024,
    FEEDBACK_BYTES = 2048,
};

/* ---- store ---- */

/* Insists: what a store refuses for now (full, busy) is tried again with growing pauses, since an attempt whose
 * end is not reported would only be noticed by a timeout. */
static lvn_code call_store(lvn_slot *s, lvn_op *op)
{
    int pause_ms = STORE_FIRST_PAUSE_MS;
    for (int i = 1;; i++, pause_ms *= 2) {
        lvn_code code = lvn_store_call(s->shared->store, op);
        if ((code != LVN_FULL && code != LVN_AGAIN && code != LVN_IO && code != LVN_TIMEOUT) || i == STORE_TRIES)
            return code;
        poll(NULL, 0, pause_ms);
    }
}

static void count_up(int event_fd)
{
    uint64_t one = 1;
    while (write(event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static void on_claimed(lvn_op *op)
{
    lvn_slot *s = op->user;
    count_up(s->wake_fd);
}

void lvn_slot_wake(lvn_slot *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->is_waiting)
        lvn_store_cancel(s->shared->store, &s->claim);
    pthread_mutex_unlock(&s->lock);
}

/* Parks a dequeue. LVN_CANCELLED: no more is to be claimed. */
static lvn_code submit_claim(lvn_slot *s, lvn_err *err)
{
    memset(&s->claim, 0, sizeof(s->claim));
    s->claim.kind = LVN_OP_DEQUEUE;
    s->claim.arena = s->arena;
    s->claim.done = on_claimed;
    s->claim.user = s;
    s->claim.in.dequeue.limit = 1;
    s->claim.in.dequeue.worker_id = lvn_str_of(s->worker_id);
    s->claim.in.dequeue.wait_s = CLAIM_WAIT_S;
    lvn_code code = LVN_CANCELLED;
    pthread_mutex_lock(&s->lock);
    if (atomic_load(&s->shared->state) == LVN_SLOT_RUN) {
        code = lvn_store_submit(s->shared->store, &s->claim, err);
        s->is_waiting = code == LVN_OK;
    }
    pthread_mutex_unlock(&s->lock);
    return code;
}

static void await_claim(lvn_slot *s)
{
    uint64_t count;
    do {
        struct pollfd fd = {.fd = s->wake_fd, .events = POLLIN};
        if (s->warm)
            lvn_warm_idle(s->warm, s->wake_fd);
        else
            poll(&fd, 1, -1);
    } while (read(s->wake_fd, &count, sizeof(count)) != (ssize_t)sizeof(count));
    pthread_mutex_lock(&s->lock);
    s->is_waiting = false;
    pthread_mutex_unlock(&s->lock);
}

/* LVN_OK with a rollout; LVN_EMPTY: none this time; others: the store's trouble, or LVN_CANCELLED. */
static lvn_code claim(lvn_slot *s, lvn_attempted *out, lvn_err *err)
{
    lvn_arena_reset(s->arena);
    lvn_code code = submit_claim(s, err);
    if (code)
        return code;
    await_claim(s);
    if (s->claim.code) {
        if (err)
            *err = s->claim.err;
        return s->claim.code;
    }
    if (!s->claim.out.rollouts.count)
        return LVN_EMPTY;
    *out = s->claim.out.rollouts.items[0];
    return out->has_attempt ? LVN_OK : lvn_fail(err, LVN_INTERNAL, "a claimed rollout without an attempt");
}

/* ---- one attempt ---- */

typedef struct outcome {
    lvn_attempt_status status;
    lvn_err err; /* unless succeeded */
    lvn_result result;
    bool has_result, has_reward;
    double reward;
    char feedback[FEEDBACK_BYTES];
    double seconds;
} outcome;

static lvn_code add_reward_span(lvn_slot *s, const lvn_attempted *claimed, const outcome *o, double start, lvn_err *err)
{
    lvn_span_builder builder;
    lvn_span_builder_init(&builder, 1 << 16);
    lvn_attrs_str(&builder.attributes, "agentlightning.reward.0.name", LVN_STR("primary"));
    lvn_attrs_double(&builder.attributes, "agentlightning.reward.0.value", o->reward);
    if (o->feedback[0])
        lvn_attrs_str(&builder.attributes, "levin.feedback", lvn_str_of(o->feedback));
    lvn_span_head head = {
        .rollout_id = claimed->attempt.rollout_id,
        .attempt_id = claimed->attempt.attempt_id,
        .name = LVN_STR("agentlightning.annotation"),
        .status = LVN_SPAN_OK,
        .start_time = start,
        .end_time = lvn_ns_to_s(lvn_clock_unix_ns()),
    };
    lvn_span span;
    lvn_code code = lvn_span_builder_finish(&builder, s->arena, &head, &span, err);
    lvn_span_builder_done(&builder);
    if (code)
        return code;
    static const bool needs_sequence = true;
    lvn_op op = {.kind = LVN_OP_ADD_SPANS, .arena = s->arena};
    op.in.add_spans.spans = &span;
    op.in.add_spans.count = 1;
    op.in.add_spans.needs_sequence = &needs_sequence;
    code = call_store(s, &op);
    return code ? lvn_fail(err, code, "the reward could not be stored: %s", op.err.message) : LVN_OK;
}

/* Gets the reward from the hook, or from the agent's answer, and stores it as a span. */
static lvn_code reward(lvn_slot *s, const lvn_attempted *claimed, outcome *o, lvn_err *err)
{
    const lvn_runner_config *config = s->shared->config;
    double start = lvn_ns_to_s(lvn_clock_unix_ns());
    if (!config->score) {
        o->has_reward = o->result.has_reward;
        o->reward = o->result.reward;
    } else {
        int64_t cpu = lvn_clock_thread_cpu_ns();
        lvn_code code = config->score(config->score_user, &claimed->rollout, o->result.output, &o->reward, o->feedback,
                                      sizeof(o->feedback), err);
        atomic_fetch_add(&s->shared->score_ns, lvn_clock_thread_cpu_ns() - cpu);
        if (code)
            return lvn_fail_context(err, "scoring failed");
        if (!isfinite(o->reward))
            return lvn_fail(err, LVN_INVALID, "scoring failed: the reward is not a finite number");
        o->has_reward = true;
    }
    return o->has_reward ? add_reward_span(s, claimed, o, start, err) : LVN_OK;
}

static void put_text(lvn_buf *out, const char *key, const char *text)
{
    char clean[FEEDBACK_BYTES];
    lvn_text_clean(lvn_str_of(text), clean, sizeof(clean));
    lvn_json_write_key(out, key);
    lvn_json_write_str(out, lvn_str_of(clean));
}

static lvn_str write_metadata(lvn_slot *s, const outcome *o, const lvn_attempt_log *log)
{
    lvn_buf out;
    lvn_buf_init(&out, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&out, '{');
    if (o->status != LVN_ATTEMPT_SUCCEEDED)
        put_text(&out, "error", o->err.message);
    if (lvn_attempt_log_has_file(log))
        put_text(&out, "log", log->path);
    if (o->has_result && o->result.output_json.len <= KEPT_OUTPUT_BYTES) {
        lvn_json_write_key(&out, "output");
        lvn_buf_append_str(&out, o->result.output_json);
    }
    if (o->has_reward) {
        lvn_json_write_key(&out, "reward");
        lvn_json_write_double(&out, o->reward);
    }
    if (o->feedback[0])
        put_text(&out, "feedback", o->feedback);
    lvn_json_write_key(&out, "seconds");
    lvn_json_write_double(&out, o->seconds);
    lvn_buf_append_char(&out, '}');
    lvn_str copy = lvn_arena_dup(s->arena, lvn_buf_str(&out));
    lvn_buf_done(&out);
    return copy;
}

static void report(lvn_slot *s, const lvn_attempted *claimed, const outcome *o, const lvn_attempt_log *log)
{
    lvn_op op = {.kind = LVN_OP_UPDATE_ATTEMPT, .arena = s->arena};
    op.in.update_attempt.rollout_id = claimed->attempt.rollout_id;
    op.in.update_attempt.attempt_id = claimed->attempt.attempt_id;
    op.in.update_attempt.set = LVN_SET_STATUS | LVN_SET_METADATA;
    op.in.update_attempt.values.status = o->status;
    op.in.update_attempt.values.metadata = write_metadata(s, o, log);
    if (call_store(s, &op))
        lvn_log(LVN_ERROR, "attempt_not_reported", "rollout=%.*s attempt=%.*s status=%s error=\"%s\"",
                LVN_STR_ARG(claimed->attempt.rollout_id), LVN_STR_ARG(claimed->attempt.attempt_id),
                lvn_attempt_status_name(o->status), op.err.message);
}

/* <folder>/<rollout>-<attempt>.log; ids are any text, file names are not. */
static void open_log(const lvn_slot *s, const lvn_attempt *attempt, lvn_attempt_log *log)
{
    char path[4096];
    size_t folder = (size_t)snprintf(path, sizeof(path), "%s/", s->shared->config->log_directory);
    snprintf(path + folder, sizeof(path) - folder, "%.100s-%.100s.log", attempt->rollout_id.ptr,
             attempt->attempt_id.ptr);
    for (char *c = path + folder; *c; c++)
        if (*c == '/' || (unsigned char)*c < 0x20)
            *c = '_';
    lvn_attempt_log_init(log, path);
}

/* Many bad ends in a row without one answer are not the fault of a task. Said once, until an answer comes. */
static void watch_crash_loop(lvn_slot *s, lvn_code code, const lvn_err *err)
{
    lvn_slot_shared *shared = s->shared;
    if (code == LVN_OK || code == LVN_INVALID) {
        if (atomic_load(&shared->deaths)) {
            atomic_store(&shared->deaths, 0);
            atomic_store(&shared->is_loop_told, false);
        }
        return;
    }
    if (code == LVN_TIMEOUT || code == LVN_CANCELLED)
        return;
    unsigned deaths = atomic_fetch_add(&shared->deaths, 1) + 1;
    if (deaths < CRASH_LOOP_DEATHS || atomic_exchange(&shared->is_loop_told, true))
        return;
    char message[600];
    snprintf(message, sizeof(message), "the agent ended badly %u times in a row without one answer; the last time: %s",
             deaths, err->message);
    lvn_log(LVN_ERROR, "agent_keeps_dying", "deaths=%u error=\"%s\"", deaths, err->message);
    if (shared->config->on_crash_loop)
        shared->config->on_crash_loop(shared->config->on_crash_loop_user, message);
}

static int64_t hard_deadline(const lvn_rollout *rollout)
{
    double timeout_s = rollout->config.timeout_seconds;
    if (lvn_time_is_null(timeout_s) || timeout_s > 1e9)
        return INT64_MAX;
    return lvn_clock_monotonic_ns() + (int64_t)((timeout_s > 0 ? timeout_s : 0) * 1e9);
}

static void count_outcome(lvn_slot_shared *shared, const outcome *o, lvn_code code)
{
    if (o->status == LVN_ATTEMPT_SUCCEEDED)
        atomic_fetch_add(&shared->succeeded, 1);
    else if (o->status == LVN_ATTEMPT_TIMEOUT)
        atomic_fetch_add(&shared->timeouts, 1);
    else
        atomic_fetch_add(code == LVN_CANCELLED ? &shared->cancelled : &shared->failed, 1);
}

/* A command is one process an attempt; a warm worker knows how often it was started. */
static void count_processes(lvn_slot *s)
{
    unsigned now = s->warm ? lvn_warm_starts(s->warm) : s->counted_starts + 1;
    atomic_fetch_add(&s->shared->processes, now - s->counted_starts);
    s->counted_starts = now;
}

static void run_attempt(lvn_slot *s, const lvn_attempted *claimed)
{
    const lvn_attempt *attempt = &claimed->attempt;
    int64_t start = lvn_clock_monotonic_ns();
    outcome *o = lvn_arena_zalloc(s->arena, sizeof(*o));
    lvn_attempt_log log;
    open_log(s, attempt, &log);
    lvn_agent_job job = {
        .config = s->shared->config,
        .worker_id = s->worker_id,
        .warm = s->warm,
        .rollout = &claimed->rollout,
        .attempt = attempt,
        .hard_deadline_ns = hard_deadline(&claimed->rollout),
        .cancel_fd = s->shared->cancel_fd,
        .log = &log,
    };
    lvn_code code = atomic_load(&s->shared->state) == LVN_SLOT_CANCEL
                        ? lvn_fail(&o->err, LVN_CANCELLED, "cancelled")
                        : lvn_agent_run(&job, s->arena, &o->result, &o->err);
    watch_crash_loop(s, code, &o->err);
    o->has_result = code == LVN_OK;
    if (!code)
        code = reward(s, claimed, o, &o->err);
    o->status = code == LVN_OK        ? LVN_ATTEMPT_SUCCEEDED
                : code == LVN_TIMEOUT && !o->has_result ? LVN_ATTEMPT_TIMEOUT
                                      : LVN_ATTEMPT_FAILED;
    o->seconds = lvn_ns_to_s(lvn_clock_monotonic_ns() - start);
    if (code) {
        lvn_attempt_log_printf(&log, "\n[levin: %s]\n", o->err.message);
        lvn_log(LVN_DEBUG, "attempt_failed", "rollout=%.*s attempt=%.*s error=\"%s\"", LVN_STR_ARG(attempt->rollout_id),
                LVN_STR_ARG(attempt->attempt_id), o->err.message);
    }
    count_outcome(s->shared, o, code); /* first, so that whoever waits for the rollout finds it counted */
    count_processes(s);
    report(s, claimed, o, &log);
    lvn_attempt_log_done(&log);
}

/* ---- the thread ---- */

static void open_slot(lvn_slot *s)
{
    const lvn_runner_config *config = s->shared->config;
    s->arena = lvn_arena_new(1 << 14);
    if (config->agent.kind != LVN_AGENT_WARM)
        return;
    snprintf(s->log_path, sizeof(s->log_path), "%s/%s.log", config->log_directory, s->worker_id);
    s->warm_config = (lvn_warm_config){
        .argv = s->shared->warm_argv,
        .env = s->shared->warm_env,
        .directory = config->agent.directory,
        .limit_bytes = config->agent.max_output_bytes,
        .ready_timeout_ms = config->agent.ready_timeout_ms,
        .recycle_after = config->agent.recycle_after,
        .term = {SIGTERM, (int)config->term_ms},
        .log_path = s->log_path,
        .nursery = s->shared->nursery,
    };
    s->warm = lvn_warm_new(&s->warm_config);
    lvn_warm_start(s->warm); /* it imports while we wait for work */
}

/* Our own time on this thread since `from`, scoring taken out by the caller's hook accounting. */
static int64_t account_cpu(lvn_slot *s, int64_t from)
{
    int64_t now = lvn_clock_thread_cpu_ns();
    atomic_fetch_add(&s->shared->cpu_ns, now - from);
    return now;
}

void *lvn_slot_run(void *arg)
{
    lvn_slot *s = arg;
    open_slot(s);
    int64_t cpu = 0;
    while (atomic_load(&s->shared->state) == LVN_SLOT_RUN) {
        lvn_attempted claimed;
        lvn_err err = {0};
        lvn_code code = claim(s, &claimed, &err);
        if (code == LVN_OK) {
            atomic_fetch_add(&s->shared->busy, 1);
            run_attempt(s, &claimed);
            atomic_fetch_sub(&s->shared->busy, 1);
        } else if (code != LVN_EMPTY && code != LVN_CANCELLED) {
            lvn_log(LVN_WARN, "claim_failed", "worker=%s code=%s error=\"%s\"", s->worker_id, lvn_code_name(code),
                    err.message);
            struct pollfd fd = {.fd = s->shared->drain_fd, .events = POLLIN};
            poll(&fd, 1, CLAIM_RETRY_MS);
        }
        cpu = account_cpu(s, cpu);
    }
    s->warm = lvn_warm_free(s->warm);
    s->arena = lvn_arena_free(s->arena);
    account_cpu(s, cpu);
    count_up(s->shared->left_fd);
    return NULL;
}
