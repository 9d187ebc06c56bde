#include "base/json.h"

#include <stdio.h>

const lvn_json *lvn_json_get(const lvn_json *object, const char *key)
{
    if (!object || object->kind != LVN_JSON_OBJECT)
        return NULL;
    lvn_str name = lvn_str_of(key);
    for (size_t i = 0; i < object->object.count; i++)
        if (lvn_str_eq(object->object.members[i].key, name))
            return &object->object.members[i].value;
    return NULL;
}

lvn_str lvn_json_get_str(const lvn_json *object, const char *key, lvn_str fallback)
{
    const lvn_json *v = lvn_json_get(object, key);
    return v && v->kind == LVN_JSON_STRING ? v->string : fallback;
}

int64_t lvn_json_get_int(const lvn_json *object, const char *key, int64_t fallback)
{
    const lvn_json *v = lvn_json_get(object, key);
    return v && v->kind == LVN_JSON_INT ? v->integer : fallback;
}

double lvn_json_get_number(const lvn_json *object, const char *key, double fallback)
{
    const lvn_json *v = lvn_json_get(object, key);
    if (v && v->kind == LVN_JSON_INT)
        return (double)v->integer;
    return v && v->kind == LVN_JSON_DOUBLE ? v->number : fallback;
}

bool lvn_json_get_bool(const lvn_json *object, const char *key, bool fallback)
{
    const lvn_json *v = lvn_json_get(object, key);
    return v && v->kind == LVN_JSON_BOOL ? v->boolean : fallback;
}

void lvn_json_write_int(lvn_buf *buf, int64_t value)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%lld", (long long)value);
    lvn_buf_append(buf, digits, (size_t)len);
}

/* Index of the first byte from `i` on that may need an escape: eight at a time, so one that does not may be among them. */
static size_t skip_plain(lvn_str s, size_t i)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    for (; i + 8 <= s.len; i += 8) {
        uint64_t w;
        memcpy(&w, s.ptr + i, 8);
        uint64_t control = w - ones * 0x20, quote = (w ^ ones * '"') - ones, backslash = (w ^ ones * '\\') - ones;
        if ((control | quote | backslash) & ~w & tops)
            break;
    }
    return i;
}

void lvn_json_write_str(lvn_buf *buf, lvn_str s)
{
    static const char hex[] = "0123456789abcdef";
    if (lvn_str_is_absent(s)) {
        lvn_buf_lit(buf, "null");
        return;
    }
    lvn_buf_append_char(buf, '"');
    size_t from = 0;
    for (size_t i = skip_plain(s, 0); i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            if (i % 16 == 15)
                i = skip_plain(s, i + 1) - 1;
            continue;
        }
        lvn_buf_append(buf, s.ptr + from, i - from);
        from = i + 1;
        switch (c) {
        case '"': lvn_buf_lit(buf, "\\\""); break;
        case '\\': lvn_buf_lit(buf, "\\\\"); break;
        case '\n': lvn_buf_lit(buf, "\\n"); break;
        case '\r': lvn_buf_lit(buf, "\\r"); break;
        case '\t': lvn_buf_lit(buf, "\\t"); break;
        case '\b': lvn_buf_lit(buf, "\\b"); break;
        case '\f': lvn_buf_lit(buf, "\\f"); break;
        default: {
            char escape[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            lvn_buf_append(buf, escape, sizeof(escape));
        }
        }
    }
    lvn_buf_append(buf, s.ptr + from, s.len - from);
    lvn_buf_append_char(buf, '"');
}

void lvn_json_write_key(lvn_buf *buf, const char *key)
{
    char last = buf->len ? buf->ptr[buf->len - 1] : '{';
    if (last != '{' && last != '[')
        lvn_buf_append_char(buf, ',');
    lvn_json_write_str(buf, lvn_str_of(key));
    lvn_buf_append_char(buf, ':');
}

static void write_object(lvn_buf *buf, const lvn_json *value)
{
    lvn_buf_append_char(buf, '{');
    for (size_t i = 0; i < value->object.count; i++) {
        if (i)
            lvn_buf_append_char(buf, ',');
        lvn_json_write_str(buf, value->object.members[i].key);
        lvn_buf_append_char(buf, ':');
        lvn_json_write(buf, &value->object.members[i].value);
    }
    lvn_buf_append_char(buf, '}');
}

void lvn_json_write(lvn_buf *buf, const lvn_json *value)
{
    switch (value->kind) {
    case LVN_JSON_NULL: lvn_buf_lit(buf, "null"); break;
    case LVN_JSON_BOOL: lvn_buf_append_str(buf, value->boolean ? LVN_STR("true") : LVN_STR("false")); break;
    case LVN_JSON_INT: lvn_json_write_int(buf, value->integer); break;
    case LVN_JSON_BIGINT: lvn_buf_append_str(buf, value->string); break;
    case LVN_JSON_DOUBLE: lvn_json_write_double(buf, value->number); break;
    case LVN_JSON_STRING: lvn_json_write_str(buf, value->string); break;
    case LVN_JSON_ARRAY:
        lvn_buf_append_char(buf, '[');
        for (size_t i = 0; i < value->array.count; i++) {
            if (i)
                lvn_buf_append_char(buf, ',');
            lvn_json_write(buf, &value->array.items[i]);
        }
        lvn_buf_append_char(buf, ']');
        break;
    case LVN_JSON_OBJECT: write_object(buf, value); break;
    }
}
