#include "store/apply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ids.h"
#include "model/rules.h"
#include "store/query.h"
#include "store/rows.h"

/* ---- shared steps ---- */

static void new_id(lvn_arena *arena, const char *prefix, size_t digits, lvn_str *out)
{
    char hex[65];
    lvn_id_hex(hex, digits);
    *out = lvn_arena_printf(arena, "%s%s", prefix, hex);
}

static const lvn_worker *find_worker(const lvn_state *s, lvn_str worker_id)
{
    const worker_row *row = lvn_str_is_absent(worker_id) ? NULL : lvn_map_get(&s->workers, worker_id);
    return row ? row->value : NULL;
}

static lvn_code find_rollout(lvn_state *s, lvn_str id, rollout_row **out, lvn_err *err)
{
    *out = lvn_map_get(&s->rollouts, id);
    return *out ? LVN_OK : lvn_fail(err, LVN_NOT_FOUND, "Rollout %.*s not found", LVN_STR_ARG(id));
}

/* Writes what the rules decided. */
static lvn_code commit_changes(lvn_state *s, rollout_row *row, const lvn_changes *c, lvn_err *err)
{
    lvn_code code = LVN_OK;
    if (c->has_attempt)
        code = lvn_state_put_attempt(s, row, &c->attempt, err);
    if (!code && c->has_rollout)
        code = lvn_state_put_rollout(s, row, &c->rollout, err);
    if (!code && c->has_worker)
        code = lvn_state_put_worker(s, &c->worker, err);
    if (!code && c->is_queued)
        code = lvn_state_enqueue(s, row, err);
    return code;
}

static void give(lvn_arena *arena, const rollout_row *row, bool with_attempt, lvn_attempted *out)
{
    const lvn_attempt *latest = lvn_state_latest(row);
    lvn_rollout_to_arena(arena, row->value, &out->rollout);
    out->has_attempt = with_attempt && latest;
    if (out->has_attempt)
        lvn_attempt_to_arena(arena, latest, &out->attempt);
}

static void give_one(lvn_op *op, const rollout_row *row, bool with_attempt)
{
    op->out.rollouts.items = lvn_arena_array(op->arena, 1, sizeof(lvn_attempted));
    op->out.rollouts.count = 1;
    op->out.rollouts.total = 1;
    give(op->arena, row, with_attempt, op->out.rollouts.items);
}

static lvn_code create(lvn_state *s, lvn_arena *arena, const lvn_rollout_spec *spec, lvn_rollout_status status, double now,
                       rollout_row **out, lvn_err *err)
{
    lvn_rollout r = {.input = spec->input, .start_time = now, .end_time = LVN_TIME_NULL, .mode = spec->mode,
                     .resources_id = spec->resources_id, .status = status, .metadata = spec->metadata};
    new_id(arena, "ro-", 12, &r.rollout_id);
    if (lvn_str_is_absent(r.resources_id) && s->latest_resources)
        r.resources_id = s->latest_resources->value->resources_id;
    if (lvn_str_is_absent(r.metadata))
        r.metadata = LVN_STR("{}");
    if (spec->has_config)
        r.config = spec->config;
    else
        lvn_rollout_config_default(&r.config);
    return lvn_state_add_rollout(s, &r, out, err);
}

static lvn_code start_attempt(lvn_state *s, lvn_arena *arena, rollout_row *row, lvn_str worker_id, double now, lvn_err *err)
{
    lvn_str attempt_id;
    new_id(arena, "at-", 8, &attempt_id);
    lvn_rows rows = {.rollout = row->value, .latest = lvn_state_latest(row), .worker = find_worker(s, worker_id)};
    lvn_changes changes;
    lvn_rules_new_attempt(&rows, attempt_id, worker_id, now, &changes);
    return commit_changes(s, row, &changes, err);
}

/* ---- rollouts ---- */

/* An enqueue that was done before: what became of it. */
static lvn_code repeat_enqueue(lvn_state *s, lvn_op *op, const lvn_enqueue_key *known)
{
    if (known->digest != op->in.enqueue.digest)
        return lvn_fail(&op->err, LVN_CONFLICT, "The idempotency key was used for another request");
    size_t count = (size_t)known->count;
    rollout_row **rows = lvn_state_from_order(s, known->first, count);
    op->out.rollouts.items = lvn_arena_array(op->arena, count, sizeof(lvn_attempted));
    for (size_t i = 0; rows && i < count; i++)
        give(op->arena, rows[i], false, &op->out.rollouts.items[i]);
    op->out.rollouts.count = rows ? count : 0;
    op->out.rollouts.total = (int64_t)op->out.rollouts.count;
    return LVN_OK;
}

static lvn_code apply_enqueue(lvn_state *s, lvn_op *op, double now)
{
    size_t count = op->in.enqueue.count;
    bool has_key = !lvn_str_is_absent(op->in.enqueue.key);
    const lvn_enqueue_key *known = has_key ? lvn_state_key(s, op->in.enqueue.key) : NULL;
    if (known)
        return repeat_enqueue(s, op, known);
    int64_t first = 0;
    op->out.rollouts.items = lvn_arena_array(op->arena, count, sizeof(lvn_attempted));
    for (size_t i = 0; i < count; i++) {
        rollout_row *row;
        lvn_code code = create(s, op->arena, &op->in.enqueue.specs[i], LVN_ROLLOUT_QUEUING, now, &row, &op->err);
        if (!code)
            code = lvn_state_enqueue(s, row, &op->err);
        if (code)
            return code;
        give(op->arena, row, false, &op->out.rollouts.items[i]);
        if (!i)
            first = row->order;
    }
    op->out.rollouts.count = count;
    op->out.rollouts.total = (int64_t)count;
    lvn_enqueue_key key = {op->in.enqueue.key, op->in.enqueue.digest, first, (int64_t)count};
    return has_key ? lvn_state_add_key(s, &key, &op->err) : LVN_OK;
}

static lvn_code apply_start_rollout(lvn_state *s, lvn_op *op, double now)
{
    rollout_row *row;
    lvn_code code = create(s, op->arena, &op->in.start_rollout.spec, LVN_ROLLOUT_PREPARING, now, &row, &op->err);
    if (!code)
        code = start_attempt(s, op->arena, row, op->in.start_rollout.worker_id, now, &op->err);
    if (!code)
        give_one(op, row, true);
    return code;
}

static lvn_code apply_dequeue(lvn_state *s, lvn_op *op, double now)
{
    int64_t limit = op->in.dequeue.limit;
    lvn_str worker_id = op->in.dequeue.worker_id;
    op->out.rollouts.count = 0;
    if (limit <= 0)
        return LVN_OK;
    size_t queued = s->queue_tail - s->queue_head;
    size_t most = (uint64_t)limit < queued ? (size_t)limit : queued;
    op->out.rollouts.items = lvn_arena_array(op->arena, most, sizeof(lvn_attempted));
    lvn_code code = LVN_OK;
    size_t taken = 0;
    while (!code && taken < most) {
        rollout_row *row;
        code = lvn_state_pop(s, &row, &op->err);
        if (code || !row)
            break;
        if (!lvn_rollout_is_queued(row->value->status))
            continue; /* it left the queue by other ways: the entry is thrown away */
        code = start_attempt(s, op->arena, row, worker_id, now, &op->err);
        if (!code)
            give(op->arena, row, true, &op->out.rollouts.items[taken++]);
    }
    op->out.rollouts.count = taken;
    op->out.rollouts.total = (int64_t)taken;
    if (!code && !lvn_str_is_absent(worker_id) && (worker_id.len || !taken)) {
        lvn_worker worker;
        lvn_rules_dequeued(find_worker(s, worker_id), worker_id, taken > 0, now, &worker);
        code = lvn_state_put_worker(s, &worker, &op->err);
    }
    return code;
}

static lvn_code apply_start_attempt(lvn_state *s, lvn_op *op, double now)
{
    rollout_row *row;
    lvn_code code = find_rollout(s, op->in.start_attempt.rollout_id, &row, &op->err);
    if (!code)
        code = start_attempt(s, op->arena, row, op->in.start_attempt.worker_id, now, &op->err);
    if (!code)
        give_one(op, row, true);
    return code;
}

static lvn_code apply_get_rollout(lvn_state *s, lvn_op *op)
{
    rollout_row *row = lvn_map_get(&s->rollouts, op->in.get_rollout.rollout_id);
    op->out.rollouts.count = 0;
    if (row)
        give_one(op, row, true);
    return LVN_OK;
}

static bool has_status(const lvn_rollout_status *list, size_t count, lvn_rollout_status status)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == status)
            return true;
    return false;
}

static int by_order(const void *a, const void *b)
{
    const rollout_row *x = *(rollout_row *const *)a, *y = *(rollout_row *const *)b;
    return (x->order > y->order) - (x->order < y->order);
}

static bool wants_open_only(const lvn_op *op)
{
    for (size_t i = 0; i < op->in.query_rollouts.status_count; i++)
        if (lvn_rollout_is_finished(op->in.query_rollouts.status_in[i]))
            return false;
    return op->in.query_rollouts.has_status_in;
}

/* Rows among which all that a query selects are, in the order of creation: as few as can be told without looking. */
static rollout_row **candidates(lvn_state *s, lvn_op *op, size_t *out_count)
{
    const lvn_str_list *ids = &op->in.query_rollouts.rollout_id_in;
    size_t count = 0;
    rollout_row **rows;
    if (!op->in.query_rollouts.is_or && ids->is_given) {
        rows = lvn_arena_array(op->arena, ids->count, sizeof(*rows));
        for (size_t i = 0; i < ids->count; i++)
            if ((rows[count] = lvn_map_get(&s->rollouts, ids->items[i])))
                count++;
    } else if (!op->in.query_rollouts.is_or && wants_open_only(op)) {
        rows = lvn_arena_array(op->arena, s->open_count, sizeof(*rows));
        count = s->open_count;
        if (count)
            memcpy(rows, s->open, count * sizeof(*rows));
    } else {
        *out_count = s->rollout_count;
        return s->rollout_list;
    }
    if (count)
        qsort(rows, count, sizeof(*rows), by_order);
    size_t kept = 0; /* an id may have been given twice */
    for (size_t i = 0; i < count; i++)
        if (!kept || rows[i] != rows[kept - 1])
            rows[kept++] = rows[i];
    *out_count = kept;
    return rows;
}

static void give_rows(lvn_op *op, rollout_row *const *rows, size_t count)
{
    op->out.rollouts.items = lvn_arena_array(op->arena, count, sizeof(lvn_attempted));
    op->out.rollouts.count = count;
    for (size_t i = 0; i < count; i++)
        give(op->arena, rows[i], true, &op->out.rollouts.items[i]);
}

static bool is_selected(const lvn_op *op, const lvn_rollout *r)
{
    lvn_match m = lvn_match_begin(op->in.query_rollouts.is_or);
    lvn_match_add(&m, op->in.query_rollouts.has_status_in,
                  has_status(op->in.query_rollouts.status_in, op->in.query_rollouts.status_count, r->status));
    if (op->in.query_rollouts.is_or) /* else the candidates were found by it */
        lvn_match_add(&m, op->in.query_rollouts.rollout_id_in.is_given,
                      lvn_list_has(&op->in.query_rollouts.rollout_id_in, r->rollout_id));
    lvn_text_filter contains = {LVN_STR_ABSENT, op->in.query_rollouts.rollout_id_contains};
    lvn_match_text(&m, &contains, r->rollout_id);
    return lvn_match_is(&m);
}

static lvn_code apply_query_rollouts(lvn_state *s, lvn_op *op)
{
    const lvn_page *page = &op->in.query_rollouts.page;
    size_t candidate_count;
    rollout_row **rows = candidates(s, op, &candidate_count);
    bool selects_all = !op->in.query_rollouts.has_status_in && !op->in.query_rollouts.rollout_id_in.is_given &&
                       lvn_str_is_absent(op->in.query_rollouts.rollout_id_contains);
    if (selects_all && lvn_str_is_absent(page->sort_by)) { /* the cost is that of the page, however many there are */
        size_t first, left;
        lvn_code code = lvn_query_window(page, candidate_count, &first, &left, &op->err);
        if (code)
            return code;
        op->out.rollouts.total = (int64_t)candidate_count;
        give_rows(op, rows + first, left);
        return LVN_OK;
    }
    const lvn_rollout **items = lvn_arena_array(op->arena, candidate_count, sizeof(*items));
    size_t count = 0;
    for (size_t i = 0; i < candidate_count; i++)
        if (is_selected(op, rows[i]->value))
            items[count++] = rows[i]->value;
    lvn_code code = lvn_query_page(op->arena, LVN_NOUN_ROLLOUT, page, NULL, (const void **)items, &count, &op->out.rollouts.total,
                                   &op->err);
    if (code)
        return code;
    rollout_row **selected = lvn_arena_array(op->arena, count, sizeof(*selected));
    for (size_t i = 0; i < count; i++)
        selected[i] = lvn_map_get(&s->rollouts, items[i]->rollout_id);
    give_rows(op, selected, count);
    return LVN_OK;
}

static lvn_code apply_update_rollout(lvn_state *s, lvn_op *op, double now)
{
    rollout_row *row = lvn_map_get(&s->rollouts, op->in.update_rollout.rollout_id);
    if (!row)
        return lvn_fail(&op->err, LVN_NOT_FOUND, "Item does not exist with primary key(s): rollout_id='%.*s'",
                        LVN_STR_ARG(op->in.update_rollout.rollout_id));
    const lvn_rollout *values = &op->in.update_rollout.values;
    unsigned set = op->in.update_rollout.set;
    lvn_rollout r = *row->value;
    if (set & LVN_SET_INPUT)
        r.input = values->input;
    if (set & LVN_SET_MODE)
        r.mode = values->mode;
    if (set & LVN_SET_RESOURCES_ID)
        r.resources_id = values->resources_id;
    if (set & LVN_SET_CONFIG)
        r.config = values->config;
    if (set & LVN_SET_METADATA)
        r.metadata = values->metadata;
    lvn_changes changes = {.has_rollout = true, .rollout = r};
    if (set & LVN_SET_STATUS)
        lvn_rules_set_status(&r, values->status, now, &changes);
    lvn_code code = commit_changes(s, row, &changes, &op->err);
    if (!code)
        give_one(op, row, false);
    return code;
}

/* ---- attempts ---- */

static void give_attempts(lvn_op *op, const lvn_attempt *const *items, size_t count)
{
    op->out.attempts.items = lvn_arena_array(op->arena, count, sizeof(lvn_attempt));
    op->out.attempts.count = count;
    for (size_t i = 0; i < count; i++)
        lvn_attempt_to_arena(op->arena, items[i], &op->out.attempts.items[i]);
}

static lvn_code apply_query_attempts(lvn_state *s, lvn_op *op)
{
    const rollout_row *row = lvn_map_get(&s->rollouts, op->in.query_attempts.rollout_id);
    size_t count = row ? row->attempt_count : 0;
    const lvn_attempt **items = lvn_arena_array(op->arena, count, sizeof(*items));
    for (size_t i = 0; i < count; i++)
        items[i] = row->attempts[i];
    lvn_code code = lvn_query_page(op->arena, LVN_NOUN_ATTEMPT, &op->in.query_attempts.page, "sequence_id",
                                   (const void **)items, &count, &op->out.attempts.total, &op->err);
    if (!code)
        give_attempts(op, items, count);
    return code;
}

static lvn_code apply_latest_attempt(lvn_state *s, lvn_op *op)
{
    const rollout_row *row = lvn_map_get(&s->rollouts, op->in.get_latest_attempt.rollout_id);
    const lvn_attempt *latest = row ? lvn_state_latest(row) : NULL;
    give_attempts(op, &latest, latest ? 1 : 0);
    op->out.attempts.total = latest ? 1 : 0;
    return LVN_OK;
}

static lvn_code find_attempt(rollout_row *row, lvn_str attempt_id, lvn_attempt **out, lvn_err *err)
{
    lvn_str id = row->value->rollout_id;
    *out = lvn_state_attempt(row, attempt_id, true);
    if (*out)
        return LVN_OK;
    if (!row->attempt_count)
        return lvn_fail(err, LVN_NOT_FOUND, "No attempts found for rollout %.*s", LVN_STR_ARG(id));
    return lvn_fail(err, LVN_NOT_FOUND, "Attempt %.*s not found for rollout %.*s", LVN_STR_ARG(attempt_id), LVN_STR_ARG(id));
}

static lvn_code apply_update_attempt(lvn_state *s, lvn_op *op, double now)
{
    const lvn_attempt *values = &op->in.update_attempt.values;
    unsigned set = op->in.update_attempt.set;
    rollout_row *row;
    lvn_attempt *attempt = NULL;
    lvn_code code = find_rollout(s, op->in.update_attempt.rollout_id, &row, &op->err);
    if (!code)
        code = find_attempt(row, op->in.update_attempt.attempt_id, &attempt, &op->err);
    if (code)
        return code;
    lvn_attempt_update update = {.has_status = set & LVN_SET_STATUS, .has_worker_id = set & LVN_SET_WORKER_ID,
                                 .has_heartbeat = set & LVN_SET_HEARTBEAT, .has_metadata = set & LVN_SET_METADATA,
                                 .status = values->status, .worker_id = values->worker_id,
                                 .heartbeat = values->last_heartbeat_time, .metadata = values->metadata};
    lvn_str worker_id = update.has_worker_id ? update.worker_id : attempt->worker_id;
    size_t index = (size_t)attempt->sequence_id - 1;
    lvn_rows rows = {.rollout = row->value, .latest = lvn_state_latest(row), .attempt = attempt,
                     .worker = find_worker(s, worker_id)};
    lvn_changes changes;
    lvn_rules_update_attempt(&rows, &update, now, &changes);
    code = commit_changes(s, row, &changes, &op->err);
    if (!code) {
        const lvn_attempt *updated = row->attempts[index];
        give_attempts(op, &updated, 1);
        op->out.attempts.total = 1;
    }
    return code;
}

/* ---- spans ---- */

static lvn_code lift_counter(lvn_state *s, lvn_str rollout_id, int64_t n, lvn_err *err)
{
    return n > lvn_state_counter(s, rollout_id) ? lvn_state_set_counter(s, rollout_id, n, err) : LVN_OK;
}

static lvn_code number_spans(lvn_state *s, lvn_op *op, lvn_span *spans)
{
    lvn_code code = LVN_OK;
    for (size_t i = 0; i < op->in.add_spans.count && !code; i++) {
        spans[i] = op->in.add_spans.spans[i];
        if (op->in.add_spans.needs_sequence && op->in.add_spans.needs_sequence[i]) {
            spans[i].sequence_id = lvn_state_counter(s, spans[i].rollout_id) + 1;
            code = lvn_state_set_counter(s, spans[i].rollout_id, spans[i].sequence_id, &op->err);
        } else {
            code = lift_counter(s, spans[i].rollout_id, spans[i].sequence_id, &op->err);
        }
    }
    return code;
}

static lvn_code store_span(lvn_state *s, const lvn_span *span, double now, bool *is_stored, lvn_err *err)
{
    rollout_row *row;
    lvn_code code = find_rollout(s, span->rollout_id, &row, err);
    if (code)
        return code;
    lvn_attempt *attempt = lvn_state_attempt(row, span->attempt_id, false);
    if (!attempt)
        return lvn_fail(err, LVN_NOT_FOUND, "Attempt %.*s not found for rollout %.*s", LVN_STR_ARG(span->attempt_id),
                        LVN_STR_ARG(span->rollout_id));
    code = lvn_state_add_span(s, span, err);
    *is_stored = code == LVN_OK;
    if (code)
        return code == LVN_CONFLICT ? LVN_OK : code;
    lvn_rows rows = {.rollout = row->value, .latest = lvn_state_latest(row), .attempt = attempt};
    lvn_changes changes;
    lvn_rules_span(&rows, now, &changes);
    return commit_changes(s, row, &changes, err);
}

static bool is_same_group(const lvn_span *a, const lvn_span *b)
{
    return lvn_str_eq(a->rollout_id, b->rollout_id) && lvn_str_eq(a->attempt_id, b->attempt_id);
}

/* Spans of one attempt are stored together, attempts in the order of their first span. */
static lvn_code apply_add_spans(lvn_state *s, lvn_op *op, double now)
{
    size_t count = op->in.add_spans.count;
    lvn_span *spans = lvn_arena_array(op->arena, count, sizeof(*spans));
    bool *is_done = lvn_arena_array(op->arena, count, sizeof(bool));
    op->out.spans.is_stored = lvn_arena_array(op->arena, count, sizeof(bool));
    op->out.spans.items = lvn_arena_array(op->arena, count, sizeof(*spans));
    op->out.spans.count = 0;
    lvn_code code = number_spans(s, op, spans);
    for (size_t first = 0; first < count && !code; first++)
        for (size_t i = first; i < count && !code && !is_done[first]; i++) {
            if (is_done[i] || !is_same_group(&spans[first], &spans[i]))
                continue;
            if (i > first)
                is_done[i] = true;
            code = store_span(s, &spans[i], now, &op->out.spans.is_stored[i], &op->err);
        }
    for (size_t i = 0; i < count; i++)
        if (op->out.spans.is_stored[i])
            lvn_span_to_arena(op->arena, &spans[i], &op->out.spans.items[op->out.spans.count++]);
    op->out.spans.total = (int64_t)op->out.spans.count;
    return code;
}

static bool span_matches(const lvn_op *op, const lvn_span *span, lvn_str attempt_id)
{
    if (!lvn_str_is_absent(attempt_id) && !lvn_str_eq(span->attempt_id, attempt_id))
        return false;
    lvn_match m = lvn_match_begin(op->in.query_spans.is_or);
    lvn_match_text(&m, &op->in.query_spans.trace_id, span->trace_id);
    lvn_match_text(&m, &op->in.query_spans.span_id, span->span_id);
    lvn_match_text(&m, &op->in.query_spans.parent_id, span->parent_id);
    lvn_match_text(&m, &op->in.query_spans.name, span->name);
    /* `or` over no filter at all selects no span, as upstream has it. */
    return m.has_any ? lvn_match_is(&m) : !m.is_or;
}

static lvn_code apply_query_spans(lvn_state *s, lvn_op *op)
{
    const rollout_row *row = lvn_map_get(&s->rollouts, op->in.query_spans.rollout_id);
    lvn_str attempt_id = op->in.query_spans.attempt_id;
    bool is_none = false;
    if (lvn_str_is(attempt_id, "latest")) {
        const lvn_attempt *latest = row ? lvn_state_latest(row) : NULL;
        is_none = !latest;
        attempt_id = latest ? latest->attempt_id : attempt_id;
    }
    lvn_span *all = NULL;
    size_t total = 0, count = 0;
    if (row && !is_none) {
        lvn_code code = s->backend->ops->get_spans(s->backend, op->arena, row->value->rollout_id, &all, &total, &op->err);
        if (code)
            return code;
    }
    const lvn_span **items = lvn_arena_array(op->arena, total, sizeof(*items));
    for (size_t i = 0; i < total; i++)
        if (span_matches(op, &all[i], attempt_id))
            items[count++] = &all[i];
    lvn_code code = lvn_query_page(op->arena, LVN_NOUN_SPAN, &op->in.query_spans.page, "sequence_id", (const void **)items,
                                   &count, &op->out.spans.total, &op->err);
    if (code)
        return code;
    op->out.spans.items = lvn_arena_array(op->arena, count, sizeof(lvn_span));
    op->out.spans.count = count;
    for (size_t i = 0; i < count; i++)
        op->out.spans.items[i] = *items[i];
    return LVN_OK;
}

static lvn_code apply_next_sequence(lvn_state *s, lvn_op *op)
{
    op->out.sequence_id = lvn_state_counter(s, op->in.next_sequence.rollout_id) + 1;
    return lvn_state_set_counter(s, op->in.next_sequence.rollout_id, op->out.sequence_id, &op->err);
}

/* ---- resources ---- */

static void give_resources(lvn_op *op, const lvn_resources *const *items, size_t count)
{
    op->out.resources.items = lvn_arena_array(op->arena, count, sizeof(lvn_resources));
    op->out.resources.count = count;
    for (size_t i = 0; i < count; i++)
        lvn_resources_to_arena(op->arena, items[i], &op->out.resources.items[i]);
}

static lvn_code apply_put_resources(lvn_state *s, lvn_op *op, double now)
{
    lvn_resources r = {.resources_id = op->in.put_resources.resources_id, .create_time = now, .update_time = now, .version = 1,
                       .resources = op->in.put_resources.resources};
    if (lvn_str_is_absent(r.resources_id))
        new_id(op->arena, "rs-", 12, &r.resources_id);
    const resources_row *old = lvn_map_get(&s->resources, r.resources_id);
    if (old) {
        r.create_time = old->value->create_time;
        r.version = old->value->version + 1;
    }
    lvn_code code = lvn_state_put_resources(s, &r, &op->err);
    const lvn_resources *item = &r;
    if (!code)
        give_resources(op, &item, 1);
    op->out.resources.total = 1;
    return code;
}

static lvn_code apply_get_resources(lvn_state *s, lvn_op *op)
{
    lvn_str id = op->in.get_resources.resources_id;
    const resources_row *row = lvn_str_is_absent(id) ? s->latest_resources : lvn_map_get(&s->resources, id);
    const lvn_resources *item = row ? row->value : NULL;
    give_resources(op, &item, row ? 1 : 0);
    op->out.resources.total = row ? 1 : 0;
    return LVN_OK;
}

static lvn_code apply_query_resources(lvn_state *s, lvn_op *op)
{
    const lvn_resources **items = lvn_arena_array(op->arena, s->resources_count, sizeof(*items));
    size_t count = 0;
    for (size_t i = 0; i < s->resources_count; i++) {
        lvn_match m = lvn_match_begin(false);
        lvn_match_text(&m, &op->in.query_resources.resources_id, s->resources_list[i]->value->resources_id);
        if (lvn_match_is(&m))
            items[count++] = s->resources_list[i]->value;
    }
    lvn_code code = lvn_query_page(op->arena, LVN_NOUN_RESOURCES, &op->in.query_resources.page, NULL, (const void **)items,
                                   &count, &op->out.resources.total, &op->err);
    if (!code)
        give_resources(op, items, count);
    return code;
}

/* ---- workers ---- */

static void give_workers(lvn_op *op, const lvn_worker *const *items, size_t count)
{
    op->out.workers.items = lvn_arena_array(op->arena, count, sizeof(lvn_worker));
    op->out.workers.count = count;
    for (size_t i = 0; i < count; i++)
        lvn_worker_to_arena(op->arena, items[i], &op->out.workers.items[i]);
}

static lvn_code apply_heartbeat(lvn_state *s, lvn_op *op, double now)
{
    lvn_worker worker;
    lvn_str id = op->in.heartbeat.worker_id;
    lvn_rules_heartbeat(find_worker(s, id), id, op->in.heartbeat.has_stats, op->in.heartbeat.stats, now, &worker);
    lvn_code code = lvn_state_put_worker(s, &worker, &op->err);
    const lvn_worker *item = find_worker(s, id);
    if (!code)
        give_workers(op, &item, 1);
    op->out.workers.total = 1;
    return code;
}

static lvn_code apply_get_worker(lvn_state *s, lvn_op *op)
{
    const lvn_worker *item = find_worker(s, op->in.get_worker.worker_id);
    give_workers(op, &item, item ? 1 : 0);
    op->out.workers.total = item ? 1 : 0;
    return LVN_OK;
}

static bool worker_has_status(const lvn_op *op, lvn_worker_status status)
{
    for (size_t i = 0; i < op->in.query_workers.status_count; i++)
        if (op->in.query_workers.status_in[i] == status)
            return true;
    return false;
}

static lvn_code apply_query_workers(lvn_state *s, lvn_op *op)
{
    const lvn_worker **items = lvn_arena_array(op->arena, s->worker_count, sizeof(*items));
    size_t count = 0;
    for (size_t i = 0; i < s->worker_count; i++) {
        const lvn_worker *w = s->worker_list[i]->value;
        lvn_match m = lvn_match_begin(op->in.query_workers.is_or);
        lvn_match_add(&m, op->in.query_workers.has_status_in, worker_has_status(op, w->status));
        lvn_text_filter contains = {LVN_STR_ABSENT, op->in.query_workers.worker_id_contains};
        lvn_match_text(&m, &contains, w->worker_id);
        if (lvn_match_is(&m))
            items[count++] = w;
    }
    lvn_code code = lvn_query_page(op->arena, LVN_NOUN_WORKER, &op->in.query_workers.page, NULL, (const void **)items, &count,
                                   &op->out.workers.total, &op->err);
    if (!code)
        give_workers(op, items, count);
    return code;
}

/* ---- waiting, counting ---- */

bool lvn_wait_is_over(const lvn_state *s, const lvn_op *op)
{
    for (size_t i = 0; i < op->in.wait.count; i++) {
        const rollout_row *row = lvn_map_get(&s->rollouts, op->in.wait.rollout_ids[i]);
        /* Unknown ones are never waited for, nor those that finished once and were opened again. */
        if (row && !lvn_rollout_is_finished(row->value->status) && !row->has_finished_once)
            return false;
    }
    return true;
}

static lvn_code apply_wait(lvn_state *s, lvn_op *op)
{
    size_t count = op->in.wait.count;
    op->out.rollouts.items = lvn_arena_array(op->arena, count, sizeof(lvn_attempted));
    op->out.rollouts.count = 0;
    for (size_t i = 0; i < count; i++) {
        const rollout_row *row = lvn_map_get(&s->rollouts, op->in.wait.rollout_ids[i]);
        if (row && lvn_rollout_is_finished(row->value->status))
            give(op->arena, row, false, &op->out.rollouts.items[op->out.rollouts.count++]);
    }
    op->out.rollouts.total = (int64_t)op->out.rollouts.count;
    return LVN_OK;
}

static lvn_code apply_statistics(lvn_state *s, lvn_op *op)
{
    op->out.statistics.rollouts = (int64_t)s->rollout_count;
    op->out.statistics.attempts = s->attempt_total;
    op->out.statistics.spans = s->span_total;
    op->out.statistics.resources = (int64_t)s->resources_count;
    op->out.statistics.workers = (int64_t)s->worker_count;
    op->out.statistics.span_bytes = s->span_bytes;
    op->out.statistics.backend = s->backend->ops->name;
    return LVN_OK;
}

static lvn_code dispatch(lvn_state *s, lvn_op *op, double now)
{
    switch (op->kind) {
    case LVN_OP_ENQUEUE: return apply_enqueue(s, op, now);
    case LVN_OP_START_ROLLOUT: return apply_start_rollout(s, op, now);
    case LVN_OP_DEQUEUE: return apply_dequeue(s, op, now);
    case LVN_OP_START_ATTEMPT: return apply_start_attempt(s, op, now);
    case LVN_OP_GET_ROLLOUT: return apply_get_rollout(s, op);
    case LVN_OP_QUERY_ROLLOUTS: return apply_query_rollouts(s, op);
    case LVN_OP_UPDATE_ROLLOUT: return apply_update_rollout(s, op, now);
    case LVN_OP_QUERY_ATTEMPTS: return apply_query_attempts(s, op);
    case LVN_OP_GET_LATEST_ATTEMPT: return apply_latest_attempt(s, op);
    case LVN_OP_UPDATE_ATTEMPT: return apply_update_attempt(s, op, now);
    case LVN_OP_ADD_SPANS: return apply_add_spans(s, op, now);
    case LVN_OP_QUERY_SPANS: return apply_query_spans(s, op);
    case LVN_OP_NEXT_SEQUENCE: return apply_next_sequence(s, op);
    case LVN_OP_ADD_RESOURCES:
    case LVN_OP_UPDATE_RESOURCES: return apply_put_resources(s, op, now);
    case LVN_OP_GET_RESOURCES: return apply_get_resources(s, op);
    case LVN_OP_QUERY_RESOURCES: return apply_query_resources(s, op);
    case LVN_OP_HEARTBEAT: return apply_heartbeat(s, op, now);
    case LVN_OP_GET_WORKER: return apply_get_worker(s, op);
    case LVN_OP_QUERY_WORKERS: return apply_query_workers(s, op);
    case LVN_OP_WAIT: return apply_wait(s, op);
    case LVN_OP_STATISTICS: return apply_statistics(s, op);
    }
    return lvn_fail(&op->err, LVN_INTERNAL, "no operation has kind %d", (int)op->kind);
}

void lvn_apply(lvn_state *s, lvn_op *op, double now)
{
    memset(&op->out, 0, sizeof(op->out));
    op->err = (lvn_err){0};
    op->code = dispatch(s, op, now);
}

lvn_code lvn_apply_watchdog(lvn_state *s, double now, lvn_err *err)
{
    rollout_row *row;
    while ((row = lvn_state_due(s, now))) {
        const lvn_attempt *latest = lvn_state_latest(row);
        lvn_attempt_update update = {.has_status = true};
        if (!lvn_rules_overdue(row->value, latest, now, &update.status))
            continue;
        lvn_rows rows = {.rollout = row->value, .latest = latest, .attempt = latest,
                         .worker = find_worker(s, latest->worker_id)};
        lvn_changes changes;
        lvn_rules_update_attempt(&rows, &update, now, &changes);
        lvn_code code = commit_changes(s, row, &changes, err);
        if (code)
            return code;
    }
    return LVN_OK;
}
