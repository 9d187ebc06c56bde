#include "algo/rollouts.h"

#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

static lvn_code call(lvn_store *store, lvn_op *op, const char *what, lvn_err *err)
{
    lvn_code code = lvn_store_call(store, op);
    return code ? lvn_fail(err, code, "%s: %s", what, op->err.message) : LVN_OK;
}

static lvn_code enqueue(lvn_algo *algo, lvn_arena *arena, const lvn_task *const *tasks, size_t task_count, size_t samples,
                        lvn_mode mode, lvn_str **out_ids, lvn_err *err)
{
    static const uint8_t retry_on[] = {LVN_ATTEMPT_FAILED, LVN_ATTEMPT_TIMEOUT, LVN_ATTEMPT_UNRESPONSIVE};
    size_t count = task_count * samples;
    lvn_rollout_spec *specs = lvn_arena_array(arena, count, sizeof(*specs));
    for (size_t i = 0; i < count; i++) {
        const lvn_task *task = tasks[i / samples];
        specs[i] = (lvn_rollout_spec){.input = task->input, .mode = mode, .metadata = task->metadata, .has_config = true};
        lvn_rollout_config_default(&specs[i].config);
        specs[i].config.max_attempts = algo->options->agent.max_attempts;
        specs[i].config.retry_condition = retry_on;
        specs[i].config.retry_count = sizeof(retry_on);
        /* The runner ends an attempt at its time limit; this is the net for a runner that died. */
        specs[i].config.timeout_seconds = algo->options->agent.timeout_s * 2 + 30;
    }
    lvn_op op = {.kind = LVN_OP_ENQUEUE, .arena = arena, .in.enqueue = {.specs = specs, .count = count}};
    lvn_code code = call(algo->store, &op, "enqueue", err);
    if (code)
        return code;
    *out_ids = lvn_arena_array(arena, count, sizeof(lvn_str));
    for (size_t i = 0; i < count; i++)
        (*out_ids)[i] = op.out.rollouts.items[i].rollout.rollout_id;
    return LVN_OK;
}

static void cancel(lvn_store *store, lvn_str rollout_id)
{
    lvn_arena *arena = lvn_arena_new(0);
    lvn_op op = {.kind = LVN_OP_UPDATE_ROLLOUT, .arena = arena};
    op.in.update_rollout.rollout_id = rollout_id;
    op.in.update_rollout.set = LVN_SET_STATUS;
    op.in.update_rollout.values.status = LVN_ROLLOUT_CANCELLED;
    if (lvn_store_call(store, &op))
        lvn_log(LVN_WARN, "rollout_not_cancelled", "rollout=%.*s error=\"%s\"", LVN_STR_ARG(rollout_id), op.err.message);
    lvn_arena_free(arena);
}

/* One look of at most a second at which of `ids` have finished; `finished` (count entries) is marked. */
static lvn_code look(lvn_store *store, const lvn_str *ids, size_t count, bool *finished, bool *succeeded, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(1 << 16);
    lvn_op op = {.kind = LVN_OP_WAIT, .arena = arena, .in.wait = {ids, count, 1.0}};
    lvn_code code = call(store, &op, "wait", err);
    size_t at = 0; /* the answer keeps the order asked */
    for (size_t i = 0; !code && i < op.out.rollouts.count; i++) {
        const lvn_rollout *r = &op.out.rollouts.items[i].rollout;
        while (at < count && !lvn_str_eq(ids[at], r->rollout_id))
            at++;
        if (at == count)
            break;
        finished[at] = true;
        succeeded[at] = r->status == LVN_ROLLOUT_SUCCEEDED;
    }
    lvn_arena_free(arena);
    return code;
}

static lvn_code wait_for_all(lvn_algo *algo, const lvn_str *ids, size_t count, bool *finished, bool *succeeded,
                             const char *label, lvn_err *err)
{
    int64_t begin = lvn_clock_monotonic_ns();
    lvn_serve_stats before;
    lvn_serve_get_stats(algo->serve, &before);
    for (;;) {
        lvn_code code = look(algo->store, ids, count, finished, succeeded, err);
        if (code)
            return code;
        size_t done = 0;
        for (size_t i = 0; i < count; i++)
            done += finished[i];
        if (done == count)
            return LVN_OK;
        if (atomic_load(algo->stop)) {
            for (size_t i = 0; i < count; i++)
                if (!finished[i])
                    cancel(algo->store, ids[i]);
            return lvn_fail(err, LVN_CANCELLED, "stopped");
        }
        lvn_serve_stats now;
        lvn_serve_get_stats(algo->serve, &now);
        double seconds = lvn_ns_to_s(lvn_clock_monotonic_ns() - begin);
        lvn_metrics_live(algo->metrics, "%s  %zu of %zu rollouts  %.0f tokens/s", label, done, count,
                         (double)(now.answer_tokens - before.answer_tokens) / (seconds > 0 ? seconds : 1));
    }
}

/* The text of the last call's answer, for people. */
static lvn_str last_answer(lvn_arena *arena, const lvn_span *spans, size_t count)
{
    lvn_str answer = LVN_STR_ABSENT;
    for (size_t i = 0; i < count; i++) {
        lvn_json whole;
        lvn_str rest = spans[i].rest;
        if (!rest.len || !lvn_str_contains(rest, LVN_STR("gen_ai.completion.0.content")))
            continue;
        lvn_str text = lvn_arena_printf(arena, "{%.*s}", (int)rest.len - 1, rest.ptr + 1);
        if (lvn_json_parse(arena, text, &whole, NULL, NULL) == LVN_OK)
            answer = lvn_json_get_str(lvn_json_get(&whole, "attributes"), "gen_ai.completion.0.content", answer);
    }
    return answer;
}

static lvn_code read_outcome(lvn_store *store, lvn_arena *arena, lvn_outcome *outcome, lvn_err *err)
{
    lvn_op op = {.kind = LVN_OP_QUERY_SPANS, .arena = arena};
    op.in.query_spans.rollout_id = outcome->rollout_id;
    op.in.query_spans.attempt_id = LVN_STR("latest");
    op.in.query_spans.page.limit = -1;
    lvn_code code = call(store, &op, "query spans", err);
    if (code)
        return code;
    const lvn_span *spans = op.out.spans.items;
    size_t count = op.out.spans.count;
    code = lvn_adapter_trajectories(arena, spans, count, &outcome->trajectories, err);
    if (code)
        return code;
    code = lvn_adapter_final_reward(arena, spans, count, &outcome->reward, err);
    outcome->has_reward = code == LVN_OK;
    outcome->answer = last_answer(arena, spans, count);
    return code == LVN_EMPTY ? LVN_OK : code;
}

lvn_code lvn_rollouts_run(lvn_algo *algo, lvn_arena *arena, const lvn_task *const *tasks, size_t task_count, size_t samples,
                          lvn_mode mode, const char *label, lvn_outcome **out, lvn_err *err)
{
    size_t count = task_count * samples;
    lvn_str *ids;
    lvn_code code = enqueue(algo, arena, tasks, task_count, samples, mode, &ids, err);
    if (code)
        return code;
    bool *finished = lvn_arena_array(arena, count, sizeof(bool));
    bool *succeeded = lvn_arena_array(arena, count, sizeof(bool));
    code = wait_for_all(algo, ids, count, finished, succeeded, label, err);
    if (code)
        return code;
    lvn_outcome *outcomes = lvn_arena_array(arena, count, sizeof(*outcomes));
    for (size_t i = 0; i < count; i++) {
        outcomes[i].rollout_id = ids[i];
        outcomes[i].has_succeeded = succeeded[i];
        code = read_outcome(algo->store, arena, &outcomes[i], err);
        if (code)
            return code;
    }
    *out = outcomes;
    return LVN_OK;
}

lvn_code lvn_rollouts_cancel_left_over(lvn_store *store, size_t *out_count, lvn_err *err)
{
    static const lvn_rollout_status open[] = {LVN_ROLLOUT_QUEUING, LVN_ROLLOUT_REQUEUING, LVN_ROLLOUT_PREPARING,
                                              LVN_ROLLOUT_RUNNING};
    lvn_arena *arena = lvn_arena_new(0);
    lvn_op op = {.kind = LVN_OP_QUERY_ROLLOUTS, .arena = arena};
    op.in.query_rollouts.status_in = open;
    op.in.query_rollouts.status_count = sizeof(open) / sizeof(*open);
    op.in.query_rollouts.has_status_in = true;
    op.in.query_rollouts.page.limit = -1;
    lvn_code code = call(store, &op, "query rollouts", err);
    *out_count = code ? 0 : op.out.rollouts.count;
    for (size_t i = 0; i < *out_count; i++)
        cancel(store, op.out.rollouts.items[i].rollout.rollout_id);
    lvn_arena_free(arena);
    return code;
}
