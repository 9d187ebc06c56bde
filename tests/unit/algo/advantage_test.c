#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "algo/advantage.h"

static void a_group_is_centred_and_scaled_by_its_sample_deviation(void **state)
{
    (void)state;
    const double rewards[] = {1, 0, 0, 1, 0, 0, 0, 0};
    double out[8], sum = 0;
    assert_true(lvn_advantage_grpo(rewards, 8, true, out));
    for (int i = 0; i < 8; i++)
        sum += out[i];
    assert_true(fabs(sum) < 1e-9);
    /* mean 0.25, sample variance (2 * 0.75^2 + 6 * 0.25^2) / 7 = 1.5 / 7 */
    assert_true(fabs(out[0] - 0.75 / (sqrt(1.5 / 7) + 1e-6)) < 1e-12);
    assert_true(lvn_advantage_grpo(rewards, 8, false, out));
    assert_true(out[0] == 0.75 && out[1] == -0.25);
}

static void equal_rewards_give_no_signal(void **state)
{
    (void)state;
    const double rewards[] = {0.3, 0.3, 0.3};
    double out[3] = {9, 9, 9};
    assert_false(lvn_advantage_grpo(rewards, 3, true, out));
    assert_true(out[0] == 0 && out[2] == 0);
}

static void a_group_of_one_keeps_its_reward(void **state)
{
    (void)state;
    double reward = 0.5, out;
    assert_true(lvn_advantage_grpo(&reward, 1, false, &out));
    assert_true(out == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_is_centred_and_scaled_by_its_sample_deviation),
        cmocka_unit_test(equal_rewards_give_no_signal),
        cmocka_unit_test(a_group_of_one_keeps_its_reward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
