/* The memory of attempts and of the answers they were given is bounded and forgets the least used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/attempts.h"

static void the_least_used_attempt_goes_first(void **state)
{
    (void)state;
    lvn_attempts a;
    lvn_attempts_init(&a, 2);
    assert_non_null(lvn_attempts_add(&a, LVN_STR("r1"), LVN_STR("a"), LVN_MODE_TRAIN));
    lvn_attempts_add(&a, LVN_STR("r2"), LVN_STR("a"), LVN_MODE_VAL);
    assert_int_equal(lvn_attempts_find(&a, LVN_STR("r1"), LVN_STR("a"))->mode, LVN_MODE_TRAIN); /* now r2 is the oldest */
    lvn_attempts_add(&a, LVN_STR("r3"), LVN_STR("a"), LVN_MODE_VAL);
    assert_null(lvn_attempts_find(&a, LVN_STR("r2"), LVN_STR("a")));
    assert_non_null(lvn_attempts_find(&a, LVN_STR("r1"), LVN_STR("a")));
    assert_non_null(lvn_attempts_find(&a, LVN_STR("r3"), LVN_STR("a")));
    assert_null(lvn_attempts_find(&a, LVN_STR("r1"), LVN_STR("b")));
    lvn_attempts_done(&a);
}

static void one_added_twice_keeps_its_answers(void **state)
{
    (void)state;
    lvn_attempts a;
    lvn_attempts_init(&a, 4);
    lvn_known_attempt *k = lvn_attempts_add(&a, LVN_STR("r"), LVN_STR("a"), LVN_MODE_TRAIN);
    lvn_attempts_remember(k, LVN_STR("yes"), (int32_t[]){1, 2}, 2);
    assert_ptr_equal(lvn_attempts_add(&a, LVN_STR("r"), LVN_STR("a"), LVN_MODE_TRAIN), k);
    assert_int_equal(lvn_attempts_answer(k, LVN_STR("yes"))->count, 2);
    lvn_attempts_done(&a);
}

static void answers_are_found_by_their_exact_text_the_newest_first(void **state)
{
    (void)state;
    lvn_attempts a;
    lvn_attempts_init(&a, 4);
    lvn_known_attempt *k = lvn_attempts_add(&a, LVN_STR("r"), LVN_STR("a"), LVN_MODE_TRAIN);
    lvn_attempts_remember(k, LVN_STR("yes"), (int32_t[]){1}, 1);
    lvn_attempts_remember(k, LVN_STR("yes"), (int32_t[]){2, 3}, 2);
    assert_int_equal(lvn_attempts_answer(k, LVN_STR("yes"))->ids[0], 2);
    assert_null(lvn_attempts_answer(k, LVN_STR("yes ")));
    assert_null(lvn_attempts_answer(k, LVN_STR("")));
    for (int32_t i = 0; i < 100; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", i);
        lvn_attempts_remember(k, lvn_str_of(text), &i, 1);
    }
    assert_null(lvn_attempts_answer(k, LVN_STR("yes")));
    assert_null(lvn_attempts_answer(k, LVN_STR("67")));
    assert_int_equal(lvn_attempts_answer(k, LVN_STR("68"))->ids[0], 68);
    assert_int_equal(lvn_attempts_answer(k, LVN_STR("99"))->ids[0], 99);
    lvn_attempts_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_used_attempt_goes_first),
        cmocka_unit_test(one_added_twice_keeps_its_answers),
        cmocka_unit_test(answers_are_found_by_their_exact_text_the_newest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
