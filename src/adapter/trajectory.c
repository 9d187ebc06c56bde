#include "adapter/trajectory.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* ---- reading spans ---- */

static lvn_code parse_attributes(lvn_arena *arena, const lvn_span *span, lvn_json *out, lvn_err *err)
{
    /* `rest` begins with the comma behind sequence_id; make it an object again. */
    lvn_str text = lvn_arena_printf(arena, "{%.*s}", (int)(span->rest.len ? span->rest.len - 1 : 0),
                                    span->rest.len ? span->rest.ptr + 1 : "");
    lvn_json whole;
    lvn_err cause;
    if (lvn_json_parse(arena, text, &whole, NULL, &cause))
        return lvn_fail(err, LVN_INVALID, "span %.*s: %s", LVN_STR_ARG(span->span_id), cause.message);
    const lvn_json *attributes = lvn_json_get(&whole, "attributes");
    *out = attributes ? *attributes : (lvn_json){.kind = LVN_JSON_OBJECT};
    return LVN_OK;
}

/* The ids under `key`; out NULL when absent or not a list. */
static lvn_code read_ids(lvn_arena *arena, const lvn_json *attributes, const char *key, const int32_t **out, size_t *out_count,
                         lvn_err *err)
{
    const lvn_json *list = lvn_json_get(attributes, key);
    *out = NULL;
    *out_count = 0;
    if (!list || list->kind != LVN_JSON_ARRAY)
        return LVN_OK;
    int32_t *ids = lvn_arena_array(arena, list->array.count, sizeof(*ids));
    for (size_t i = 0; i < list->array.count; i++) {
        const lvn_json *v = &list->array.items[i];
        if (v->kind != LVN_JSON_INT || v->integer < 0 || v->integer > INT32_MAX)
            return lvn_fail(err, LVN_INVALID, "%s holds something that is no token id", key);
        ids[i] = (int32_t)v->integer;
    }
    *out = ids;
    *out_count = list->array.count;
    return LVN_OK;
}

static const float *read_numbers(lvn_arena *arena, const lvn_json *list, size_t want)
{
    if (!list || list->kind != LVN_JSON_ARRAY || list->array.count != want)
        return NULL;
    float *out = lvn_arena_array(arena, want, sizeof(*out));
    for (size_t i = 0; i < want; i++) {
        const lvn_json *v = &list->array.items[i];
        if (v->kind == LVN_JSON_OBJECT) /* OpenAI's form: {"token": .., "logprob": ..} */
            v = lvn_json_get(v, "logprob");
        if (!v || (v->kind != LVN_JSON_DOUBLE && v->kind != LVN_JSON_INT))
            return NULL;
        double number = v->kind == LVN_JSON_INT ? (double)v->integer : v->number;
        if (!isfinite(number))
            return NULL;
        out[i] = (float)number;
    }
    return out;
}

/* Our own list of numbers, else OpenAI's text form. */
static const float *read_logp(lvn_arena *arena, const lvn_json *attributes, size_t want)
{
    const float *out = read_numbers(arena, lvn_json_get(attributes, "levin.logprobs"), want);
    lvn_str text = lvn_json_get_str(attributes, "logprobs.content", LVN_STR_ABSENT);
    lvn_json list;
    if (!out && !lvn_str_is_absent(text) && lvn_json_parse(arena, text, &list, NULL, NULL) == LVN_OK)
        out = read_numbers(arena, &list, want);
    return out;
}

static int by_sequence(const void *left, const void *right)
{
    const lvn_call *a = left, *b = right;
    if (a->sequence_id != b->sequence_id)
        return a->sequence_id < b->sequence_id ? -1 : 1;
    return (a->start_time > b->start_time) - (a->start_time < b->start_time);
}

static lvn_code read_call(lvn_arena *arena, const lvn_span *span, lvn_call *out, bool *is_call, lvn_err *err)
{
    lvn_json attributes;
    lvn_code code = parse_attributes(arena, span, &attributes, err);
    if (code)
        return code;
    *out = (lvn_call){.sequence_id = span->sequence_id, .start_time = span->start_time};
    code = read_ids(arena, &attributes, "prompt_token_ids", &out->prompt, &out->prompt_count, err);
    if (!code)
        code = read_ids(arena, &attributes, "response_token_ids", &out->answer, &out->answer_count, err);
    if (code)
        return code;
    *is_call = out->prompt || out->answer || lvn_str_contains(span->name, LVN_STR("openai.chat.completion"));
    out->logp = read_logp(arena, &attributes, out->answer_count);
    out->policy_version = lvn_json_get_int(&attributes, "levin.policy.version", -1);
    const lvn_json *reasons = lvn_json_get(&attributes, "gen_ai.response.finish_reasons");
    out->finish_reason = LVN_STR_ABSENT;
    if (reasons && reasons->kind == LVN_JSON_ARRAY && reasons->array.count &&
        reasons->array.items[0].kind == LVN_JSON_STRING)
        out->finish_reason = reasons->array.items[0].string;
    return LVN_OK;
}

lvn_code lvn_adapter_calls(lvn_arena *arena, const lvn_span *spans, size_t count, lvn_call **out, size_t *out_count,
                           size_t *out_skipped, lvn_err *err)
{
    lvn_call *calls = lvn_arena_array(arena, count, sizeof(*calls));
    size_t kept = 0, skipped = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_call = false;
        lvn_code code = read_call(arena, &spans[i], &calls[kept], &is_call, err);
        if (code)
            return code;
        if (is_call && spans[i].status != LVN_SPAN_ERROR && calls[kept].prompt_count && calls[kept].answer_count)
            kept++;
        else
            skipped += is_call;
    }
    qsort(calls, kept, sizeof(*calls), by_sequence);
    *out = calls;
    *out_count = kept;
    *out_skipped = skipped;
    return LVN_OK;
}

/* ---- merging ---- */

/* How many tokens of `prompt` agree with the previous call's prompt and answer, from the start. */
static size_t agreement(const lvn_call *previous, const lvn_call *next)
{
    size_t i = 0;
    for (; i < next->prompt_count; i++) {
        int32_t want;
        if (i < previous->prompt_count)
            want = previous->prompt[i];
        else if (i < previous->prompt_count + previous->answer_count)
            want = previous->answer[i - previous->prompt_count];
        else
            break;
        if (want != next->prompt[i])
            break;
    }
    return i;
}

/* The calls [first, end) continue each other: one trajectory. */
static void join(lvn_arena *arena, const lvn_call *calls, size_t first, size_t end, lvn_trajectory *out)
{
    const lvn_call *last = &calls[end - 1];
    size_t total = last->prompt_count + last->answer_count - calls[first].prompt_count;
    int32_t *tokens = lvn_arena_array(arena, total, sizeof(*tokens));
    uint8_t *mask = lvn_arena_array(arena, total, sizeof(*mask));
    float *logp = lvn_arena_array(arena, total, sizeof(*logp));
    bool has_logp = true;
    size_t base = calls[first].prompt_count, at = 0;
    *out = (lvn_trajectory){.prompt = calls[first].prompt, .prompt_count = base, .tokens = tokens, .mask = mask,
                            .count = total, .call_count = end - first, .policy_version = calls[first].policy_version};
    for (size_t c = first; c < end; c++) {
        const lvn_call *call = &calls[c];
        for (; base + at < call->prompt_count; at++)
            tokens[at] = call->prompt[base + at];
        has_logp = has_logp && call->logp;
        for (size_t i = 0; i < call->answer_count; i++, at++) {
            tokens[at] = call->answer[i];
            mask[at] = 1;
            logp[at] = call->logp ? call->logp[i] : 0.0f;
        }
        out->trained_count += call->answer_count;
        if (call->policy_version < out->policy_version)
            out->policy_version = call->policy_version;
    }
    out->logp = has_logp ? logp : NULL;
    out->was_cut = lvn_str_is(last->finish_reason, "length");
}

void lvn_adapter_merge(lvn_arena *arena, const lvn_call *calls, size_t count, lvn_trajectories *out)
{
    *out = (lvn_trajectories){.items = lvn_arena_array(arena, count, sizeof(lvn_trajectory)), .call_count = count};
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        for (; end < count; end++) {
            size_t agreed = agreement(&calls[end - 1], &calls[end]);
            if (agreed == calls[end - 1].prompt_count + calls[end - 1].answer_count)
                continue;
            if (!out->mismatch_count++)
                out->first_mismatch_at = agreed;
            break;
        }
        join(arena, calls, first, end, &out->items[out->count++]);
        first = end;
    }
}

lvn_code lvn_adapter_trajectories(lvn_arena *arena, const lvn_span *spans, size_t count, lvn_trajectories *out, lvn_err *err)
{
    lvn_call *calls;
    size_t call_count, skipped;
    lvn_code code = lvn_adapter_calls(arena, spans, count, &calls, &call_count, &skipped, err);
    if (code)
        return code;
    lvn_adapter_merge(arena, calls, call_count, out);
    out->skipped_calls = skipped;
    return LVN_OK;
}

lvn_code lvn_adapter_final_reward(lvn_arena *arena, const lvn_span *spans, size_t count, double *out, lvn_err *err)
{
    lvn_code found = LVN_EMPTY;
    for (size_t i = 0; i < count; i++) {
        if (!lvn_str_contains(spans[i].rest, LVN_STR("agentlightning.reward.0.value")))
            continue;
        lvn_json attributes;
        lvn_code code = parse_attributes(arena, &spans[i], &attributes, err);
        if (code)
            return code;
        const lvn_json *value = lvn_json_get(&attributes, "agentlightning.reward.0.value");
        if (!value || (value->kind != LVN_JSON_DOUBLE && value->kind != LVN_JSON_INT))
            continue;
        *out = value->kind == LVN_JSON_INT ? (double)value->integer : value->number;
        found = LVN_OK;
    }
    return found;
}
