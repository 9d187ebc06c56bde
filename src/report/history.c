#include "report/history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grow(lvn_arena *arena, void *items, size_t count, size_t size)
{
    if (count && (count & (count - 1)))
        return items; /* room is doubled at each power of two */
    void *larger = lvn_arena_array(arena, count ? count * 2 : 1, size);
    if (count)
        memcpy(larger, items, count * size);
    return larger;
}

static void add_eval(lvn_arena *arena, lvn_history *h, const lvn_json *v)
{
    lvn_eval_point p = {
        .set = lvn_json_get_str(v, "set", LVN_STR("")),
        .step = lvn_json_get_int(v, "step", 0),
        .score = lvn_json_get_number(v, "score", 0),
        .count = lvn_json_get_int(v, "count", 0),
        .version = lvn_json_get_int(v, "version", 0),
    };
    for (size_t i = 0; i < h->eval_count; i++)
        if (h->evals[i].step == p.step && lvn_str_eq(h->evals[i].set, p.set)) {
            h->evals[i] = p;
            return;
        }
    h->evals = grow(arena, h->evals, h->eval_count, sizeof(p));
    h->evals[h->eval_count++] = p;
}

static void add_step(lvn_arena *arena, lvn_history *h, const lvn_json *v)
{
    lvn_step_point p = {
        .step = lvn_json_get_int(v, "step", 0),
        .reward = lvn_json_get_number(v, "reward", 0),
        .sample_s = lvn_json_get_number(v, "sample_seconds", 0),
        .train_s = lvn_json_get_number(v, "train_seconds", 0),
        .answer_tokens = lvn_json_get_number(v, "answer_tokens", 0),
        .kl = lvn_json_get_number(v, "kl_old", 0),
        .clipped = lvn_json_get_number(v, "clipped", 0),
        .entropy = lvn_json_get_number(v, "entropy", 0),
        .max_abs_dlogp = lvn_json_get_number(v, "max_abs_dlogp", 0),
        .rollouts = lvn_json_get_int(v, "rollouts", 0),
        .failed = lvn_json_get_int(v, "failed", 0),
        .signal = lvn_json_get_int(v, "groups_with_signal", 0),
        .groups = lvn_json_get_int(v, "groups", 0),
    };
    while (h->step_count && h->steps[h->step_count - 1].step >= p.step)
        h->step_count--; /* a resumed run did these again */
    h->steps = grow(arena, h->steps, h->step_count, sizeof(p));
    h->steps[h->step_count++] = p;
}

static void add_sft(lvn_arena *arena, lvn_history *h, const lvn_json *v)
{
    lvn_sft_point p = {.step = lvn_json_get_int(v, "step", 0), .loss = lvn_json_get_number(v, "loss", 0)};
    while (h->sft_count && h->sft[h->sft_count - 1].step >= p.step)
        h->sft_count--;
    h->sft = grow(arena, h->sft, h->sft_count, sizeof(p));
    h->sft[h->sft_count++] = p;
}

static void add_answer(lvn_arena *arena, lvn_history *h, const lvn_json *v)
{
    h->answers = grow(arena, h->answers, h->answer_count, sizeof(lvn_answer));
    h->answers[h->answer_count++] = (lvn_answer){
        .set = lvn_json_get_str(v, "set", LVN_STR("")),
        .task = lvn_json_get_str(v, "task", LVN_STR("")),
        .question = lvn_json_get_str(v, "question", LVN_STR_ABSENT),
        .gold = lvn_json_get_str(v, "gold", LVN_STR_ABSENT),
        .answer = lvn_json_get_str(v, "answer", LVN_STR_ABSENT),
        .step = lvn_json_get_int(v, "step", 0),
        .reward = lvn_json_get_number(v, "reward", 0),
    };
}

static void add(lvn_arena *arena, lvn_history *h, const lvn_json *v)
{
    lvn_str kind = lvn_json_get_str(v, "kind", LVN_STR(""));
    if (lvn_str_is(kind, "eval"))
        add_eval(arena, h, v);
    else if (lvn_str_is(kind, "grpo"))
        add_step(arena, h, v);
    else if (lvn_str_is(kind, "sft"))
        add_sft(arena, h, v);
    else if (lvn_str_is(kind, "answer"))
        add_answer(arena, h, v);
    else if (lvn_str_is(kind, "end"))
        h->summary = *v;
}

static void read_config(lvn_arena *arena, const char *run, lvn_history *h)
{
    FILE *file = fopen(lvn_arena_printf(arena, "%s/config.json", run).ptr, "re");
    if (!file)
        return;
    char *text = lvn_arena_alloc(arena, 1 << 16);
    size_t len = fread(text, 1, 1 << 16, file);
    fclose(file);
    if (lvn_json_parse(arena, (lvn_str){text, len}, &h->config, NULL, NULL))
        h->config.kind = LVN_JSON_NULL;
}

lvn_code lvn_history_read(lvn_arena *arena, const char *run, lvn_history *out, lvn_err *err)
{
    *out = (lvn_history){.config.kind = LVN_JSON_NULL};
    const char *path = lvn_arena_printf(arena, "%s/metrics.jsonl", run).ptr;
    FILE *file = fopen(path, "re");
    if (!file)
        return lvn_fail(err, LVN_NOT_FOUND, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t len;
    lvn_code code = LVN_OK;
    while (!code && (len = getline(&line, &room, file)) > 0) {
        lvn_json value;
        lvn_err cause;
        number++;
        if (lvn_json_parse(arena, (lvn_str){line, (size_t)len}, &value, NULL, &cause) == LVN_OK)
            add(arena, out, &value);
        else if (line[len - 1] == '\n')
            code = lvn_fail(err, LVN_INVALID, "%s:%zu: %s", path, number, cause.message);
    }
    free(line);
    fclose(file);
    if (!code)
        read_config(arena, run, out);
    return code;
}

size_t lvn_history_sets(const lvn_history *h, lvn_str *out, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < h->eval_count; i++) {
        size_t k = 0;
        while (k < count && !lvn_str_eq(out[k], h->evals[i].set))
            k++;
        if (k == count && count < max)
            out[count++] = h->evals[i].set;
    }
    return count;
}

const lvn_eval_point *lvn_history_eval(const lvn_history *h, lvn_str set, int64_t step)
{
    for (size_t i = 0; i < h->eval_count; i++)
        if (h->evals[i].step == step && lvn_str_eq(h->evals[i].set, set))
            return &h->evals[i];
    return NULL;
}

const lvn_eval_point *lvn_history_last_eval(const lvn_history *h, lvn_str set)
{
    const lvn_eval_point *last = NULL;
    for (size_t i = 0; i < h->eval_count; i++)
        if (lvn_str_eq(h->evals[i].set, set) && (!last || h->evals[i].step >= last->step))
            last = &h->evals[i];
    return last;
}
