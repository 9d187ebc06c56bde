/* Building a span in its wire form (spec/store-api.md section 3): every key present, in the protocol's order.
 *
 *     lvn_span_builder b;
 *     lvn_span_builder_init(&b, 1 << 20);
 *     lvn_attrs_str(&b.attributes, "gen_ai.request.model", model);
 *     lvn_attrs_ints(&b.attributes, "prompt_token_ids", ids, count);
 *     lvn_code code = lvn_span_builder_finish(&b, arena, &head, &span, err);
 *     lvn_span_builder_done(&b);
 *
 * One thread at a time. Text must be UTF-8. Adding never fails on the spot: a builder that outgrew its maximum
 * says so at finish. */
#ifndef LVN_MODEL_SPAN_BUILD_H
#define LVN_MODEL_SPAN_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "model/model.h"

/* A map of attribute name to value, written as it grows. The caller does not repeat a key: nothing here looks for
 * it. */
typedef struct lvn_attrs {
    lvn_buf json; /* "{" and members, without the closing brace; empty while there are none */
} lvn_attrs;

/* Caller's memory; `max` in bytes. */
void lvn_attrs_init(lvn_attrs *attrs, size_t max);
void lvn_attrs_done(lvn_attrs *attrs);

/* An absent text is left out, since the protocol has no null attributes. So are numbers that are not finite; in a list
 * they become 0.0 for the same reason. */
void lvn_attrs_str(lvn_attrs *attrs, const char *key, lvn_str value);
void lvn_attrs_int(lvn_attrs *attrs, const char *key, int64_t value);
void lvn_attrs_double(lvn_attrs *attrs, const char *key, double value);
void lvn_attrs_bool(lvn_attrs *attrs, const char *key, bool value);
void lvn_attrs_ints(lvn_attrs *attrs, const char *key, const int64_t *values, size_t count);
void lvn_attrs_int32s(lvn_attrs *attrs, const char *key, const int32_t *values, size_t count);
void lvn_attrs_doubles(lvn_attrs *attrs, const char *key, const double *values, size_t count);
void lvn_attrs_floats(lvn_attrs *attrs, const char *key, const float *values, size_t count);
void lvn_attrs_strs(lvn_attrs *attrs, const char *key, const lvn_str *values, size_t count); /* absent: "" */

typedef struct lvn_span_builder {
    lvn_attrs attributes; /* of the span */
    lvn_attrs resource;   /* of what made it; may stay empty */
    lvn_buf events;       /* see lvn_span_builder_event */
} lvn_span_builder;

/* The fixed part of a span. Borrowed text. */
typedef struct lvn_span_head {
    lvn_str rollout_id, attempt_id;
    int64_t sequence_id;
    lvn_str trace_id;  /* absent: lvn_span_trace_id of the attempt */
    lvn_str span_id;   /* absent: 16 random hex digits */
    lvn_str parent_id; /* absent: null */
    lvn_str name;
    lvn_span_status status;
    lvn_str status_description;  /* absent: null */
    double start_time, end_time; /* Unix seconds; LVN_TIME_NULL: null */
} lvn_span_head;

/* Caller's memory; each of attributes, resource and events may take up to `max` bytes. */
void lvn_span_builder_init(lvn_span_builder *builder, size_t max);
void lvn_span_builder_done(lvn_span_builder *builder);

/* Adds an event; `attributes` NULL: none. It is copied. */
void lvn_span_builder_event(lvn_span_builder *builder, lvn_str name, double time, const lvn_attrs *attributes);

/* Writes the span to `out`; all its text lies in `arena` afterwards, so the builder and the head may go. The
 * builder is unchanged. LVN_TOO_LARGE: more than `max` bytes were added (`out` untouched). */
lvn_code lvn_span_builder_finish(const lvn_span_builder *builder, lvn_arena *arena, const lvn_span_head *head,
                                 lvn_span *out, lvn_err *err) LVN_MUST_USE;

/* The trace that all spans written by ourselves for one attempt share: 32 hex digits, always the same for the same
 * ids. `out` has 33 bytes. */
void lvn_span_trace_id(lvn_str rollout_id, lvn_str attempt_id, char *out);

#endif
