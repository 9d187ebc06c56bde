#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "loop/loop.h"

static int start(void **state)
{
    return (int)lvn_loop_start("test", (lvn_loop **)state, NULL);
}

static int stop(void **state)
{
    lvn_loop_stop(*state);
    return 0;
}

typedef struct order {
    int seen[1000];
    int count;
} order;

typedef struct numbered {
    order *into;
    int number;
} numbered;

static void note(void *arg)
{
    numbered *n = arg;
    n->into->seen[n->into->count++] = n->number;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void messages_of_one_thread_run_in_the_order_posted(void **state)
{
    static order seen;
    static numbered numbers[1000];
    seen.count = 0;
    for (int i = 0; i < 1000; i++) {
        numbers[i] = (numbered){&seen, i};
        lvn_loop_post(*state, note, &numbers[i]);
    }
    lvn_loop_call(*state, nothing, NULL);
    assert_int_equal(seen.count, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(seen.seen[i], i);
}

static void stop_runs_what_was_posted_before(void **state)
{
    (void)state;
    static order seen;
    static numbered numbers[100];
    lvn_loop *loop;
    assert_int_equal(lvn_loop_start("own", &loop, NULL), LVN_OK);
    for (int i = 0; i < 100; i++) {
        numbers[i] = (numbered){&seen, i};
        lvn_loop_post(loop, note, &numbers[i]);
    }
    lvn_loop_stop(loop);
    assert_int_equal(seen.count, 100);
}

typedef struct crowd {
    lvn_loop *loop;
    int count; /* loop thread only */
} crowd;

static void add_one(void *arg)
{
    ((crowd *)arg)->count++;
}

static void *post_many(void *arg)
{
    crowd *c = arg;
    for (int i = 0; i < 5000; i++)
        lvn_loop_post(c->loop, add_one, c);
    return NULL;
}

static void no_message_of_many_threads_is_lost(void **state)
{
    crowd c = {.loop = *state};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, post_many, &c);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    lvn_loop_call(c.loop, nothing, NULL);
    assert_int_equal(c.count, 20000);
}

typedef struct timing {
    lvn_loop *loop;
    lvn_timer *cancelled;
    int64_t started_ns, ran_ns;
    atomic_int fired, wrong;
    bool on_loop;
} timing;

static void must_not_run(void *arg)
{
    ((timing *)arg)->wrong++;
}

static void fire(void *arg)
{
    timing *t = arg;
    t->ran_ns = lvn_clock_monotonic_ns();
    t->on_loop = lvn_loop_is_current(t->loop);
    t->fired++;
}

static void arm(void *arg)
{
    timing *t = arg;
    t->started_ns = lvn_clock_monotonic_ns();
    t->cancelled = lvn_loop_after(t->loop, 1, must_not_run, t);
    lvn_loop_after(t->loop, 30, fire, t);
    lvn_loop_after(t->loop, 3600 * 1000, must_not_run, t);
    lvn_timer_cancel(t->cancelled);
    lvn_timer_cancel(NULL);
}

static void a_timer_runs_once_not_early_and_not_when_cancelled(void **state)
{
    timing t = {.loop = *state};
    lvn_loop_call(t.loop, arm, &t);
    int64_t until = lvn_clock_monotonic_ns() + 10 * LVN_NS_PER_S;
    while (!t.fired && lvn_clock_monotonic_ns() < until)
        lvn_loop_call(t.loop, nothing, NULL);
    assert_int_equal(t.fired, 1);
    assert_int_equal(t.wrong, 0);
    assert_true(t.on_loop);
    assert_true(t.ran_ns - t.started_ns >= 29 * LVN_NS_PER_MS);
    assert_false(lvn_loop_is_current(t.loop));
}

static void repost(void *arg)
{
    crowd *c = arg;
    if (++c->count < 50)
        lvn_loop_post(c->loop, repost, c);
}

static void a_message_may_post_and_stop_waits_for_it(void **state)
{
    (void)state;
    crowd c = {0};
    assert_int_equal(lvn_loop_start("own", &c.loop, NULL), LVN_OK);
    lvn_loop_post(c.loop, repost, &c);
    lvn_loop_stop(c.loop);
    assert_int_equal(c.count, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_of_one_thread_run_in_the_order_posted, start,
                                        stop),
        cmocka_unit_test(stop_runs_what_was_posted_before),
        cmocka_unit_test_setup_teardown(no_message_of_many_threads_is_lost, start, stop),
        cmocka_unit_test_setup_teardown(a_timer_runs_once_not_early_and_not_when_cancelled, start,
                                        stop),
        cmocka_unit_test(a_message_may_post_and_stop_waits_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
