/* Trace exports, written here byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/otlp_decode.h"
#include "base/buf.h"
#include "base/json.h"

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

/* ---- writing protobuf ---- */

static void varint(lvn_buf *buf, uint64_t n)
{
    for (; n >= 0x80; n >>= 7)
        lvn_buf_append_char(buf, (char)(n | 0x80));
    lvn_buf_append_char(buf, (char)n);
}

static void bytes(lvn_buf *buf, unsigned number, lvn_str content)
{
    varint(buf, number << 3 | 2);
    varint(buf, content.len);
    lvn_buf_append_str(buf, content);
}

static void number(lvn_buf *buf, unsigned field, uint64_t value)
{
    varint(buf, field << 3);
    varint(buf, value);
}

static void fixed(lvn_buf *buf, unsigned field, uint64_t value)
{
    varint(buf, field << 3 | 1);
    lvn_buf_append(buf, &value, sizeof(value));
}

/* Wraps what `buf` holds as field `field`, in the arena, and empties it. */
static lvn_str wrap(lvn_arena *arena, lvn_buf *buf, unsigned field)
{
    lvn_str content = lvn_arena_dup(arena, lvn_buf_str(buf));
    lvn_buf_clear(buf);
    bytes(buf, field, content);
    lvn_str wrapped = lvn_arena_dup(arena, lvn_buf_str(buf));
    lvn_buf_clear(buf);
    return wrapped;
}

/* A KeyValue as field `field`; `value` is an encoded AnyValue. */
static lvn_str pair(lvn_arena *arena, unsigned field, const char *key, lvn_str value)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    bytes(&buf, 1, lvn_str_of(key));
    bytes(&buf, 2, value);
    lvn_str done = wrap(arena, &buf, field);
    lvn_buf_done(&buf);
    return done;
}

static lvn_str any_text(lvn_arena *arena, const char *text)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    bytes(&buf, 1, lvn_str_of(text));
    lvn_str done = lvn_arena_dup(arena, lvn_buf_str(&buf));
    lvn_buf_done(&buf);
    return done;
}

static lvn_str any_int(lvn_arena *arena, int64_t value)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    number(&buf, 3, (uint64_t)value);
    lvn_str done = lvn_arena_dup(arena, lvn_buf_str(&buf));
    lvn_buf_done(&buf);
    return done;
}

/* A request with one resource (encoded attributes) and spans (encoded contents). */
static lvn_str request(lvn_arena *arena, lvn_str resource_attributes, const lvn_str *spans,
                       size_t count)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    for (size_t i = 0; i < count; i++)
        bytes(&buf, 2, spans[i]);
    lvn_str scope = wrap(arena, &buf, 2);
    bytes(&buf, 1, resource_attributes);
    lvn_buf_append_str(&buf, scope);
    lvn_str whole = wrap(arena, &buf, 1);
    lvn_buf_done(&buf);
    return whole;
}

static lvn_str join(lvn_arena *arena, lvn_str a, lvn_str b)
{
    char *out = lvn_arena_alloc(arena, a.len + b.len + 1);
    memcpy(out, a.ptr, a.len);
    memcpy(out + a.len, b.ptr, b.len);
    return (lvn_str){out, a.len + b.len};
}

static lvn_str both_ids(lvn_arena *arena, unsigned field)
{
    return join(arena, pair(arena, field, "agentlightning.rollout_id", any_text(arena, "ro")),
                pair(arena, field, "agentlightning.attempt_id", any_text(arena, "at")));
}

/* ---- tests ---- */

static void an_empty_body_is_an_empty_request(void **state)
{
    lvn_otlp_batch batch;
    assert_int_equal(lvn_otlp_decode(*state, LVN_STR(""), &batch, NULL), LVN_OK);
    assert_int_equal(batch.count, 0);
}

static void spans_get_ids_from_the_resource_unless_they_have_their_own(void **state)
{
    lvn_arena *a = *state;
    lvn_str spans[] = {LVN_STR(""), pair(a, 9, "agentlightning.attempt_id", any_int(a, 7))};
    lvn_otlp_batch batch;
    assert_int_equal(lvn_otlp_decode(a, request(a, both_ids(a, 1), spans, 2), &batch, NULL),
                     LVN_OK);
    assert_int_equal(batch.count, 2);
    assert_true(lvn_str_is(batch.spans[0].attempt_id, "at"));
    assert_true(lvn_str_is(batch.spans[1].attempt_id, "7"));
    assert_true(lvn_str_is(batch.spans[1].rollout_id, "ro"));
    assert_true(lvn_str_is(batch.spans[0].trace_id, "00000000000000000000000000000000"));
    assert_true(lvn_str_is_absent(batch.spans[0].parent_id));
}

static void spans_without_ids_are_dropped(void **state)
{
    lvn_arena *a = *state;
    lvn_str spans[] = {LVN_STR(""), both_ids(a, 9)};
    lvn_otlp_batch batch;
    assert_int_equal(lvn_otlp_decode(a, request(a, LVN_STR(""), spans, 2), &batch, NULL), LVN_OK);
    assert_int_equal(batch.count, 1);
}

static void sequence_numbers_are_read_like_pythons_int(void **state)
{
    static const struct {
        const char *text;
        int64_t want; /* -1: the next one */
    } cases[] = {{"5", 5},   {" 1_00 ", 100}, {"+3", 3},    {"-0", 0},
                 {"-1", -1}, {"1.0", -1},     {"True", -1}, {"", -1},
                 {"_1", -1}, {"1_", -1},      {"x", -1},    {"99999999999999999999", -1}};
    lvn_arena *a = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        lvn_str span = pair(a, 9, "agentlightning.span_sequence_id", any_text(a, cases[i].text));
        lvn_otlp_batch batch;
        assert_int_equal(lvn_otlp_decode(a, request(a, both_ids(a, 1), &span, 1), &batch, NULL),
                         LVN_OK);
        assert_int_equal(batch.needs_sequence[0], cases[i].want < 0);
        if (cases[i].want >= 0)
            assert_int_equal(batch.spans[0].sequence_id, cases[i].want);
    }
}

static void times_are_nanoseconds_unless_small(void **state)
{
    lvn_arena *a = *state;
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    fixed(&buf, 7, UINT64_C(1766500000123456789));
    fixed(&buf, 8, 5);
    lvn_str span = lvn_buf_str(&buf);
    lvn_otlp_batch batch;
    assert_int_equal(lvn_otlp_decode(a, request(a, both_ids(a, 1), &span, 1), &batch, NULL),
                     LVN_OK);
    assert_true(batch.spans[0].start_time == 1766500000.1234567);
    assert_true(batch.spans[0].end_time == 5.0);
    lvn_buf_done(&buf);
}

static void bad_messages_are_told_from_bad_values(void **state)
{
    lvn_arena *a = *state;
    lvn_otlp_batch batch;
    assert_int_equal(lvn_otlp_decode(a, LVN_STR("\xff\xff\xff\xff"), &batch, NULL), LVN_INVALID);
    lvn_str empty_value = pair(a, 9, "k", LVN_STR(""));
    assert_int_equal(lvn_otlp_decode(a, request(a, both_ids(a, 1), &empty_value, 1), &batch, NULL),
                     LVN_INTERNAL);
    lvn_str map_value = pair(a, 9, "k", LVN_STR("\x32\x00"));
    assert_int_equal(lvn_otlp_decode(a, request(a, both_ids(a, 1), &map_value, 1), &batch, NULL),
                     LVN_INTERNAL);
    lvn_str not_utf8 = pair(a, 9, "k", any_text(a, "\xff"));
    assert_int_equal(lvn_otlp_decode(a, request(a, both_ids(a, 1), &not_utf8, 1), &batch, NULL),
                     LVN_INVALID);
}

/* Lists in lists in lists: refused where the first inner one is seen, at no cost in stack. */
static void deep_nesting_does_not_recurse(void **state)
{
    lvn_arena *a = *state;
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_str value = any_int(a, 1);
    for (int i = 0; i < 2000; i++) {
        lvn_buf_clear(&buf);
        bytes(&buf, 1, value);
        value = wrap(a, &buf, 5);
    }
    lvn_str span = pair(a, 9, "k", value);
    lvn_otlp_batch batch;
    assert_int_equal(lvn_otlp_decode(a, request(a, both_ids(a, 1), &span, 1), &batch, NULL),
                     LVN_INTERNAL);
    lvn_buf_done(&buf);
}

static void too_many_spans_are_refused(void **state)
{
    lvn_arena *a = *state;
    size_t count = LVN_OTLP_MAX_SPANS + 1;
    lvn_str *spans = lvn_arena_array(a, count, sizeof(*spans));
    for (size_t i = 0; i < count; i++)
        spans[i] = LVN_STR("");
    lvn_otlp_batch batch;
    assert_int_equal(lvn_otlp_decode(a, request(a, LVN_STR(""), spans, count), &batch, NULL),
                     LVN_TOO_LARGE);
}

static void gzip_round_trip(void **state)
{
    lvn_arena *a = *state;
    lvn_str packed, again;
    assert_int_equal(lvn_gzip_deflate(a, LVN_STR("hello hello hello"), &packed, NULL), LVN_OK);
    assert_int_equal(lvn_gzip_inflate(a, packed, 100, &again, NULL), LVN_OK);
    assert_true(lvn_str_is(again, "hello hello hello"));
    assert_int_equal(lvn_gzip_inflate(a, join(a, packed, packed), 100, &again, NULL), LVN_OK);
    assert_true(lvn_str_is(again, "hello hello hellohello hello hello"));
    assert_int_equal(lvn_gzip_inflate(a, (lvn_str){packed.ptr, packed.len - 3}, 100, &again, NULL),
                     LVN_INVALID);
    assert_int_equal(lvn_gzip_inflate(a, LVN_STR("abc"), 100, &again, NULL), LVN_INVALID);
}

static void a_gzip_bomb_is_refused(void **state)
{
    lvn_arena *a = *state;
    size_t size = 64 * 1024 * 1024;
    char *zeros = lvn_zalloc(size);
    lvn_str packed, again;
    assert_int_equal(lvn_gzip_deflate(a, (lvn_str){zeros, size}, &packed, NULL), LVN_OK);
    assert_true(packed.len < size / 500);
    assert_int_equal(lvn_gzip_inflate(a, packed, size - 1, &again, NULL), LVN_TOO_LARGE);
    assert_int_equal(lvn_gzip_inflate(a, packed, size, &again, NULL), LVN_OK);
    free(zeros);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_body_is_an_empty_request),
        TEST(spans_get_ids_from_the_resource_unless_they_have_their_own),
        TEST(spans_without_ids_are_dropped),
        TEST(sequence_numbers_are_read_like_pythons_int),
        TEST(times_are_nanoseconds_unless_small),
        TEST(bad_messages_are_told_from_bad_values),
        TEST(deep_nesting_does_not_recurse),
        TEST(too_many_spans_are_refused),
        TEST(gzip_round_trip),
        TEST(a_gzip_bomb_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
