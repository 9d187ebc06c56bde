#include "algo/metrics.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

struct lvn_metrics {
    FILE *file;
    lvn_buf line;
    bool is_quiet, is_terminal, has_live, has_warned;
};

lvn_code lvn_metrics_open(const char *path, bool is_quiet, lvn_metrics **out, lvn_err *err)
{
    FILE *file = fopen(path, "ae");
    if (!file)
        return lvn_fail(err, LVN_IO, "%s: %s", path, strerror(errno));
    lvn_metrics *m = lvn_zalloc(sizeof(*m));
    m->file = file;
    m->is_quiet = is_quiet;
    m->is_terminal = isatty(STDOUT_FILENO);
    lvn_buf_init(&m->line, LVN_BUF_NO_LIMIT);
    *out = m;
    return LVN_OK;
}

static void clear_live(lvn_metrics *m)
{
    if (m->has_live)
        fputs("\r\033[K", stdout);
    m->has_live = false;
}

void lvn_metrics_close(lvn_metrics *metrics)
{
    if (!metrics)
        return;
    clear_live(metrics);
    fflush(stdout);
    fclose(metrics->file);
    lvn_buf_done(&metrics->line);
    free(metrics);
}

lvn_buf *lvn_metrics_begin(lvn_metrics *metrics, const char *kind)
{
    lvn_buf_clear(&metrics->line);
    lvn_buf_append_char(&metrics->line, '{');
    lvn_json_write_key(&metrics->line, "kind");
    lvn_json_write_str(&metrics->line, lvn_str_of(kind));
    lvn_json_write_key(&metrics->line, "time");
    lvn_json_write_double(&metrics->line, lvn_ns_to_s(lvn_clock_unix_ns()));
    return &metrics->line;
}

void lvn_metrics_end(lvn_metrics *metrics)
{
    lvn_buf_lit(&metrics->line, "}\n");
    bool is_bad = fwrite(metrics->line.ptr, 1, metrics->line.len, metrics->file) != metrics->line.len;
    is_bad = fflush(metrics->file) != 0 || is_bad;
    if (is_bad && !metrics->has_warned) {
        metrics->has_warned = true;
        lvn_log(LVN_WARN, "metrics_not_written", "error=\"%s\"", strerror(errno));
    }
}

void lvn_metrics_live(lvn_metrics *metrics, const char *format, ...)
{
    if (metrics->is_quiet || !metrics->is_terminal)
        return;
    va_list args;
    va_start(args, format);
    fputs("\r\033[K", stdout);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
    metrics->has_live = true;
}

void lvn_metrics_say(lvn_metrics *metrics, const char *format, ...)
{
    if (metrics->is_quiet)
        return;
    clear_live(metrics);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}
