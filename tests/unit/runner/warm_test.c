/* Warm workers: the protocol, and every way of breaking it. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "children.h"
#include "runner/strays.h"
#include "runner/warm.h"

/* A worker that does what its task says. */
static const char worker[] =
    "import json, os, sys, time, signal, subprocess\n"
    "mode = sys.argv[1]\n"
    "if mode == 'raises': raise ModuleNotFoundError(\"No module named 'nosuch'\")\n"
    "if mode == 'unready': print(json.dumps({'ready': False, 'error': 'SyntaxError: bad'}), flush=True); sys.exit(1)\n"
    "if mode == 'slow': print('importing', file=sys.stderr, flush=True); time.sleep(3335)\n"
    "if mode == 'chatty': print('hello world', flush=True)\n"
    "print(json.dumps({'ready': True}), flush=True)\n"
    "for line in sys.stdin:\n"
    "    m = json.loads(line); t = m['task']; do = t.get('do')\n"
    "    print('doing', do, file=sys.stderr, flush=True)\n"
    "    answer = {'id': m['id'], 'ok': True, 'output': t.get('x')}\n"
    "    if do == 'env': answer['output'] = m['env']['NAME']\n"
    "    if do == 'pid': answer['output'] = str(os.getpid())\n"
    "    if do == 'reward': answer['reward'] = 0.25\n"
    "    if do == 'nested': answer['output'] = {'output': 'in', 'reward': True}\n"
    "    if do == 'raise': answer = {'id': m['id'], 'ok': False, 'error': 'ValueError: bad', 'traceback': 'Traceback ...'}\n"
    "    if do == 'exit': os._exit(3)\n"
    "    if do == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n"
    "    if do == 'hang': subprocess.Popen(['sleep', '3336.' + os.environ['LEVIN_TEST_PID']]); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3336)\n"
    "    if do == 'wrong id': answer['id'] = 77\n"
    "    if do == 'text': print('debug', flush=True)\n"
    "    if do == 'garbage': sys.stdout.buffer.write(b'\\x00\\xff\\xfe{\\n'); sys.stdout.flush()\n"
    "    if do == 'endless': \n"
    "        while True: sys.stdout.write('x' * 4096)\n"
    "    if do == 'endless stderr': \n"
    "        while True: sys.stderr.write('x' * 4096)\n"
    "    if do == 'close': os.close(1); time.sleep(3336)\n"
    "    if do == 'twice': print(json.dumps(answer), flush=True)\n"
    "    if do == 'no output': del answer['output']\n"
    "    if do == 'late': print(json.dumps(answer), flush=True); time.sleep(0.1); print('late', flush=True); continue\n"
    "    print(json.dumps(answer), flush=True)\n"
    "    if do == 'die after': os._exit(0)\n";

static char script[64];
static const char *argv[] = {"python3", "-u", script, "good", NULL};
static char test_pid[32];
static const char *env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", test_pid, NULL};
static lvn_warm_config config;
static lvn_arena *arena;
static lvn_warm *warm;
static lvn_result result;
static lvn_err err;

static int set_up(void **state)
{
    (void)state;
    argv[3] = "good";
    config = (lvn_warm_config){.argv = argv, .env = env, .limit_bytes = 1 << 20, .ready_timeout_ms = 20000,
                               .term = {SIGTERM, 200}};
    arena = lvn_arena_new(0);
    warm = lvn_warm_new(&config);
    err = (lvn_err){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lvn_warm_free(warm);
    lvn_arena_free(arena);
    return count_children();
}

static void be_ready(void)
{
    if (lvn_warm_await_ready(warm, -1, &err))
        fail_msg("%s", err.message);
}

static lvn_code call_within(const char *task, int64_t ms)
{
    lvn_warm_task t = {.task = lvn_str_of(task), .env = LVN_STR("{\"NAME\":\"value\"}"), .cancel_fd = -1,
                       .deadline_ns = lvn_clock_monotonic_ns() + ms * LVN_NS_PER_MS};
    return lvn_warm_call(warm, &t, arena, &result, &err);
}

static lvn_code call(const char *task)
{
    be_ready();
    return call_within(task, 20000);
}

static void expect_output(const char *task, const char *output)
{
    if (call(task))
        fail_msg("%s", err.message);
    assert_true(lvn_str_is(result.output, output));
}

static void answers_come_back(void **state)
{
    (void)state;
    expect_output("{\"x\":\"SELECT 1\"}", "SELECT 1");
    expect_output("{\"x\":[1,{\"a\":null}]}", "[1,{\"a\":null}]");
    expect_output("{\"do\":\"env\"}", "value");
    assert_false(result.has_reward);
    expect_output("{\"do\":\"reward\",\"x\":1}", "1");
    assert_true(result.has_reward && result.reward == 0.25);
    expect_output("{\"do\":\"nested\"}", "in");
    assert_true(result.has_reward && result.reward == 1.0);
    expect_output("{}", "null");
    assert_int_equal(lvn_warm_starts(warm), 1);
}

static void a_function_that_raises_keeps_its_worker(void **state)
{
    (void)state;
    assert_int_equal(call("{\"do\":\"raise\"}"), LVN_INVALID);
    assert_string_equal(err.message, "the agent raised ValueError: bad");
    expect_output("{\"x\":\"on\"}", "on");
    assert_int_equal(lvn_warm_starts(warm), 1);
    assert_int_equal(lvn_warm_deaths(warm), 0);
}

static void every_bad_end_is_told_and_the_next_task_goes_on(void **state)
{
    (void)state;
    static const struct {
        const char *task;
        lvn_code code;
        const char *words;
    } cases[] = {
        {"{\"do\":\"exit\"}", LVN_IO, "the worker exited with status 3 in the middle of the task: doing exit"},
        {"{\"do\":\"kill\"}", LVN_IO, "was killed by signal 9 (SIGKILL)"},
        {"{\"do\":\"wrong id\"}", LVN_CONFLICT, "wrong \"id\""},
        {"{\"do\":\"text\"}", LVN_CONFLICT, "not a JSON object: debug"},
        {"{\"do\":\"garbage\"}", LVN_CONFLICT, "not a JSON object: ???{"},
        {"{\"do\":\"endless\"}", LVN_TOO_LARGE, "more than 1048576 bytes"},
        {"{\"do\":\"endless stderr\"}", LVN_TOO_LARGE, "more than 1048576 bytes"},
        {"{\"do\":\"close\"}", LVN_CONFLICT, "closed its standard output"},
        {"{\"do\":\"no output\"}", LVN_INVALID, "without \"output\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(call(cases[i].task), cases[i].code);
        if (!strstr(err.message, cases[i].words))
            fail_msg("%s", err.message);
        expect_output("{\"x\":\"on\"}", "on");
    }
}

static void a_timeout_kills_the_worker_whole(void **state)
{
    (void)state;
    be_ready();
    int64_t start = lvn_clock_monotonic_ns();
    assert_int_equal(call_within("{\"do\":\"hang\"}", 300), LVN_TIMEOUT);
    assert_in_range((lvn_clock_monotonic_ns() - start) / LVN_NS_PER_MS, 400, 5000);
    assert_false(is_any_running("3336"));
    assert_int_equal(lvn_warm_deaths(warm), 0);
    expect_output("{\"x\":\"on\"}", "on");
}

static void a_cancel_leaves_the_end_to_the_caller(void **state)
{
    (void)state;
    int fd = eventfd(1, EFD_CLOEXEC);
    be_ready();
    lvn_warm_task t = {.task = LVN_STR("{\"do\":\"hang\"}"), .env = LVN_STR("{}"), .cancel_fd = fd, .deadline_ns = INT64_MAX};
    assert_int_equal(lvn_warm_call(warm, &t, arena, &result, &err), LVN_CANCELLED);
    assert_int_not_equal(lvn_warm_pid(warm), 0);
    lvn_warm_end(warm, &config.term, 1);
    assert_int_equal(lvn_warm_pid(warm), 0);
    close(fd);
}

static void a_worker_that_cannot_start_says_why(void **state)
{
    (void)state;
    argv[3] = "raises";
    assert_int_equal(lvn_warm_await_ready(warm, -1, &err), LVN_UNAVAILABLE);
    assert_string_equal(err.message, "the worker exited with status 1 before it was ready: ModuleNotFoundError: No module "
                                     "named 'nosuch'");
    argv[3] = "chatty";
    assert_int_equal(lvn_warm_await_ready(warm, -1, &err), LVN_UNAVAILABLE);
    assert_string_equal(err.message, "the worker did not say that it is ready but: hello world");
    argv[3] = "unready";
    assert_int_equal(lvn_warm_await_ready(warm, -1, &err), LVN_UNAVAILABLE);
    assert_string_equal(err.message, "the worker could not load the agent: SyntaxError: bad");
    argv[3] = "slow";
    config.ready_timeout_ms = 500;
    assert_int_equal(lvn_warm_await_ready(warm, -1, &err), LVN_UNAVAILABLE);
    assert_string_equal(err.message, "the worker was not ready after 0.5 s; it said: importing");
    assert_int_equal(lvn_warm_deaths(warm), 4);
    const char *none[] = {"levin-no-such-program", NULL};
    config.argv = none;
    assert_int_equal(lvn_warm_await_ready(warm, -1, &err), LVN_UNAVAILABLE);
    assert_non_null(strstr(err.message, "no program"));
}

static void restarts_are_paced_while_it_keeps_dying(void **state)
{
    (void)state;
    argv[3] = "raises";
    int64_t start = lvn_clock_monotonic_ns();
    for (int i = 0; i < 5; i++)
        assert_int_equal(lvn_warm_await_ready(warm, -1, &err), LVN_UNAVAILABLE);
    /* 0 + 0 + 100 + 200 + 400 ms of pauses */
    assert_true(lvn_clock_monotonic_ns() - start >= 700 * LVN_NS_PER_MS);
    assert_int_equal(lvn_warm_deaths(warm), 5);
    argv[3] = "good";
    expect_output("{\"x\":\"on\"}", "on");
    assert_int_equal(lvn_warm_deaths(warm), 0);
}

static void a_fresh_process_comes_after_so_many_answers(void **state)
{
    (void)state;
    config.recycle_after = 2;
    char pids[5][16];
    for (int i = 0; i < 5; i++) {
        assert_int_equal(call("{\"do\":\"pid\"}"), LVN_OK);
        snprintf(pids[i], sizeof(pids[i]), "%.*s", LVN_STR_ARG(result.output));
    }
    assert_string_equal(pids[0], pids[1]);
    assert_string_not_equal(pids[1], pids[2]);
    assert_string_equal(pids[2], pids[3]);
    assert_string_not_equal(pids[3], pids[4]);
    assert_int_equal(lvn_warm_deaths(warm), 0);
}

/* Lets the worker idle until it was started `starts` times or ten seconds have passed. */
static void idle_until_started(unsigned starts)
{
    int64_t deadline = lvn_clock_monotonic_ns() + 10 * LVN_NS_PER_S;
    int fd = eventfd(1, EFD_CLOEXEC); /* readable: idle takes one turn */
    while (lvn_warm_starts(warm) < starts && lvn_clock_monotonic_ns() < deadline) {
        usleep(10000);
        lvn_warm_idle(warm, fd);
    }
    close(fd);
    assert_int_equal(lvn_warm_starts(warm), starts);
}

static void one_that_dies_between_tasks_is_replaced_while_idle(void **state)
{
    (void)state;
    expect_output("{\"do\":\"die after\",\"x\":\"a\"}", "a");
    idle_until_started(2);
    expect_output("{\"do\":\"late\",\"x\":\"b\"}", "b"); /* writes when it has nothing to say */
    idle_until_started(3);
    be_ready();
    kill(lvn_warm_pid(warm), SIGKILL);
    usleep(50000);
    expect_output("{\"x\":\"c\"}", "c"); /* found dead when the task came: no attempt is lost */
    assert_int_equal(lvn_warm_starts(warm), 4);
}

static void two_answers_are_a_breach(void **state)
{
    (void)state;
    expect_output("{\"x\":\"a\"}", "a");
    be_ready();
    lvn_code code = call_within("{\"do\":\"twice\",\"x\":\"b\"}", 10000);
    /* Either both came in one read, or the second is found when it should be idle. */
    assert_true(code == LVN_CONFLICT || code == LVN_OK);
    usleep(20000);
    expect_output("{\"x\":\"c\"}", "c");
}

static void a_big_task_and_a_big_answer_pass(void **state)
{
    (void)state;
    config.limit_bytes = 32 << 20;
    size_t size = 6 << 20;
    char *task = malloc(size + 16);
    size_t n = (size_t)sprintf(task, "{\"x\":\"");
    memset(task + n, 'y', size);
    snprintf(task + n + size, 16 - n, "\"}");
    assert_int_equal(call(task), LVN_OK);
    assert_int_equal(result.output.len, size);
    free(task);
}

static void what_a_worker_says_goes_to_the_log_of_its_task(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/levin-warm-log-%d", getpid());
    lvn_attempt_log log;
    lvn_attempt_log_init(&log, path);
    be_ready();
    lvn_warm_task t = {.task = LVN_STR("{\"do\":\"raise\"}"), .env = LVN_STR("{}"), .cancel_fd = -1, .log = &log,
                       .deadline_ns = INT64_MAX};
    assert_int_equal(lvn_warm_call(warm, &t, arena, &result, &err), LVN_INVALID);
    lvn_attempt_log_done(&log);
    char text[200] = {0};
    FILE *f = fopen(path, "r");
    assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
    fclose(f);
    unlink(path);
    assert_string_equal(text, "doing raise\nTraceback ...\n");
}

int main(void)
{
    set_test_pid();
    snprintf(test_pid, sizeof(test_pid), "LEVIN_TEST_PID=%d", getpid());
    lvn_strays_adopt();
    snprintf(script, sizeof(script), "/tmp/levin-worker-%d.py", getpid());
    FILE *f = fopen(script, "w");
    fwrite(worker, 1, sizeof(worker) - 1, f);
    fclose(f);
#define EACH(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(answers_come_back),
        EACH(a_function_that_raises_keeps_its_worker),
        EACH(every_bad_end_is_told_and_the_next_task_goes_on),
        EACH(a_timeout_kills_the_worker_whole),
        EACH(a_cancel_leaves_the_end_to_the_caller),
        EACH(a_worker_that_cannot_start_says_why),
        EACH(restarts_are_paced_while_it_keeps_dying),
        EACH(a_fresh_process_comes_after_so_many_answers),
        EACH(one_that_dies_between_tasks_is_replaced_while_idle),
        EACH(two_answers_are_a_breach),
        EACH(a_big_task_and_a_big_answer_pass),
        EACH(what_a_worker_says_goes_to_the_log_of_its_task),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(script);
    return failed;
}
