/* Both readers must agree, what is read and written again must read as the same, and the validator
 * must take any tree. */
#include <stdlib.h>

#include "api/schema.h"
#include "base/json_python.h"
#include "fuzz/fuzz.h"

static lvn_str write(lvn_arena *arena, const lvn_json *value)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_json_write(&buf, value);
    lvn_str text = lvn_arena_dup(arena, lvn_buf_str(&buf));
    lvn_buf_done(&buf);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lvn_schema *const schemas[] = {&lvn_schema_span, &lvn_schema_enqueue,
                                                &lvn_schema_resources, &lvn_schema_query_spans,
                                                &lvn_schema_attribute};
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    lvn_json value, again, out;
    size_t offset;
    lvn_str text = lvn_arena_dup(arena, (lvn_str){(const char *)data, size});
    if (lvn_json_parse(arena, text, &value, &offset, NULL) != LVN_OK)
        return 0;
    lvn_str first = write(arena, &value);
    if (lvn_json_python_parse(arena, text, &again, &offset, NULL) != LVN_OK ||
        !lvn_str_eq(first, write(arena, &again)))
        abort();
    /* A lone surrogate is accepted in an escape, but what is written for it is no UTF-8 any more.
     */
    if (lvn_json_parse(arena, first, &again, NULL, NULL) == LVN_OK &&
        !lvn_str_eq(first, write(arena, &again)))
        abort();
    for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++) {
        lvn_buf errors;
        lvn_buf_init(&errors, LVN_BUF_NO_LIMIT);
        lvn_schema_report report = {.arena = arena, .errors = &errors};
        if (lvn_schema_read(&report, schemas[i], &value, &(lvn_schema_place){.name = "body"}, &out))
            write(arena, &out);
        lvn_buf_done(&errors);
    }
    return 0;
}
