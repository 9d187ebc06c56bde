#include "api/validate.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

/* How the reference server names the list variants of an attribute value in places. */
#define SEQUENCE_OF(kind)                                                                          \
    "json-or-python[json=list[" kind                                                               \
    "],python=chain[is-instance[Sequence],function-wrap[sequence_validator()]]]"

static void write_place(lvn_buf *buf, const lvn_schema_place *place)
{
    if (place->parent)
        write_place(buf, place->parent);
    if (place->parent)
        lvn_buf_append_char(buf, ',');
    if (place->name)
        lvn_json_write_str(buf, lvn_str_of(place->name));
    else if (!lvn_str_is_absent(place->key))
        lvn_json_write_str(buf, place->key);
    else
        lvn_json_write_int(buf, (int64_t)place->index);
}

void lvn_schema_complain(lvn_schema_report *report, const char *type, const lvn_schema_place *place,
                         const char *message, const lvn_json *input, const char *context)
{
    lvn_buf *buf = report->errors;
    if (report->error_count++ && buf)
        lvn_buf_append_char(buf, ',');
    if (!buf)
        return;
    lvn_buf_printf(buf, "{\"type\":\"%s\",\"loc\":[", type);
    write_place(buf, place);
    lvn_buf_lit(buf, "],\"msg\":");
    lvn_json_write_str(buf, lvn_str_of(message));
    lvn_buf_lit(buf, ",\"input\":");
    lvn_json_write(buf, input ? input : &(lvn_json){.kind = LVN_JSON_NULL});
    if (context)
        lvn_buf_printf(buf, ",\"ctx\":%s", context);
    lvn_buf_append_char(buf, '}');
}

static bool refuse(lvn_schema_report *report, const char *type, const lvn_schema_place *place,
                   const char *message, const lvn_json *input)
{
    lvn_schema_complain(report, type, place, message, input, NULL);
    return false;
}

/* ---- scalars ---- */

static lvn_str trim(lvn_str s)
{
    while (s.len && isspace((unsigned char)s.ptr[0]))
        s = lvn_str_from(s, 1);
    while (s.len && isspace((unsigned char)s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* `text` without blanks around and single underscores inside, terminated; NULL when an underscore
 * stands elsewhere. */
static char *plain_number(lvn_arena *arena, lvn_str text)
{
    text = trim(text);
    char *out = lvn_arena_alloc(arena, text.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool is_inner = i && i + 1 < text.len && text.ptr[i - 1] != '_';
        if (c == '_' && !is_inner)
            return NULL;
        if (c != '_')
            out[n++] = c;
    }
    out[n] = '\0';
    return out;
}

/* Digits with an optional sign and an optional ".000" behind. */
static bool int_of_text(lvn_arena *arena, lvn_str text, lvn_json *out)
{
    const char *point = text.len ? memchr(text.ptr, '.', text.len) : NULL;
    if (point && memchr(point, '_', (size_t)(text.ptr + text.len - point)))
        return false;
    char *s = plain_number(arena, text);
    if (!s)
        return false;
    char *digits = s + (*s == '+' || *s == '-'), *end = digits;
    while (isdigit((unsigned char)*end))
        end++;
    char *rest = end;
    if (*rest == '.' && rest[1] == '0')
        for (rest++; *rest == '0';)
            rest++;
    if (end == digits || *rest)
        return false;
    while (digits + 1 < end && *digits == '0')
        digits++;
    lvn_str number = {digits, (size_t)(end - digits)};
    if (*s == '-' && *digits != '0')
        number = lvn_arena_printf(arena, "-%.*s", LVN_STR_ARG(number));
    lvn_err ignored;
    return lvn_json_parse(arena, number, out, NULL, &ignored) == LVN_OK;
}

static bool read_int(lvn_schema_report *report, const lvn_json *in, const lvn_schema_place *place,
                     lvn_json *out)
{
    switch (in->kind) {
    case LVN_JSON_INT:
    case LVN_JSON_BIGINT:
        *out = *in;
        return true;
    case LVN_JSON_BOOL:
        *out = (lvn_json){.kind = LVN_JSON_INT, .integer = in->boolean};
        return true;
    case LVN_JSON_DOUBLE:
        if (!isfinite(in->number))
            return refuse(report, "finite_number", place, "Input should be a finite number", in);
        if (in->number != floor(in->number))
            return refuse(report, "int_from_float", place,
                          "Input should be a valid integer, got a number with a fractional part",
                          in);
        if (fabs(in->number) >= 9223372036854775808.0)
            return refuse(report, "int_parsing_size", place,
                          "Unable to parse input string as an integer, exceeded maximum size", in);
        *out = (lvn_json){.kind = LVN_JSON_INT, .integer = (int64_t)in->number};
        return true;
    case LVN_JSON_STRING:
        return int_of_text(report->arena, in->string, out) ||
               refuse(report, "int_parsing", place,
                      "Input should be a valid integer, unable to parse string as an integer", in);
    default:
        return refuse(report, "int_type", place, "Input should be a valid integer", in);
    }
}

static bool float_of_text(lvn_arena *arena, lvn_str text, lvn_json *out)
{
    char *s = plain_number(arena, text);
    if (!s || !*s || strpbrk(s, "xX(")) /* no hexadecimal numbers, no nan(payload) */
        return false;
    char *end;
    double value = strtod(s, &end);
    *out = (lvn_json){.kind = LVN_JSON_DOUBLE, .number = value};
    return !*end && end != s && strlen(s) == (size_t)(end - s) && !isspace((unsigned char)*s);
}

static bool read_float(lvn_schema_report *report, const lvn_json *in, const lvn_schema_place *place,
                       lvn_json *out)
{
    switch (in->kind) {
    case LVN_JSON_DOUBLE:
        *out = *in;
        return true;
    case LVN_JSON_INT:
        *out = (lvn_json){.kind = LVN_JSON_DOUBLE, .number = (double)in->integer};
        return true;
    case LVN_JSON_BOOL:
        *out = (lvn_json){.kind = LVN_JSON_DOUBLE, .number = in->boolean};
        return true;
    case LVN_JSON_BIGINT: {
        double value = strtod(in->string.ptr, NULL);
        if (!isfinite(value))
            return refuse(report, "float_type", place, "Input should be a valid number", in);
        *out = (lvn_json){.kind = LVN_JSON_DOUBLE, .number = value};
        return true;
    }
    case LVN_JSON_STRING:
        return float_of_text(report->arena, in->string, out) ||
               refuse(report, "float_parsing", place,
                      "Input should be a valid number, unable to parse string as a number", in);
    default:
        return refuse(report, "float_type", place, "Input should be a valid number", in);
    }
}

/* 1, 0, or -1: no word for a truth value. */
static int bool_of_text(lvn_str text)
{
    static const char *const yes[] = {"1", "on", "t", "true", "y", "yes", NULL};
    static const char *const no[] = {"0", "off", "f", "false", "n", "no", NULL};
    for (size_t i = 0; yes[i]; i++)
        if (strlen(yes[i]) == text.len && strncasecmp(text.ptr, yes[i], text.len) == 0)
            return 1;
    for (size_t i = 0; no[i]; i++)
        if (strlen(no[i]) == text.len && strncasecmp(text.ptr, no[i], text.len) == 0)
            return 0;
    return -1;
}

static bool read_bool(lvn_schema_report *report, const lvn_json *in, const lvn_schema_place *place,
                      lvn_json *out)
{
    int value = -1;
    bool is_whole_double = in->kind == LVN_JSON_DOUBLE && in->number == floor(in->number) &&
                           fabs(in->number) < 9223372036854775808.0;
    if (in->kind == LVN_JSON_BOOL)
        value = in->boolean;
    else if (in->kind == LVN_JSON_INT && (in->integer == 0 || in->integer == 1))
        value = (int)in->integer;
    else if (is_whole_double && (in->number == 0 || in->number == 1))
        value = (int)in->number;
    else if (in->kind == LVN_JSON_STRING)
        value = bool_of_text(in->string);
    if (value >= 0) {
        *out = (lvn_json){.kind = LVN_JSON_BOOL, .boolean = value == 1};
        return true;
    }
    if (in->kind == LVN_JSON_STRING || in->kind == LVN_JSON_INT || is_whole_double)
        return refuse(report, "bool_parsing", place,
                      "Input should be a valid boolean, unable to interpret input", in);
    return refuse(report, "bool_type", place, "Input should be a valid boolean", in);
}

static bool read_str(lvn_schema_report *report, const lvn_json *in, const lvn_schema_place *place,
                     lvn_json *out)
{
    *out = *in;
    return in->kind == LVN_JSON_STRING ||
           refuse(report, "string_type", place, "Input should be a valid string", in);
}

/* "'a', 'b' or 'c'" */
static lvn_str list_names(lvn_arena *arena, const char *const *names)
{
    lvn_str text = LVN_STR("");
    for (size_t i = 0; names[i]; i++) {
        const char *between = !i ? "" : names[i + 1] ? ", " : " or ";
        text = lvn_arena_printf(arena, "%.*s%s'%s'", LVN_STR_ARG(text), between, names[i]);
    }
    return text;
}

static bool read_literal(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                         const lvn_schema_place *place, lvn_json *out)
{
    *out = *in;
    for (size_t i = 0; in->kind == LVN_JSON_STRING && schema->names[i]; i++)
        if (lvn_str_is(in->string, schema->names[i]))
            return true;
    lvn_str expected = list_names(report->arena, schema->names);
    lvn_str message =
        lvn_arena_printf(report->arena, "Input should be %.*s", LVN_STR_ARG(expected));
    lvn_str context =
        lvn_arena_printf(report->arena, "{\"expected\":\"%.*s\"}", LVN_STR_ARG(expected));
    lvn_schema_complain(report, "literal_error", place, message.ptr, in, context.ptr);
    return false;
}

/* ---- span attributes ---- */

typedef bool (*scalar_reader)(lvn_schema_report *, const lvn_json *, const lvn_schema_place *,
                              lvn_json *);

static const struct {
    const char *scalar, *list;
    scalar_reader read;
} attribute_kinds[] = {
    {"str", SEQUENCE_OF("str"), read_str},
    {"bool", SEQUENCE_OF("bool"), read_bool},
    {"int", SEQUENCE_OF("int"), read_int},
    {"float", SEQUENCE_OF("float"), read_float},
};
enum { ATTRIBUTE_KINDS = 4, AS_FLOAT = 3 };

static bool read_items(lvn_schema_report *report, const lvn_json *in, const lvn_schema_place *place,
                       size_t kind, lvn_json *out)
{
    lvn_json *items = lvn_arena_array(report->arena, in->array.count, sizeof(*items));
    size_t before = report->error_count;
    for (size_t i = 0; i < in->array.count; i++)
        attribute_kinds[kind].read(report, &in->array.items[i],
                                   &(lvn_schema_place){.parent = place, .index = i}, &items[i]);
    *out = (lvn_json){.kind = LVN_JSON_ARRAY, .array = {items, in->array.count}};
    return report->error_count == before;
}

/* One kind throughout stays; whole and broken numbers together become floats; other mixes become
 * the first of bool, int and float that takes them all. */
static bool read_attribute_list(lvn_schema_report *report, const lvn_json *in, lvn_json *out)
{
    bool has[LVN_JSON_OBJECT + 1] = {false};
    for (size_t i = 0; i < in->array.count; i++)
        has[in->array.items[i].kind] = true;
    has[LVN_JSON_INT] |= has[LVN_JSON_BIGINT];
    int kinds =
        has[LVN_JSON_STRING] + has[LVN_JSON_BOOL] + has[LVN_JSON_INT] + has[LVN_JSON_DOUBLE];
    if (has[LVN_JSON_NULL] || has[LVN_JSON_ARRAY] || has[LVN_JSON_OBJECT])
        return false;
    if (kinds <= 1) {
        *out = *in;
        return true;
    }
    lvn_schema_report quiet = {.arena = report->arena};
    lvn_schema_place nowhere = {0};
    bool is_numeric = !has[LVN_JSON_STRING] && !has[LVN_JSON_BOOL];
    for (size_t kind = is_numeric ? AS_FLOAT : 1; kind < ATTRIBUTE_KINDS; kind++)
        if (read_items(&quiet, in, &nowhere, kind, out))
            return true;
    return false;
}

static bool read_attribute(lvn_schema_report *report, const lvn_json *in,
                           const lvn_schema_place *place, lvn_json *out)
{
    bool is_list = in->kind == LVN_JSON_ARRAY,
         is_scalar = !is_list && in->kind != LVN_JSON_NULL && in->kind != LVN_JSON_OBJECT;
    *out = *in;
    if (is_scalar || (is_list && read_attribute_list(report, in, out)))
        return true;
    for (size_t k = 0; k < ATTRIBUTE_KINDS; k++) {
        lvn_schema_place at = {.parent = place, .name = attribute_kinds[k].scalar};
        attribute_kinds[k].read(report, in, &at, out);
    }
    for (size_t k = 0; k < ATTRIBUTE_KINDS; k++) {
        lvn_schema_place at = {.parent = place, .name = attribute_kinds[k].list};
        if (is_list)
            read_items(report, in, &at, k, out);
        else
            lvn_schema_complain(report, "is_instance_of", &at,
                                "Input should be an instance of Sequence", in,
                                "{\"class\":\"Sequence\"}");
    }
    return false;
}

/* ---- containers ---- */

static bool read_list(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                      const lvn_schema_place *place, lvn_json *out)
{
    if (in->kind != LVN_JSON_ARRAY)
        return refuse(report, "list_type", place, "Input should be a valid list", in);
    size_t before = report->error_count;
    lvn_json *items = lvn_arena_array(report->arena, in->array.count, sizeof(*items));
    for (size_t i = 0; i < in->array.count; i++) {
        lvn_schema_place at = {.parent = place, .index = i};
        lvn_schema_read(report, schema->item, &in->array.items[i], &at, &items[i]);
    }
    *out = (lvn_json){.kind = LVN_JSON_ARRAY, .array = {items, in->array.count}};
    return report->error_count == before;
}

static bool read_map(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                     const lvn_schema_place *place, lvn_json *out)
{
    if (in->kind != LVN_JSON_OBJECT)
        return refuse(report, "dict_type", place, "Input should be a valid dictionary", in);
    *out = *in;
    if (schema->kind == LVN_SCHEMA_DICT)
        return true;
    size_t before = report->error_count;
    lvn_json_member *members = lvn_arena_array(report->arena, in->object.count, sizeof(*members));
    for (size_t i = 0; i < in->object.count; i++) {
        const lvn_json_member *member = &in->object.members[i];
        lvn_schema_place at = {.parent = place, .key = member->key};
        members[i].key = member->key;
        lvn_schema_read(report, schema->item, &member->value, &at, &members[i].value);
    }
    out->object.members = members;
    return report->error_count == before;
}

static bool is_known(const lvn_schema *schema, lvn_str key)
{
    for (const lvn_schema_field *field = schema->fields; field->name; field++)
        if (lvn_str_is(key, field->name))
            return true;
    return false;
}

static bool use_fallback(lvn_arena *arena, const lvn_schema_field *field, lvn_json *out)
{
    return field->fallback &&
           lvn_json_parse(arena, lvn_str_of(field->fallback), out, NULL, NULL) == LVN_OK;
}

/* The value of a field that is present and right, or its fallback; false when there is none. */
static bool read_field(lvn_schema_report *report, const lvn_schema_field *field, const lvn_json *in,
                       const lvn_schema_place *place, lvn_json *out)
{
    const lvn_json *value = lvn_json_get(in, field->name);
    lvn_schema_place at = {.parent = place, .name = field->name};
    if (value)
        return lvn_schema_read(report, &field->schema, value, &at, out);
    if (field->is_required)
        return refuse(report, "missing", &at, "Field required", in);
    return use_fallback(report->arena, field, out);
}

static bool read_model(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                       const lvn_schema_place *place, lvn_json *out)
{
    if (in->kind != LVN_JSON_OBJECT)
        return refuse(report, "model_attributes_type", place,
                      "Input should be a valid dictionary or object to extract fields from", in);
    size_t before = report->error_count, count = 0, most = in->object.count;
    for (const lvn_schema_field *field = schema->fields; field->name; field++)
        most++;
    lvn_json_member *members = lvn_arena_array(report->arena, most, sizeof(*members));
    for (const lvn_schema_field *field = schema->fields; field->name; field++)
        if (read_field(report, field, in, place, &members[count].value))
            members[count++].key = lvn_str_of(field->name);
    for (size_t i = 0; schema->keeps_unknown && i < in->object.count; i++)
        if (!is_known(schema, in->object.members[i].key))
            members[count++] = in->object.members[i];
    *out = (lvn_json){.kind = LVN_JSON_OBJECT, .object = {members, count}};
    return report->error_count == before;
}

static void complain_tag(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                         const lvn_schema_place *place, const lvn_json *tag)
{
    lvn_str expected = LVN_STR("");
    for (const lvn_schema_variant *v = schema->variants; v->tag; v++)
        expected = lvn_arena_printf(report->arena, "%.*s%s'%s'", LVN_STR_ARG(expected),
                                    expected.len ? ", " : "", v->tag);
    lvn_buf got, context;
    lvn_buf_init(&got, LVN_BUF_NO_LIMIT);
    lvn_buf_init(&context, LVN_BUF_NO_LIMIT);
    if (tag->kind == LVN_JSON_STRING)
        lvn_buf_append_str(&got, tag->string);
    else
        lvn_json_write(&got, tag);
    lvn_str message = lvn_arena_printf(
        report->arena,
        "Input tag '%.*s' found using '%s' does not match any of the expected tags: %.*s",
        LVN_STR_ARG(lvn_buf_str(&got)), schema->tag, LVN_STR_ARG(expected));
    lvn_buf_printf(&context, "{\"discriminator\":\"'%s'\",\"tag\":", schema->tag);
    lvn_json_write_str(&context, lvn_buf_str(&got));
    lvn_buf_printf(&context, ",\"expected_tags\":\"%.*s\"}", LVN_STR_ARG(expected));
    lvn_schema_complain(report, "union_tag_invalid", place, message.ptr, in, context.ptr);
    lvn_buf_done(&got);
    lvn_buf_done(&context);
}

static bool read_tagged(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                        const lvn_schema_place *place, lvn_json *out)
{
    if (in->kind != LVN_JSON_OBJECT)
        return refuse(report, "model_attributes_type", place,
                      "Input should be a valid dictionary or object to extract fields from", in);
    const lvn_json *tag = lvn_json_get(in, schema->tag);
    if (!tag) {
        lvn_str message = lvn_arena_printf(
            report->arena, "Unable to extract tag using discriminator '%s'", schema->tag);
        lvn_str context =
            lvn_arena_printf(report->arena, "{\"discriminator\":\"'%s'\"}", schema->tag);
        lvn_schema_complain(report, "union_tag_not_found", place, message.ptr, in, context.ptr);
        return false;
    }
    for (const lvn_schema_variant *v = schema->variants; v->tag; v++)
        if (tag->kind == LVN_JSON_STRING && lvn_str_is(tag->string, v->tag)) {
            lvn_schema_place at = {.parent = place, .name = v->tag};
            return read_model(report, v->schema, in, &at, out);
        }
    complain_tag(report, schema, in, place, tag);
    return false;
}

bool lvn_schema_read(lvn_schema_report *report, const lvn_schema *schema, const lvn_json *in,
                     const lvn_schema_place *place, lvn_json *out)
{
    if (schema->is_nullable && in->kind == LVN_JSON_NULL) {
        *out = *in;
        return true;
    }
    switch (schema->kind) {
    case LVN_SCHEMA_ANY:
        *out = *in;
        return true;
    case LVN_SCHEMA_STR:
        return read_str(report, in, place, out);
    case LVN_SCHEMA_INT:
        if (!read_int(report, in, place, out))
            return false;
        if (schema->has_min && (out->kind == LVN_JSON_BIGINT ? out->string.ptr[0] == '-'
                                                             : out->integer < schema->min)) {
            lvn_str message =
                lvn_arena_printf(report->arena, "Input should be greater than or equal to %lld",
                                 (long long)schema->min);
            lvn_str context =
                lvn_arena_printf(report->arena, "{\"ge\":%lld}", (long long)schema->min);
            lvn_schema_complain(report, "greater_than_equal", place, message.ptr, in, context.ptr);
            return false;
        }
        return true;
    case LVN_SCHEMA_FLOAT:
        return read_float(report, in, place, out);
    case LVN_SCHEMA_BOOL:
        return read_bool(report, in, place, out);
    case LVN_SCHEMA_LITERAL:
        return read_literal(report, schema, in, place, out);
    case LVN_SCHEMA_LIST:
        return read_list(report, schema, in, place, out);
    case LVN_SCHEMA_DICT:
    case LVN_SCHEMA_MAP:
        return read_map(report, schema, in, place, out);
    case LVN_SCHEMA_MODEL:
        return read_model(report, schema, in, place, out);
    case LVN_SCHEMA_TAGGED:
        return read_tagged(report, schema, in, place, out);
    case LVN_SCHEMA_ATTRIBUTE:
        return read_attribute(report, in, place, out);
    }
    return false;
}
