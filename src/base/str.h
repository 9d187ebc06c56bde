/* Text as pointer and length. Not terminated, not owned: the bytes belong to whoever made them (an arena, a
 * literal, a buffer) and live as long as that does. ptr NULL means "absent", which is not the empty text. */
#ifndef LVN_BASE_STR_H
#define LVN_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct lvn_str {
    const char *ptr;
    size_t len;
} lvn_str;

#define LVN_STR(literal) ((lvn_str){"" literal, sizeof(literal) - 1})
#define LVN_STR_ABSENT ((lvn_str){NULL, 0})
/* For printf: printf("%.*s", LVN_STR_ARG(s)). */
#define LVN_STR_ARG(s) (int)(s).len, (s).ptr ? (s).ptr : ""

static inline lvn_str lvn_str_of(const char *c_string)
{
    return c_string ? (lvn_str){c_string, strlen(c_string)} : LVN_STR_ABSENT;
}

static inline bool lvn_str_is_absent(lvn_str s)
{
    return s.ptr == NULL;
}

/* Equal bytes; absent and empty differ. */
static inline bool lvn_str_eq(lvn_str a, lvn_str b)
{
    return (a.ptr == NULL) == (b.ptr == NULL) && a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool lvn_str_is(lvn_str a, const char *b)
{
    return lvn_str_eq(a, lvn_str_of(b));
}

/* Order by bytes, which for UTF-8 is the order of code points. */
static inline int lvn_str_cmp(lvn_str a, lvn_str b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter ? memcmp(a.ptr, b.ptr, shorter) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static inline bool lvn_str_starts_with(lvn_str s, lvn_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

static inline bool lvn_str_ends_with(lvn_str s, lvn_str suffix)
{
    return s.len >= suffix.len && (suffix.len == 0 || memcmp(s.ptr + s.len - suffix.len, suffix.ptr, suffix.len) == 0);
}

static inline bool lvn_str_contains(lvn_str s, lvn_str part)
{
    return part.len == 0 || (s.len >= part.len && memmem(s.ptr, s.len, part.ptr, part.len) != NULL);
}

/* The part from `from` on, or the empty end. */
static inline lvn_str lvn_str_from(lvn_str s, size_t from)
{
    return from >= s.len ? (lvn_str){s.ptr + s.len, 0} : (lvn_str){s.ptr + from, s.len - from};
}

#endif
