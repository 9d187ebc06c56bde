#include "store/query.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

typedef enum field_kind { TEXT, TIME, INT, STATUS, MODE, JSON_VALUE, UNORDERED } field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
} field;

#define ROLLOUT(f) offsetof(lvn_rollout, f)
#define ATTEMPT(f) offsetof(lvn_attempt, f)
#define WORKER(f) offsetof(lvn_worker, f)
#define RESOURCES(f) offsetof(lvn_resources, f)
#define SPAN(f) offsetof(lvn_span, f)

static const field rollout_fields[] = {
    {"rollout_id", TEXT, ROLLOUT(rollout_id)}, {"input", JSON_VALUE, ROLLOUT(input)}, {"start_time", TIME, ROLLOUT(start_time)},
    {"end_time", TIME, ROLLOUT(end_time)}, {"mode", MODE, ROLLOUT(mode)}, {"resources_id", TEXT, ROLLOUT(resources_id)},
    {"status", STATUS, ROLLOUT(status)}, {"config", UNORDERED, 0}, {"metadata", UNORDERED, 0}, {NULL, TEXT, 0},
};
static const field attempt_fields[] = {
    {"rollout_id", TEXT, ATTEMPT(rollout_id)}, {"attempt_id", TEXT, ATTEMPT(attempt_id)},
    {"sequence_id", INT, ATTEMPT(sequence_id)}, {"start_time", TIME, ATTEMPT(start_time)},
    {"end_time", TIME, ATTEMPT(end_time)}, {"status", STATUS, ATTEMPT(status)}, {"worker_id", TEXT, ATTEMPT(worker_id)},
    {"last_heartbeat_time", TIME, ATTEMPT(last_heartbeat_time)}, {"metadata", UNORDERED, 0}, {NULL, TEXT, 0},
};
static const field worker_fields[] = {
    {"worker_id", TEXT, WORKER(worker_id)}, {"status", STATUS, WORKER(status)}, {"heartbeat_stats", UNORDERED, 0},
    {"last_heartbeat_time", TIME, WORKER(last_heartbeat_time)}, {"last_dequeue_time", TIME, WORKER(last_dequeue_time)},
    {"last_busy_time", TIME, WORKER(last_busy_time)}, {"last_idle_time", TIME, WORKER(last_idle_time)},
    {"current_rollout_id", TEXT, WORKER(current_rollout_id)}, {"current_attempt_id", TEXT, WORKER(current_attempt_id)},
    {NULL, TEXT, 0},
};
static const field resources_fields[] = {
    {"resources_id", TEXT, RESOURCES(resources_id)}, {"create_time", TIME, RESOURCES(create_time)},
    {"update_time", TIME, RESOURCES(update_time)}, {"version", INT, RESOURCES(version)}, {"resources", UNORDERED, 0},
    {NULL, TEXT, 0},
};
static const field span_fields[] = {
    {"rollout_id", TEXT, SPAN(rollout_id)}, {"attempt_id", TEXT, SPAN(attempt_id)}, {"sequence_id", INT, SPAN(sequence_id)},
    {"trace_id", TEXT, SPAN(trace_id)}, {"span_id", TEXT, SPAN(span_id)}, {"parent_id", TEXT, SPAN(parent_id)},
    {"name", TEXT, SPAN(name)}, {"status", UNORDERED, 0}, {"attributes", UNORDERED, 0}, {"events", UNORDERED, 0},
    {"links", UNORDERED, 0}, {"start_time", TIME, SPAN(start_time)}, {"end_time", TIME, SPAN(end_time)},
    {"context", UNORDERED, 0}, {"parent", UNORDERED, 0}, {"resource", UNORDERED, 0}, {NULL, TEXT, 0},
};

static const field *const fields_of[] = {rollout_fields, attempt_fields, worker_fields, resources_fields, span_fields};

typedef struct sort_key {
    bool is_text;
    bool is_integer;
    lvn_str text;
    double number;
    int64_t integer;
    size_t index;
    const void *item;
} sort_key;

static const char *status_name(lvn_noun noun, const void *status)
{
    if (noun == LVN_NOUN_ROLLOUT)
        return lvn_rollout_status_name(*(const lvn_rollout_status *)status);
    if (noun == LVN_NOUN_ATTEMPT)
        return lvn_attempt_status_name(*(const lvn_attempt_status *)status);
    return lvn_worker_status_name(*(const lvn_worker_status *)status);
}

/* Free-form values sort when they are all texts or all numbers; false for anything else. */
static bool json_key(lvn_arena *arena, lvn_str json, sort_key *out)
{
    lvn_json value;
    if (lvn_str_is_absent(json) || lvn_json_parse(arena, json, &value, NULL, NULL))
        return false;
    switch (value.kind) {
    case LVN_JSON_STRING:
        out->is_text = true;
        out->text = value.string;
        return true;
    case LVN_JSON_BOOL: out->number = value.boolean; return true;
    case LVN_JSON_INT: out->number = (double)value.integer; return true;
    case LVN_JSON_BIGINT: out->number = strtod(value.string.ptr, NULL); return true;
    case LVN_JSON_DOUBLE: out->number = value.number; return true;
    case LVN_JSON_NULL:
    case LVN_JSON_ARRAY:
    case LVN_JSON_OBJECT: return false;
    }
    return false;
}

static bool make_key(lvn_arena *arena, lvn_noun noun, const field *f, const void *item, sort_key *out)
{
    const void *value = (const char *)item + f->offset;
    switch (f->kind) {
    case TEXT:
        out->is_text = true;
        out->text = *(const lvn_str *)value;
        return true;
    case STATUS:
        out->is_text = true;
        out->text = lvn_str_of(status_name(noun, value));
        return true;
    case MODE:
        out->is_text = true;
        out->text = lvn_str_of(lvn_mode_name(*(const lvn_mode *)value));
        return true;
    case TIME:
        out->number = *(const double *)value;
        if (lvn_time_is_null(out->number))
            out->number = INFINITY;
        return true;
    case INT:
        out->is_integer = true;
        out->integer = *(const int64_t *)value;
        return true;
    case JSON_VALUE: return json_key(arena, *(const lvn_str *)value, out);
    case UNORDERED: return false;
    }
    return false;
}

static int compare(const sort_key *a, const sort_key *b)
{
    if (a->is_text)
        return lvn_str_cmp(a->text, b->text); /* absent compares as the empty text */
    if (a->is_integer)
        return (a->integer > b->integer) - (a->integer < b->integer);
    return (a->number > b->number) - (a->number < b->number);
}

static int ascending(const void *left, const void *right)
{
    const sort_key *a = left, *b = right;
    int order = compare(a, b);
    return order ? order : a->index < b->index ? -1 : 1;
}

static int descending(const void *left, const void *right)
{
    const sort_key *a = left, *b = right;
    int order = compare(b, a);
    return order ? order : a->index < b->index ? -1 : 1; /* ties stay as they came in this direction too */
}

static lvn_code unknown_field(lvn_noun noun, lvn_str name, lvn_err *err)
{
    lvn_buf names;
    lvn_buf_init(&names, LVN_BUF_NO_LIMIT);
    for (const field *f = fields_of[noun]; f->name; f++)
        lvn_buf_printf(&names, "%s%s", names.len ? ", " : "", f->name);
    lvn_fail(err, LVN_INVALID, "Invalid sort_by: %.*s, allowed fields are: %s", LVN_STR_ARG(name), names.ptr);
    lvn_buf_done(&names);
    return LVN_INVALID;
}

static lvn_code sort(lvn_arena *arena, lvn_noun noun, const field *f, bool is_descending, const void **items, size_t count,
                     lvn_err *err)
{
    if (count < 2)
        return LVN_OK;
    sort_key *keys = lvn_arena_array(arena, count, sizeof(*keys));
    for (size_t i = 0; i < count; i++) {
        keys[i].index = i;
        keys[i].item = items[i];
        if (!make_key(arena, noun, f, items[i], &keys[i]) || keys[i].is_text != keys[0].is_text)
            return lvn_fail(err, LVN_INTERNAL, "values of %s cannot be compared", f->name);
    }
    qsort(keys, count, sizeof(*keys), is_descending ? descending : ascending);
    for (size_t i = 0; i < count; i++)
        items[i] = keys[i].item;
    return LVN_OK;
}

lvn_code lvn_query_window(const lvn_page *page, size_t count, size_t *out_first, size_t *out_left, lvn_err *err)
{
    if (page->limit < -1 || page->limit == 0)
        return lvn_fail(err, LVN_INVALID, "Limit must be greater than 0 or -1 for no limit");
    if (page->offset < 0)
        return lvn_fail(err, LVN_INVALID, "Offset must be greater than or equal to 0");
    size_t first = (uint64_t)page->offset < count ? (size_t)page->offset : count, left = count - first;
    *out_first = first;
    *out_left = page->limit > 0 && (uint64_t)page->limit < left ? (size_t)page->limit : left;
    return LVN_OK;
}

lvn_code lvn_query_page(lvn_arena *arena, lvn_noun noun, const lvn_page *page, const char *default_sort, const void **items,
                        size_t *count, int64_t *out_total, lvn_err *err)
{
    size_t first, left;
    lvn_code code = lvn_query_window(page, *count, &first, &left, err);
    if (code)
        return code;
    lvn_str by = page->sort_by;
    if (lvn_str_is_absent(by) && !page->has_no_sort)
        by = lvn_str_of(default_sort);
    if (!lvn_str_is_absent(by)) {
        const field *f = fields_of[noun];
        while (f->name && !lvn_str_is(by, f->name))
            f++;
        if (!f->name)
            return unknown_field(noun, by, err);
        code = sort(arena, noun, f, page->is_descending, items, *count, err);
        if (code)
            return code;
    }
    *out_total = (int64_t)*count;
    memmove(items, items + first, left * sizeof(*items));
    *count = left;
    return LVN_OK;
}

bool lvn_list_has(const lvn_str_list *list, lvn_str value)
{
    for (size_t i = 0; i < list->count; i++)
        if (lvn_str_eq(list->items[i], value))
            return true;
    return false;
}

void lvn_match_text(lvn_match *m, const lvn_text_filter *filter, lvn_str value)
{
    bool is_null = lvn_str_is_absent(value);
    lvn_match_add(m, !lvn_str_is_absent(filter->equals), !is_null && lvn_str_eq(filter->equals, value));
    lvn_match_add(m, !lvn_str_is_absent(filter->contains), !is_null && lvn_str_contains(value, filter->contains));
}
