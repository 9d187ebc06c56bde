/* Reading request data by tables that describe it: every error is collected, with the type, place
 * and words that the protocol's reference server gives (spec/store-api.md section 2), and what is
 * merely written differently is converted.
 *
 * The result is a new tree: known fields in the table's order, converted; unknown ones dropped, or
 * kept behind them. */
#ifndef LVN_API_VALIDATE_H
#define LVN_API_VALIDATE_H

#include "base/json.h"

typedef enum lvn_schema_kind {
    LVN_SCHEMA_ANY,
    LVN_SCHEMA_STR,
    LVN_SCHEMA_INT,
    LVN_SCHEMA_FLOAT,
    LVN_SCHEMA_BOOL,
    LVN_SCHEMA_LITERAL,   /* one of `names` */
    LVN_SCHEMA_LIST,      /* of `item` */
    LVN_SCHEMA_DICT,      /* name -> anything */
    LVN_SCHEMA_MAP,       /* name -> `item` */
    LVN_SCHEMA_MODEL,     /* `fields` */
    LVN_SCHEMA_TAGGED,    /* one of the models in `variants`, told apart by the text field `tag` */
    LVN_SCHEMA_ATTRIBUTE, /* a span attribute's value */
} lvn_schema_kind;

typedef struct lvn_schema lvn_schema;
typedef struct lvn_schema_field lvn_schema_field;

typedef struct lvn_schema_variant {
    const char *tag;
    const lvn_schema *schema;
} lvn_schema_variant;

struct lvn_schema {
    lvn_schema_kind kind;
    bool is_nullable;
    bool keeps_unknown; /* models */
    bool has_min;
    int64_t min;              /* of an int */
    const char *const *names; /* ends with NULL */
    const lvn_schema *item;
    const lvn_schema_field *fields; /* ends with name NULL */
    const char *tag;
    const lvn_schema_variant *variants; /* ends with tag NULL */
};

struct lvn_schema_field {
    const char *name;
    lvn_schema schema;
    bool is_required;
    const char *fallback; /* JSON for the result when absent; NULL: stays absent */
};

/* Where the present value lies, innermost first: a field name, or an index when `name` is NULL. */
typedef struct lvn_schema_place lvn_schema_place;
struct lvn_schema_place {
    const lvn_schema_place *parent;
    const char *name;
    lvn_str key; /* of a map, when `name` is NULL and this is not absent */
    size_t index;
};

typedef struct lvn_schema_report {
    lvn_arena *arena;
    lvn_buf *errors; /* NULL: only counted */
    size_t error_count;
} lvn_schema_report;

/* Validates `in` into `out` (in the report's arena; it may borrow from `in`). True when nothing is
 * wrong with it. Errors are appended to report->errors as JSON objects with commas between. */
bool lvn_schema_read(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                     const lvn_schema_place *place, lvn_json *out);

/* Appends one error. `input` NULL: null. `context` is JSON or NULL. */
void lvn_schema_complain(lvn_schema_report *report, const char *type, const lvn_schema_place *place,
                         const char *message, const lvn_json *input, const char *context);

#endif
