#include "report/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/chart.h"
#include "report/history.h"

enum { MAX_SETS = 8, MAX_EXAMPLES = 12, RUNNING_MEAN = 8 };

static const char style[] =
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.6rem;margin-bottom:0}h2{font-size:1.15rem;margin-top:2.2rem}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #8883;vertical-align:top}th{font-weight:600}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font:13px/1.4 ui-monospace,monospace;"
    "overflow-wrap:anywhere}.ok{color:#0a7d32}.no{color:#b3261e}.dim{color:#777}svg{width:100%;height:auto;margin:.5rem 0}"
    "details{margin:.5rem 0}@media(prefers-color-scheme:dark){.ok{color:#5fd38d}.no{color:#ff8a80}}";

static const char *const colors[] = {"#0b6bcb", "#d9730d", "#6940a5", "#0f7b6c", "#ad1a72", "#777", "#9b51e0", "#2f80ed"};

/* ---- curves ---- */

/* Reinforcement steps only; the bare model is told in the table. */
static size_t eval_series(lvn_arena *arena, const lvn_history *h, lvn_str set, size_t color, lvn_series *out)
{
    double *x = lvn_arena_array(arena, h->eval_count, sizeof(double));
    double *y = lvn_arena_array(arena, h->eval_count, sizeof(double));
    size_t n = 0;
    for (size_t i = 0; i < h->eval_count; i++)
        if (lvn_str_eq(h->evals[i].set, set) && h->evals[i].step >= 0) {
            x[n] = (double)h->evals[i].step;
            y[n++] = h->evals[i].score;
        }
    *out = (lvn_series){.name = lvn_arena_dup(arena, set).ptr, .color = colors[color], .x = x, .y = y, .count = n,
                        .has_dots = true};
    return n;
}

static void reward_series(lvn_arena *arena, const lvn_history *h, lvn_series *raw, lvn_series *mean)
{
    double *x = lvn_arena_array(arena, h->step_count, sizeof(double));
    double *y = lvn_arena_array(arena, h->step_count, sizeof(double));
    double *m = lvn_arena_array(arena, h->step_count, sizeof(double));
    for (size_t i = 0; i < h->step_count; i++) {
        size_t from = i + 1 > RUNNING_MEAN ? i + 1 - RUNNING_MEAN : 0;
        x[i] = (double)h->steps[i].step;
        y[i] = h->steps[i].reward;
        for (size_t k = from; k <= i; k++)
            m[i] += h->steps[k].reward / (double)(i + 1 - from);
    }
    *raw = (lvn_series){.name = "reward", .color = "#999", .x = x, .y = y, .count = h->step_count, .is_faint = true};
    *mean = (lvn_series){.name = "reward, mean of 8 steps", .color = "#0f7b6c", .x = x, .y = m, .count = h->step_count};
}

static void write_main_chart(lvn_arena *arena, const lvn_history *h, lvn_buf *out)
{
    lvn_series series[MAX_SETS + 2];
    lvn_str sets[MAX_SETS];
    size_t set_count = lvn_history_sets(h, sets, MAX_SETS), count = 2;
    reward_series(arena, h, &series[0], &series[1]);
    for (size_t i = 0; i < set_count; i++)
        count += eval_series(arena, h, sets[i], i, &series[count]) > 0;
    lvn_chart chart = {.title = "Execution match", .x_label = "reinforcement step", .y_min = 0, .y_max = 1,
                       .series = series, .series_count = count};
    lvn_chart_write(out, &chart);
}

static void write_loss_chart(lvn_arena *arena, const lvn_history *h, lvn_buf *out)
{
    if (!h->sft_count)
        return;
    double *x = lvn_arena_array(arena, h->sft_count, sizeof(double));
    double *y = lvn_arena_array(arena, h->sft_count, sizeof(double));
    for (size_t i = 0; i < h->sft_count; i++) {
        x[i] = (double)h->sft[i].step;
        y[i] = h->sft[i].loss;
    }
    lvn_series line = {.name = "loss a token", .color = "#6940a5", .x = x, .y = y, .count = h->sft_count};
    lvn_chart chart = {.title = "Warm start", .x_label = "step", .series = &line, .series_count = 1};
    lvn_chart_write(out, &chart);
}

/* ---- tables ---- */

static void write_score(lvn_buf *out, const lvn_eval_point *p)
{
    if (p)
        lvn_buf_printf(out, "<td class=n>%.3f</td>", p->score);
    else
        lvn_buf_lit(out, "<td class=n>&ndash;</td>");
}

static void write_scores(const lvn_history *h, lvn_buf *out)
{
    lvn_str sets[MAX_SETS];
    size_t count = lvn_history_sets(h, sets, MAX_SETS);
    lvn_buf_lit(out, "<table><tr><th>questions<th class=n>how many<th class=n>bare model<th class=n>after the warm start"
                     "<th class=n>best<th class=n>at the end</tr>");
    for (size_t i = 0; i < count; i++) {
        const lvn_eval_point *last = lvn_history_last_eval(h, sets[i]);
        double best = 0;
        for (size_t k = 0; k < h->eval_count; k++)
            if (lvn_str_eq(h->evals[k].set, sets[i]) && h->evals[k].score > best)
                best = h->evals[k].score;
        lvn_buf_lit(out, "<tr><td>");
        lvn_html_write(out, sets[i]);
        lvn_buf_printf(out, "<td class=n>%ld", (long)last->count);
        write_score(out, lvn_history_eval(h, sets[i], -1));
        write_score(out, lvn_history_eval(h, sets[i], 0));
        lvn_buf_printf(out, "<td class=n>%.3f", best);
        write_score(out, last);
        lvn_buf_lit(out, "</tr>");
    }
    lvn_buf_lit(out, "</table><p class=dim>Greedy answers through the agent. The best checkpoint is chosen by the first set, so its "
                     "\"best\" is optimistic; nothing else is chosen by it.</p>");
}

static const lvn_answer *find_answer(const lvn_history *h, lvn_str set, lvn_str task, int64_t step)
{
    for (size_t i = h->answer_count; i-- > 0;)
        if (h->answers[i].step == step && lvn_str_eq(h->answers[i].task, task) && lvn_str_eq(h->answers[i].set, set))
            return &h->answers[i];
    return NULL;
}

static void write_answer(lvn_buf *out, const lvn_answer *a)
{
    lvn_buf_printf(out, "<td class=%s>%s <code>", a->reward > 0.5 ? "ok" : "no", a->reward > 0.5 ? "&#10003;" : "&#10007;");
    lvn_str text = a->answer;
    if (text.len > 300)
        text.len = 300;
    lvn_html_write(out, text);
    lvn_buf_lit(out, "</code></td>");
}

static void write_examples(const lvn_history *h, lvn_buf *out)
{
    lvn_str sets[MAX_SETS];
    if (!lvn_history_sets(h, sets, MAX_SETS))
        return;
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t i = 0; i < h->answer_count; i++)
        if (lvn_str_eq(h->answers[i].set, sets[0])) {
            first = h->answers[i].step < first ? h->answers[i].step : first;
            last = h->answers[i].step > last ? h->answers[i].step : last;
        }
    if (first >= last)
        return;
    lvn_buf_lit(out, "<h2>Answers before and after</h2><table><tr><th>question<th>before<th>after</tr>");
    size_t shown = 0;
    /* The answers of the last validation in their order, none picked. */
    for (size_t i = 0; i < h->answer_count && shown < MAX_EXAMPLES; i++) {
        const lvn_answer *after = &h->answers[i];
        if (after->step != last || !lvn_str_eq(after->set, sets[0]))
            continue;
        const lvn_answer *before = find_answer(h, sets[0], after->task, first);
        if (!before)
            continue;
        shown++;
        lvn_buf_lit(out, "<tr><td>");
        lvn_html_write(out, after->question);
        lvn_buf_lit(out, "<br><code class=dim>");
        lvn_html_write(out, after->gold);
        lvn_buf_lit(out, "</code></td>");
        write_answer(out, before);
        write_answer(out, after);
        lvn_buf_lit(out, "</tr>");
    }
    lvn_buf_lit(out, "</table>");
}

static void write_steps(const lvn_history *h, lvn_buf *out)
{
    if (!h->step_count)
        return;
    lvn_buf_lit(out, "<details><summary>Every step</summary><table><tr><th class=n>step<th class=n>reward<th class=n>groups with "
                     "signal<th class=n>failed<th class=n>tokens an answer<th class=n>entropy<th class=n>clipped<th class=n>"
                     "sampling s<th class=n>training s</tr>");
    for (size_t i = 0; i < h->step_count; i++) {
        const lvn_step_point *p = &h->steps[i];
        lvn_buf_printf(out,
                       "<tr><td class=n>%ld<td class=n>%.3f<td class=n>%ld of %ld<td class=n>%ld<td class=n>%.1f<td "
                       "class=n>%.2f<td class=n>%.3f<td class=n>%.1f<td class=n>%.1f</tr>",
                       (long)p->step, p->reward, (long)p->signal, (long)p->groups, (long)p->failed, p->answer_tokens,
                       p->entropy, p->clipped, p->sample_s, p->train_s);
    }
    lvn_buf_lit(out, "</table></details>");
}

static void write_config(const lvn_history *h, lvn_buf *out)
{
    if (h->config.kind != LVN_JSON_OBJECT)
        return;
    lvn_buf_lit(out, "<details><summary>Options</summary><table>");
    for (size_t i = 0; i < h->config.object.count; i++) {
        lvn_buf value;
        lvn_buf_init(&value, LVN_BUF_NO_LIMIT);
        lvn_json_write(&value, &h->config.object.members[i].value);
        lvn_buf_lit(out, "<tr><td><code>");
        lvn_html_write(out, h->config.object.members[i].key);
        lvn_buf_lit(out, "</code><td><code>");
        lvn_html_write(out, lvn_buf_str(&value));
        lvn_buf_lit(out, "</code></tr>");
        lvn_buf_done(&value);
    }
    lvn_buf_lit(out, "</table></details>");
}

static void write_page(lvn_arena *arena, const lvn_history *h, lvn_buf *out)
{
    lvn_str name = lvn_json_get_str(&h->config, "name", LVN_STR("run"));
    lvn_buf_printf(out, "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
                        "<title>Levin: %.*s</title><style>%s</style><h1>", LVN_STR_ARG(name), style);
    lvn_html_write(out, name);
    double seconds = lvn_json_get_number(&h->summary, "seconds", 0);
    lvn_buf_printf(out, "</h1><p class=dim>Levin " LVN_VERSION ", seed %ld",
                   (long)lvn_json_get_int(&h->config, "seed", 0));
    if (seconds > 0)
        lvn_buf_printf(out, ", %.1f minutes", seconds / 60);
    lvn_buf_lit(out, "</p>");
    write_main_chart(arena, h, out);
    write_scores(h, out);
    write_examples(h, out);
    write_loss_chart(arena, h, out);
    write_steps(h, out);
    write_config(h, out);
    lvn_buf_lit(out, "</html>\n");
}

static lvn_code write_file(lvn_arena *arena, const char *run, const char *name, lvn_str text, lvn_err *err)
{
    const char *path = lvn_arena_printf(arena, "%s/%s", run, name).ptr;
    const char *temporary = lvn_arena_printf(arena, "%s/.%s.tmp", run, name).ptr;
    FILE *file = fopen(temporary, "we");
    bool is_good = file && fwrite(text.ptr, 1, text.len, file) == text.len;
    is_good = file && fclose(file) == 0 && is_good;
    if (is_good && rename(temporary, path) == 0)
        return LVN_OK;
    lvn_fail(err, errno == ENOSPC ? LVN_FULL : LVN_IO, "%s: %s", path, strerror(errno));
    unlink(temporary);
    return errno == ENOSPC ? LVN_FULL : LVN_IO;
}

lvn_code lvn_report_write(const char *run, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(1 << 16);
    lvn_history history;
    lvn_code code = lvn_history_read(arena, run, &history, err);
    if (!code) {
        lvn_buf page, chart;
        lvn_buf_init(&page, LVN_BUF_NO_LIMIT);
        lvn_buf_init(&chart, LVN_BUF_NO_LIMIT);
        write_page(arena, &history, &page);
        write_main_chart(arena, &history, &chart);
        code = write_file(arena, run, "report.html", lvn_buf_str(&page), err);
        if (!code)
            code = write_file(arena, run, "curve.svg", lvn_buf_str(&chart), err);
        lvn_buf_done(&page);
        lvn_buf_done(&chart);
    }
    lvn_arena_free(arena);
    return code;
}
