/* The store's contract over every backend, and what only a file can do: survive. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "store/store.h"

static char folder[64];
static const char *backend;

static lvn_store *open_store(lvn_err *err)
{
    char url[160];
    snprintf(url, sizeof(url), !strcmp(backend, "memory") ? "memory" : "sqlite:%s/store.db", folder);
    lvn_store_config config = {.url = url};
    lvn_store *store = NULL;
    lvn_err own = {0};
    if (lvn_store_open(&config, &store, err ? err : &own) && !err)
        fail_msg("%s", own.message);
    return store;
}

static int set_up(void **state)
{
    backend = *state;
    strcpy(folder, "/tmp/levin-store-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static lvn_op *call(lvn_store *store, lvn_arena *a, lvn_op op)
{
    lvn_op *copy = lvn_arena_zalloc(a, sizeof(*copy));
    *copy = op;
    copy->arena = a;
    if (lvn_store_call(store, copy))
        fail_msg("operation %d: %s", (int)op.kind, copy->err.message);
    return copy;
}

static lvn_str enqueue(lvn_store *store, lvn_arena *a, const char *input)
{
    lvn_rollout_spec *spec = lvn_arena_zalloc(a, sizeof(*spec));
    *spec = (lvn_rollout_spec){.input = lvn_str_of(input)};
    lvn_op *op = call(store, a, (lvn_op){.kind = LVN_OP_ENQUEUE, .in.enqueue = {.specs = spec, .count = 1}});
    return op->out.rollouts.items[0].rollout.rollout_id;
}

static lvn_attempted *dequeue(lvn_store *store, lvn_arena *a, const char *worker)
{
    lvn_op *op = call(store, a, (lvn_op){.kind = LVN_OP_DEQUEUE, .in.dequeue = {1, lvn_str_of(worker), 0}});
    return op->out.rollouts.count ? op->out.rollouts.items : NULL;
}

static lvn_span make_span(lvn_str rollout_id, lvn_str attempt_id, const char *span_id, int64_t sequence)
{
    return (lvn_span){.rollout_id = rollout_id, .attempt_id = attempt_id, .span_id = lvn_str_of(span_id), .sequence_id = sequence,
                      .trace_id = LVN_STR("t"), .name = LVN_STR("n"), .start_time = 1, .end_time = 2,
                      .rest = LVN_STR(",\"trace_id\":\"t\"")};
}

static void finish(lvn_store *store, lvn_arena *a, const lvn_attempted *r, lvn_attempt_status status)
{
    lvn_op op = {.kind = LVN_OP_UPDATE_ATTEMPT};
    op.in.update_attempt.rollout_id = r->rollout.rollout_id;
    op.in.update_attempt.attempt_id = r->attempt.attempt_id;
    op.in.update_attempt.set = LVN_SET_STATUS;
    op.in.update_attempt.values.status = status;
    call(store, a, op);
}

static void rollouts_are_claimed_once_and_in_order(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    lvn_str first = enqueue(store, a, "1"), second = enqueue(store, a, "2");
    assert_true(lvn_str_eq(dequeue(store, a, "w")->rollout.rollout_id, first));
    assert_true(lvn_str_eq(dequeue(store, a, "w")->rollout.rollout_id, second));
    assert_null(dequeue(store, a, "w"));
    lvn_arena_free(a);
    lvn_store_close(store);
}

typedef struct claimer {
    lvn_store *store;
    char claimed[40];
} claimer;

static void *claim(void *arg)
{
    claimer *c = arg;
    lvn_arena *a = lvn_arena_new(0);
    lvn_op op = {.kind = LVN_OP_DEQUEUE, .arena = a, .in.dequeue = {1, LVN_STR("w"), 0}};
    if (lvn_store_call(c->store, &op) == LVN_OK && op.out.rollouts.count)
        snprintf(c->claimed, sizeof(c->claimed), "%.*s", LVN_STR_ARG(op.out.rollouts.items[0].rollout.rollout_id));
    lvn_arena_free(a);
    return NULL;
}

static void thirty_claims_of_twenty_tasks_give_twenty_distinct(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    for (int i = 0; i < 20; i++)
        enqueue(store, a, "0");
    claimer claimers[30];
    pthread_t threads[30];
    for (int i = 0; i < 30; i++) {
        claimers[i] = (claimer){.store = store};
        pthread_create(&threads[i], NULL, claim, &claimers[i]);
    }
    int got = 0;
    for (int i = 0; i < 30; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 30; i++) {
        got += claimers[i].claimed[0] != '\0';
        for (int k = 0; k < i && claimers[i].claimed[0]; k++)
            assert_string_not_equal(claimers[i].claimed, claimers[k].claimed);
    }
    assert_int_equal(got, 20);
    lvn_arena_free(a);
    lvn_store_close(store);
}

static void spans_are_numbered_kept_once_and_served_in_order(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    enqueue(store, a, "0");
    lvn_attempted *r = dequeue(store, a, "w");
    lvn_str ro = r->rollout.rollout_id, at = r->attempt.attempt_id;
    lvn_op *next = call(store, a, (lvn_op){.kind = LVN_OP_NEXT_SEQUENCE, .in.next_sequence = {ro}});
    assert_int_equal(next->out.sequence_id, 1);
    lvn_span spans[] = {make_span(ro, at, "a", 9), make_span(ro, at, "a", 3), make_span(ro, at, "b", 0)};
    bool needs[] = {false, false, true};
    lvn_op *added = call(store, a, (lvn_op){.kind = LVN_OP_ADD_SPANS, .in.add_spans = {spans, 3, needs}});
    assert_int_equal(added->out.spans.count, 2);
    assert_true(added->out.spans.is_stored[0] && !added->out.spans.is_stored[1] && added->out.spans.is_stored[2]);
    assert_int_equal(added->out.spans.items[1].sequence_id, 10);
    lvn_op query = {.kind = LVN_OP_QUERY_SPANS};
    query.in.query_spans.rollout_id = ro;
    query.in.query_spans.page.limit = -1;
    lvn_op *found = call(store, a, query);
    assert_int_equal(found->out.spans.total, 2);
    assert_int_equal(found->out.spans.items[0].sequence_id, 9);
    assert_true(lvn_str_is(found->out.spans.items[0].rest, ",\"trace_id\":\"t\""));
    lvn_span lost = make_span(ro, LVN_STR("none"), "c", 1);
    lvn_op bad = {.kind = LVN_OP_ADD_SPANS, .arena = a, .in.add_spans = {&lost, 1, NULL}};
    assert_int_equal(lvn_store_call(store, &bad), LVN_NOT_FOUND);
    lvn_arena_free(a);
    lvn_store_close(store);
}

static void *finish_later(void *arg)
{
    lvn_store *store = arg;
    lvn_arena *a = lvn_arena_new(0);
    usleep(50000);
    lvn_attempted *r = dequeue(store, a, "w");
    finish(store, a, r, LVN_ATTEMPT_SUCCEEDED);
    lvn_arena_free(a);
    return NULL;
}

static void a_wait_is_woken_by_the_finish_and_a_parked_dequeue_by_work(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    lvn_str ids[2] = {enqueue(store, a, "0"), LVN_STR("ro-unknown")};
    pthread_t thread;
    pthread_create(&thread, NULL, finish_later, store);
    lvn_op *wait = call(store, a, (lvn_op){.kind = LVN_OP_WAIT, .in.wait = {ids, 2, 20}});
    assert_int_equal(wait->out.rollouts.count, 1);
    assert_int_equal(wait->out.rollouts.items[0].rollout.status, LVN_ROLLOUT_SUCCEEDED);
    pthread_join(thread, NULL);
    lvn_op *none = call(store, a, (lvn_op){.kind = LVN_OP_DEQUEUE, .in.dequeue = {1, LVN_STR("w"), 0.05}});
    assert_int_equal(none->out.rollouts.count, 0);
    claimer c = {.store = store};
    pthread_create(&thread, NULL, claim, &c);
    pthread_join(thread, NULL);
    assert_string_equal(c.claimed, "");
    lvn_arena_free(a);
    lvn_store_close(store);
}

enum { HANDS = 3, TURNS = 400 };

/* Takes what there is and finishes it: at once where the store lets it, else through the executor. */
static void *work_at_once(void *arg)
{
    claimer *c = arg;
    lvn_arena *a = lvn_arena_new(0);
    for (int done = 0; done < TURNS;) {
        lvn_op take = {.kind = LVN_OP_DEQUEUE, .arena = a, .in.dequeue = {1, LVN_STR("w"), 0}};
        if (!lvn_store_try(c->store, &take) && lvn_store_call(c->store, &take))
            abort();
        if (!take.out.rollouts.count)
            continue;
        lvn_op end = {.kind = LVN_OP_UPDATE_ATTEMPT, .arena = a};
        end.in.update_attempt.rollout_id = take.out.rollouts.items[0].rollout.rollout_id;
        end.in.update_attempt.attempt_id = LVN_STR("latest");
        end.in.update_attempt.set = LVN_SET_STATUS;
        end.in.update_attempt.values.status = LVN_ATTEMPT_SUCCEEDED;
        if (!lvn_store_try(c->store, &end) && lvn_store_call(c->store, &end))
            abort();
        done++;
    }
    lvn_arena_free(a);
    return NULL;
}

static void turns_taken_by_callers_and_by_the_executor_keep_one_order(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    claimer c = {.store = store};
    pthread_t hands[HANDS];
    for (int i = 0; i < HANDS; i++)
        assert_int_equal(pthread_create(&hands[i], NULL, work_at_once, &c), 0);
    lvn_str *ids = lvn_arena_array(a, HANDS * TURNS, sizeof(*ids));
    for (int i = 0; i < HANDS * TURNS; i++)
        ids[i] = enqueue(store, a, "1");
    /* Parked with the executor, ended by whoever finishes the last one. */
    lvn_op *wait = call(store, a, (lvn_op){.kind = LVN_OP_WAIT, .in.wait = {ids, HANDS * TURNS, 60}});
    assert_int_equal(wait->out.rollouts.count, HANDS * TURNS);
    for (int i = 0; i < HANDS; i++)
        pthread_join(hands[i], NULL);
    static const lvn_rollout_status open[] = {LVN_ROLLOUT_QUEUING, LVN_ROLLOUT_RUNNING};
    lvn_op query = {.kind = LVN_OP_QUERY_ROLLOUTS};
    query.in.query_rollouts.page.limit = -1;
    assert_int_equal(call(store, a, query)->out.rollouts.total, HANDS * TURNS);
    query.in.query_rollouts.status_in = open;
    query.in.query_rollouts.status_count = 2;
    query.in.query_rollouts.has_status_in = true;
    assert_int_equal(call(store, a, query)->out.rollouts.total, 0);
    lvn_arena_free(a);
    lvn_store_close(store);
}

static lvn_op *query(lvn_store *store, lvn_arena *a, const lvn_rollout_status *statuses, size_t count, const lvn_str *ids, size_t id_count)
{
    lvn_op op = {.kind = LVN_OP_QUERY_ROLLOUTS};
    op.in.query_rollouts.status_in = statuses;
    op.in.query_rollouts.status_count = count;
    op.in.query_rollouts.has_status_in = count > 0;
    op.in.query_rollouts.rollout_id_in = (lvn_str_list){ids, id_count, id_count > 0};
    op.in.query_rollouts.page.limit = -1;
    return call(store, a, op);
}

static void open_rollouts_are_found_in_the_order_of_creation(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    lvn_str ids[6];
    for (int i = 0; i < 6; i++)
        ids[i] = enqueue(store, a, "1");
    finish(store, a, dequeue(store, a, "w"), LVN_ATTEMPT_SUCCEEDED); /* the last of the list takes its place there */
    dequeue(store, a, "w");
    static const lvn_rollout_status queuing[] = {LVN_ROLLOUT_QUEUING}, both[] = {LVN_ROLLOUT_QUEUING, LVN_ROLLOUT_SUCCEEDED};
    lvn_op *found = query(store, a, queuing, 1, NULL, 0);
    assert_int_equal(found->out.rollouts.count, 4);
    for (int i = 0; i < 4; i++)
        assert_true(lvn_str_eq(found->out.rollouts.items[i].rollout.rollout_id, ids[2 + i]));
    assert_int_equal(query(store, a, both, 2, NULL, 0)->out.rollouts.count, 5);
    lvn_str some[] = {ids[4], ids[0], LVN_STR("none"), ids[4]};
    found = query(store, a, NULL, 0, some, 4);
    assert_int_equal(found->out.rollouts.count, 2);
    assert_true(lvn_str_eq(found->out.rollouts.items[0].rollout.rollout_id, ids[0]));
    assert_int_equal(query(store, a, queuing, 1, some, 4)->out.rollouts.count, 1);
    lvn_arena_free(a);
    lvn_store_close(store);
}

static void a_retry_is_given_as_a_second_attempt(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    static const uint8_t retry[] = {LVN_ATTEMPT_FAILED};
    lvn_rollout_spec spec = {.input = LVN_STR("0"), .has_config = true};
    lvn_rollout_config_default(&spec.config);
    spec.config.max_attempts = 2;
    spec.config.retry_condition = retry;
    spec.config.retry_count = 1;
    call(store, a, (lvn_op){.kind = LVN_OP_ENQUEUE, .in.enqueue = {.specs = &spec, .count = 1}});
    finish(store, a, dequeue(store, a, "w"), LVN_ATTEMPT_FAILED);
    lvn_attempted *again = dequeue(store, a, "w");
    assert_non_null(again);
    assert_int_equal(again->attempt.sequence_id, 2);
    finish(store, a, again, LVN_ATTEMPT_FAILED);
    assert_null(dequeue(store, a, "w"));
    lvn_arena_free(a);
    lvn_store_close(store);
}

static void a_timeout_is_found_without_any_request(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    lvn_rollout_spec spec = {.input = LVN_STR("0"), .has_config = true};
    lvn_rollout_config_default(&spec.config);
    spec.config.timeout_seconds = 0.1;
    lvn_op *started = call(store, a, (lvn_op){.kind = LVN_OP_START_ROLLOUT, .in.start_rollout = {spec, LVN_STR("w")}});
    lvn_str id = started->out.rollouts.items[0].rollout.rollout_id;
    lvn_op *wait = call(store, a, (lvn_op){.kind = LVN_OP_WAIT, .in.wait = {&id, 1, 20}});
    assert_int_equal(wait->out.rollouts.count, 1);
    assert_int_equal(wait->out.rollouts.items[0].rollout.status, LVN_ROLLOUT_FAILED);
    lvn_arena_free(a);
    lvn_store_close(store);
}

static void everything_is_there_after_a_restart(void **state)
{
    (void)state;
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    lvn_str running = enqueue(store, a, "{\"a\":1}"), second = enqueue(store, a, "2"), third = enqueue(store, a, "3");
    lvn_attempted *r = dequeue(store, a, "w");
    lvn_span span = make_span(running, r->attempt.attempt_id, "s", 5);
    call(store, a, (lvn_op){.kind = LVN_OP_ADD_SPANS, .in.add_spans = {&span, 1, NULL}});
    call(store, a, (lvn_op){.kind = LVN_OP_ADD_RESOURCES, .in.put_resources = {LVN_STR("r1"), LVN_STR("{}")}});
    call(store, a, (lvn_op){.kind = LVN_OP_UPDATE_RESOURCES, .in.put_resources = {LVN_STR("r1"), LVN_STR("{\"x\":{}}")}});
    lvn_store_close(store);
    store = open_store(NULL);
    assert_true(lvn_str_eq(dequeue(store, a, "w")->rollout.rollout_id, second));
    assert_true(lvn_str_eq(dequeue(store, a, "w")->rollout.rollout_id, third));
    lvn_op *got = call(store, a, (lvn_op){.kind = LVN_OP_GET_ROLLOUT, .in.get_rollout = {running}});
    assert_int_equal(got->out.rollouts.items[0].rollout.status, LVN_ROLLOUT_RUNNING);
    assert_true(lvn_str_is(got->out.rollouts.items[0].rollout.input, "{\"a\":1}"));
    lvn_op *next = call(store, a, (lvn_op){.kind = LVN_OP_NEXT_SEQUENCE, .in.next_sequence = {running}});
    assert_int_equal(next->out.sequence_id, 6);
    lvn_op *resources = call(store, a, (lvn_op){.kind = LVN_OP_GET_RESOURCES, .in.get_resources = {LVN_STR_ABSENT}});
    assert_int_equal(resources->out.resources.items[0].version, 2);
    lvn_op *again = call(store, a, (lvn_op){.kind = LVN_OP_STATISTICS});
    assert_int_equal(again->out.statistics.spans, 1);
    lvn_arena_free(a);
    lvn_store_close(store);
}

static void an_acknowledged_write_survives_kill_9(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        lvn_store *store = open_store(NULL);
        lvn_arena *a = lvn_arena_new(0);
        for (;;) {
            lvn_str id = enqueue(store, a, "0");
            if (write(pipes[1], id.ptr, 15) != 15)
                _exit(1);
        }
    }
    close(pipes[1]);
    char ids[40][16] = {0};
    for (int i = 0; i < 40; i++)
        assert_int_equal(read(pipes[0], ids[i], 15), 15);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(pipes[0]);
    lvn_store *store = open_store(NULL);
    lvn_arena *a = lvn_arena_new(0);
    for (int i = 0; i < 40; i++) {
        lvn_op *got = call(store, a, (lvn_op){.kind = LVN_OP_GET_ROLLOUT, .in.get_rollout = {lvn_str_of(ids[i])}});
        assert_int_equal(got->out.rollouts.count, 1);
    }
    lvn_arena_free(a);
    lvn_store_close(store);
}

static void a_second_opener_a_foreign_and_a_newer_file_are_refused(void **state)
{
    (void)state;
    lvn_err err = {0};
    lvn_store *store = open_store(NULL);
    assert_null(open_store(&err));
    assert_int_equal(err.code, LVN_CONFLICT);
    lvn_store_close(store);
    char command[256];
    snprintf(command, sizeof(command), "echo 'not a database at all, but long enough to look at' > %s/store.db; rm -f %s/store.db-*", folder, folder);
    assert_int_equal(system(command), 0);
    assert_null(open_store(&err));
    assert_int_equal(err.code, LVN_INVALID);
}

/* A file that may not grow is what a full disk looks like to SQLite. */
static void a_full_disk_fails_the_write_and_nothing_else(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        lvn_store *store = open_store(NULL);
        lvn_arena *a = lvn_arena_new(0);
        lvn_str kept = enqueue(store, a, "0");
        struct rlimit limit = {400000, RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
        char *large = lvn_alloc(300001);
        memset(large, 'x', 300000);
        large[0] = large[299999] = '"';
        large[300000] = '\0';
        int failures = 0, stored = 1;
        for (int i = 0; i < 6; i++) {
            lvn_rollout_spec spec = {.input = lvn_str_of(large)};
            lvn_op op = {.kind = LVN_OP_ENQUEUE, .arena = a, .in.enqueue = {.specs = &spec, .count = 1}};
            lvn_code code = lvn_store_call(store, &op);
            failures += code == LVN_FULL;
            stored += code == LVN_OK;
        }
        lvn_op *got = call(store, a, (lvn_op){.kind = LVN_OP_GET_ROLLOUT, .in.get_rollout = {kept}});
        lvn_op *total = call(store, a, (lvn_op){.kind = LVN_OP_STATISTICS});
        bool is_good = failures > 0 && got->out.rollouts.count == 1 && total->out.statistics.rollouts == stored;
        limit.rlim_cur = RLIM_INFINITY;
        setrlimit(RLIMIT_FSIZE, &limit);
        enqueue(store, a, "1"); /* there is room again */
        lvn_store_close(store);
        store = open_store(NULL);
        total = call(store, a, (lvn_op){.kind = LVN_OP_STATISTICS});
        is_good = is_good && total->out.statistics.rollouts == stored + 1;
        lvn_store_close(store);
        free(large);
        lvn_arena_free(a);
        _exit(is_good ? 0 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define BOTH(test)                                                                                                                 \
    {"memory: " #test, test, set_up, tear_down, (void *)"memory"}, {"sqlite: " #test, test, set_up, tear_down, (void *)"sqlite"}
#define FILE_ONLY(test) {"sqlite: " #test, test, set_up, tear_down, (void *)"sqlite"}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(rollouts_are_claimed_once_and_in_order),
        BOTH(thirty_claims_of_twenty_tasks_give_twenty_distinct),
        BOTH(spans_are_numbered_kept_once_and_served_in_order),
        BOTH(a_wait_is_woken_by_the_finish_and_a_parked_dequeue_by_work),
        BOTH(turns_taken_by_callers_and_by_the_executor_keep_one_order),
        BOTH(open_rollouts_are_found_in_the_order_of_creation),
        BOTH(a_retry_is_given_as_a_second_attempt),
        BOTH(a_timeout_is_found_without_any_request),
        FILE_ONLY(everything_is_there_after_a_restart),
        FILE_ONLY(an_acknowledged_write_survives_kill_9),
        FILE_ONLY(a_second_opener_a_foreign_and_a_newer_file_are_refused),
        FILE_ONLY(a_full_disk_fails_the_write_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
