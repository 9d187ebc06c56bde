#include <stdio.h>

#include "algo/algo.h"
#include "algo/rollouts.h"
#include "base/clock.h"
#include "base/json.h"

static void record_answers(lvn_algo *algo, const lvn_task *const *tasks, const lvn_outcome *outcomes, size_t count,
                           const char *set, int64_t step)
{
    for (size_t i = 0; i < count; i++) {
        lvn_buf *b = lvn_metrics_begin(algo->metrics, "answer");
        lvn_json_write_key(b, "set");
        lvn_json_write_str(b, lvn_str_of(set));
        lvn_json_write_key(b, "step");
        lvn_json_write_int(b, step);
        lvn_json_write_key(b, "task");
        lvn_json_write_str(b, tasks[i]->id);
        lvn_json_write_key(b, "rollout");
        lvn_json_write_str(b, outcomes[i].rollout_id);
        lvn_json_write_key(b, "question");
        lvn_json_write_str(b, lvn_json_get_str(&tasks[i]->value, "question", LVN_STR_ABSENT));
        lvn_json_write_key(b, "gold");
        lvn_json_write_str(b, lvn_json_get_str(&tasks[i]->value, "gold_sql", LVN_STR_ABSENT));
        lvn_json_write_key(b, "answer");
        lvn_json_write_str(b, outcomes[i].answer);
        lvn_json_write_key(b, "reward");
        lvn_json_write_double(b, outcomes[i].reward);
        lvn_metrics_end(algo->metrics);
    }
}

static void record_score(lvn_algo *algo, const char *set, int64_t step, const lvn_eval_result *result)
{
    lvn_buf *b = lvn_metrics_begin(algo->metrics, "eval");
    lvn_json_write_key(b, "set");
    lvn_json_write_str(b, lvn_str_of(set));
    lvn_json_write_key(b, "step");
    lvn_json_write_int(b, step);
    lvn_json_write_key(b, "version");
    lvn_json_write_int(b, algo->version);
    lvn_json_write_key(b, "score");
    lvn_json_write_double(b, result->score);
    lvn_json_write_key(b, "count");
    lvn_json_write_int(b, (int64_t)result->count);
    lvn_json_write_key(b, "failed");
    lvn_json_write_int(b, (int64_t)result->failed);
    lvn_json_write_key(b, "answer_tokens");
    lvn_json_write_double(b, result->answer_tokens);
    lvn_json_write_key(b, "seconds");
    lvn_json_write_double(b, result->seconds);
    lvn_metrics_end(algo->metrics);
}

lvn_code lvn_algo_evaluate(lvn_algo *algo, const lvn_dataset *tasks, const char *set, int64_t step, int64_t limit,
                           lvn_eval_result *out, lvn_err *err)
{
    int64_t begin = lvn_clock_monotonic_ns();
    size_t count = limit > 0 && (size_t)limit < tasks->count ? (size_t)limit : tasks->count;
    lvn_arena *arena = lvn_arena_new(1 << 20);
    const lvn_task **chosen = lvn_arena_array(arena, count, sizeof(*chosen));
    for (size_t i = 0; i < count; i++)
        chosen[i] = &tasks->tasks[i];
    lvn_outcome *outcomes = NULL;
    char label[64];
    snprintf(label, sizeof(label), "validating on %s", set);
    lvn_code code = lvn_rollouts_run(algo, arena, chosen, count, 1, LVN_MODE_VAL, label, &outcomes, err);
    if (!code) {
        lvn_eval_result result = {.count = count};
        for (size_t i = 0; i < count; i++) {
            result.score += outcomes[i].reward / (double)count;
            result.failed += !outcomes[i].has_succeeded;
            for (size_t t = 0; t < outcomes[i].trajectories.count; t++)
                result.answer_tokens += (double)outcomes[i].trajectories.items[t].trained_count / (double)count;
        }
        result.seconds = lvn_ns_to_s(lvn_clock_monotonic_ns() - begin);
        record_answers(algo, chosen, outcomes, count, set, step);
        record_score(algo, set, step, &result);
        *out = result;
    }
    lvn_arena_free(arena);
    return code;
}
