#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/schema.h"

static int setup(void **state)
{
    *state = lvn_arena_new(0);
    return 0;
}

static int teardown(void **state)
{
    lvn_arena_free(*state);
    return 0;
}

static lvn_json parse(lvn_arena *arena, const char *text)
{
    lvn_json value;
    lvn_err err;
    if (lvn_json_parse(arena, lvn_str_of(text), &value, NULL, &err))
        fail_msg("%s: %s", text, err.message);
    return value;
}

/* What reading gives: the converted value, or "type@loc" of each error with blanks between. */
static const char *read_with(lvn_arena *arena, const lvn_schema *schema, const char *text)
{
    lvn_buf errors, out;
    lvn_buf_init(&errors, LVN_BUF_NO_LIMIT);
    lvn_buf_init(&out, LVN_BUF_NO_LIMIT);
    lvn_schema_report report = {.arena = arena, .errors = &errors};
    lvn_json in = parse(arena, text), value;
    bool is_good =
        lvn_schema_read(&report, schema, &in, &(lvn_schema_place){.name = "body"}, &value);
    assert_int_equal(is_good, report.error_count == 0);
    if (is_good) {
        lvn_json_write(&out, &value);
    } else {
        lvn_str list = lvn_arena_printf(arena, "[%.*s]", LVN_STR_ARG(lvn_buf_str(&errors)));
        lvn_json parsed = parse(arena, list.ptr);
        assert_int_equal(parsed.array.count, report.error_count);
        for (size_t i = 0; i < parsed.array.count; i++) {
            const lvn_json *error = &parsed.array.items[i];
            assert_non_null(lvn_json_get(error, "msg"));
            assert_non_null(lvn_json_get(error, "input"));
            lvn_buf_printf(&out, "%s%.*s@", i ? " " : "",
                           LVN_STR_ARG(lvn_json_get_str(error, "type", LVN_STR(""))));
            lvn_json_write(&out, lvn_json_get(error, "loc"));
        }
    }
    lvn_str result = lvn_arena_dup(arena, lvn_buf_str(&out));
    lvn_buf_done(&errors);
    lvn_buf_done(&out);
    return result.ptr;
}

typedef struct sample {
    const char *in, *want;
} sample;

static void check(void **state, const lvn_schema *schema, const sample *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *got = read_with(*state, schema, cases[i].in);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: want %s, got %s", cases[i].in, cases[i].want, got);
    }
}

#define CHECK(schema, cases) check(state, schema, cases, sizeof(cases) / sizeof(*(cases)))

static void ints_are_read_as_python_reads_them(void **state)
{
    static const sample cases[] = {
        {"5", "5"},
        {"true", "1"},
        {"2.0", "2"},
        {"\"5\"", "5"},
        {"\" 2 \"", "2"},
        {"\"4.0\"", "4"},
        {"\"+5\"", "5"},
        {"\"-0\"", "0"},
        {"\"0005\"", "5"},
        {"\"1_000\"", "1000"},
        {"\"1_0.0\"", "10"},
        {"\"111111111111111111111111111111\"", "111111111111111111111111111111"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"\"\"", "int_parsing@[\"body\"]"},
        {"\"4.\"", "int_parsing@[\"body\"]"},
        {"\"4.5\"", "int_parsing@[\"body\"]"},
        {"\"4.0_0\"", "int_parsing@[\"body\"]"},
        {"\"1e3\"", "int_parsing@[\"body\"]"},
        {"\"0x5\"", "int_parsing@[\"body\"]"},
        {"\"_1\"", "int_parsing@[\"body\"]"},
        {"\"1_\"", "int_parsing@[\"body\"]"},
        {"\"1__0\"", "int_parsing@[\"body\"]"},
        {"\"--1\"", "int_parsing@[\"body\"]"},
        {"\"+ 5\"", "int_parsing@[\"body\"]"},
        {"2.5", "int_from_float@[\"body\"]"},
        {"NaN", "finite_number@[\"body\"]"},
        {"1e300", "int_parsing_size@[\"body\"]"},
        {"null", "int_type@[\"body\"]"},
        {"[]", "int_type@[\"body\"]"},
    };
    const lvn_schema schema = {.kind = LVN_SCHEMA_INT};
    CHECK(&schema, cases);
}

static void floats_are_read_as_python_reads_them(void **state)
{
    static const sample cases[] = {
        {"5", "5.0"},
        {"true", "1.0"},
        {"\"1e3\"", "1000.0"},
        {"\" 2 \"", "2.0"},
        {"\"1_000.5\"", "1000.5"},
        {"\"5.\"", "5.0"},
        {"\".5\"", "0.5"},
        {"\"inf\"", "null"},
        {"\"nan\"", "null"},
        {"\"1e400\"", "null"},
        {"123456789012345678901234567890", "1.2345678901234568e+29"},
        {"\"\"", "float_parsing@[\"body\"]"},
        {"\"abc\"", "float_parsing@[\"body\"]"},
        {"\"0x5\"", "float_parsing@[\"body\"]"},
        {"\"1__0\"", "float_parsing@[\"body\"]"},
        {"\"1e\"", "float_parsing@[\"body\"]"},
        {"\"- 1\"", "float_parsing@[\"body\"]"},
        {"null", "float_type@[\"body\"]"},
        {"{}", "float_type@[\"body\"]"},
    };
    const lvn_schema schema = {.kind = LVN_SCHEMA_FLOAT};
    CHECK(&schema, cases);
}

static void bools_are_read_as_python_reads_them(void **state)
{
    static const sample cases[] = {
        {"0", "false"},
        {"1.0", "true"},
        {"\"YES\"", "true"},
        {"\"off\"", "false"},
        {"\" true\"", "bool_parsing@[\"body\"]"},
        {"2", "bool_parsing@[\"body\"]"},
        {"2.0", "bool_parsing@[\"body\"]"},
        {"2.5", "bool_type@[\"body\"]"},
        {"1e300", "bool_type@[\"body\"]"},
        {"null", "bool_type@[\"body\"]"},
        {"[]", "bool_type@[\"body\"]"},
    };
    const lvn_schema schema = {.kind = LVN_SCHEMA_BOOL};
    CHECK(&schema, cases);
}

static void lists_of_attributes_find_one_kind(void **state)
{
    static const sample cases[] = {
        {"\"x\"", "\"x\""},
        {"1", "1"},
        {"1.0", "1.0"},
        {"[]", "[]"},
        {"[1,2.5]", "[1.0,2.5]"},
        {"[1,2.0]", "[1.0,2.0]"},
        {"[1,true]", "[true,true]"},
        {"[1.0,true]", "[true,true]"},
        {"[2,true]", "[2,1]"},
        {"[2.5,true]", "[2.5,1.0]"},
        {"[\"on\",1]", "[true,true]"},
        {"[\"2\",1]", "[2,1]"},
        {"[\"5\",2.0]", "[5,2]"},
        {"[\"1.5\",2]", "[1.5,2.0]"},
        {"[\"1\",\"2\"]", "[\"1\",\"2\"]"},
        {"[1000000000000000000000000000000,1]", "[1000000000000000000000000000000,1]"},
        {"[1000000000000000000000000000000,1.5]", "[1e+30,1.5]"},
    };
    CHECK(&lvn_schema_attribute, cases);
}

#define SEQUENCE(kind)                                                                             \
    "\"json-or-python[json=list[" kind                                                             \
    "],python=chain[is-instance[Sequence],function-wrap[sequence_validator()]]]\""

static void a_bad_attribute_lists_an_error_for_each_kind(void **state)
{
    static const sample cases[] = {
        {"null",
         "string_type@[\"body\",\"str\"] bool_type@[\"body\",\"bool\"] int_type@[\"body\",\"int\"] "
         "float_type@[\"body\",\"float\"] is_instance_of@[\"body\"," SEQUENCE(
             "str") "] is_instance_of@[\"body\"," SEQUENCE("bool") "] "
                                                                   "is_instance_of@["
                                                                   "\"body\"," SEQUENCE("int") "] "
                                                                                               "is_"
                                                                                               "ins"
                                                                                               "tan"
                                                                                               "ce_"
                                                                                               "of@"
                                                                                               "[\""
                                                                                               "bod"
                                                                                               "y\""
                                                                                               "," SEQUENCE("float") "]"},
        {"[\"true\",2]",
         "string_type@[\"body\",\"str\"] bool_type@[\"body\",\"bool\"] int_type@[\"body\",\"int\"] "
         "float_type@[\"body\",\"float\"] string_type@[\"body\"," SEQUENCE(
             "str") ",1] bool_parsing@[\"body\"," SEQUENCE("bool") ",1] "
                                                                   "int_parsing@["
                                                                   "\"body\"," SEQUENCE("int") ",0]"
                                                                                               " fl"
                                                                                               "oat"
                                                                                               "_pa"
                                                                                               "rsi"
                                                                                               "ng@"
                                                                                               "[\""
                                                                                               "bod"
                                                                                               "y\""
                                                                                               "," SEQUENCE("float") ",0]"},
    };
    CHECK(&lvn_schema_attribute, cases);
}

static void all_errors_come_in_the_order_of_the_fields(void **state)
{
    static const sample cases[] = {
        {"{\"config\":{\"timeout_seconds\":[],\"max_attempts\":0},\"mode\":1}",
         "missing@[\"body\",\"input\"] literal_error@[\"body\",\"mode\"] "
         "float_type@[\"body\",\"config\",\"timeout_seconds\"] "
         "greater_than_equal@[\"body\",\"config\",\"max_attempts\"]"},
        {"[]", "model_attributes_type@[\"body\"]"},
        {"{\"input\":null,\"extra\":1,\"worker_id\":\"w\"}",
         "{\"input\":null,\"worker_id\":\"w\"}"},
        {"{\"input\":1,\"config\":{\"retry_condition\":[\"failed\",\"x\"]}}",
         "literal_error@[\"body\",\"config\",\"retry_condition\",1]"},
        {"{\"input\":1,\"config\":{\"max_attempts\":\" 3 \",\"timeout_seconds\":\"1e3\"}}",
         "{\"input\":1,\"config\":{\"timeout_seconds\":1000.0,\"max_attempts\":3}}"},
        {"{\"input\":1,\"config\":{\"max_attempts\":-99999999999999999999}}",
         "greater_than_equal@[\"body\",\"config\",\"max_attempts\"]"},
    };
    CHECK(&lvn_schema_start_rollout, cases);
}

static void resources_are_told_apart_by_their_type(void **state)
{
    static const sample cases[] = {
        {"{\"m\":{\"model\":\"x\",\"endpoint\":\"e\",\"resource_type\":\"llm\",\"other\":1}}",
         "{\"m\":{\"resource_type\":\"llm\",\"endpoint\":\"e\",\"model\":\"x\",\"api_key\":null,"
         "\"sampling_parameters\":{}}}"},
        {"{\"p\":{\"resource_type\":\"prompt_template\",\"template\":\"a\"}}",
         "missing@[\"body\",\"p\",\"prompt_template\",\"engine\"]"},
        {"{\"p\":{\"resource_type\":\"x\\\"y\"}}", "union_tag_invalid@[\"body\",\"p\"]"},
        {"{\"p\":{\"resource_type\":5}}", "union_tag_invalid@[\"body\",\"p\"]"},
        {"{\"p\":{}}", "union_tag_not_found@[\"body\",\"p\"]"},
        {"{\"p\":null,\"q\":[]}",
         "model_attributes_type@[\"body\",\"p\"] model_attributes_type@[\"body\",\"q\"]"},
        {"[]", "dict_type@[\"body\"]"},
    };
    CHECK(&lvn_schema_resources, cases);
}

static void spans_keep_unknown_keys_behind_the_known_ones(void **state)
{
    static const sample cases[] = {
        {"{\"zz\":1,\"resource\":{\"attributes\":{},\"schema_url\":\"\",\"dropped\":1},\"parent\":"
         "null,\"context\":null,"
         "\"end_time\":null,\"start_time\":1,\"links\":[{\"k\":1,\"context\":{\"trace_id\":\"t\","
         "\"span_id\":\"s\","
         "\"is_remote\":\"no\",\"trace_state\":{\"a\":\"b\"},\"q\":2}}],\"events\":[{"
         "\"attributes\":{},\"name\":\"e\"}],"
         "\"attributes\":{\"l\":[1,2.5]},\"status\":{\"status_code\":\"OK\",\"w\":3},\"name\":"
         "\"n\",\"parent_id\":null,"
         "\"span_id\":\"s\",\"trace_id\":\"t\",\"sequence_id\":\"7\",\"attempt_id\":\"a\","
         "\"rollout_id\":\"r\"}",
         "{\"rollout_id\":\"r\",\"attempt_id\":\"a\",\"sequence_id\":7,\"trace_id\":\"t\",\"span_"
         "id\":\"s\",\"parent_id\":null,"
         "\"name\":\"n\",\"status\":{\"status_code\":\"OK\",\"description\":null,\"w\":3},"
         "\"attributes\":{\"l\":[1.0,2.5]},"
         "\"events\":[{\"name\":\"e\",\"attributes\":{},\"timestamp\":null}],\"links\":[{"
         "\"context\":{\"trace_id\":\"t\","
         "\"span_id\":\"s\",\"is_remote\":false,\"trace_state\":{\"a\":\"b\"},\"q\":2},"
         "\"attributes\":null,\"k\":1}],"
         "\"start_time\":1.0,\"end_time\":null,\"context\":null,\"parent\":null,\"resource\":{"
         "\"attributes\":{},"
         "\"schema_url\":\"\"},\"zz\":1}"},
    };
    CHECK(&lvn_schema_span, cases);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ints_are_read_as_python_reads_them),
        TEST(floats_are_read_as_python_reads_them),
        TEST(bools_are_read_as_python_reads_them),
        TEST(lists_of_attributes_find_one_kind),
        TEST(a_bad_attribute_lists_an_error_for_each_kind),
        TEST(all_errors_come_in_the_order_of_the_fields),
        TEST(resources_are_told_apart_by_their_type),
        TEST(spans_keep_unknown_keys_behind_the_known_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
