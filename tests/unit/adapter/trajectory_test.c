#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "adapter/trajectory.h"


static lvn_span call_span(lvn_arena *a, int64_t sequence, const char *prompt, const char *answer, const char *logp)
{
    lvn_span s = {.sequence_id = sequence, .name = LVN_STR("openai.chat.completion"), .span_id = LVN_STR("s"),
                  .start_time = (double)sequence};
    s.rest = lvn_arena_printf(a,
                              ",\"trace_id\":\"t\",\"attributes\":{\"prompt_token_ids\":%s,\"response_token_ids\":%s,"
                              "\"levin.logprobs\":%s,\"levin.policy.version\":3,"
                              "\"gen_ai.response.finish_reasons\":[\"stop\"]},\"events\":[]",
                              prompt, answer, logp);
    return s;
}

static void a_prompt_that_continues_the_last_call_is_merged_with_context_masked(void **state)
{
    (void)state;
    lvn_arena *a = lvn_arena_new(0);
    lvn_span spans[] = {
        call_span(a, 2, "[1,2,3,10,11,20]", "[12]", "[-0.5]"),
        call_span(a, 1, "[1,2,3]", "[10,11]", "[-0.1,-0.2]"),
    };
    lvn_trajectories out;
    assert_int_equal(lvn_adapter_trajectories(a, spans, 2, &out, NULL), LVN_OK);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.mismatch_count, 0);
    const lvn_trajectory *t = &out.items[0];
    assert_int_equal(t->prompt_count, 3);
    const int32_t tokens[] = {10, 11, 20, 12};
    const uint8_t mask[] = {1, 1, 0, 1};
    const float logp[] = {-0.1f, -0.2f, 0.0f, -0.5f};
    assert_int_equal(t->count, 4);
    assert_memory_equal(t->tokens, tokens, sizeof(tokens));
    assert_memory_equal(t->mask, mask, sizeof(mask));
    assert_memory_equal(t->logp, logp, sizeof(logp));
    assert_int_equal(t->trained_count, 3);
    assert_int_equal(t->policy_version, 3);
    lvn_arena_free(a);
}

static void a_prompt_that_differs_starts_a_new_trajectory_and_is_reported(void **state)
{
    (void)state;
    lvn_arena *a = lvn_arena_new(0);
    lvn_span spans[] = {
        call_span(a, 1, "[1,2,3]", "[10,11]", "[-0.1,-0.2]"),
        call_span(a, 2, "[1,2,3,10,99,20]", "[12]", "[-0.5]"),
        call_span(a, 3, "[1,2,3,10]", "[12]", "[-0.5]"),
    };
    lvn_trajectories out;
    assert_int_equal(lvn_adapter_trajectories(a, spans, 3, &out, NULL), LVN_OK);
    assert_int_equal(out.count, 3);
    assert_int_equal(out.mismatch_count, 2);
    assert_int_equal(out.first_mismatch_at, 4);
    lvn_arena_free(a);
}

static void missing_or_uneven_log_probs_become_none(void **state)
{
    (void)state;
    lvn_arena *a = lvn_arena_new(0);
    lvn_span spans[] = {call_span(a, 1, "[1]", "[10,11]", "[-0.1]"), call_span(a, 2, "[7]", "[10]", "[null]")};
    lvn_trajectories out;
    assert_int_equal(lvn_adapter_trajectories(a, spans, 2, &out, NULL), LVN_OK);
    assert_null(out.items[0].logp);
    assert_null(out.items[1].logp);
    lvn_arena_free(a);
}

static void calls_without_tokens_and_failed_ones_are_counted_not_trained_on(void **state)
{
    (void)state;
    lvn_arena *a = lvn_arena_new(0);
    lvn_span spans[] = {call_span(a, 1, "[1]", "[10]", "[-0.1]"), call_span(a, 2, "null", "null", "null"),
                        call_span(a, 3, "[]", "[]", "[]")};
    spans[0].status = LVN_SPAN_ERROR;
    lvn_trajectories out;
    assert_int_equal(lvn_adapter_trajectories(a, spans, 3, &out, NULL), LVN_OK);
    assert_int_equal(out.count, 0);
    assert_int_equal(out.skipped_calls, 3);
    lvn_arena_free(a);
}

static void damaged_ids_are_an_error(void **state)
{
    (void)state;
    lvn_arena *a = lvn_arena_new(0);
    lvn_span bad = call_span(a, 1, "[1,\"x\"]", "[10]", "[-0.1]");
    lvn_trajectories out;
    assert_int_equal(lvn_adapter_trajectories(a, &bad, 1, &out, NULL), LVN_INVALID);
    bad.rest = LVN_STR(",\"attributes\":{");
    assert_int_equal(lvn_adapter_trajectories(a, &bad, 1, &out, NULL), LVN_INVALID);
    lvn_arena_free(a);
}

static void the_last_reward_counts(void **state)
{
    (void)state;
    lvn_arena *a = lvn_arena_new(0);
    lvn_span spans[] = {
        {.rest = LVN_STR(",\"attributes\":{\"agentlightning.reward.0.value\":0.25}")},
        {.rest = LVN_STR(",\"attributes\":{\"agentlightning.reward.0.value\":1}")},
        {.rest = LVN_STR(",\"attributes\":{}")},
    };
    double reward = -1;
    assert_int_equal(lvn_adapter_final_reward(a, spans, 3, &reward, NULL), LVN_OK);
    assert_true(reward == 1.0);
    assert_int_equal(lvn_adapter_final_reward(a, spans + 2, 1, &reward, NULL), LVN_EMPTY);
    lvn_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_that_continues_the_last_call_is_merged_with_context_masked),
        cmocka_unit_test(a_prompt_that_differs_starts_a_new_trajectory_and_is_reported),
        cmocka_unit_test(missing_or_uneven_log_probs_become_none),
        cmocka_unit_test(calls_without_tokens_and_failed_ones_are_counted_not_trained_on),
        cmocka_unit_test(damaged_ids_are_an_error),
        cmocka_unit_test(the_last_reward_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
