/* Each row of the tables in spec/state-machine.md, by what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/rules.h"

static const uint8_t on_failed[] = {LVN_ATTEMPT_FAILED, LVN_ATTEMPT_TIMEOUT};

static lvn_rollout rollout(lvn_rollout_status status, int64_t max_attempts)
{
    lvn_rollout r = {.rollout_id = LVN_STR("ro"), .status = status, .start_time = 1, .end_time = LVN_TIME_NULL};
    lvn_rollout_config_default(&r.config);
    r.config.max_attempts = max_attempts;
    r.config.retry_condition = on_failed;
    r.config.retry_count = 2;
    return r;
}

static lvn_attempt attempt(int64_t sequence, lvn_attempt_status status)
{
    return (lvn_attempt){.rollout_id = LVN_STR("ro"), .attempt_id = LVN_STR("at"), .sequence_id = sequence, .status = status,
                         .start_time = 10, .end_time = LVN_TIME_NULL, .last_heartbeat_time = LVN_TIME_NULL, .worker_id = LVN_STR("w")};
}

static lvn_changes update(lvn_rollout r, lvn_attempt latest, lvn_attempt_status status)
{
    lvn_rows rows = {.rollout = &r, .latest = &latest, .attempt = &latest};
    lvn_attempt_update u = {.has_status = true, .status = status};
    lvn_changes c;
    lvn_rules_update_attempt(&rows, &u, 50, &c);
    return c;
}

static void a_new_attempt_prepares_and_makes_its_worker_busy(void **state)
{
    (void)state;
    lvn_rollout r = rollout(LVN_ROLLOUT_REQUEUING, 3);
    lvn_attempt first = attempt(1, LVN_ATTEMPT_FAILED);
    lvn_rows rows = {.rollout = &r, .latest = &first};
    lvn_changes c;
    lvn_rules_new_attempt(&rows, LVN_STR("at2"), LVN_STR("w"), 7, &c);
    assert_int_equal(c.attempt.sequence_id, 2);
    assert_int_equal(c.attempt.status, LVN_ATTEMPT_PREPARING);
    assert_int_equal(c.rollout.status, LVN_ROLLOUT_PREPARING);
    assert_true(c.has_worker && c.worker.status == LVN_WORKER_BUSY && c.worker.last_busy_time == 7);
    assert_false(c.is_queued || c.is_finished);
}

static void a_failure_in_the_retry_condition_is_queued_again_until_attempts_run_out(void **state)
{
    (void)state;
    lvn_changes c = update(rollout(LVN_ROLLOUT_RUNNING, 2), attempt(1, LVN_ATTEMPT_RUNNING), LVN_ATTEMPT_FAILED);
    assert_true(c.has_rollout && c.rollout.status == LVN_ROLLOUT_REQUEUING && c.is_queued && !c.is_finished);
    assert_true(lvn_time_is_null(c.rollout.end_time));
    assert_true(c.attempt.end_time == 50);
    c = update(rollout(LVN_ROLLOUT_RUNNING, 2), attempt(2, LVN_ATTEMPT_RUNNING), LVN_ATTEMPT_FAILED);
    assert_true(c.rollout.status == LVN_ROLLOUT_FAILED && c.is_finished && c.rollout.end_time == 50);
    c = update(rollout(LVN_ROLLOUT_RUNNING, 2), attempt(1, LVN_ATTEMPT_RUNNING), LVN_ATTEMPT_UNRESPONSIVE);
    assert_true(c.rollout.status == LVN_ROLLOUT_FAILED);
    c = update(rollout(LVN_ROLLOUT_RUNNING, 2), attempt(1, LVN_ATTEMPT_RUNNING), LVN_ATTEMPT_TIMEOUT);
    assert_true(c.rollout.status == LVN_ROLLOUT_REQUEUING && lvn_time_is_null(c.attempt.end_time));
}

static void success_finishes_and_idles_the_worker(void **state)
{
    (void)state;
    lvn_changes c = update(rollout(LVN_ROLLOUT_RUNNING, 1), attempt(1, LVN_ATTEMPT_RUNNING), LVN_ATTEMPT_SUCCEEDED);
    assert_true(c.rollout.status == LVN_ROLLOUT_SUCCEEDED && c.is_finished);
    assert_true(c.worker.status == LVN_WORKER_IDLE && lvn_str_is_absent(c.worker.current_rollout_id));
    c = update(rollout(LVN_ROLLOUT_RUNNING, 1), attempt(1, LVN_ATTEMPT_RUNNING), LVN_ATTEMPT_TIMEOUT);
    assert_int_equal(c.worker.status, LVN_WORKER_UNKNOWN);
}

static void an_update_without_status_leaves_the_rollout_alone(void **state)
{
    (void)state;
    lvn_rollout r = rollout(LVN_ROLLOUT_CANCELLED, 1);
    lvn_attempt a = attempt(1, LVN_ATTEMPT_RUNNING);
    lvn_rows rows = {.rollout = &r, .latest = &a, .attempt = &a};
    lvn_attempt_update u = {.has_heartbeat = true, .heartbeat = 44};
    lvn_changes c;
    lvn_rules_update_attempt(&rows, &u, 50, &c);
    assert_false(c.has_rollout || c.has_worker);
    assert_true(c.attempt.last_heartbeat_time == 44);
}

static void an_older_attempt_does_not_move_the_rollout(void **state)
{
    (void)state;
    lvn_rollout r = rollout(LVN_ROLLOUT_PREPARING, 3);
    lvn_attempt old = attempt(1, LVN_ATTEMPT_FAILED), latest = attempt(2, LVN_ATTEMPT_PREPARING);
    lvn_rows rows = {.rollout = &r, .latest = &latest, .attempt = &old};
    lvn_attempt_update u = {.has_status = true, .status = LVN_ATTEMPT_SUCCEEDED};
    lvn_changes c;
    lvn_rules_update_attempt(&rows, &u, 50, &c);
    assert_false(c.has_rollout);
    lvn_rules_span(&rows, 50, &c);
    assert_false(c.has_rollout);
}

static void a_span_runs_what_prepares_and_what_was_unresponsive(void **state)
{
    (void)state;
    static const struct { lvn_rollout_status rollout; lvn_attempt_status attempt; bool runs; lvn_attempt_status after; } cases[] = {
        {LVN_ROLLOUT_PREPARING, LVN_ATTEMPT_PREPARING, true, LVN_ATTEMPT_RUNNING},
        {LVN_ROLLOUT_REQUEUING, LVN_ATTEMPT_UNRESPONSIVE, true, LVN_ATTEMPT_RUNNING},
        {LVN_ROLLOUT_QUEUING, LVN_ATTEMPT_PREPARING, false, LVN_ATTEMPT_RUNNING},
        {LVN_ROLLOUT_FAILED, LVN_ATTEMPT_UNRESPONSIVE, false, LVN_ATTEMPT_RUNNING},
        /* The queued retry must not be lost to a late span. */
        {LVN_ROLLOUT_REQUEUING, LVN_ATTEMPT_FAILED, false, LVN_ATTEMPT_FAILED},
        {LVN_ROLLOUT_REQUEUING, LVN_ATTEMPT_TIMEOUT, false, LVN_ATTEMPT_TIMEOUT},
        {LVN_ROLLOUT_SUCCEEDED, LVN_ATTEMPT_SUCCEEDED, false, LVN_ATTEMPT_SUCCEEDED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        lvn_rollout r = rollout(cases[i].rollout, 2);
        lvn_attempt a = attempt(1, cases[i].attempt);
        lvn_rows rows = {.rollout = &r, .latest = &a, .attempt = &a};
        lvn_changes c;
        lvn_rules_span(&rows, 60, &c);
        assert_int_equal(c.has_rollout, cases[i].runs);
        assert_int_equal(c.attempt.status, cases[i].after);
        assert_true(c.attempt.last_heartbeat_time == 60);
    }
}

static void the_watchdog_compares_strictly_and_a_timeout_wins(void **state)
{
    (void)state;
    lvn_rollout r = rollout(LVN_ROLLOUT_RUNNING, 1);
    r.config.timeout_seconds = 30;
    r.config.unresponsive_seconds = 5;
    lvn_attempt a = attempt(1, LVN_ATTEMPT_RUNNING);
    lvn_attempt_status s;
    assert_false(lvn_rules_overdue(&r, &a, 15, &s));
    assert_true(lvn_rules_overdue(&r, &a, 15.5, &s) && s == LVN_ATTEMPT_UNRESPONSIVE);
    assert_true(lvn_rules_overdue(&r, &a, 41, &s) && s == LVN_ATTEMPT_TIMEOUT);
    assert_true(lvn_rules_deadline(&r, &a) == 15);
    a.last_heartbeat_time = 38;
    assert_false(lvn_rules_overdue(&r, &a, 39, &s));
    assert_true(lvn_rules_deadline(&r, &a) == 40);
    a.last_heartbeat_time = 0; /* switches the check off */
    r.config.timeout_seconds = LVN_TIME_NULL;
    assert_false(lvn_rules_overdue(&r, &a, 1e9, &s));
    r.status = LVN_ROLLOUT_QUEUING;
    assert_true(isinf(lvn_rules_deadline(&r, &a)));
}

static void an_empty_dequeue_idles_the_worker_once(void **state)
{
    (void)state;
    lvn_worker busy = {.worker_id = LVN_STR("w"), .status = LVN_WORKER_BUSY, .last_idle_time = 1, .last_dequeue_time = 2,
                       .current_rollout_id = LVN_STR("ro")};
    lvn_worker w;
    lvn_rules_dequeued(&busy, busy.worker_id, false, 9, &w);
    assert_true(w.status == LVN_WORKER_IDLE && w.last_idle_time == 9 && w.last_dequeue_time == 9);
    lvn_worker again;
    lvn_rules_dequeued(&w, w.worker_id, false, 12, &again);
    assert_true(again.last_idle_time == 9 && again.last_dequeue_time == 12);
    lvn_rules_heartbeat(NULL, LVN_STR("new"), false, LVN_STR_ABSENT, 3, &w);
    assert_true(w.status == LVN_WORKER_UNKNOWN && w.last_heartbeat_time == 3 && lvn_time_is_null(w.last_busy_time));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_attempt_prepares_and_makes_its_worker_busy),
        cmocka_unit_test(a_failure_in_the_retry_condition_is_queued_again_until_attempts_run_out),
        cmocka_unit_test(success_finishes_and_idles_the_worker),
        cmocka_unit_test(an_update_without_status_leaves_the_rollout_alone),
        cmocka_unit_test(an_older_attempt_does_not_move_the_rollout),
        cmocka_unit_test(a_span_runs_what_prepares_and_what_was_unresponsive),
        cmocka_unit_test(the_watchdog_compares_strictly_and_a_timeout_wins),
        cmocka_unit_test(an_empty_dequeue_idles_the_worker_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
