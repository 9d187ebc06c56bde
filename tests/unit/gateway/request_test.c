/* What a chat completion request may say, and what a client is told of a wrong one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/request.h"

static lvn_chat_request parsed;
static lvn_chat_error failure;

static bool parse(lvn_arena *arena, const char *text)
{
    memset(&failure, 0, sizeof(failure));
    return lvn_chat_request_parse(arena, lvn_str_of(text), &parsed, &failure);
}

#define ASK "\"model\":\"policy\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void defaults_and_unknown_fields(void **state)
{
    (void)state;
    lvn_arena *arena = lvn_arena_new(0);
    assert_true(parse(arena, "{" ASK ",\"user\":\"me\",\"frequency_penalty\":1,\"max_tokens\":null,\"seed\":null,\"stop\":null}"));
    assert_true(lvn_str_is(parsed.model, "policy"));
    assert_int_equal(parsed.turn_count, 1);
    assert_true(lvn_str_is(parsed.turns[0].role, "user") && lvn_str_is(parsed.turns[0].content, "hi"));
    assert_false(parsed.has_temperature || parsed.has_top_p || parsed.has_seed || parsed.is_stream || parsed.wants_logprobs);
    assert_int_equal(parsed.max_tokens, 0);
    assert_int_equal(parsed.choices, 1);
    assert_int_equal(parsed.stop_count, 0);
    lvn_arena_free(arena);
}

static void every_field_is_read(void **state)
{
    (void)state;
    lvn_arena *arena = lvn_arena_new(0);
    assert_true(parse(arena, "{" ASK ",\"temperature\":0.5,\"top_p\":1,\"max_tokens\":5,\"max_completion_tokens\":7,\"n\":8,"
                             "\"seed\":-9223372036854775808,\"stop\":[\"a\",\"\",\"bc\"],\"logprobs\":true,\"top_logprobs\":20,"
                             "\"stream\":true,\"stream_options\":{\"include_usage\":true}}"));
    assert_true(parsed.temperature == 0.5 && parsed.top_p == 1.0);
    assert_int_equal(parsed.max_tokens, 7); /* the newer name wins */
    assert_int_equal(parsed.choices, 8);
    assert_true(parsed.seed == INT64_MIN);
    assert_int_equal(parsed.stop_count, 2); /* an empty text stops nothing */
    assert_true(lvn_str_is(parsed.stops[1], "bc"));
    assert_true(parsed.wants_logprobs && parsed.is_stream && parsed.wants_usage);
    assert_int_equal(parsed.top_logprobs, 20);
    lvn_arena_free(arena);
}

static void content_may_be_parts_or_nothing(void **state)
{
    (void)state;
    lvn_arena *arena = lvn_arena_new(0);
    assert_true(parse(arena, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                             "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null},{\"role\":\"user\"}]}"));
    assert_true(lvn_str_is(parsed.turns[0].content, "a\nb"));
    assert_int_equal(parsed.turns[1].content.len, 0);
    assert_int_equal(parsed.turns[2].content.len, 0);
    assert_false(parse(arena, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                              "\"image_url\":{\"url\":\"x\"}}]}]}"));
    assert_string_equal(failure.param, "messages");
    lvn_arena_free(arena);
}

static void wrong_requests_name_what_is_wrong(void **state)
{
    (void)state;
    static const struct { const char *body, *param; } cases[] = {
        {"", NULL},
        {"{\"model\":", NULL},
        {"[]", NULL},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "model"},
        {"{\"model\":\"m\"}", "messages"},
        {"{\"model\":\"m\",\"messages\":[]}", "messages"},
        {"{\"model\":\"m\",\"messages\":\"hi\"}", "messages"},
        {"{\"model\":\"m\",\"messages\":[7]}", "messages"},
        {"{\"model\":\"m\",\"messages\":[{\"content\":\"hi\"}]}", "messages"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages"},
        {"{" ASK ",\"temperature\":2.1}", "temperature"},
        {"{" ASK ",\"temperature\":\"1\"}", "temperature"},
        {"{" ASK ",\"temperature\":true}", "temperature"},
        {"{" ASK ",\"top_p\":0}", "top_p"},
        {"{" ASK ",\"max_tokens\":0}", "max_tokens"},
        {"{" ASK ",\"max_tokens\":1.5}", "max_tokens"},
        {"{" ASK ",\"max_completion_tokens\":99999999999}", "max_completion_tokens"},
        {"{" ASK ",\"n\":9}", "n"},
        {"{" ASK ",\"n\":0}", "n"},
        {"{" ASK ",\"top_logprobs\":21}", "top_logprobs"},
        {"{" ASK ",\"seed\":1e300}", "seed"},
        {"{" ASK ",\"seed\":18446744073709551616}", "seed"},
        {"{" ASK ",\"stop\":[1]}", "stop"},
        {"{" ASK ",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}",
         "stop"},
        {"{" ASK ",\"stream\":1}", "stream"},
        {"{" ASK ",\"logprobs\":2}", "logprobs"},
    };
    lvn_arena *arena = lvn_arena_new(0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (parse(arena, cases[i].body))
            fail_msg("taken: %s", cases[i].body);
        assert_int_equal(failure.status, 400);
        assert_string_equal(failure.type, "invalid_request_error");
        assert_true(*failure.message);
        if (!cases[i].param != !failure.param || (failure.param && strcmp(failure.param, cases[i].param)))
            fail_msg("%s: param is %s", cases[i].body, failure.param ? failure.param : "null");
    }
    lvn_arena_free(arena);
}

/* 2^63 as a double equals INT64_MAX rounded up: it must not be converted. */
static void a_seed_at_the_edge_of_its_range(void **state)
{
    (void)state;
    lvn_arena *arena = lvn_arena_new(0);
    assert_true(parse(arena, "{" ASK ",\"seed\":9223372036854775807}"));
    assert_true(parsed.seed == INT64_MAX);
    assert_false(parse(arena, "{" ASK ",\"seed\":9223372036854775808.0}"));
    lvn_arena_free(arena);
}

static void errors_have_openais_shape(void **state)
{
    (void)state;
    lvn_arena *arena = lvn_arena_new(0);
    lvn_chat_fail(&failure, 404, "invalid_request_error", "model", "model_not_found", "no \"%s\"", "x");
    assert_string_equal(lvn_chat_error_write(arena, &failure).ptr,
                        "{\"error\":{\"message\":\"no \\\"x\\\"\",\"type\":\"invalid_request_error\",\"param\":\"model\","
                        "\"code\":\"model_not_found\"}}");
    lvn_chat_fail(&failure, 400, "invalid_request_error", NULL, NULL, "bad");
    assert_string_equal(lvn_chat_error_write(arena, &failure).ptr,
                        "{\"error\":{\"message\":\"bad\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
    lvn_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_and_unknown_fields),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(content_may_be_parts_or_nothing),
        cmocka_unit_test(wrong_requests_name_what_is_wrong),
        cmocka_unit_test(a_seed_at_the_edge_of_its_range),
        cmocka_unit_test(errors_have_openais_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
