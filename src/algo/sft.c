/* Supervised fine-tuning: the warm start that gives reinforcement something to reinforce. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "algo/algo.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"

typedef struct example {
    int32_t *ids;
    size_t count, answer_from;
} example;

static lvn_code tokenize(lvn_algo *algo, lvn_arena *arena, const lvn_task *task, example *out, lvn_err *err)
{
    const lvn_train_options *o = algo->options;
    lvn_str system, user, answer;
    lvn_code code = lvn_task_format(arena, task, o->sft.system, &system, err);
    if (!code)
        code = lvn_task_format(arena, task, o->sft.user, &user, err);
    if (!code)
        code = lvn_task_format(arena, task, o->sft.answer, &answer, err);
    if (code)
        return code;
    answer = lvn_sql_tidy(arena, answer);
    lvn_chat_message messages[2] = {{.role = LVN_STR("system"), .content = system}, {.role = LVN_STR("user"), .content = user}};
    bool has_system = system.len > 0;
    int32_t *prompt, *text;
    size_t prompt_count, text_count;
    code = lvn_serve_chat_tokens(algo->serve, arena, messages + !has_system, has_system ? 2 : 1, &prompt, &prompt_count, err);
    if (!code)
        code = lvn_serve_tokenize(algo->serve, arena, answer, false, &text, &text_count, err);
    if (code)
        return code;
    out->count = prompt_count + text_count + 1;
    out->answer_from = prompt_count;
    out->ids = lvn_arena_array(arena, out->count, sizeof(int32_t));
    memcpy(out->ids, prompt, prompt_count * sizeof(int32_t));
    memcpy(out->ids + prompt_count, text, text_count * sizeof(int32_t));
    out->ids[out->count - 1] = lvn_serve_eot_token(algo->serve);
    return LVN_OK;
}

int64_t lvn_algo_sft_steps(const lvn_train_options *options, const lvn_dataset *examples)
{
    int64_t a_pass = ((int64_t)examples->count + options->sft.batch - 1) / options->sft.batch;
    return a_pass * options->sft.epochs;
}

/* The order of examples in a pass depends on seed and pass alone, so that a resumed run goes on where it was. */
static void shuffle(size_t *order, size_t count, uint64_t seed, int64_t pass)
{
    lvn_rng rng = {seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)pass + 1};
    lvn_rng_permutation(&rng, order, count);
}

static float rate_at(const lvn_train_options *o, int64_t step, int64_t steps)
{
    double peak = o->sft.learning_rate;
    if (step < o->sft.warmup_steps)
        return (float)(peak * (double)(step + 1) / (double)o->sft.warmup_steps);
    double span = (double)(steps - o->sft.warmup_steps);
    double gone = span > 0 ? (double)(step - o->sft.warmup_steps) / span : 1;
    return (float)(peak * (1 - (1 - o->sft.final_ratio) * gone));
}

/* The examples of a batch as one packed group: what all of them begin with (the system turn) is the shared prompt. */
static lvn_code train_batch(lvn_algo *algo, lvn_arena *arena, const example *const *batch, size_t count,
                            lvn_train_stats *stats, lvn_err *err)
{
    size_t shared = batch[0]->answer_from;
    size_t answer_tokens = 0;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        size_t bound = shared < batch[i]->answer_from ? shared : batch[i]->answer_from;
        while (same < bound && batch[i]->ids[same] == batch[0]->ids[same])
            same++;
        shared = same;
        answer_tokens += batch[i]->count - batch[i]->answer_from;
    }
    if (!shared)
        return lvn_fail(err, LVN_INVALID, "the examples share no first token: the chat template is not one of ours");
    lvn_branch *branches = lvn_arena_array(arena, count, sizeof(*branches));
    for (size_t i = 0; i < count; i++) {
        size_t rows = batch[i]->count - shared;
        uint8_t *mask = lvn_arena_array(arena, rows, 1);
        float *weight = lvn_arena_array(arena, rows, sizeof(float));
        for (size_t t = 0; t < rows; t++) {
            mask[t] = shared + t >= batch[i]->answer_from;
            weight[t] = 1.0f / (float)answer_tokens;
        }
        branches[i] = (lvn_branch){.tokens = batch[i]->ids + shared, .count = rows, .mask = mask, .weight = weight};
    }
    lvn_group group = {batch[0]->ids, shared, branches, count};
    lvn_loss loss = {.kind = LVN_LOSS_NLL, .temperature = 1};
    return lvn_trainer_accumulate(algo->trainer, &group, &loss, stats, err);
}

static void report(lvn_algo *algo, int64_t step, int64_t steps, double loss, double norm, float rate, double seconds,
                   size_t tokens)
{
    lvn_buf *b = lvn_metrics_begin(algo->metrics, "sft");
    lvn_json_write_key(b, "step");
    lvn_json_write_int(b, step + 1);
    lvn_json_write_key(b, "loss");
    lvn_json_write_double(b, loss);
    lvn_json_write_key(b, "grad_norm");
    lvn_json_write_double(b, norm);
    lvn_json_write_key(b, "learning_rate");
    lvn_json_write_double(b, (double)rate);
    lvn_json_write_key(b, "tokens");
    lvn_json_write_int(b, (int64_t)tokens);
    lvn_json_write_key(b, "seconds");
    lvn_json_write_double(b, seconds);
    lvn_metrics_end(algo->metrics);
    lvn_metrics_live(algo->metrics, "warm start  step %ld of %ld  loss %.3f  %.0f tokens/s  %.0f s left", (long)step + 1,
                     (long)steps, loss, (double)tokens / seconds, seconds * (double)(steps - step - 1));
    if ((step + 1) % 20 == 0 || step + 1 == steps)
        lvn_metrics_say(algo->metrics, "warm start  step %ld of %ld  loss %.3f  %.0f tokens/s", (long)step + 1, (long)steps,
                        loss, (double)tokens / seconds);
}

static lvn_code one_step(lvn_algo *algo, const example *examples, size_t *order, size_t count, int64_t step, int64_t steps,
                         lvn_err *err)
{
    int64_t begin = lvn_clock_monotonic_ns();
    size_t batch_size = (size_t)algo->options->sft.batch;
    size_t a_pass = (count + batch_size - 1) / batch_size;
    size_t in_pass = (size_t)step % a_pass;
    shuffle(order, count, (uint64_t)algo->options->seed, step / (int64_t)a_pass);
    size_t first = in_pass * batch_size;
    size_t size = count - first < batch_size ? count - first : batch_size;
    lvn_arena *arena = lvn_arena_new(0);
    const example **batch = lvn_arena_array(arena, size, sizeof(*batch));
    for (size_t i = 0; i < size; i++)
        batch[i] = &examples[order[first + i]];
    lvn_train_stats stats = {0};
    float rate = rate_at(algo->options, step, steps);
    double norm = 0;
    lvn_code code = train_batch(algo, arena, batch, size, &stats, err);
    if (!code)
        code = lvn_trainer_step(algo->trainer, rate, &norm, err);
    if (!code)
        report(algo, step, steps, stats.loss, norm, rate, lvn_ns_to_s(lvn_clock_monotonic_ns() - begin), stats.total_tokens);
    lvn_arena_free(arena);
    return code;
}

lvn_code lvn_algo_sft(lvn_algo *algo, const lvn_dataset *examples, int64_t from_step,
                      lvn_code (*on_step)(void *user, int64_t done, lvn_err *err), void *user, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(1 << 20);
    size_t count = examples->count;
    example *rows = lvn_arena_array(arena, count, sizeof(*rows));
    size_t *order = lvn_arena_array(arena, count, sizeof(*order));
    lvn_code code = LVN_OK;
    for (size_t i = 0; i < count && !code; i++)
        code = tokenize(algo, arena, &examples->tasks[i], &rows[i], err);
    int64_t steps = lvn_algo_sft_steps(algo->options, examples);
    for (int64_t step = from_step; step < steps && !code; step++) {
        code = one_step(algo, rows, order, count, step, steps, err);
        if (!code && on_step)
            code = on_step(user, step + 1, err);
        if (!code && atomic_load(algo->stop))
            code = lvn_fail(err, LVN_CANCELLED, "stopped");
    }
    lvn_arena_free(arena);
    return code;
}
