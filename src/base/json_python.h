/* Private to base: the slow, exact reader of Python's JSON dialect, behind json.h. */
#ifndef LVN_BASE_JSON_PYTHON_H
#define LVN_BASE_JSON_PYTHON_H

#include "base/json.h"

/* As lvn_json_parse. Lone surrogates are kept in their three-byte form. */
lvn_code lvn_json_python_parse(lvn_arena *arena, lvn_str text, lvn_json *out, size_t *out_offset, lvn_err *err);

/* Reads one number or word (NaN, Infinity, -Infinity); LVN_INVALID when `token` is anything else. */
lvn_code lvn_json_python_scalar(lvn_arena *arena, lvn_str token, lvn_json *out);

/* The last of equal keys wins at the first one's place; returns the new count. */
size_t lvn_json_drop_repeated_keys(lvn_json_member *members, size_t count);

#endif
