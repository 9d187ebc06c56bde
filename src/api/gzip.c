#include <stdlib.h>
#include <zlib.h>

#include "api/otlp_decode.h"
#include "base/buf.h"

enum { GZIP_ONLY = 15 + 16, STEP = 64 * 1024 };

static lvn_code inflate_all(z_stream *stream, lvn_buf *out, lvn_err *err)
{
    for (;;) {
        char *room = lvn_buf_reserve(out, STEP);
        if (!room)
            return lvn_fail(err, LVN_TOO_LARGE, "more than %zu bytes once inflated", out->max);
        stream->next_out = (Bytef *)room;
        stream->avail_out = STEP;
        int result = inflate(stream, Z_NO_FLUSH);
        out->len += STEP - stream->avail_out;
        if (result == Z_STREAM_END && !stream->avail_in)
            return LVN_OK;
        if (result == Z_STREAM_END)
            result = inflateReset(stream); /* another member follows */
        if (result != Z_OK || (!stream->avail_in && stream->avail_out))
            return lvn_fail(err, LVN_INVALID, "not a gzip stream: %s",
                            stream->msg ? stream->msg : "it ends early");
    }
}

lvn_code lvn_gzip_inflate(lvn_arena *arena, lvn_str in, size_t max, lvn_str *out, lvn_err *err)
{
    *out = LVN_STR("");
    if (!in.len)
        return LVN_OK;
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)in.ptr, .avail_in = (uInt)in.len};
    if (in.len > UINT32_MAX || inflateInit2(&stream, GZIP_ONLY) != Z_OK)
        return lvn_fail(err, LVN_NO_MEMORY, "cannot inflate");
    lvn_buf buf;
    lvn_buf_init(&buf, max + STEP);
    lvn_code code = inflate_all(&stream, &buf, err);
    inflateEnd(&stream);
    if (code == LVN_OK && buf.len > max)
        code = lvn_fail(err, LVN_TOO_LARGE, "more than %zu bytes once inflated", max);
    if (code == LVN_OK) {
        size_t len;
        char *memory = lvn_buf_take(&buf, &len);
        lvn_arena_on_free(arena, free, memory);
        *out = (lvn_str){memory, len};
    }
    lvn_buf_done(&buf);
    return code;
}

lvn_code lvn_gzip_deflate(lvn_arena *arena, lvn_str in, lvn_str *out, lvn_err *err)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)in.ptr, .avail_in = (uInt)in.len};
    if (in.len > UINT32_MAX || deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_ONLY,
                                            8, Z_DEFAULT_STRATEGY) != Z_OK)
        return lvn_fail(err, LVN_NO_MEMORY, "cannot compress");
    uLong bound = deflateBound(&stream, in.len);
    char *memory = lvn_arena_alloc(arena, bound);
    stream.next_out = (Bytef *)memory;
    stream.avail_out = (uInt)bound;
    int result = deflate(&stream, Z_FINISH);
    *out = (lvn_str){memory, stream.total_out};
    deflateEnd(&stream);
    return result == Z_STREAM_END ? LVN_OK : lvn_fail(err, LVN_INTERNAL, "cannot compress");
}
