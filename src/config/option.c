#include "config/option.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/json.h"

enum { MAX_KEY = 128 };

/* ---- values ---- */

static bool is_choice(const char *choices, const char *value)
{
    size_t len = strlen(value);
    for (const char *c = choices; c;) {
        const char *bar = strchr(c, '|');
        size_t size = bar ? (size_t)(bar - c) : strlen(c);
        if (size == len && memcmp(c, value, len) == 0)
            return true;
        c = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool parse_bool(const char *text, bool *out)
{
    if (!strcmp(text, "true") || !strcmp(text, "yes") || !strcmp(text, "on"))
        *out = true;
    else if (!strcmp(text, "false") || !strcmp(text, "no") || !strcmp(text, "off"))
        *out = false;
    else
        return false;
    return true;
}

static lvn_code set_number(const lvn_option *option, const char *text, void *field, lvn_err *err)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (!*text || *end || errno || !isfinite(value))
        return lvn_fail(err, LVN_INVALID, "%s wants a number, not \"%s\"", option->key, text);
    if (option->kind == LVN_OPTION_INT && value != floor(value))
        return lvn_fail(err, LVN_INVALID, "%s wants a whole number, not \"%s\"", option->key, text);
    if (value < option->min || value > option->max)
        return lvn_fail(err, LVN_INVALID, "%s is %s, but must lie between %g and %g", option->key, text, option->min,
                        option->max);
    if (option->kind == LVN_OPTION_INT)
        *(int64_t *)field = (int64_t)value;
    else
        *(double *)field = value;
    return LVN_OK;
}

static lvn_code set_value(const lvn_option *option, lvn_arena *arena, const char *text, const char *folder, void *target,
                          lvn_err *err)
{
    void *field = (char *)target + option->offset;
    switch (option->kind) {
    case LVN_OPTION_BOOL:
        return parse_bool(text, field) ? LVN_OK
                                       : lvn_fail(err, LVN_INVALID, "%s wants true or false, not \"%s\"", option->key, text);
    case LVN_OPTION_INT:
    case LVN_OPTION_FLOAT:
        return set_number(option, text, field, err);
    case LVN_OPTION_TEXT:
        if (option->choices && !is_choice(option->choices, text))
            return lvn_fail(err, LVN_INVALID, "%s is \"%s\", but must be one of %s", option->key, text, option->choices);
        *(const char **)field = lvn_arena_dup(arena, lvn_str_of(text)).ptr;
        return LVN_OK;
    case LVN_OPTION_PATH:
        *(const char **)field = folder && *text && *text != '/' ? lvn_arena_printf(arena, "%s/%s", folder, text).ptr
                                                                : lvn_arena_dup(arena, lvn_str_of(text)).ptr;
        return LVN_OK;
    }
    return LVN_INTERNAL;
}

void lvn_options_default(const lvn_option *table, size_t count, lvn_arena *arena, void *target)
{
    for (size_t i = 0; i < count; i++) {
        lvn_err err;
        if (set_value(&table[i], arena, table[i].fallback, NULL, target, &err)) {
            fprintf(stderr, "levin: bad default: %s\n", err.message);
            abort();
        }
    }
}

/* ---- names ---- */

static const lvn_option *find(const lvn_option *table, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(table[i].key, key))
            return &table[i];
    return NULL;
}

static bool is_section(const lvn_option *table, size_t count, const char *key)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < count; i++)
        if (!strncmp(table[i].key, key, len) && table[i].key[len] == '.')
            return true;
    return false;
}

/* Levenshtein distance; both texts are shorter than MAX_KEY. */
static size_t distance(const char *a, const char *b)
{
    size_t row[MAX_KEY + 1];
    size_t len = strlen(b);
    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            row[j] = change < least ? change : least;
        }
    }
    return row[len];
}

static lvn_code unknown_key(const lvn_option *table, size_t count, const char *key, lvn_err *err)
{
    const char *nearest = NULL;
    size_t best = 5; /* further away is no help */
    for (size_t i = 0; i < count && strlen(key) < MAX_KEY; i++) {
        size_t d = distance(key, table[i].key);
        if (d < best) {
            best = d;
            nearest = table[i].key;
        }
    }
    if (nearest)
        return lvn_fail(err, LVN_INVALID, "unknown key \"%s\"; did you mean \"%s\"?", key, nearest);
    return lvn_fail(err, LVN_INVALID, "unknown key \"%s\"", key);
}

lvn_code lvn_options_set(const lvn_option *table, size_t count, lvn_arena *arena, const char *assignment, void *target,
                         lvn_err *err)
{
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return lvn_fail(err, LVN_INVALID, "\"%s\" is not of the form KEY=VALUE", assignment);
    lvn_str key = lvn_arena_dup(arena, (lvn_str){assignment, (size_t)(equals - assignment)});
    const lvn_option *option = find(table, count, key.ptr);
    if (!option)
        return unknown_key(table, count, key.ptr, err);
    return set_value(option, arena, equals + 1, NULL, target, err);
}

/* ---- YAML ---- */

typedef struct yaml_reader {
    const lvn_option *table;
    size_t count;
    lvn_arena *arena;
    const char *folder;
    void *target;
    yaml_parser_t parser;
    bool *is_given;
} yaml_reader;

static lvn_code next_event(yaml_reader *r, yaml_event_t *event, lvn_err *err)
{
    if (yaml_parser_parse(&r->parser, event))
        return LVN_OK;
    return lvn_fail(err, LVN_INVALID, "line %zu: not YAML: %s", r->parser.problem_mark.line + 1,
                    r->parser.problem ? r->parser.problem : "unreadable");
}

static lvn_code at_line(size_t line, lvn_err *err)
{
    return lvn_fail_context(err, "line %zu", line);
}

static lvn_code read_map(yaml_reader *r, const char *prefix, lvn_err *err);

static lvn_code read_leaf(yaml_reader *r, const char *key, const yaml_event_t *value, lvn_err *err)
{
    const lvn_option *option = find(r->table, r->count, key);
    size_t line = value->start_mark.line + 1;
    if (!option) {
        if (is_section(r->table, r->count, key))
            lvn_fail(err, LVN_INVALID, "\"%s\" wants a map of options", key);
        else
            unknown_key(r->table, r->count, key, err);
        return at_line(line, err);
    }
    if (r->is_given[option - r->table]) {
        lvn_fail(err, LVN_INVALID, "\"%s\" is given twice", key);
        return at_line(line, err);
    }
    r->is_given[option - r->table] = true;
    if (set_value(option, r->arena, (const char *)value->data.scalar.value, r->folder, r->target, err))
        return at_line(line, err);
    return LVN_OK;
}

static lvn_code read_entry(yaml_reader *r, const char *prefix, const yaml_event_t *name, lvn_err *err)
{
    char key[MAX_KEY];
    size_t line = name->start_mark.line + 1;
    int len = snprintf(key, sizeof(key), "%s%s%s", prefix, *prefix ? "." : "", (const char *)name->data.scalar.value);
    if (len < 0 || (size_t)len >= sizeof(key)) {
        lvn_fail(err, LVN_INVALID, "a key is too long");
        return at_line(line, err);
    }
    yaml_event_t value;
    lvn_code code = next_event(r, &value, err);
    if (code)
        return code;
    if (value.type == YAML_SCALAR_EVENT) {
        code = read_leaf(r, key, &value, err);
    } else if (value.type == YAML_MAPPING_START_EVENT && is_section(r->table, r->count, key)) {
        code = read_map(r, key, err);
    } else {
        if (find(r->table, r->count, key))
            code = lvn_fail(err, LVN_INVALID, "\"%s\" wants a single value", key);
        else
            code = unknown_key(r->table, r->count, key, err);
        at_line(line, err);
    }
    yaml_event_delete(&value);
    return code;
}

/* Behind the opening of a map; ends with its closing. */
static lvn_code read_map(yaml_reader *r, const char *prefix, lvn_err *err)
{
    for (;;) {
        yaml_event_t event;
        lvn_code code = next_event(r, &event, err);
        if (code)
            return code;
        bool is_end = event.type == YAML_MAPPING_END_EVENT;
        if (event.type == YAML_SCALAR_EVENT) {
            code = read_entry(r, prefix, &event, err);
        } else if (!is_end) {
            lvn_fail(err, LVN_INVALID, "a key must be a single word");
            code = at_line(event.start_mark.line + 1, err);
        }
        yaml_event_delete(&event);
        if (code || is_end)
            return code;
    }
}

static lvn_code read_document(yaml_reader *r, lvn_err *err)
{
    for (;;) {
        yaml_event_t event;
        lvn_code code = next_event(r, &event, err);
        if (code)
            return code;
        yaml_event_type_t type = event.type;
        size_t line = event.start_mark.line + 1;
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT)
            return LVN_OK;
        if (type == YAML_MAPPING_START_EVENT)
            code = read_map(r, "", err);
        else if (type == YAML_SCALAR_EVENT || type == YAML_SEQUENCE_START_EVENT || type == YAML_ALIAS_EVENT)
            code = lvn_fail(err, LVN_INVALID, "line %zu: the file must be a map of options", line);
        if (code)
            return code;
    }
}

lvn_code lvn_options_read(const lvn_option *table, size_t count, lvn_arena *arena, const char *path, void *target,
                          lvn_err *err)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return lvn_fail(err, LVN_NOT_FOUND, "%s: %s", path, strerror(errno));
    if (fgetc(file) == EOF && ferror(file)) { /* a folder opens, but can't be read */
        int cause = errno;
        fclose(file);
        return lvn_fail(err, LVN_IO, "%s: %s", path, strerror(cause));
    }
    rewind(file);
    char *copy = (char *)lvn_arena_dup(arena, lvn_str_of(path)).ptr;
    yaml_reader r = {.table = table, .count = count, .arena = arena, .folder = dirname(copy), .target = target,
                     .is_given = lvn_arena_array(arena, count, sizeof(bool))};
    if (!yaml_parser_initialize(&r.parser)) {
        fclose(file);
        return lvn_fail(err, LVN_NO_MEMORY, "%s: no memory to read it", path);
    }
    yaml_parser_set_input_file(&r.parser, file);
    lvn_code code = read_document(&r, err);
    if (code)
        lvn_fail_context(err, "%s", path);
    yaml_parser_delete(&r.parser);
    fclose(file);
    return code;
}

/* ---- writing ---- */

void lvn_options_write_json(const lvn_option *table, size_t count, const void *target, lvn_buf *out)
{
    lvn_buf_append_char(out, '{');
    for (size_t i = 0; i < count; i++) {
        const void *field = (const char *)target + table[i].offset;
        lvn_json_write_key(out, table[i].key);
        switch (table[i].kind) {
        case LVN_OPTION_BOOL:
            lvn_buf_append_str(out, *(const bool *)field ? LVN_STR("true") : LVN_STR("false"));
            break;
        case LVN_OPTION_INT:
            lvn_json_write_int(out, *(const int64_t *)field);
            break;
        case LVN_OPTION_FLOAT:
            lvn_json_write_double(out, *(const double *)field);
            break;
        case LVN_OPTION_TEXT:
        case LVN_OPTION_PATH:
            lvn_json_write_str(out, lvn_str_of(*(const char *const *)field));
            break;
        }
    }
    lvn_buf_append_char(out, '}');
}

void lvn_options_write_reference(const lvn_option *table, size_t count, lvn_buf *out)
{
    lvn_buf_lit(out, "| option | default | allowed | what |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < count; i++) {
        const lvn_option *o = &table[i];
        lvn_buf_printf(out, "| `%s` | %s%s%s | ", o->key, *o->fallback ? "`" : "", o->fallback, *o->fallback ? "`" : "");
        if (o->kind == LVN_OPTION_BOOL)
            lvn_buf_lit(out, "true, false");
        else if (o->kind == LVN_OPTION_INT || o->kind == LVN_OPTION_FLOAT)
            lvn_buf_printf(out, "%g to %g", o->min, o->max);
        else if (o->choices)
            for (const char *c = o->choices; *c; c++)
                lvn_buf_append_str(out, *c == '|' ? LVN_STR(", ") : (lvn_str){c, 1});
        else
            lvn_buf_append_str(out, o->kind == LVN_OPTION_PATH ? LVN_STR("path") : LVN_STR("text"));
        lvn_buf_printf(out, " | %s |\n", o->help);
    }
}
