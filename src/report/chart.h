/* Private to report: a line chart as SVG. */
#ifndef LVN_REPORT_CHART_H
#define LVN_REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef struct lvn_series {
    const char *name;
    const char *color;  /* CSS */
    const double *x, *y;
    size_t count;
    bool has_dots;
    bool is_faint;
} lvn_series;

typedef struct lvn_chart {
    const char *title, *x_label;
    double y_min, y_max; /* equal: from the data */
    const lvn_series *series;
    size_t series_count;
} lvn_chart;

/* Stands alone: colours and fonts are inline, the background is transparent. */
void lvn_chart_write(lvn_buf *out, const lvn_chart *chart);
/* Text with <, >, & and quotes as entities. */
void lvn_html_write(lvn_buf *out, lvn_str text);

#endif
