#include "report/chart.h"

#include <math.h>

enum { WIDTH = 760, HEIGHT = 300, LEFT = 52, RIGHT = 16, TOP = 34, BOTTOM = 40 };

typedef struct scale {
    double x0, x1, y0, y1;
} scale;

void lvn_html_write(lvn_buf *out, lvn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        switch (text.ptr[i]) {
        case '<': lvn_buf_lit(out, "&lt;"); break;
        case '>': lvn_buf_lit(out, "&gt;"); break;
        case '&': lvn_buf_lit(out, "&amp;"); break;
        case '"': lvn_buf_lit(out, "&quot;"); break;
        default: lvn_buf_append_char(out, text.ptr[i]);
        }
}

static scale fit(const lvn_chart *chart)
{
    scale s = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (size_t k = 0; k < chart->series_count; k++)
        for (size_t i = 0; i < chart->series[k].count; i++) {
            s.x0 = fmin(s.x0, chart->series[k].x[i]);
            s.x1 = fmax(s.x1, chart->series[k].x[i]);
            s.y0 = fmin(s.y0, chart->series[k].y[i]);
            s.y1 = fmax(s.y1, chart->series[k].y[i]);
        }
    if (!(s.x1 > s.x0))
        s.x1 = s.x0 + 1;
    if (chart->y_max > chart->y_min) {
        s.y0 = chart->y_min;
        s.y1 = chart->y_max;
    } else {
        s.y0 = fmin(s.y0, 0);
        s.y1 = s.y1 > s.y0 ? s.y1 + 0.05 * (s.y1 - s.y0) : s.y0 + 1;
    }
    return s;
}

static double px(const scale *s, double x)
{
    return LEFT + (x - s->x0) / (s->x1 - s->x0) * (WIDTH - LEFT - RIGHT);
}

static double py(const scale *s, double y)
{
    return HEIGHT - BOTTOM - (y - s->y0) / (s->y1 - s->y0) * (HEIGHT - TOP - BOTTOM);
}

/* A round distance that gives about five marks. */
static double tick(double range)
{
    double raw = range / 5, power = pow(10, floor(log10(raw))), part = raw / power;
    return (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10) * power;
}

static void write_axes(lvn_buf *out, const scale *s, const char *x_label)
{
    double step = tick(s->y1 - s->y0);
    for (double y = ceil(s->y0 / step) * step; y <= s->y1 + step * 1e-6; y += step) {
        lvn_buf_printf(out, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#8884'/>", LEFT, WIDTH - RIGHT, py(s, y),
                       py(s, y));
        lvn_buf_printf(out, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>", LEFT - 8, py(s, y) + 4,
                       fabs(y) < step * 1e-6 ? 0 : y);
    }
    step = fmax(1, tick(s->x1 - s->x0));
    for (double x = ceil(s->x0 / step) * step; x <= s->x1 + step * 1e-6; x += step)
        lvn_buf_printf(out, "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>", px(s, x), HEIGHT - BOTTOM + 18, x);
    lvn_buf_printf(out, "<text x='%d' y='%d' text-anchor='end'>%s</text>", WIDTH - RIGHT, HEIGHT - 6, x_label);
}

static void write_series(lvn_buf *out, const scale *s, const lvn_series *line)
{
    lvn_buf_printf(out, "<polyline fill='none' stroke='%s' stroke-width='%s' stroke-opacity='%s' points='", line->color,
                   line->is_faint ? "1" : "2", line->is_faint ? ".45" : "1");
    for (size_t i = 0; i < line->count; i++)
        lvn_buf_printf(out, "%.1f,%.1f ", px(s, line->x[i]), py(s, line->y[i]));
    lvn_buf_lit(out, "'/>");
    for (size_t i = 0; line->has_dots && i < line->count; i++)
        lvn_buf_printf(out, "<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'><title>%s %g: %.3f</title></circle>",
                       px(s, line->x[i]), py(s, line->y[i]), line->color, line->name, line->x[i], line->y[i]);
}

void lvn_chart_write(lvn_buf *out, const lvn_chart *chart)
{
    scale s = fit(chart);
    lvn_buf_printf(out,
                   "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='system-ui,sans-serif' "
                   "font-size='12' fill='#777' role='img' aria-label='%s'>",
                   WIDTH, HEIGHT, chart->title);
    lvn_buf_printf(out, "<text x='%d' y='16' font-size='14' font-weight='600'>%s</text>", LEFT, chart->title);
    if (isfinite(s.x0))
        write_axes(out, &s, chart->x_label);
    int x = WIDTH - RIGHT;
    for (size_t k = chart->series_count; k-- > 0;) {
        const lvn_series *line = &chart->series[k];
        lvn_buf_printf(out, "<text x='%d' y='16' text-anchor='end' fill='%s'>%s</text>", x, line->color, line->name);
        x -= 14 + 7 * (int)__builtin_strlen(line->name);
        write_series(out, &s, line);
    }
    lvn_buf_lit(out, "</svg>");
}
