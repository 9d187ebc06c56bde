/* Percent decoding and query strings. What comes out is always UTF-8: bytes that are not become
 * U+FFFD, because the text may end up in a JSON answer. */
#include <ctype.h>

#include "base/utf8.h"
#include "http/server.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static lvn_str make_utf8(lvn_arena *arena, lvn_str text)
{
    if (lvn_utf8_is_valid(text))
        return text;
    const char *end = text.ptr + text.len;
    char *out = lvn_arena_alloc(arena, text.len * 3 + 1);
    size_t n = 0;
    for (const char *at = text.ptr; at < end;) {
        size_t len = lvn_utf8_sequence(at, end);
        memcpy(out + n, len ? at : "\xef\xbf\xbd", len ? len : 3);
        n += len ? len : 3;
        at += len ? len : 1;
    }
    out[n] = '\0';
    return (lvn_str){out, n};
}

lvn_str lvn_http_percent_decode(lvn_arena *arena, lvn_str text, bool plus_is_blank)
{
    char *out = lvn_arena_alloc(arena, text.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '%' && i + 2 < text.len && hex_value(text.ptr[i + 1]) >= 0 &&
            hex_value(text.ptr[i + 2]) >= 0) {
            c = (char)(hex_value(text.ptr[i + 1]) * 16 + hex_value(text.ptr[i + 2]));
            i += 2;
        } else if (c == '+' && plus_is_blank) {
            c = ' ';
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return make_utf8(arena, (lvn_str){out, n});
}

static size_t find_char(lvn_str s, char c)
{
    const char *at = s.len ? memchr(s.ptr, c, s.len) : NULL;
    return at ? (size_t)(at - s.ptr) : s.len;
}

bool lvn_http_query_next(lvn_http_request *request, size_t *position, lvn_str *out_name,
                         lvn_str *out_value)
{
    while (*position < request->query.len) {
        lvn_str rest = lvn_str_from(request->query, *position);
        lvn_str pair = {rest.ptr, find_char(rest, '&')};
        *position += pair.len + 1;
        if (!pair.len)
            continue;
        size_t equals = find_char(pair, '=');
        *out_name = lvn_http_percent_decode(request->arena, (lvn_str){pair.ptr, equals}, true);
        *out_value =
            equals < pair.len
                ? lvn_http_percent_decode(request->arena, lvn_str_from(pair, equals + 1), true)
                : LVN_STR("");
        return true;
    }
    return false;
}

lvn_str lvn_http_query_get(lvn_http_request *request, const char *name)
{
    lvn_str found = LVN_STR_ABSENT, key, value;
    for (size_t i = 0; lvn_http_query_next(request, &i, &key, &value);)
        if (lvn_str_is(key, name))
            found = value;
    return found;
}

lvn_str lvn_http_header_get(const lvn_http_request *request, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < request->header_count; i++) {
        lvn_str have = request->headers[i].name;
        if (have.len == len && strncasecmp(have.ptr, name, len) == 0)
            return request->headers[i].value;
    }
    return LVN_STR_ABSENT;
}
