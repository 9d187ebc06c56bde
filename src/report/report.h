/* A run on one page: report.html (self-contained: styles, curves as SVG, no scripts, nothing fetched) from metrics.jsonl. */
#ifndef LVN_REPORT_REPORT_H
#define LVN_REPORT_REPORT_H

#include "base/err.h"

/* Reads <run>/metrics.jsonl and config.json, writes <run>/report.html and <run>/curve.svg. A line that is cut off at the end (a run
 * that was killed) is left out. LVN_NOT_FOUND: no metrics there; LVN_INVALID: a damaged line in the middle. */
lvn_code lvn_report_write(const char *run, lvn_err *err) LVN_MUST_USE;

#endif
