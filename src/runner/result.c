#include "runner/result.h"

#include <math.h>

#include "runner/text.h"

enum { SHOWN_BYTES = 160 };

lvn_code lvn_result_read_line(lvn_arena *arena, lvn_str line, lvn_json *out, lvn_err *err)
{
    char shown[SHOWN_BYTES];
    lvn_text_clean(line, shown, sizeof(shown));
    if (!lvn_text_is_utf8(line))
        return lvn_fail(err, LVN_INVALID, "not UTF-8: %s", shown);
    lvn_json value;
    if (lvn_json_parse(arena, line, &value, NULL, NULL))
        return lvn_fail(err, LVN_INVALID, "not JSON: %s", shown);
    if (value.kind != LVN_JSON_OBJECT)
        return lvn_fail(err, LVN_INVALID, "not a JSON object: %s", shown);
    *out = value;
    return LVN_OK;
}

static lvn_code read_reward(const lvn_json *value, lvn_result *out, lvn_err *err)
{
    if (!value || value->kind == LVN_JSON_NULL)
        return LVN_OK;
    if (value->kind == LVN_JSON_BOOL)
        out->reward = value->boolean ? 1.0 : 0.0;
    else if (value->kind == LVN_JSON_INT)
        out->reward = (double)value->integer;
    else if (value->kind == LVN_JSON_DOUBLE && isfinite(value->number))
        out->reward = value->number;
    else
        return lvn_fail(err, LVN_INVALID, "\"reward\" is not a finite number");
    out->has_reward = true;
    return LVN_OK;
}

/* Whether `value` has the form {"output": .., "reward": ..} with nothing else in it. */
static bool is_nested(const lvn_json *value)
{
    return value && value->kind == LVN_JSON_OBJECT && lvn_json_get(value, "output") &&
           value->object.count == 1U + (lvn_json_get(value, "reward") != NULL);
}

static lvn_str write_json(lvn_arena *arena, const lvn_json *value)
{
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_json_write(&text, value);
    lvn_str copy = lvn_arena_dup(arena, lvn_buf_str(&text));
    lvn_buf_done(&text);
    return copy;
}

lvn_code lvn_result_parse(lvn_arena *arena, const lvn_json *object, lvn_result *out, lvn_err *err)
{
    if (is_nested(lvn_json_get(object, "output")))
        object = lvn_json_get(object, "output");
    const lvn_json *output = lvn_json_get(object, "output");
    lvn_result result = {.output = LVN_STR("null"), .output_json = LVN_STR("null")};
    lvn_code code = read_reward(lvn_json_get(object, "reward"), &result, err);
    if (code)
        return code;
    if (!output && !result.has_reward)
        return lvn_fail(err, LVN_INVALID, "an object without \"output\" and \"reward\"");
    if (output) {
        result.output_json = write_json(arena, output);
        result.output = output->kind == LVN_JSON_STRING ? output->string : result.output_json;
    }
    *out = result;
    return LVN_OK;
}
