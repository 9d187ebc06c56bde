#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/json.h"

static void expect_round_trip(const char *in, const char *out)
{
    lvn_arena *a = lvn_arena_new(0);
    lvn_json v;
    lvn_err err;
    if (lvn_json_parse(a, lvn_str_of(in), &v, NULL, &err))
        fail_msg("%s: %s", in, err.message);
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    lvn_json_write(&b, &v);
    assert_string_equal(lvn_buf_str(&b).ptr, out);
    lvn_buf_done(&b);
    lvn_arena_free(a);
}

static void values_come_back_as_python_writes_them(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "{}"}, {"[]", "[]"}, {" [ ] ", "[]"}, {"\"\"", "\"\""}, {"5", "5"}, {"null", "null"},
        {"{\"a\": 1, \"b\":[1.0,2.50,-0.0,1e3]}", "{\"a\":1,\"b\":[1.0,2.5,-0.0,1000.0]}"},
        {"[1e16,1e15,1.5e300,1e-5,0.0001]", "[1e+16,1000000000000000.0,1.5e+300,1e-05,0.0001]"},
        {"[123456789012345678901234567890, -9223372036854775808, 9223372036854775808]",
         "[123456789012345678901234567890,-9223372036854775808,9223372036854775808]"},
        {"[NaN, Infinity, -Infinity]", "[null,null,null]"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}"},
        {"\"\\u00e9\\n\\ud83d\\ude00\\u0001/\"", "\"\xc3\xa9\\n\xf0\x9f\x98\x80\\u0001/\""},
        {"[true,false,[[{\"x\":{}}]]]", "[true,false,[[{\"x\":{}}]]]"},
        {"0.1", "0.1"}, {"1766500000.1234567", "1766500000.1234567"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_round_trip(cases[i][0], cases[i][1]);
}

static void wrong_text_is_refused_where_python_refuses_it(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t offset;
    } cases[] = {
        {"", 0}, {"{", 1}, {"{\"a\"}", 4}, {"[1,]", 3}, {"[1 2]", 3}, {"{\"a\":1,}", 7}, {"nul", 0}, {"[\"a", 1},
        {"{} x", 3}, {"\"\xc3\xa9\" x", 4}, {"01", 1}, {"[\"\\x\"]", 2},
        {"{\"a\":null1}", 9}, {"[true1]", 5},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        lvn_arena *a = lvn_arena_new(0);
        lvn_json v;
        size_t offset = 999;
        assert_int_equal(lvn_json_parse(a, lvn_str_of(cases[i].text), &v, &offset, NULL), LVN_INVALID);
        if (offset != cases[i].offset)
            fail_msg("%s: offset %zu, expected %zu", cases[i].text, offset, cases[i].offset);
        lvn_arena_free(a);
    }
}

static void deep_nesting_is_refused_without_harm(void **state)
{
    (void)state;
    lvn_buf b;
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    for (int i = 0; i < 100000; i++)
        lvn_buf_append_char(&b, '[');
    lvn_arena *a = lvn_arena_new(0);
    lvn_json v;
    assert_int_equal(lvn_json_parse(a, lvn_buf_str(&b), &v, NULL, NULL), LVN_TOO_LARGE);
    lvn_arena_free(a);
    lvn_buf_done(&b);
}

static void invalid_utf8_is_refused(void **state)
{
    (void)state;
    lvn_arena *a = lvn_arena_new(0);
    lvn_json v;
    assert_int_equal(lvn_json_parse(a, lvn_str_of("\"\xff\""), &v, NULL, NULL), LVN_INVALID);
    assert_int_equal(lvn_json_parse(a, lvn_str_of("\"\xc3"), &v, NULL, NULL), LVN_INVALID);
    lvn_arena_free(a);
}

/* Texts are written in steps of several bytes: each byte in each place, beside each other byte that might be taken for one. */
static void every_byte_is_escaped_wherever_it_stands(void **state)
{
    (void)state;
    char text[41], expected[64];
    for (int c = 1; c < 256; c++)
        for (size_t at = 0; at < sizeof(text) - 1; at++) {
            memset(text, c % 2 ? 0x21 : 0x7f, sizeof(text) - 1);
            text[sizeof(text) - 1] = '\0';
            text[at] = (char)c;
            const char *short_form = c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t"
                                     : c == '\b' ? "\\b" : c == '\f' ? "\\f" : NULL;
            char one[8];
            if (short_form)
                snprintf(one, sizeof(one), "%s", short_form);
            else if (c < 0x20)
                snprintf(one, sizeof(one), "\\u%04x", (unsigned)c);
            else
                snprintf(one, sizeof(one), "%c", c);
            snprintf(expected, sizeof(expected), "\"%.*s%s%s\"", (int)at, text, one, text + at + 1);
            lvn_buf buf;
            lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
            lvn_json_write_str(&buf, lvn_str_of(text));
            assert_string_equal(buf.ptr, expected);
            lvn_buf_done(&buf);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_escaped_wherever_it_stands),
        cmocka_unit_test(values_come_back_as_python_writes_them),
        cmocka_unit_test(wrong_text_is_refused_where_python_refuses_it),
        cmocka_unit_test(deep_nesting_is_refused_without_harm),
        cmocka_unit_test(invalid_utf8_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
