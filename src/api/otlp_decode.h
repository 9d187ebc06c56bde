/* Private to src/api: OTLP trace exports (spec/store-api.md section 6) as spans. Pure work on
 * memory; any thread. */
#ifndef LVN_API_OTLP_DECODE_H
#define LVN_API_OTLP_DECODE_H

#include "base/arena.h"
#include "base/err.h"
#include "model/model.h"

enum { LVN_OTLP_MAX_SPANS = 100000 };

typedef struct lvn_otlp_batch {
    lvn_span *spans; /* in the order of the request, those without ids left out */
    bool *needs_sequence;
    size_t count;
} lvn_otlp_batch;

/* Decodes an ExportTraceServiceRequest. Everything in `out` lies in `arena`. LVN_INVALID: not such
 * a message; LVN_INTERNAL: an attribute has a value that cannot be stored (the reference server
 * raises there); LVN_TOO_LARGE: over LVN_OTLP_MAX_SPANS, or it would take too much memory. */
lvn_code lvn_otlp_decode(lvn_arena *arena, lvn_str body, lvn_otlp_batch *out,
                         lvn_err *err) LVN_MUST_USE;

/* A gzip stream (several members are fine) of at most `max` bytes once inflated, in `arena`.
 * LVN_INVALID; LVN_TOO_LARGE. */
lvn_code lvn_gzip_inflate(lvn_arena *arena, lvn_str in, size_t max, lvn_str *out,
                          lvn_err *err) LVN_MUST_USE;
/* One gzip member. */
lvn_code lvn_gzip_deflate(lvn_arena *arena, lvn_str in, lvn_str *out, lvn_err *err) LVN_MUST_USE;

#endif
