#include "base/utf8.h"

size_t lvn_utf8_sequence(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *)at;
    if (*p < 0x80)
        return 1;
    size_t more = *p >= 0xc2 && *p < 0xe0   ? 1
                  : (*p & 0xf0) == 0xe0     ? 2
                  : *p >= 0xf0 && *p < 0xf5 ? 3
                                            : 0;
    if (!more || (size_t)(end - at) <= more)
        return 0;
    bool is_bad = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
                  (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f);
    for (size_t i = 1; i <= more && !is_bad; i++)
        is_bad = (p[i] & 0xc0) != 0x80;
    return is_bad ? 0 : more + 1;
}

bool lvn_utf8_is_valid(lvn_str s)
{
    const char *end = s.ptr + s.len;
    for (const char *at = s.ptr; at < end;) {
        size_t len = lvn_utf8_sequence(at, end);
        if (!len)
            return false;
        at += len;
    }
    return true;
}
