#include "runner/text.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

lvn_str lvn_text_last_line(lvn_str text)
{
    size_t end = text.len;
    while (end && is_blank(text.ptr[end - 1]))
        end--;
    size_t start = end;
    while (start && text.ptr[start - 1] != '\n')
        start--;
    while (start < end && is_blank(text.ptr[start]))
        start++;
    return (lvn_str){text.ptr + start, end - start};
}

/* Length of the character at `at`, 0 when it is not UTF-8. */
static size_t char_len(lvn_str text, size_t at)
{
    const unsigned char *p = (const unsigned char *)text.ptr + at;
    size_t left = text.len - at;
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool is_bad = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
                  (p[0] == 0xf4 && p[1] > 0x8f);
    return is_bad ? 0 : len;
}

void lvn_text_clean(lvn_str text, char *out, size_t out_size)
{
    size_t len = 0;
    for (size_t at = 0; at < text.len;) {
        size_t n = char_len(text, at);
        bool is_kept = n > 1 || (n == 1 && (unsigned char)text.ptr[at] >= 0x20 && text.ptr[at] != 0x7f);
        size_t step = n ? n : 1, size = is_kept ? n : 1;
        if (len + size >= out_size)
            break;
        if (is_kept)
            memcpy(out + len, text.ptr + at, n);
        else
            out[len] = text.ptr[at] == '\t' ? ' ' : '?';
        len += size;
        at += step;
    }
    out[len] = 0;
}

bool lvn_text_is_utf8(lvn_str text)
{
    for (size_t at = 0; at < text.len;) {
        size_t n = char_len(text, at);
        if (!n)
            return false;
        at += n;
    }
    return true;
}
