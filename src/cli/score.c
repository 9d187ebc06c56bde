#include "cli/score.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "config/train.h"
#include "reward/reward.h"

/* A scorer a thread, so that databases stay open and gold results are computed once; freed when the thread ends. */
static pthread_key_t scorer_key;
static pthread_once_t scorer_once = PTHREAD_ONCE_INIT;

static void free_scorer(void *scorer)
{
    lvn_sql_scorer_free(scorer);
}

static void make_key(void)
{
    pthread_key_create(&scorer_key, free_scorer);
}

static lvn_sql_scorer *own_scorer(const lvn_train_options *o)
{
    pthread_once(&scorer_once, make_key);
    lvn_sql_scorer *scorer = pthread_getspecific(scorer_key);
    if (!scorer) {
        lvn_sql_exec_config config = {.time_limit_ms = (int64_t)(o->reward.timeout_s * 1000),
                                      .max_rows = (size_t)o->reward.max_rows, .keep_distinct = o->reward.keep_distinct};
        scorer = lvn_sql_scorer_new(&config);
        pthread_setspecific(scorer_key, scorer);
    }
    return scorer;
}

static lvn_code score_sql(const lvn_train_options *o, const lvn_json *task, lvn_str output, double *out_reward,
                          char *out_feedback, size_t feedback_size, lvn_err *err)
{
    lvn_str path = lvn_json_get_str(task, "sqlite", LVN_STR_ABSENT);
    lvn_str gold = lvn_json_get_str(task, "gold_sql", LVN_STR_ABSENT);
    if (lvn_str_is_absent(path) || lvn_str_is_absent(gold))
        return lvn_fail(err, LVN_INVALID, "the rollout's metadata has no sqlite and gold_sql to score with");
    lvn_sql_exec_result result;
    lvn_code code = lvn_sql_scorer_score(own_scorer(o), path.ptr, output, gold, &result, err);
    if (code)
        return code;
    if (result.gold_failed)
        return lvn_fail(err, LVN_INVALID, "the gold query does not run: %s", result.error);
    *out_reward = result.score;
    snprintf(out_feedback, feedback_size, "%s", result.error);
    return LVN_OK;
}

static lvn_code score_command(const lvn_train_options *o, lvn_arena *arena, const lvn_rollout *rollout, const lvn_json *task,
                              lvn_str output, double *out_reward, char *out_feedback, size_t feedback_size, lvn_err *err)
{
    const char *argv[] = {"sh", "-c", o->reward.command, NULL};
    lvn_reward_command_config config = {.argv = argv, .timeout_ms = (int64_t)(o->reward.timeout_s * 1000)};
    lvn_buf both, answer;
    lvn_buf_init(&both, LVN_BUF_NO_LIMIT);
    lvn_buf_init(&answer, LVN_BUF_NO_LIMIT);
    /* The scorer sees what the agent saw, and the hidden fields under "metadata". */
    lvn_buf_lit(&both, "{\"input\":");
    lvn_buf_append_str(&both, rollout->input.len ? rollout->input : LVN_STR("null"));
    lvn_buf_lit(&both, ",\"metadata\":");
    lvn_json_write(&both, task);
    lvn_buf_append_char(&both, '}');
    lvn_json_write_str(&answer, output);
    lvn_reward_command_result result;
    lvn_code code = lvn_reward_command(&config, arena, lvn_buf_str(&both), lvn_buf_str(&answer), &result, err);
    if (!code) {
        *out_reward = result.reward;
        snprintf(out_feedback, feedback_size, "%.*s", LVN_STR_ARG(result.feedback));
    }
    lvn_buf_done(&both);
    lvn_buf_done(&answer);
    return code;
}

lvn_code lvn_score_rollout(void *user, const lvn_rollout *rollout, lvn_str output, double *out_reward, char *out_feedback,
                           size_t feedback_size, lvn_err *err)
{
    const lvn_train_options *o = user;
    lvn_arena *arena = lvn_arena_new(0);
    lvn_json task = {.kind = LVN_JSON_NULL};
    lvn_code code = lvn_str_is_absent(rollout->metadata)
                        ? LVN_OK
                        : lvn_json_parse(arena, rollout->metadata, &task, NULL, err);
    if (!code && !strcmp(o->reward.kind, "sql_exec"))
        code = score_sql(o, &task, output, out_reward, out_feedback, feedback_size, err);
    else if (!code)
        code = score_command(o, arena, rollout, &task, output, out_reward, out_feedback, feedback_size, err);
    lvn_arena_free(arena);
    return code;
}
