/* Options as a table: one row gives an option's name, type, range, default and help text, and parsing a YAML file,
 * `--set KEY=VALUE`, validation, the reference in docs/ and the record in a run's folder all come from it. */
#ifndef LVN_CONFIG_OPTION_H
#define LVN_CONFIG_OPTION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

typedef enum lvn_option_kind {
    LVN_OPTION_BOOL,  /* bool */
    LVN_OPTION_INT,   /* int64_t */
    LVN_OPTION_FLOAT, /* double */
    LVN_OPTION_TEXT,  /* const char *, never NULL */
    LVN_OPTION_PATH,  /* const char *; a relative one in a file is relative to that file's folder; "" for none */
} lvn_option_kind;

typedef struct lvn_option {
    const char *key; /* dotted: "grpo.steps" is key `steps` of the map `grpo` */
    lvn_option_kind kind;
    size_t offset;   /* of the field in the options struct */
    double min, max; /* for numbers, inclusive */
    const char *choices;  /* for text: "a|b|c", or NULL */
    const char *fallback; /* the default, as it would be written */
    const char *help;     /* one sentence with the unit */
} lvn_option;

/* Fills `target` with the defaults. Texts live in `arena`. */
void lvn_options_default(const lvn_option *table, size_t count, lvn_arena *arena, void *target);

/* Reads a YAML file of nested maps with scalar leaves over what `target` holds. LVN_INVALID: not YAML, an unknown key (with line
 * and the nearest known one), a wrong type, out of range; LVN_NOT_FOUND: no such file. `target` may be half changed then. */
lvn_code lvn_options_read(const lvn_option *table, size_t count, lvn_arena *arena, const char *path, void *target,
                          lvn_err *err) LVN_MUST_USE;

/* Sets one option from "key=value". A relative path stays as it is. */
lvn_code lvn_options_set(const lvn_option *table, size_t count, lvn_arena *arena, const char *assignment, void *target,
                         lvn_err *err) LVN_MUST_USE;

/* Writes all options as one flat JSON object, key to value. */
void lvn_options_write_json(const lvn_option *table, size_t count, const void *target, lvn_buf *out);
/* Appends a Markdown table row a option. */
void lvn_options_write_reference(const lvn_option *table, size_t count, lvn_buf *out);

#endif
