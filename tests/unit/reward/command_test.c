/* Scorers that are commands: what they get, what they may print, and that nothing of them is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "reward/reward.h"

typedef struct outcome {
    lvn_code code;
    double reward;
    char feedback[128];
    lvn_err err;
} outcome;

static outcome run_with(lvn_reward_command_config config, const char *script, lvn_str task,
                        lvn_str output)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    lvn_arena *arena = lvn_arena_new(0);
    lvn_reward_command_result result = {0};
    outcome o = {0};
    config.argv = argv;
    o.code = lvn_reward_command(&config, arena, task, output, &result, &o.err);
    o.reward = result.reward;
    snprintf(o.feedback, sizeof(o.feedback), "%.*s", LVN_STR_ARG(result.feedback));
    lvn_arena_free(arena);
    return o;
}

static outcome run(const char *script)
{
    return run_with((lvn_reward_command_config){0}, script, LVN_STR("{\"a\": 1}"),
                    LVN_STR("\"x\""));
}

static void numbers_and_objects_are_rewards(void **state)
{
    (void)state;
    assert_true(run("echo 0.5").reward == 0.5);
    assert_true(run("echo -3").reward == -3);
    assert_true(run("echo progress; echo; echo ' 1 '; echo").reward == 1);
    const outcome o = run("echo '{\"reward\": 0.25, \"feedback\": \"close\"}'");
    assert_int_equal(o.code, LVN_OK);
    assert_true(o.reward == 0.25);
    assert_string_equal(o.feedback, "close");
}

static void it_gets_task_and_output_as_one_line(void **state)
{
    (void)state;
    const outcome o = run_with((lvn_reward_command_config){0},
                               "IFS= read -r line; test \"$line\" = '{\"task\": {  \"a\": 1}, "
                               "\"output\": null}' || exit 9;"
                               "read -r more && exit 8; echo 1",
                               LVN_STR("{\n \"a\": 1}"), LVN_STR_ABSENT);
    assert_int_equal(o.code, LVN_OK);
}

static void a_large_input_reaches_a_slow_reader(void **state)
{
    (void)state;
    const size_t size = 1 << 20;
    char *text = malloc(size);
    memset(text, 'a', size);
    text[0] = text[size - 1] = '"';
    const outcome o = run_with((lvn_reward_command_config){0}, "sleep 0.1; wc -c", LVN_STR("null"),
                               (lvn_str){text, size});
    free(text);
    assert_int_equal(o.code, LVN_OK);
    assert_true(o.reward == (double)size + 27);
}

static void a_scorer_that_reads_nothing_is_fine(void **state)
{
    (void)state;
    const size_t size = 1 << 20;
    char *text = malloc(size);
    memset(text, '1', size);
    const outcome o = run_with((lvn_reward_command_config){0}, "exec <&-; echo 2", LVN_STR("null"),
                               (lvn_str){text, size});
    free(text);
    assert_int_equal(o.code, LVN_OK);
    assert_true(o.reward == 2);
    sigset_t pending;
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

static void what_is_no_reward_is_a_clear_error(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "true",
        "echo",
        "echo good",
        "echo true",
        "echo null",
        "echo '\"1\"'",
        "echo '[1]'",
        "echo '{\"score\": 1}'",
        "echo '{\"reward\": \"1\"}'",
        "echo '{\"reward\": true}'",
        "echo NaN",
        "echo Infinity",
        "echo 1e999",
        "echo 1 2",
        "echo '{\"reward\": NaN}'",
        "printf '1\\0002'",
    };
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        const outcome o = run(scripts[i]);
        if (o.code != LVN_INVALID || strstr(o.err.message, "scorer sh") == NULL)
            fail_msg("%s: %s, %s", scripts[i], lvn_code_name(o.code), o.err.message);
    }
}

static void a_failure_is_told_with_its_status(void **state)
{
    (void)state;
    outcome o = run("echo 1; exit 3");
    assert_int_equal(o.code, LVN_INVALID);
    assert_non_null(strstr(o.err.message, "exit status 3"));
    o = run("echo 1; kill -SEGV $$");
    assert_int_equal(o.code, LVN_INVALID);
    assert_non_null(strstr(o.err.message, "signal 11"));
}

static void a_missing_command_is_not_found(void **state)
{
    (void)state;
    const char *const argv[] = {"/nowhere/scorer", NULL};
    lvn_arena *arena = lvn_arena_new(0);
    lvn_reward_command_result result;
    lvn_err err = {0};
    const lvn_reward_command_config config = {.argv = argv};
    assert_int_equal(lvn_reward_command(&config, arena, LVN_STR("1"), LVN_STR("1"), &result, &err),
                     LVN_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere/scorer"));
    lvn_arena_free(arena);
}

static void endless_output_is_cut_off(void **state)
{
    (void)state;
    const outcome o = run_with((lvn_reward_command_config){.max_output_bytes = 1000}, "yes",
                               LVN_STR("1"), LVN_STR("1"));
    assert_int_equal(o.code, LVN_TOO_LARGE);
    assert_non_null(strstr(o.err.message, "1000 bytes"));
}

static void wait_until_gone(pid_t pid)
{
    const int64_t limit = lvn_clock_monotonic_ns() + 5 * LVN_NS_PER_S;
    char name[64];
    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    for (;;) {
        FILE *stat = fopen(name, "re");
        char letter = 'Z';
        if (stat == NULL)
            return;
        const int fields = fscanf(stat, "%*d (%*[^)]) %c", &letter);
        fclose(stat);
        if (fields != 1 || letter == 'Z')
            return;
        if (lvn_clock_monotonic_ns() > limit)
            fail_msg("process %d is still there", (int)pid);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static pid_t pid_in(const char *path)
{
    int pid = 0;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &pid), 1);
    fclose(file);
    unlink(path);
    return pid;
}

static void its_children_end_with_it(void **state)
{
    (void)state;
    char path[] = "/tmp/levin-reward-XXXXXX", script[256];
    close(mkstemp(path));
    snprintf(script, sizeof(script), "sleep 600 & echo $! > %s; echo 1", path);
    const int64_t start = lvn_clock_monotonic_ns();
    const outcome o = run(script);
    assert_int_equal(o.code, LVN_OK);
    assert_true(o.reward == 1);
    assert_true(lvn_clock_monotonic_ns() - start < 5 * LVN_NS_PER_S);
    wait_until_gone(pid_in(path));
}

static void the_whole_group_ends_at_the_timeout(void **state)
{
    (void)state;
    char path[] = "/tmp/levin-reward-XXXXXX", script[256];
    close(mkstemp(path));
    snprintf(script, sizeof(script), "trap '' TERM INT; sleep 600 & echo $! > %s; wait", path);
    const int64_t start = lvn_clock_monotonic_ns();
    const outcome o = run_with((lvn_reward_command_config){.timeout_ms = 300}, script, LVN_STR("1"),
                               LVN_STR("1"));
    assert_int_equal(o.code, LVN_TIMEOUT);
    assert_non_null(strstr(o.err.message, "300 ms"));
    assert_true(lvn_clock_monotonic_ns() - start < 5 * LVN_NS_PER_S);
    wait_until_gone(pid_in(path));
}

static void it_runs_in_the_folder_it_was_given(void **state)
{
    (void)state;
    const outcome o = run_with((lvn_reward_command_config){.directory = "/"},
                               "test \"$(pwd)\" = / && echo 1", LVN_STR("1"), LVN_STR("1"));
    assert_int_equal(o.code, LVN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_objects_are_rewards),
        cmocka_unit_test(it_gets_task_and_output_as_one_line),
        cmocka_unit_test(a_large_input_reaches_a_slow_reader),
        cmocka_unit_test(a_scorer_that_reads_nothing_is_fine),
        cmocka_unit_test(what_is_no_reward_is_a_clear_error),
        cmocka_unit_test(a_failure_is_told_with_its_status),
        cmocka_unit_test(a_missing_command_is_not_found),
        cmocka_unit_test(endless_output_is_cut_off),
        cmocka_unit_test(its_children_end_with_it),
        cmocka_unit_test(the_whole_group_ends_at_the_timeout),
        cmocka_unit_test(it_runs_in_the_folder_it_was_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
