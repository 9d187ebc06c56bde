/* JSON as the protocol means it, which is Python's: key order is kept, the last of equal keys wins at the first one's
 * place, integers of any length are exact, floats are written as Python's repr writes them (shortest digits, always with a
 * fraction or an exponent), NaN and infinities are read and written back as null.
 *
 * Parsing builds a tree in an arena; the tree borrows nothing from the input. Any thread. */
#ifndef LVN_BASE_JSON_H
#define LVN_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

typedef enum lvn_json_kind {
    LVN_JSON_NULL,
    LVN_JSON_BOOL,
    LVN_JSON_INT,    /* fits int64_t */
    LVN_JSON_BIGINT, /* does not: `string` holds the digits */
    LVN_JSON_DOUBLE,
    LVN_JSON_STRING,
    LVN_JSON_ARRAY,
    LVN_JSON_OBJECT,
} lvn_json_kind;

typedef struct lvn_json lvn_json;
typedef struct lvn_json_member lvn_json_member;

struct lvn_json {
    lvn_json_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        lvn_str string; /* UTF-8, terminated; may contain zero bytes */
        struct {
            lvn_json *items;
            size_t count;
        } array;
        struct {
            lvn_json_member *members;
            size_t count;
        } object;
    };
};

struct lvn_json_member {
    lvn_str key;
    lvn_json value;
};

enum { LVN_JSON_MAX_DEPTH = 128 };

/* LVN_INVALID: not JSON (`out_offset`, may be NULL, gets the character offset at which Python's parser would complain);
 * LVN_TOO_LARGE: nested deeper than LVN_JSON_MAX_DEPTH. */
lvn_code lvn_json_parse(lvn_arena *arena, lvn_str text, lvn_json *out, size_t *out_offset, lvn_err *err) LVN_MUST_USE;

/* NULL when `object` is no object or has no such key. */
const lvn_json *lvn_json_get(const lvn_json *object, const char *key);
/* Shortcuts for optional members: the fallback when absent or of another kind. */
lvn_str lvn_json_get_str(const lvn_json *object, const char *key, lvn_str fallback);
int64_t lvn_json_get_int(const lvn_json *object, const char *key, int64_t fallback);
double lvn_json_get_number(const lvn_json *object, const char *key, double fallback); /* ints too */
bool lvn_json_get_bool(const lvn_json *object, const char *key, bool fallback);

/* Compact form, appended. */
void lvn_json_write(lvn_buf *buf, const lvn_json *value);
void lvn_json_write_str(lvn_buf *buf, lvn_str s); /* quoted and escaped; absent writes null */
void lvn_json_write_double(lvn_buf *buf, double value);
void lvn_json_write_int(lvn_buf *buf, int64_t value);
/* `key` quoted with a colon behind, and a comma in front unless the last byte is '{' or '['. */
void lvn_json_write_key(lvn_buf *buf, const char *key);

#endif
