/* A recursive reader of the JSON that Python's json.loads accepts. Used when the fast path refuses: for NaN and
 * infinities, lone surrogates, a bare scalar, and to find where a text is wrong. */
#include "base/json_python.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/map.h"

typedef struct reader {
    lvn_arena *arena;
    const char *start, *at, *end;
    const char *wrong; /* where Python would complain */
    const char *why;
    bool is_too_deep;
} reader;

static bool fail(reader *r, const char *where, const char *why)
{
    r->wrong = where;
    r->why = why;
    return false;
}

static void skip_blanks(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool read_value(reader *r, lvn_json *out, int depth);

static bool read_hex4(reader *r, const char *at, unsigned *out)
{
    if (r->end - at < 4)
        return false;
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)at[i]))
            return false;
        char c = at[i];
        value = value * 16 + (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    *out = value;
    return true;
}

static void put_utf8(lvn_buf *buf, unsigned c)
{
    if (c < 0x80) {
        lvn_buf_append_char(buf, (char)c);
    } else if (c < 0x800) {
        char b[] = {(char)(0xc0 | (c >> 6)), (char)(0x80 | (c & 63))};
        lvn_buf_append(buf, b, sizeof(b));
    } else if (c < 0x10000) {
        char b[] = {(char)(0xe0 | (c >> 12)), (char)(0x80 | ((c >> 6) & 63)), (char)(0x80 | (c & 63))};
        lvn_buf_append(buf, b, sizeof(b));
    } else {
        char b[] = {(char)(0xf0 | (c >> 18)), (char)(0x80 | ((c >> 12) & 63)), (char)(0x80 | ((c >> 6) & 63)),
                    (char)(0x80 | (c & 63))};
        lvn_buf_append(buf, b, sizeof(b));
    }
}

static bool read_unicode_escape(reader *r, const char *backslash, lvn_buf *text)
{
    unsigned c, low;
    if (!read_hex4(r, r->at, &c))
        return fail(r, backslash + 1, "Invalid \\uXXXX escape");
    r->at += 4;
    bool is_high = c >= 0xd800 && c < 0xdc00;
    if (is_high && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u' && read_hex4(r, r->at + 2, &low) &&
        low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        r->at += 6;
    }
    put_utf8(text, c);
    return true;
}

static bool read_string_body(reader *r, const char *quote, lvn_buf *text)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    while (r->at < r->end) {
        const char *here = r->at++;
        if (*here == '"')
            return true;
        if ((unsigned char)*here < 0x20)
            return fail(r, here, "Invalid control character at");
        if (*here != '\\') {
            lvn_buf_append_char(text, *here);
            continue;
        }
        if (r->at == r->end)
            break;
        char c = *r->at++;
        const char *known = c ? strchr(from, c) : NULL;
        if (c == 'u') {
            if (!read_unicode_escape(r, here, text))
                return false;
        } else if (known) {
            lvn_buf_append_char(text, to[known - from]);
        } else {
            return fail(r, here, "Invalid \\escape");
        }
    }
    return fail(r, quote, "Unterminated string starting at");
}

static bool read_string(reader *r, lvn_str *out)
{
    const char *quote = r->at++;
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    bool is_good = read_string_body(r, quote, &text);
    if (is_good)
        *out = lvn_arena_dup(r->arena, lvn_buf_str(&text));
    lvn_buf_done(&text);
    return is_good;
}

/* The number at the start of `text`, as Python's NUMBER_RE matches it; 0 when there is none. */
static size_t match_number(lvn_str text, bool *out_is_float)
{
    size_t i = 0;
    *out_is_float = false;
    if (i < text.len && text.ptr[i] == '-')
        i++;
    if (i == text.len || !isdigit((unsigned char)text.ptr[i]))
        return 0;
    if (text.ptr[i] == '0')
        i++;
    else
        while (i < text.len && isdigit((unsigned char)text.ptr[i]))
            i++;
    if (i + 1 < text.len && text.ptr[i] == '.' && isdigit((unsigned char)text.ptr[i + 1])) {
        *out_is_float = true;
        for (i++; i < text.len && isdigit((unsigned char)text.ptr[i]);)
            i++;
    }
    size_t e = i;
    if (e < text.len && (text.ptr[e] | 32) == 'e') {
        e++;
        if (e < text.len && (text.ptr[e] == '+' || text.ptr[e] == '-'))
            e++;
        if (e < text.len && isdigit((unsigned char)text.ptr[e])) {
            *out_is_float = true;
            while (e < text.len && isdigit((unsigned char)text.ptr[e]))
                e++;
            i = e;
        }
    }
    return i;
}

static size_t match_word(lvn_str text, lvn_json *out)
{
    static const struct {
        const char *word;
        lvn_json value;
    } words[] = {
        {"null", {.kind = LVN_JSON_NULL}},
        {"true", {.kind = LVN_JSON_BOOL, .boolean = true}},
        {"false", {.kind = LVN_JSON_BOOL, .boolean = false}},
        {"NaN", {.kind = LVN_JSON_DOUBLE, .number = NAN}},
        {"Infinity", {.kind = LVN_JSON_DOUBLE, .number = INFINITY}},
        {"-Infinity", {.kind = LVN_JSON_DOUBLE, .number = -INFINITY}},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (lvn_str_starts_with(text, lvn_str_of(words[i].word))) {
            *out = words[i].value;
            return strlen(words[i].word);
        }
    return 0;
}

static size_t read_scalar(lvn_arena *arena, lvn_str text, lvn_json *out)
{
    bool is_float;
    size_t len = match_number(text, &is_float);
    if (!len)
        return match_word(text, out);
    char stack[64];
    char *digits = len < sizeof(stack) ? stack : lvn_arena_alloc(arena, len + 1);
    memcpy(digits, text.ptr, len);
    digits[len] = '\0';
    if (is_float) {
        out->kind = LVN_JSON_DOUBLE;
        out->number = strtod(digits, NULL);
        return len;
    }
    errno = 0;
    long long value = strtoll(digits, NULL, 10);
    if (errno == ERANGE) {
        out->kind = LVN_JSON_BIGINT;
        out->string = lvn_arena_dup(arena, (lvn_str){digits, len});
    } else {
        out->kind = LVN_JSON_INT;
        out->integer = value;
    }
    return len;
}

lvn_code lvn_json_python_scalar(lvn_arena *arena, lvn_str token, lvn_json *out)
{
    size_t len = read_scalar(arena, token, out);
    return len && len == token.len ? LVN_OK : LVN_INVALID;
}

/* Grows by doubling inside the arena; the waste is bounded by the final size. */
static void *push(lvn_arena *arena, void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = *capacity ? *capacity * 2 : 8;
    void *grown = lvn_arena_array(arena, *capacity, size);
    if (count)
        memcpy(grown, items, count * size);
    return grown;
}

static bool read_array(reader *r, lvn_json *out, int depth)
{
    size_t count = 0, capacity = 0;
    lvn_json *items = NULL;
    r->at++;
    skip_blanks(r);
    if (r->at < r->end && *r->at == ']') {
        r->at++;
    } else {
        for (;;) {
            items = push(r->arena, items, count, &capacity, sizeof(*items));
            if (!read_value(r, &items[count++], depth + 1))
                return false;
            skip_blanks(r);
            if (r->at < r->end && *r->at == ']') {
                r->at++;
                break;
            }
            if (r->at == r->end || *r->at != ',')
                return fail(r, r->at, "Expecting ',' delimiter");
            r->at++;
            skip_blanks(r);
        }
    }
    out->kind = LVN_JSON_ARRAY;
    out->array.items = items;
    out->array.count = count;
    return true;
}

static bool read_member(reader *r, lvn_json_member *out, int depth)
{
    if (!read_string(r, &out->key))
        return false;
    skip_blanks(r);
    if (r->at == r->end || *r->at != ':')
        return fail(r, r->at, "Expecting ':' delimiter");
    r->at++;
    skip_blanks(r);
    return read_value(r, &out->value, depth + 1);
}

static bool read_object(reader *r, lvn_json *out, int depth)
{
    size_t count = 0, capacity = 0;
    lvn_json_member *members = NULL;
    r->at++;
    skip_blanks(r);
    if (r->at < r->end && *r->at == '}') {
        r->at++;
    } else {
        for (;;) {
            if (r->at == r->end || *r->at != '"')
                return fail(r, r->at, "Expecting property name enclosed in double quotes");
            members = push(r->arena, members, count, &capacity, sizeof(*members));
            if (!read_member(r, &members[count++], depth))
                return false;
            skip_blanks(r);
            if (r->at < r->end && *r->at == '}') {
                r->at++;
                break;
            }
            if (r->at == r->end || *r->at != ',')
                return fail(r, r->at, "Expecting ',' delimiter");
            r->at++;
            skip_blanks(r);
        }
    }
    out->kind = LVN_JSON_OBJECT;
    out->object.members = members;
    out->object.count = lvn_json_drop_repeated_keys(members, count);
    return true;
}

static bool read_value(reader *r, lvn_json *out, int depth)
{
    if (depth > LVN_JSON_MAX_DEPTH) {
        r->is_too_deep = true;
        return fail(r, r->at, "nested too deeply");
    }
    if (r->at == r->end)
        return fail(r, r->at, "Expecting value");
    if (*r->at == '{')
        return read_object(r, out, depth);
    if (*r->at == '[')
        return read_array(r, out, depth);
    if (*r->at == '"') {
        out->kind = LVN_JSON_STRING;
        return read_string(r, &out->string);
    }
    size_t len = read_scalar(r->arena, (lvn_str){r->at, (size_t)(r->end - r->at)}, out);
    if (!len)
        return fail(r, r->at, "Expecting value");
    r->at += len;
    return true;
}

static size_t characters_between(const char *from, const char *to)
{
    size_t n = 0;
    for (; from < to; from++)
        n += ((unsigned char)*from & 0xc0) != 0x80;
    return n;
}

static bool is_utf8(lvn_str s)
{
    const unsigned char *p = (const unsigned char *)s.ptr, *end = p + s.len;
    while (p < end) {
        size_t more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : (*p & 0xf0) == 0xe0 ? 2 : *p >= 0xf0 && *p < 0xf5 ? 3 : 9;
        if (more == 9 || (size_t)(end - p) <= more)
            return false;
        if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
            (*p == 0xf4 && p[1] > 0x8f))
            return false;
        for (size_t i = 1; i <= more; i++)
            if ((p[i] & 0xc0) != 0x80)
                return false;
        p += more + 1;
    }
    return true;
}

lvn_code lvn_json_python_parse(lvn_arena *arena, lvn_str text, lvn_json *out, size_t *out_offset, lvn_err *err)
{
    reader r = {.arena = arena, .start = text.ptr, .at = text.ptr, .end = text.ptr + text.len};
    if (!is_utf8(text)) {
        if (out_offset)
            *out_offset = 0;
        return lvn_fail(err, LVN_INVALID, "the text is not UTF-8");
    }
    skip_blanks(&r);
    bool is_good = read_value(&r, out, 1);
    if (is_good) {
        skip_blanks(&r);
        is_good = r.at == r.end || fail(&r, r.at, "Extra data");
    }
    if (is_good)
        return LVN_OK;
    size_t offset = characters_between(r.start, r.wrong);
    if (out_offset)
        *out_offset = offset;
    return lvn_fail(err, r.is_too_deep ? LVN_TOO_LARGE : LVN_INVALID, "%s (character %zu)", r.why, offset);
}

size_t lvn_json_drop_repeated_keys(lvn_json_member *members, size_t count)
{
    size_t kept = 0;
    lvn_map seen;
    lvn_map_init(&seen);
    bool use_map = count > 16; /* quadratic work stays small below */
    for (size_t i = 0; i < count; i++) {
        lvn_json_member *first = NULL;
        if (use_map)
            first = lvn_map_get(&seen, members[i].key);
        else
            for (size_t k = 0; k < kept && !first; k++)
                if (lvn_str_eq(members[k].key, members[i].key))
                    first = &members[k];
        if (first) {
            first->value = members[i].value;
            continue;
        }
        members[kept] = members[i];
        if (use_map)
            lvn_map_put(&seen, members[kept].key, &members[kept]);
        kept++;
    }
    lvn_map_done(&seen);
    return kept;
}
