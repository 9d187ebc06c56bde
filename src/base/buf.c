#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lvn_buf_init(lvn_buf *buf, size_t max)
{
    *buf = (lvn_buf){.max = max};
}

void lvn_buf_done(lvn_buf *buf)
{
    free(buf->ptr);
    *buf = (lvn_buf){.max = buf->max};
}

void lvn_buf_clear(lvn_buf *buf)
{
    buf->len = 0;
    buf->has_failed = false;
    if (buf->ptr)
        buf->ptr[0] = '\0';
}

char *lvn_buf_reserve(lvn_buf *buf, size_t len)
{
    if (buf->has_failed || len > buf->max || buf->len > buf->max - len) {
        buf->has_failed = true;
        return NULL;
    }
    size_t need = buf->len + len + 1;
    if (need > buf->capacity) {
        size_t capacity = buf->capacity ? buf->capacity * 2 : 256;
        if (capacity < need)
            capacity = need;
        char *grown = realloc(buf->ptr, capacity);
        if (!grown) {
            buf->has_failed = true;
            return NULL;
        }
        buf->ptr = grown;
        buf->capacity = capacity;
    }
    return buf->ptr + buf->len;
}

void lvn_buf_append(lvn_buf *buf, const void *bytes, size_t len)
{
    char *room = lvn_buf_reserve(buf, len);
    if (!room)
        return;
    if (len)
        memcpy(room, bytes, len);
    buf->len += len;
    buf->ptr[buf->len] = '\0';
}

void lvn_buf_append_str(lvn_buf *buf, lvn_str s)
{
    lvn_buf_append(buf, s.ptr, s.len);
}

void lvn_buf_append_char(lvn_buf *buf, char c)
{
    lvn_buf_append(buf, &c, 1);
}

void lvn_buf_printf(lvn_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *room = len < 0 ? NULL : lvn_buf_reserve(buf, (size_t)len);
    if (room) {
        vsnprintf(room, (size_t)len + 1, format, again);
        buf->len += (size_t)len;
    }
    va_end(again);
}

void lvn_buf_consume(lvn_buf *buf, size_t len)
{
    if (len > buf->len)
        len = buf->len;
    if (!len)
        return;
    memmove(buf->ptr, buf->ptr + len, buf->len - len);
    buf->len -= len;
    buf->ptr[buf->len] = '\0';
}

char *lvn_buf_take(lvn_buf *buf, size_t *out_len)
{
    char *memory = buf->ptr ? buf->ptr : calloc(1, 1);
    if (out_len)
        *out_len = buf->len;
    *buf = (lvn_buf){.max = buf->max};
    return memory;
}
