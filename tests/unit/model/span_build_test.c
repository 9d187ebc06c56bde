/* Spans built by ourselves have the protocol's keys, order and value kinds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/json.h"
#include "model/span_build.h"

static lvn_span_builder builder;
static lvn_arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = lvn_arena_new(0);
    lvn_span_builder_init(&builder, 4096);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lvn_span_builder_done(&builder);
    lvn_arena_free(arena);
    return 0;
}

static lvn_span_head head(void)
{
    return (lvn_span_head){
        .rollout_id = LVN_STR("ro-1"), .attempt_id = LVN_STR("at-1"), .trace_id = LVN_STR("aa"), .span_id = LVN_STR("bb"),
        .name = LVN_STR("a \"name\""), .status = LVN_SPAN_OK, .start_time = 1700000000.25, .end_time = LVN_TIME_NULL,
    };
}

static lvn_span finish(lvn_span_head h)
{
    lvn_span span;
    lvn_err err;
    if (lvn_span_builder_finish(&builder, arena, &h, &span, &err))
        fail_msg("%s", err.message);
    return span;
}

static void an_empty_span_has_every_key(void **state)
{
    (void)state;
    lvn_span span = finish(head());
    assert_string_equal(span.rest.ptr,
                        ",\"trace_id\":\"aa\",\"span_id\":\"bb\",\"parent_id\":null,\"name\":\"a \\\"name\\\"\","
                        "\"status\":{\"status_code\":\"OK\",\"description\":null},\"attributes\":{},\"events\":[],\"links\":[],"
                        "\"start_time\":1700000000.25,\"end_time\":null,"
                        "\"context\":{\"trace_id\":\"aa\",\"span_id\":\"bb\",\"is_remote\":false,\"trace_state\":{}},"
                        "\"parent\":null,\"resource\":{\"attributes\":{},\"schema_url\":\"\"}");
    assert_true(lvn_time_is_null(span.end_time));
}

static void values_keep_their_kinds(void **state)
{
    (void)state;
    lvn_attrs *a = &builder.attributes;
    lvn_attrs_str(a, "s", LVN_STR("x\n"));
    lvn_attrs_str(a, "absent", LVN_STR_ABSENT);
    lvn_attrs_int(a, "i", -5);
    lvn_attrs_double(a, "d", 1.0);
    lvn_attrs_double(a, "nan", NAN);
    lvn_attrs_bool(a, "b", true);
    lvn_attrs_ints(a, "is", (int64_t[]){1, 2}, 2);
    lvn_attrs_int32s(a, "i32", (int32_t[]){-1}, 1);
    lvn_attrs_doubles(a, "ds", (double[]){0.5, INFINITY}, 2);
    lvn_attrs_floats(a, "fs", (float[]){-0.25F}, 1);
    lvn_attrs_strs(a, "ss", (lvn_str[]){LVN_STR("p"), LVN_STR_ABSENT}, 2);
    lvn_attrs_ints(a, "none", NULL, 0);
    lvn_span_head h = head();
    h.parent_id = LVN_STR("cc");
    h.status = LVN_SPAN_ERROR;
    h.status_description = LVN_STR("why");
    lvn_attrs_str(&builder.resource, "service.name", LVN_STR("levin"));
    lvn_attrs event;
    lvn_attrs_init(&event, 100);
    lvn_attrs_int(&event, "try", 2);
    lvn_span_builder_event(&builder, LVN_STR("retry"), 5.0, &event);
    lvn_span_builder_event(&builder, LVN_STR("end"), LVN_TIME_NULL, NULL);
    lvn_attrs_done(&event);
    lvn_span span = finish(h);
    assert_non_null(strstr(span.rest.ptr, "\"attributes\":{\"s\":\"x\\n\",\"i\":-5,\"d\":1.0,\"b\":true,\"is\":[1,2],\"i32\":[-1],"
                                          "\"ds\":[0.5,0.0],\"fs\":[-0.25],\"ss\":[\"p\",\"\"],\"none\":[]}"));
    assert_non_null(strstr(span.rest.ptr, "\"status\":{\"status_code\":\"ERROR\",\"description\":\"why\"}"));
    assert_non_null(strstr(span.rest.ptr, "\"events\":[{\"name\":\"retry\",\"attributes\":{\"try\":2},\"timestamp\":5.0},"
                                          "{\"name\":\"end\",\"attributes\":{},\"timestamp\":null}]"));
    assert_non_null(strstr(span.rest.ptr, "\"parent\":{\"trace_id\":\"aa\",\"span_id\":\"cc\""));
    assert_non_null(strstr(span.rest.ptr, "\"resource\":{\"attributes\":{\"service.name\":\"levin\"}"));
}

static void ids_are_made_up_when_absent(void **state)
{
    (void)state;
    lvn_span_head h = head();
    h.trace_id = h.span_id = LVN_STR_ABSENT;
    lvn_span a = finish(h), b = finish(h);
    assert_int_equal(a.trace_id.len, 32);
    assert_int_equal(a.span_id.len, 16);
    assert_true(lvn_str_eq(a.trace_id, b.trace_id)); /* one trace an attempt */
    assert_false(lvn_str_eq(a.span_id, b.span_id));
    h.attempt_id = LVN_STR("at-2");
    assert_false(lvn_str_eq(a.trace_id, finish(h).trace_id));
}

static void too_much_is_said_at_the_end(void **state)
{
    (void)state;
    char big[5000] = {0};
    lvn_attrs_str(&builder.attributes, "big", (lvn_str){big, sizeof(big)});
    lvn_span span = {.sequence_id = 77};
    lvn_span_head h = head();
    lvn_err err;
    assert_int_equal(lvn_span_builder_finish(&builder, arena, &h, &span, &err), LVN_TOO_LARGE);
    assert_int_equal(span.sequence_id, 77);
}

int main(void)
{
#define EACH(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(an_empty_span_has_every_key),
        EACH(values_keep_their_kinds),
        EACH(ids_are_made_up_when_absent),
        EACH(too_much_is_said_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
