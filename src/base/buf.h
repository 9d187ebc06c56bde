/* A growing byte buffer, born with its maximum. Appending past the maximum, or without memory, marks the buffer
 * as failed: later appends do nothing, so a writer checks once at the end. */
#ifndef LVN_BASE_BUF_H
#define LVN_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

typedef struct lvn_buf {
    char *ptr; /* NULL while empty; a zero byte always follows the content */
    size_t len;
    size_t capacity;
    size_t max;
    bool has_failed;
} lvn_buf;

enum { LVN_BUF_NO_LIMIT = 1 << 30 }; /* for text that we ourselves make */

/* Caller's memory. `max` in bytes. */
void lvn_buf_init(lvn_buf *buf, size_t max);
void lvn_buf_done(lvn_buf *buf); /* releases; the buffer is empty and usable again */
void lvn_buf_clear(lvn_buf *buf); /* empties and clears the failure, keeps the memory */

void lvn_buf_append(lvn_buf *buf, const void *bytes, size_t len);
void lvn_buf_append_str(lvn_buf *buf, lvn_str s);
void lvn_buf_append_char(lvn_buf *buf, char c);
void lvn_buf_printf(lvn_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define lvn_buf_lit(buf, literal) lvn_buf_append(buf, "" literal, sizeof(literal) - 1)

/* Room for `len` more bytes at ptr + len, or NULL (failed). The caller writes, then adds to `len`. */
char *lvn_buf_reserve(lvn_buf *buf, size_t len);
/* Drops the first `len` bytes. */
void lvn_buf_consume(lvn_buf *buf, size_t len);

static inline lvn_str lvn_buf_str(const lvn_buf *buf)
{
    return (lvn_str){buf->ptr ? buf->ptr : "", buf->len};
}

/* Hands the memory over (release it with free); the buffer is empty afterwards. */
char *lvn_buf_take(lvn_buf *buf, size_t *out_len);

#endif
