#include "model/rules.h"

static lvn_worker new_worker(lvn_str worker_id)
{
    return (lvn_worker){.worker_id = worker_id, .status = LVN_WORKER_UNKNOWN, .last_heartbeat_time = LVN_TIME_NULL,
                        .last_dequeue_time = LVN_TIME_NULL, .last_busy_time = LVN_TIME_NULL,
                        .last_idle_time = LVN_TIME_NULL};
}

static lvn_worker worker_of(const lvn_worker *worker, lvn_str worker_id)
{
    return worker ? *worker : new_worker(worker_id);
}

static void make_busy(lvn_worker *w, lvn_str rollout_id, lvn_str attempt_id, double now)
{
    w->status = LVN_WORKER_BUSY;
    w->last_busy_time = now;
    w->current_rollout_id = rollout_id;
    w->current_attempt_id = attempt_id;
}

static void make_free(lvn_worker *w, lvn_worker_status status, double now)
{
    w->status = status;
    w->last_idle_time = now;
    w->current_rollout_id = LVN_STR_ABSENT;
    w->current_attempt_id = LVN_STR_ABSENT;
}

/* Every write of a rollout's status, with its side effects. */
static void write_status(lvn_changes *out, lvn_rollout_status status, double now)
{
    out->has_rollout = true;
    out->rollout.status = status;
    if (lvn_rollout_is_finished(status)) {
        out->rollout.end_time = now;
        out->is_finished = true;
    }
    if (lvn_rollout_is_queued(status))
        out->is_queued = true;
}

/* f(attempt) of the specification. */
static lvn_rollout_status status_from(const lvn_rollout_config *config, const lvn_attempt *attempt)
{
    switch (attempt->status) {
    case LVN_ATTEMPT_PREPARING: return LVN_ROLLOUT_PREPARING;
    case LVN_ATTEMPT_RUNNING: return LVN_ROLLOUT_RUNNING;
    case LVN_ATTEMPT_SUCCEEDED: return LVN_ROLLOUT_SUCCEEDED;
    case LVN_ATTEMPT_FAILED:
    case LVN_ATTEMPT_TIMEOUT:
    case LVN_ATTEMPT_UNRESPONSIVE: break;
    }
    for (size_t i = 0; i < config->retry_count; i++)
        if (config->retry_condition[i] == attempt->status && attempt->sequence_id < config->max_attempts)
            return LVN_ROLLOUT_REQUEUING;
    return LVN_ROLLOUT_FAILED;
}

static bool is_latest(const lvn_rows *rows)
{
    return rows->latest && rows->attempt && rows->latest->sequence_id == rows->attempt->sequence_id;
}

void lvn_rules_new_attempt(const lvn_rows *rows, lvn_str attempt_id, lvn_str worker_id, double now, lvn_changes *out)
{
    *out = (lvn_changes){.has_attempt = true, .rollout = *rows->rollout};
    out->attempt = (lvn_attempt){
        .rollout_id = rows->rollout->rollout_id,
        .attempt_id = attempt_id,
        .sequence_id = rows->latest ? rows->latest->sequence_id + 1 : 1,
        .start_time = now,
        .end_time = LVN_TIME_NULL,
        .status = LVN_ATTEMPT_PREPARING,
        .worker_id = worker_id,
        .last_heartbeat_time = LVN_TIME_NULL,
    };
    write_status(out, LVN_ROLLOUT_PREPARING, now);
    if (worker_id.len) {
        out->has_worker = true;
        out->worker = worker_of(rows->worker, worker_id);
        make_busy(&out->worker, rows->rollout->rollout_id, attempt_id, now);
    }
}

/* A latest attempt that has failed while its retry is queued: a late span only moves its heartbeat, or the retry would be skipped
 * and lost. */
static bool span_runs_rollout(const lvn_rows *rows, lvn_attempt_status status)
{
    if (!is_latest(rows))
        return false;
    if (rows->rollout->status == LVN_ROLLOUT_PREPARING)
        return true;
    return rows->rollout->status == LVN_ROLLOUT_REQUEUING && status != LVN_ATTEMPT_FAILED &&
           status != LVN_ATTEMPT_TIMEOUT;
}

void lvn_rules_span(const lvn_rows *rows, double now, lvn_changes *out)
{
    *out = (lvn_changes){.has_attempt = true, .rollout = *rows->rollout, .attempt = *rows->attempt};
    lvn_attempt_status before = rows->attempt->status;
    out->attempt.last_heartbeat_time = now;
    if (before == LVN_ATTEMPT_PREPARING || before == LVN_ATTEMPT_UNRESPONSIVE)
        out->attempt.status = LVN_ATTEMPT_RUNNING;
    if (span_runs_rollout(rows, before))
        write_status(out, LVN_ROLLOUT_RUNNING, now);
}

/* The worker follows the attempt that was updated, latest or not (defect 6 of the specification, which the recorded scenarios pin). */
static void sync_worker(const lvn_rows *rows, double now, lvn_changes *out)
{
    if (!out->attempt.worker_id.len)
        return;
    out->has_worker = true;
    out->worker = worker_of(rows->worker, out->attempt.worker_id);
    switch (out->attempt.status) {
    case LVN_ATTEMPT_SUCCEEDED:
    case LVN_ATTEMPT_FAILED: make_free(&out->worker, LVN_WORKER_IDLE, now); break;
    case LVN_ATTEMPT_TIMEOUT:
    case LVN_ATTEMPT_UNRESPONSIVE: make_free(&out->worker, LVN_WORKER_UNKNOWN, now); break;
    case LVN_ATTEMPT_PREPARING:
    case LVN_ATTEMPT_RUNNING:
        make_busy(&out->worker, out->attempt.rollout_id, out->attempt.attempt_id, now);
        break;
    }
}

void lvn_rules_update_attempt(const lvn_rows *rows, const lvn_attempt_update *update, double now, lvn_changes *out)
{
    *out = (lvn_changes){.has_attempt = true, .rollout = *rows->rollout, .attempt = *rows->attempt};
    if (update->has_worker_id)
        out->attempt.worker_id = update->worker_id;
    if (update->has_heartbeat)
        out->attempt.last_heartbeat_time = update->heartbeat;
    if (update->has_metadata)
        out->attempt.metadata = update->metadata;
    if (update->has_status) {
        out->attempt.status = update->status;
        if (update->status == LVN_ATTEMPT_FAILED || update->status == LVN_ATTEMPT_SUCCEEDED)
            out->attempt.end_time = now;
    }
    if (update->has_status && is_latest(rows)) {
        lvn_rollout_status status = status_from(&rows->rollout->config, &out->attempt);
        if (status != rows->rollout->status)
            write_status(out, status, now);
    }
    if (update->has_status || (update->has_worker_id && update->worker_id.len))
        sync_worker(rows, now, out);
}

void lvn_rules_set_status(const lvn_rollout *rollout, lvn_rollout_status status, double now, lvn_changes *out)
{
    *out = (lvn_changes){.rollout = *rollout};
    write_status(out, status, now);
}

static double heartbeat_deadline(const lvn_rollout *rollout, const lvn_attempt *latest)
{
    double last = latest->last_heartbeat_time;
    if (lvn_time_is_null(last))
        last = latest->start_time;
    else if (last == 0)
        return INFINITY; /* a stored heartbeat of 0 switches this check off */
    return lvn_time_is_null(rollout->config.unresponsive_seconds) ? INFINITY
                                                                 : last + rollout->config.unresponsive_seconds;
}

double lvn_rules_deadline(const lvn_rollout *rollout, const lvn_attempt *latest)
{
    if (!latest || !lvn_rollout_is_running(rollout->status))
        return INFINITY;
    double deadline = heartbeat_deadline(rollout, latest);
    if (!lvn_time_is_null(rollout->config.timeout_seconds))
        deadline = fmin(deadline, latest->start_time + rollout->config.timeout_seconds);
    return deadline;
}

bool lvn_rules_overdue(const lvn_rollout *rollout, const lvn_attempt *latest, double now, lvn_attempt_status *out)
{
    if (!latest || !lvn_rollout_is_running(rollout->status))
        return false;
    if (!lvn_time_is_null(rollout->config.timeout_seconds) &&
        now - latest->start_time > rollout->config.timeout_seconds) {
        *out = LVN_ATTEMPT_TIMEOUT;
        return true;
    }
    *out = LVN_ATTEMPT_UNRESPONSIVE;
    return now > heartbeat_deadline(rollout, latest);
}

void lvn_rules_heartbeat(const lvn_worker *worker, lvn_str worker_id, bool has_stats, lvn_str stats, double now,
                         lvn_worker *out)
{
    *out = worker_of(worker, worker_id);
    out->last_heartbeat_time = now;
    if (has_stats)
        out->heartbeat_stats = stats;
}

void lvn_rules_dequeued(const lvn_worker *worker, lvn_str worker_id, bool got_work, double now, lvn_worker *out)
{
    *out = worker_of(worker, worker_id);
    out->last_dequeue_time = now;
    if (!got_work && out->status != LVN_WORKER_IDLE) {
        out->status = LVN_WORKER_IDLE; /* what it last worked on stays visible (defect 7, pinned by the recorded scenarios) */
        out->last_idle_time = now;
    }
}
