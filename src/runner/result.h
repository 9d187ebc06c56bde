/* What an agent answered: the last output line of a command, or the answer line of a warm worker. Private to the
 * runner. */
#ifndef LVN_RUNNER_RESULT_H
#define LVN_RUNNER_RESULT_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

typedef struct lvn_result {
    lvn_str output; /* the text when it is one, else JSON; "null" when the agent gave only a reward */
    lvn_str output_json;
    bool has_reward;
    double reward;
} lvn_result;

/* One JSON object; NaN in it counts as no JSON. LVN_INVALID, with words for a user. */
lvn_code lvn_result_read_line(lvn_arena *arena, lvn_str line, lvn_json *out, lvn_err *err) LVN_MUST_USE;

/* Takes "output" and "reward" (number, true or false, or null) from an object that must have one of them. When the
 * output is itself an object of just "output" and "reward", as a function may return it, that one counts.
 * LVN_INVALID. */
lvn_code lvn_result_parse(lvn_arena *arena, const lvn_json *object, lvn_result *out, lvn_err *err) LVN_MUST_USE;

#endif
