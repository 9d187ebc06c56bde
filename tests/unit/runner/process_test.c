/* One supervised child: what it does wrong on purpose must neither hang us nor leave anything behind. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/ids.h"
#include "children.h"
#include "runner/process.h"
#include "runner/strays.h"
#include "runner/text.h"

static const lvn_process_step gentle[] = {{SIGTERM, 300}};

static lvn_process *spawn_shell(const char *script, size_t limit)
{
    const char *argv[] = {"sh", "-c", script, "levin-test", NULL};
    char test_pid[32];
    snprintf(test_pid, sizeof(test_pid), "LEVIN_TEST_PID=%d", getpid());
    const char *env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "COLOUR=blue", test_pid, NULL};
    lvn_process_spec spec = {.argv = argv, .env = env, .limit_bytes = limit};
    lvn_process *p = NULL;
    lvn_err err = {0};
    if (lvn_process_spawn(&spec, &p, &err))
        fail_msg("%s", err.message);
    return p;
}

/* Pumps until one of `wanted` or ten seconds have passed. */
static unsigned pump_until(lvn_process *p, unsigned wanted)
{
    int64_t deadline = lvn_clock_monotonic_ns() + 10 * LVN_NS_PER_S;
    unsigned events;
    do
        events = lvn_process_pump(p, -1, deadline);
    while (!(events & (wanted | LVN_PROCESS_DEADLINE)));
    return events;
}

static void output_and_status_are_collected(void **state)
{
    (void)state;
    lvn_process *p = spawn_shell("read x; echo \"$x $COLOUR\"; echo first >&2; echo ' the end ' >&2; exit 3", 1000);
    lvn_process_feed(p, LVN_STR("hello\n"), true);
    assert_true(pump_until(p, LVN_PROCESS_EXITED) & LVN_PROCESS_EXITED);
    lvn_process_exit end;
    lvn_process_end(p, NULL, 0, &end);
    assert_string_equal(lvn_process_output(p)->ptr, "hello blue\n");
    assert_string_equal(lvn_process_last_words(p), "the end");
    assert_true(end.is_known && !end.was_killed);
    assert_int_equal(end.status, 3);
    lvn_process_free(p);
    assert_int_equal(count_children(), 0);
}

static void signals_are_named(void **state)
{
    (void)state;
    lvn_process *p = spawn_shell("kill -SEGV $$", 1000);
    pump_until(p, LVN_PROCESS_EXITED);
    lvn_process_exit end;
    lvn_process_end(p, NULL, 0, &end);
    char text[100];
    lvn_process_describe_exit(&end, text, sizeof(text));
    assert_string_equal(text, "was killed by signal 11 (SIGSEGV)");
    lvn_process_free(p);
}

static void the_child_has_default_signals_and_only_three_descriptors(void **state)
{
    (void)state;
    int extra = dup(2); /* not close-on-exec: it must not reach the child all the same */
    signal(SIGPIPE, SIG_IGN);
    /* exec: a shell blocks signals now and then itself */
    lvn_process *p = spawn_shell("exec grep -E 'SigIgn|SigBlk' /proc/self/status", 1000);
    lvn_process *files = spawn_shell("exec ls /proc/self/fd", 1000); /* and 3 is the folder itself */
    pump_until(p, LVN_PROCESS_EXITED);
    pump_until(files, LVN_PROCESS_EXITED);
    signal(SIGPIPE, SIG_DFL);
    close(extra);
    lvn_process_exit end;
    lvn_process_end(p, NULL, 0, &end);
    lvn_process_end(files, NULL, 0, &end);
    assert_string_equal(lvn_process_output(p)->ptr, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    assert_string_equal(lvn_process_output(files)->ptr, "0\n1\n2\n3\n");
    lvn_process_free(p);
    lvn_process_free(files);
}

static void a_program_that_cannot_start_is_explained(void **state)
{
    (void)state;
    char script[64] = "/tmp/levin-process-XXXXXX";
    int fd = mkstemp(script);
    assert_int_equal(write(fd, "echo hello\n", 11), 11);
    close(fd);
    struct {
        const char *name;
        lvn_code code;
        const char *words;
    } cases[] = {
        {"levin-no-such-program", LVN_NOT_FOUND, "there is no program \"levin-no-such-program\" in PATH"},
        {"/no/such/file", LVN_NOT_FOUND, "/no/such/file: No such file or directory"},
        {"/tmp", LVN_INVALID, "folder"},
        {script, LVN_INVALID, "cannot be executed (chmod +x"},
        {"", LVN_INVALID, "empty"},
    };
    int before = count_fds();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *argv[] = {cases[i].name, NULL};
        lvn_process_spec spec = {.argv = argv, .limit_bytes = 10};
        lvn_process *p = NULL;
        lvn_err err = {0};
        assert_int_equal(lvn_process_spawn(&spec, &p, &err), cases[i].code);
        assert_null(p);
        assert_non_null(strstr(err.message, cases[i].words));
    }
    chmod(script, 0755); /* now executable, but without a first line that names an interpreter */
    const char *argv[] = {script, NULL};
    lvn_process_spec spec = {.argv = argv, .limit_bytes = 10};
    lvn_process *p = NULL;
    lvn_err err = {0};
    assert_int_equal(lvn_process_spawn(&spec, &p, &err), LVN_INVALID);
    assert_non_null(strstr(err.message, "not a program"));
    spec.directory = "/no/such/folder";
    spec.argv = (const char *[]){"sh", NULL};
    assert_int_equal(lvn_process_spawn(&spec, &p, &err), LVN_NOT_FOUND);
    assert_non_null(strstr(err.message, "/no/such/folder"));
    unlink(script);
    assert_int_equal(count_fds(), before);
    assert_int_equal(count_children(), 0);
}

static void input_that_is_not_read_does_not_hang(void **state)
{
    (void)state;
    size_t size = 8 << 20;
    char *big = calloc(1, size);
    lvn_process *p = spawn_shell("exec sleep 0.2", 1000);
    lvn_process_feed(p, (lvn_str){big, size}, true);
    assert_true(pump_until(p, LVN_PROCESS_EXITED) & LVN_PROCESS_EXITED);
    lvn_process_free(p);
    p = spawn_shell("exec <&-; sleep 0.1; echo fine", 1000); /* closes it: EPIPE, no SIGPIPE */
    lvn_process_feed(p, (lvn_str){big, size}, true);
    assert_true(pump_until(p, LVN_PROCESS_EXITED) & LVN_PROCESS_EXITED);
    lvn_process_exit end;
    lvn_process_end(p, NULL, 0, &end);
    assert_string_equal(lvn_process_output(p)->ptr, "fine\n");
    lvn_process_free(p);
    free(big);
}

static void huge_input_is_read_whole(void **state)
{
    (void)state;
    size_t size = 8 << 20;
    char *big = malloc(size);
    memset(big, 'x', size);
    lvn_process *p = spawn_shell("wc -c", 1000);
    lvn_process_feed(p, (lvn_str){big, size}, true);
    pump_until(p, LVN_PROCESS_EXITED);
    lvn_process_exit end;
    lvn_process_end(p, NULL, 0, &end);
    assert_int_equal(strtol(lvn_process_output(p)->ptr, NULL, 10), size);
    lvn_process_free(p);
    free(big);
}

static void endless_output_is_noticed_and_ended(void **state)
{
    (void)state;
    static const char *const scripts[] = {"yes", "yes >&2", "cat /dev/zero", "yes & yes >&2 & wait"};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
        lvn_process *p = spawn_shell(scripts[i], 100000);
        assert_true(pump_until(p, LVN_PROCESS_OVERFLOW) & LVN_PROCESS_OVERFLOW);
        lvn_process_exit end;
        lvn_process_end(p, NULL, 0, &end);
        assert_true(end.was_killed);
        assert_true(lvn_process_output(p)->len <= 100000);
        lvn_process_free(p);
    }
    assert_int_equal(count_children(), 0);
}

static void closed_output_is_said_and_waited_for(void **state)
{
    (void)state;
    lvn_process *p = spawn_shell("exec >&- 2>&-; sleep 0.2; exit 5", 1000);
    assert_true(pump_until(p, LVN_PROCESS_CLOSED) & LVN_PROCESS_CLOSED);
    assert_true(pump_until(p, LVN_PROCESS_EXITED) & LVN_PROCESS_EXITED);
    lvn_process_exit end;
    lvn_process_end(p, NULL, 0, &end);
    assert_int_equal(end.status, 5);
    lvn_process_free(p);
}

static void a_group_that_ignores_sigterm_is_killed_whole(void **state)
{
    (void)state;
    lvn_process *p = spawn_shell("t=3331.$LEVIN_TEST_PID; trap '' TERM INT; (trap '' TERM; sleep $t) & (setsid sleep $t) & "
                                 "(env -i setsid sleep $t) & echo up; while :; do sleep 0.05; done", 1000);
    pump_until(p, LVN_PROCESS_OUTPUT);
    int64_t start = lvn_clock_monotonic_ns();
    lvn_process_exit end;
    lvn_process_end(p, gentle, 1, &end);
    int64_t ms = (lvn_clock_monotonic_ns() - start) / LVN_NS_PER_MS;
    assert_true(end.was_killed && end.signal == SIGKILL);
    assert_in_range(ms, 300, 3000);
    lvn_process_free(p);
    assert_false(is_any_running("3331"));
    assert_int_equal(count_children(), 0);
}

static void sigterm_is_obeyed_with_time_to_clean_up(void **state)
{
    (void)state;
    lvn_process *p = spawn_shell("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done", 1000);
    pump_until(p, LVN_PROCESS_OUTPUT);
    lvn_process_exit end;
    lvn_process_end(p, (lvn_process_step[]){{SIGTERM, 5000}}, 1, &end);
    assert_false(end.was_killed);
    assert_int_equal(end.status, 7);
    assert_string_equal(lvn_process_output(p)->ptr, "up\nbye\n");
    lvn_process_free(p);
}

static void daemons_do_not_survive_a_normal_end(void **state)
{
    (void)state;
    /* In the background; in a session of its own; and twice forked, holding our pipes open. */
    lvn_process *p = spawn_shell("t=3332.$LEVIN_TEST_PID; sleep $t & setsid sleep $t & "
                                 "(setsid sh -c \"sleep $t & sleep $t\" &) ; echo done", 1000);
    pump_until(p, LVN_PROCESS_EXITED);
    int64_t start = lvn_clock_monotonic_ns();
    lvn_process_exit end;
    lvn_process_end(p, NULL, 0, &end);
    assert_true(lvn_clock_monotonic_ns() - start < 2 * LVN_NS_PER_S);
    assert_int_equal(end.status, 0);
    assert_string_equal(lvn_process_output(p)->ptr, "done\n");
    lvn_process_free(p);
    assert_false(is_any_running("3332"));
    assert_int_equal(count_children(), 0);
}

static void a_flock_of_forks_is_killed_whole(void **state)
{
    (void)state;
    lvn_process *p = spawn_shell("t=3333.$LEVIN_TEST_PID; for i in $(seq 40); do (while :; do sleep $t & wait $!; done) & done;"
                                 "echo up; wait", 1000);
    pump_until(p, LVN_PROCESS_OUTPUT);
    lvn_process_exit end;
    lvn_process_end(p, gentle, 1, &end);
    lvn_process_free(p);
    assert_false(is_any_running("3333"));
    assert_int_equal(count_children(), 0);
}

static void orphans_that_die_unnoticed_are_buried(void **state)
{
    (void)state;
    /* An orphan that hides in a session of its own without the marker, and dies: nobody would collect it. */
    lvn_process *p = spawn_shell("(env -i setsid sleep 0.1 &); sleep 0.05", 1000);
    pump_until(p, LVN_PROCESS_EXITED);
    lvn_process_free(p);
    lvn_strays_seen seen = {.count = 0};
    int64_t deadline = lvn_clock_monotonic_ns() + 5 * LVN_NS_PER_S;
    do {
        lvn_strays_bury(&seen, NULL);
        usleep(20000);
    } while (seen.count == 0 && lvn_clock_monotonic_ns() < deadline);
    lvn_strays_bury(&seen, NULL);
    assert_int_equal(count_children(), 0);
}

static void waking_and_deadlines_interrupt_a_pump(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    lvn_process *p = spawn_shell("sleep 3334.$LEVIN_TEST_PID", 1000);
    int64_t start = lvn_clock_monotonic_ns();
    assert_int_equal(lvn_process_pump(p, ends[0], start + 50 * LVN_NS_PER_MS), LVN_PROCESS_DEADLINE);
    assert_true(lvn_clock_monotonic_ns() - start >= 50 * LVN_NS_PER_MS);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(lvn_process_pump(p, ends[0], INT64_MAX), LVN_PROCESS_WOKEN);
    lvn_process_free(p);
    close(ends[0]);
    close(ends[1]);
    assert_false(is_any_running("3334"));
}

static void the_log_keeps_head_and_tail(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/levin-log-%d", getpid());
    lvn_attempt_log log;
    lvn_attempt_log_init(&log, path);
    assert_false(lvn_attempt_log_has_file(&log));
    for (int i = 0; i < 100000; i++)
        lvn_attempt_log_printf(&log, "line %d\n", i);
    lvn_attempt_log_done(&log);
    FILE *f = fopen(path, "r");
    static char text[400000];
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = 0;
    fclose(f);
    unlink(path);
    assert_in_range(n, LVN_ATTEMPT_LOG_HEAD + LVN_ATTEMPT_LOG_TAIL, LVN_ATTEMPT_LOG_HEAD + LVN_ATTEMPT_LOG_TAIL + 100);
    assert_ptr_equal(strstr(text, "line 0\n"), text);
    assert_non_null(strstr(text, "bytes left out]"));
    assert_string_equal(text + n - 11, "line 99999\n");
}

/* Whatever lies between head and tail exactly fits must come out unchanged. */
static void a_log_that_fits_is_whole(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/levin-log-%d", getpid());
    for (size_t size = LVN_ATTEMPT_LOG_HEAD - 1; size <= LVN_ATTEMPT_LOG_HEAD + LVN_ATTEMPT_LOG_TAIL; size += 4369) {
        char *bytes = malloc(size), *back = malloc(size + 1);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (char)(i * 7 + i / 251);
        lvn_attempt_log log;
        lvn_attempt_log_init(&log, path);
        for (size_t at = 0; at < size; at += 1000)
            lvn_attempt_log_write(&log, bytes + at, size - at < 1000 ? size - at : 1000);
        lvn_attempt_log_done(&log);
        FILE *f = fopen(path, "r");
        assert_int_equal(fread(back, 1, size + 1, f), size);
        fclose(f);
        assert_memory_equal(bytes, back, size);
        free(bytes);
        free(back);
    }
    unlink(path);
}

static void odd_bytes_are_cleaned(void **state)
{
    (void)state;
    char out[16];
    lvn_text_clean(LVN_STR("a\xff\xc3\xa9\x01\xed\xa0\x80z"), out, sizeof(out));
    assert_string_equal(out, "a?\xc3\xa9????z");
    lvn_text_clean(LVN_STR("0123456789abc\xe2\x82\xac"), out, sizeof(out)); /* no half characters at the cut */
    assert_string_equal(out, "0123456789abc");
    assert_true(lvn_str_is(lvn_text_last_line(LVN_STR("x\n  the last \r\n\n \n")), "the last"));
    assert_int_equal(lvn_text_last_line(LVN_STR(" \n\n")).len, 0);
    assert_int_equal(lvn_text_last_line(LVN_STR("")).len, 0);
}

int main(void)
{
    set_test_pid();
    lvn_strays_adopt();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_status_are_collected),
        cmocka_unit_test(signals_are_named),
        cmocka_unit_test(the_child_has_default_signals_and_only_three_descriptors),
        cmocka_unit_test(a_program_that_cannot_start_is_explained),
        cmocka_unit_test(input_that_is_not_read_does_not_hang),
        cmocka_unit_test(huge_input_is_read_whole),
        cmocka_unit_test(endless_output_is_noticed_and_ended),
        cmocka_unit_test(closed_output_is_said_and_waited_for),
        cmocka_unit_test(a_group_that_ignores_sigterm_is_killed_whole),
        cmocka_unit_test(sigterm_is_obeyed_with_time_to_clean_up),
        cmocka_unit_test(daemons_do_not_survive_a_normal_end),
        cmocka_unit_test(a_flock_of_forks_is_killed_whole),
        cmocka_unit_test(orphans_that_die_unnoticed_are_buried),
        cmocka_unit_test(waking_and_deadlines_interrupt_a_pump),
        cmocka_unit_test(the_log_keeps_head_and_tail),
        cmocka_unit_test(a_log_that_fits_is_whole),
        cmocka_unit_test(odd_bytes_are_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
