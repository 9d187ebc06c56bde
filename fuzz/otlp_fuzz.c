/* Trace exports, gzipped ones too. */
#include "api/otlp_decode.h"
#include "base/json.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    lvn_str body = {(const char *)data, size};
    if (size > 2 && data[0] == 0x1f && data[1] == 0x8b &&
        lvn_gzip_inflate(arena, body, 1 << 20, &body, NULL))
        return 0;
    lvn_otlp_batch batch;
    if (lvn_otlp_decode(arena, body, &batch, NULL))
        return 0;
    for (size_t i = 0; i < batch.count; i++) {
        lvn_buf buf;
        lvn_json parsed;
        lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
        lvn_buf_printf(&buf, "{\"a\":0%.*s}", LVN_STR_ARG(batch.spans[i].rest));
        if (lvn_json_parse(arena, lvn_buf_str(&buf), &parsed, NULL, NULL))
            __builtin_trap(); /* what is stored must be JSON */
        lvn_buf_done(&buf);
    }
    return 0;
}
