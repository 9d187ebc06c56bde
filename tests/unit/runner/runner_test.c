/* Whole runners on a memory store with real agents: shell lines, programs and warm Python workers. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/json.h"
#include "children.h"
#include "runner/runner.h"

static char folder[64];
static lvn_arena *arena;
static lvn_store *store;
static lvn_runner *runner;
static lvn_runner_config config;
static lvn_err err;
static int fds_before;
static bool is_forked; /* warm workers come from a nursery */

/* ---- the store from a test's point of view ---- */

static void call(lvn_op *op)
{
    op->arena = arena;
    if (lvn_store_call(store, op))
        fail_msg("%s", op->err.message);
}

/* Returns the rollout's id. max_attempts tries for any failure. */
static lvn_str enqueue(const char *input, int64_t max_attempts, double timeout_s)
{
    static const uint8_t retry[] = {LVN_ATTEMPT_FAILED, LVN_ATTEMPT_TIMEOUT};
    lvn_rollout_spec spec = {.input = lvn_str_of(input), .mode = LVN_MODE_TRAIN, .has_config = true};
    lvn_rollout_config_default(&spec.config);
    spec.config.max_attempts = max_attempts;
    spec.config.timeout_seconds = timeout_s;
    spec.config.retry_condition = retry;
    spec.config.retry_count = 2;
    lvn_op op = {.kind = LVN_OP_ENQUEUE};
    op.in.enqueue.specs = &spec;
    op.in.enqueue.count = 1;
    call(&op);
    assert_int_equal(op.out.rollouts.count, 1);
    return op.out.rollouts.items[0].rollout.rollout_id;
}

static lvn_rollout wait_for(lvn_str id)
{
    lvn_op op = {.kind = LVN_OP_WAIT};
    op.in.wait.rollout_ids = &id;
    op.in.wait.count = 1;
    op.in.wait.timeout_s = 60;
    call(&op);
    if (op.out.rollouts.count != 1)
        fail_msg("rollout %.*s does not finish", LVN_STR_ARG(id));
    return op.out.rollouts.items[0].rollout;
}

static size_t attempts_of(lvn_str id, lvn_attempt **out)
{
    lvn_op op = {.kind = LVN_OP_QUERY_ATTEMPTS};
    op.in.query_attempts.rollout_id = id;
    op.in.query_attempts.page.limit = -1;
    call(&op);
    *out = op.out.attempts.items;
    return op.out.attempts.count;
}

static lvn_attempt last_attempt(lvn_str id)
{
    lvn_attempt *items;
    size_t count = attempts_of(id, &items);
    assert_true(count > 0);
    return items[count - 1];
}

static lvn_json metadata_of(lvn_attempt attempt)
{
    lvn_json value = {.kind = LVN_JSON_NULL};
    if (lvn_str_is_absent(attempt.metadata) || lvn_json_parse(arena, attempt.metadata, &value, NULL, &err))
        fail_msg("metadata %.*s", LVN_STR_ARG(attempt.metadata));
    return value;
}

static lvn_span *spans_of(lvn_str id, size_t *out_count)
{
    lvn_op op = {.kind = LVN_OP_QUERY_SPANS};
    op.in.query_spans.rollout_id = id;
    op.in.query_spans.page.limit = -1;
    call(&op);
    *out_count = op.out.spans.count;
    return op.out.spans.items;
}

static int64_t count_status(lvn_rollout_status status)
{
    lvn_op op = {.kind = LVN_OP_QUERY_ROLLOUTS};
    op.in.query_rollouts.status_in = &status;
    op.in.query_rollouts.status_count = 1;
    op.in.query_rollouts.has_status_in = true;
    op.in.query_rollouts.page.limit = -1;
    call(&op);
    return op.out.rollouts.total;
}

/* ---- fixture ---- */

/* The initial state, if any, says that workers are forked. */
static int set_up(void **state)
{
    fds_before = count_fds();
    err = (lvn_err){0};
    is_forked = *state != NULL;
    arena = lvn_arena_new(0);
    snprintf(folder, sizeof(folder), "/tmp/levin-runner-XXXXXX");
    if (!mkdtemp(folder) || lvn_store_open(&(lvn_store_config){.url = "memory"}, &store, &err))
        return 1;
    setenv("TMPDIR", folder, 1);
    config = (lvn_runner_config){
        .workers = 1,
        .gateway_url = "http://127.0.0.1:9",
        .log_directory = lvn_arena_printf(arena, "%s/logs", folder).ptr,
        .term_ms = 200,
        .grace_ms = 200,
    };
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lvn_runner_stop(runner, 0);
    runner = NULL;
    lvn_store_close(store);
    lvn_arena_free(arena);
    char command[200];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    int failed = system(command);
    if (count_fds() != fds_before)
        fprintf(stderr, "descriptors: %d before, %d after\n", fds_before, count_fds());
    return failed || count_children() || count_fds() != fds_before;
}

static void start(void)
{
    if (lvn_runner_start(&config, store, &runner, &err))
        fail_msg("%s", err.message);
}

static void start_shell(const char *line)
{
    config.agent = (lvn_agent_spec){.kind = LVN_AGENT_COMMAND, .shell = line, .max_output_bytes = 200000};
    start();
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = lvn_arena_printf(arena, "%s/%s", folder, name).ptr;
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    return path;
}

static void start_warm(const char *source)
{
    config.agent = (lvn_agent_spec){.kind = LVN_AGENT_WARM, .file = write_file("agent.py", source), .function = "solve",
                                    .max_output_bytes = 200000, .is_forked = is_forked};
    start();
}

static void expect_output(lvn_str id, const char *output)
{
    lvn_rollout r = wait_for(id);
    lvn_json m = metadata_of(last_attempt(id));
    if (r.status != LVN_ROLLOUT_SUCCEEDED)
        fail_msg("%.*s", LVN_STR_ARG(lvn_json_get_str(&m, "error", LVN_STR("?"))));
    lvn_str got = lvn_json_get_str(&m, "output", LVN_STR("?"));
    if (!lvn_str_is(got, output))
        fail_msg("%.*s", LVN_STR_ARG(got));
}

static lvn_str expect_failure(lvn_str id, lvn_attempt_status status, const char *words)
{
    lvn_rollout r = wait_for(id);
    assert_int_equal(r.status, LVN_ROLLOUT_FAILED);
    lvn_attempt a = last_attempt(id);
    assert_int_equal(a.status, status);
    lvn_json m = metadata_of(a);
    lvn_str error = lvn_json_get_str(&m, "error", LVN_STR("?"));
    if (!lvn_str_contains(error, lvn_str_of(words)))
        fail_msg("%.*s", LVN_STR_ARG(error));
    return lvn_json_get_str(&m, "log", LVN_STR_ABSENT);
}

static void expect_in_file(lvn_str path, const char *words)
{
    static char text[300000];
    assert_false(lvn_str_is_absent(path));
    FILE *f = fopen(path.ptr, "r");
    if (!f)
        fail_msg("no %s", path.ptr);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = 0;
    assert_true(n < 140000);
    if (!memmem(text, n, words, strlen(words)))
        fail_msg("%s has: %.300s", path.ptr, text);
}

/* ---- command agents ---- */

static void a_command_gets_its_task_and_its_addresses(void **state)
{
    (void)state;
    config.model = "tiny";
    start_shell("read task; same=no; [ \"$task\" = \"$(cat $LEVIN_TASK_FILE)\" ] && same=yes; echo noise;"
                "printf '{\"output\": \"%s\"}\\n' \"$same $OPENAI_BASE_URL $ANTHROPIC_BASE_URL $LLM_MODEL $OPENAI_API_KEY"
                " $OTEL_RESOURCE_ATTRIBUTES $OTEL_EXPORTER_OTLP_ENDPOINT\"; echo; echo ' '; echo $LEVIN_TASK_FILE >&2");
    lvn_str id = enqueue("{\"question\":\"how many\"}", 1, LVN_TIME_NULL);
    wait_for(id);
    lvn_attempt a = last_attempt(id);
    lvn_str base = lvn_arena_printf(arena, "http://127.0.0.1:9/rollout/%s/attempt/%s", id.ptr, a.attempt_id.ptr);
    expect_output(id, lvn_arena_printf(arena, "yes %s/v1 %s tiny levin agentlightning.rollout_id=%s,agentlightning."
                                              "attempt_id=%s http://127.0.0.1:9",
                                       base.ptr, base.ptr, id.ptr, a.attempt_id.ptr).ptr);
    assert_true(lvn_str_is(a.worker_id, "Worker-0"));
    lvn_json m = metadata_of(a);
    lvn_str log = lvn_json_get_str(&m, "log", LVN_STR_ABSENT);
    expect_in_file(log, "noise\n{\"output\"");
    expect_in_file(log, "levin-task-");
    assert_int_not_equal(system(lvn_arena_printf(arena, "ls %s/levin-task-* >/dev/null 2>&1", folder).ptr), 0);
}

static const char bad_agent[] =
    "read t; case $t in "
    "*crash*) kill -SEGV $$;; "
    "*status*) echo oh no >&2; exit 3;; "
    "*hang*) s=3340.$LEVIN_TEST_PID; trap '' TERM; (trap '' TERM; sleep $s) & setsid sleep $s & sleep $s;; "
    "*endless*) yes;; "
    "*stderr*) yes >&2;; "
    "*silent*) exit 0;; "
    "*text*) echo '{\"output\": 1}'; echo hello;; "
    "*array*) echo '[1]';; "
    "*keys*) echo '{\"answer\": 1}';; "
    "*reward*) echo '{\"output\": 1, \"reward\": \"high\"}';; "
    "*nan*) echo '{\"output\": 1, \"reward\": NaN}';; "
    "*closed*) exec >&-; sleep 0.1;; "
    "*garbage*) printf '\\000\\377\\376{\\n';; "
    "*) echo '{\"output\": \"fine\"}';; esac";

static void every_failure_is_told_and_the_run_goes_on(void **state)
{
    (void)state;
    static const struct {
        const char *input;
        lvn_attempt_status status;
        const char *words, *log;
    } cases[] = {
        {"\"crash\"", LVN_ATTEMPT_FAILED, "the agent was killed by signal 11 (SIGSEGV)", "SIGSEGV"},
        {"\"status\"", LVN_ATTEMPT_FAILED, "the agent exited with status 3: oh no", "oh no\n"},
        {"\"hang\"", LVN_ATTEMPT_TIMEOUT, "the agent ran out of time", "out of time"},
        {"\"endless\"", LVN_ATTEMPT_FAILED, "the agent wrote more than 200000 bytes", "y\ny\ny\n"},
        {"\"stderr\"", LVN_ATTEMPT_FAILED, "the agent wrote more than 200000 bytes", "bytes left out]"},
        {"\"silent\"", LVN_ATTEMPT_FAILED, "the agent printed no answer", "no answer"},
        {"\"text\"", LVN_ATTEMPT_FAILED, "the last line the agent printed is: not JSON: hello", "hello"},
        {"\"array\"", LVN_ATTEMPT_FAILED, "not a JSON object: [1]", "[1]"},
        {"\"keys\"", LVN_ATTEMPT_FAILED, "without \"output\" and \"reward\"", "answer"},
        {"\"reward\"", LVN_ATTEMPT_FAILED, "\"reward\" is not a finite number", "high"},
        {"\"nan\"", LVN_ATTEMPT_FAILED, "\"reward\" is not a finite number", "NaN"},
        {"\"closed\"", LVN_ATTEMPT_FAILED, "the agent printed no answer", "no answer"},
        {"\"garbage\"", LVN_ATTEMPT_FAILED, "not UTF-8: ???{", "{"},
    };
    config.timeout_ms = 1000;
    config.workers = 3;
    start_shell(bad_agent);
    enum { N = sizeof(cases) / sizeof(*cases) };
    lvn_str ids[N];
    for (size_t i = 0; i < N; i++)
        ids[i] = enqueue(cases[i].input, 1, LVN_TIME_NULL);
    lvn_str good = enqueue("\"good\"", 1, LVN_TIME_NULL);
    for (size_t i = 0; i < N; i++)
        expect_in_file(expect_failure(ids[i], cases[i].status, cases[i].words), cases[i].log);
    expect_output(good, "fine");
    assert_false(is_any_running("3340"));
    lvn_runner_stats stats;
    lvn_runner_get_stats(runner, &stats);
    assert_int_equal(stats.succeeded, 1);
    assert_int_equal(stats.failed, N - 1);
    assert_int_equal(stats.timeouts, 1);
    assert_int_equal(stats.processes, N + 1);
}

static void the_rollouts_own_timeout_counts(void **state)
{
    (void)state;
    start_shell(bad_agent);
    lvn_str id = enqueue("\"hang\"", 1, 0.4), next = enqueue("\"good\"", 1, LVN_TIME_NULL);
    /* The store's watchdog may be first; the agent is killed all the same, and its slot is free again. */
    assert_int_equal(wait_for(id).status, LVN_ROLLOUT_FAILED);
    assert_int_equal(last_attempt(id).status, LVN_ATTEMPT_TIMEOUT);
    expect_output(next, "fine");
    assert_false(is_any_running("3340"));
}

static void failures_are_retried_as_the_rollout_says(void **state)
{
    (void)state;
    start_shell(lvn_arena_printf(arena, "echo x >> %s/tries; [ $(wc -l < %s/tries) -ge 3 ] && echo '{\"output\": \"third\"}'",
                                 folder, folder).ptr);
    lvn_str id = enqueue("1", 5, LVN_TIME_NULL);
    expect_output(id, "third");
    lvn_attempt *attempts;
    assert_int_equal(attempts_of(id, &attempts), 3);
    assert_int_equal(attempts[0].status, LVN_ATTEMPT_FAILED);
    assert_int_equal(attempts[1].status, LVN_ATTEMPT_FAILED);
}

static void many_slots_do_many_rollouts_once_each(void **state)
{
    (void)state;
    enum { N = 200 };
    config.workers = 32;
    config.heartbeat_ms = 50;
    lvn_str ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = enqueue(lvn_arena_printf(arena, "%d", i).ptr, 1, LVN_TIME_NULL);
    start_shell("read t; sleep 0.05; echo \"{\\\"output\\\": \\\"$t\\\"}\"");
    for (int i = 0; i < N; i++) {
        expect_output(ids[i], lvn_arena_printf(arena, "%d", i).ptr);
        lvn_attempt *attempts;
        assert_int_equal(attempts_of(ids[i], &attempts), 1);
    }
    lvn_op op = {.kind = LVN_OP_QUERY_WORKERS};
    op.in.query_workers.page.limit = -1;
    call(&op);
    assert_int_equal(op.out.workers.count, 32);
    for (size_t i = 0; i < 32; i++) {
        lvn_json stats;
        assert_int_equal(lvn_json_parse(arena, op.out.workers.items[i].heartbeat_stats, &stats, NULL, &err), LVN_OK);
        assert_true(lvn_json_get_number(&stats, "mem_total_gb", 0) > 0);
        assert_true(lvn_json_get_int(&stats, "cpu_threads", 0) > 0);
    }
}

static void a_huge_task_that_nobody_reads_does_not_hang(void **state)
{
    (void)state;
    size_t size = 6 << 20;
    char *input = lvn_arena_alloc(arena, size + 3);
    memset(input, 'z', size + 2);
    input[0] = input[size + 1] = '"';
    input[size + 2] = 0;
    start_shell("[ \"$LEVIN_TASK_FILE\" ] && echo '{\"output\": \"'$(wc -c < $LEVIN_TASK_FILE)'\"}'");
    expect_output(enqueue(input, 1, LVN_TIME_NULL), lvn_arena_printf(arena, "%zu", size + 2).ptr);
}

/* ---- rewards ---- */

static lvn_code score_length(void *user, const lvn_rollout *rollout, lvn_str output, double *out_reward, char *out_feedback,
                             size_t feedback_size, lvn_err *e)
{
    (void)user;
    assert_true(lvn_str_is(rollout->input, "{\"a\":1}"));
    if (lvn_str_is(output, "bad"))
        return lvn_fail(e, LVN_INVALID, "no gold");
    snprintf(out_feedback, feedback_size, "seen \"%.*s\"", LVN_STR_ARG(output));
    *out_reward = (double)output.len;
    return LVN_OK;
}

static void expect_reward(lvn_str id, double reward, const char *feedback)
{
    size_t count;
    lvn_span *spans = spans_of(id, &count);
    assert_int_equal(count, 1);
    assert_true(lvn_str_is(spans[0].name, "agentlightning.annotation"));
    assert_int_equal(spans[0].sequence_id, 1);
    assert_true(lvn_str_eq(spans[0].attempt_id, last_attempt(id).attempt_id));
    lvn_buf text;
    lvn_buf_init(&text, 1 << 20);
    lvn_span_write(&text, &spans[0]);
    lvn_json span;
    assert_int_equal(lvn_json_parse(arena, lvn_buf_str(&text), &span, NULL, &err), LVN_OK);
    lvn_buf_done(&text);
    const lvn_json *attributes = lvn_json_get(&span, "attributes");
    assert_true(lvn_str_is(lvn_json_get_str(attributes, "agentlightning.reward.0.name", LVN_STR("")), "primary"));
    assert_true(lvn_json_get(attributes, "agentlightning.reward.0.value")->kind == LVN_JSON_DOUBLE);
    assert_true(lvn_json_get_number(attributes, "agentlightning.reward.0.value", -1) == reward);
    assert_true(lvn_str_is(lvn_json_get_str(attributes, "levin.feedback", LVN_STR("")), feedback));
    static const char *const keys[] = {"rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name",
                                       "status", "attributes", "events", "links", "start_time", "end_time", "context",
                                       "parent", "resource"};
    assert_int_equal(span.object.count, 16);
    for (size_t i = 0; i < 16; i++)
        assert_true(lvn_str_is(span.object.members[i].key, keys[i]));
    lvn_json m = metadata_of(last_attempt(id));
    assert_true(lvn_json_get_number(&m, "reward", -1) == reward);
}

static void the_hook_scores_and_the_reward_becomes_a_span(void **state)
{
    (void)state;
    config.score = score_length;
    start_shell("echo '{\"output\": \"12345\", \"reward\": 0.5}'");
    lvn_str id = enqueue("{\"a\":1}", 1, LVN_TIME_NULL);
    expect_output(id, "12345");
    expect_reward(id, 5.0, "seen \"12345\"");
}

static void a_hook_that_fails_fails_the_attempt(void **state)
{
    (void)state;
    config.score = score_length;
    start_shell("echo '{\"output\": \"bad\"}'");
    lvn_str id = enqueue("{\"a\":1}", 1, LVN_TIME_NULL);
    expect_failure(id, LVN_ATTEMPT_FAILED, "scoring failed: no gold");
    size_t count;
    spans_of(id, &count);
    assert_int_equal(count, 0);
}

static void without_a_hook_the_agents_own_reward_counts(void **state)
{
    (void)state;
    start_shell("read t; echo \"{\\\"output\\\": \\\"o\\\", \\\"reward\\\": $t}\"");
    lvn_str id = enqueue("0.75", 1, LVN_TIME_NULL), yes = enqueue("true", 1, LVN_TIME_NULL),
            none = enqueue("null", 1, LVN_TIME_NULL);
    expect_output(id, "o");
    expect_reward(id, 0.75, "");
    expect_output(yes, "o");
    expect_reward(yes, 1.0, "");
    expect_output(none, "o");
    size_t count;
    spans_of(none, &count);
    assert_int_equal(count, 0);
}

/* ---- warm agents ---- */

static const char warm_agent[] =
    "import os, sys, time, signal, subprocess, asyncio\n"
    "print('imported')\n"
    "def solve(task):\n"
    "    do = task['do']\n"
    "    print('working on', do)\n"
    "    if do == 'raise': raise ValueError('no such column: x')\n"
    "    if do == 'exit': os._exit(4)\n"
    "    if do == 'sysexit': sys.exit('bye')\n"
    "    if do == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n"
    "    if do == 'hang':\n"
    "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "        subprocess.Popen(['sleep', '3341.' + os.environ['LEVIN_TEST_PID']], start_new_session=True)\n"
    "        time.sleep(3341)\n"
    "    if do == 'endless':\n"
    "        while True: print('x' * 1000)\n"
    "    if do == 'set': return {1, 2}\n"
    "    if do == 'url': return os.environ['OPENAI_BASE_URL'] + ' ' + os.environ['LLM_MODEL']\n"
    "    if do == 'reward': return {'output': 'r', 'reward': 0.5}\n"
    "    time.sleep(task.get('sleep', 0))\n"
    "    return do\n";

static void warm_failures_are_told_and_the_run_goes_on(void **state)
{
    (void)state;
    static const struct {
        const char *input;
        lvn_attempt_status status;
        const char *words, *log;
    } cases[] = {
        {"{\"do\":\"raise\"}", LVN_ATTEMPT_FAILED, "the agent raised ValueError: no such column: x", "Traceback"},
        {"{\"do\":\"exit\"}", LVN_ATTEMPT_FAILED, "exited with status 4 in the middle of the task", "working on exit"},
        {"{\"do\":\"sysexit\"}", LVN_ATTEMPT_FAILED, "the agent raised SystemExit: bye", "working on sysexit"},
        {"{\"do\":\"kill\"}", LVN_ATTEMPT_FAILED, "was killed by signal 9 (SIGKILL)", "working on kill"},
        {"{\"do\":\"hang\"}", LVN_ATTEMPT_TIMEOUT, "the agent ran out of time", "working on hang"},
        {"{\"do\":\"endless\"}", LVN_ATTEMPT_FAILED, "the agent wrote more than 200000 bytes", "xxxx"},
        {"{\"do\":\"set\"}", LVN_ATTEMPT_FAILED, "the agent raised TypeError", "serializable"},
        {"{}", LVN_ATTEMPT_FAILED, "the agent raised KeyError: 'do'", "Traceback"},
    };
    config.timeout_ms = 1500;
    config.workers = 2;
    start_warm(warm_agent);
    enum { N = sizeof(cases) / sizeof(*cases) };
    lvn_str ids[N];
    for (size_t i = 0; i < N; i++)
        ids[i] = enqueue(cases[i].input, 1, LVN_TIME_NULL);
    lvn_str good = enqueue("{\"do\":\"fine\"}", 1, LVN_TIME_NULL), url = enqueue("{\"do\":\"url\"}", 1, LVN_TIME_NULL),
            reward = enqueue("{\"do\":\"reward\"}", 1, LVN_TIME_NULL);
    for (size_t i = 0; i < N; i++)
        expect_in_file(expect_failure(ids[i], cases[i].status, cases[i].words), cases[i].log);
    expect_output(good, "fine");
    expect_output(url, lvn_arena_printf(arena, "http://127.0.0.1:9/rollout/%s/attempt/%s/v1 policy", url.ptr,
                                        last_attempt(url).attempt_id.ptr).ptr);
    expect_output(reward, "r");
    expect_reward(reward, 0.5, "");
    assert_false(is_any_running("3341"));
    expect_in_file(lvn_arena_printf(arena, "%s/logs/%s.log", folder, is_forked ? "nursery" : "Worker-0"), "imported");
}

static void warm_workers_are_kept(void **state)
{
    (void)state;
    enum { N = 100 };
    config.workers = 4;
    lvn_str ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = enqueue(lvn_arena_printf(arena, "{\"do\":\"%d\",\"sleep\":0.01}", i).ptr, 1, LVN_TIME_NULL);
    start_warm(warm_agent);
    for (int i = 0; i < N; i++)
        expect_output(ids[i], lvn_arena_printf(arena, "%d", i).ptr);
    lvn_runner_stats stats;
    lvn_runner_get_stats(runner, &stats);
    assert_int_equal(stats.succeeded, N);
    assert_int_equal(stats.processes, 4);
}

static atomic_int loops_told;
static char loop_message[600];

static void note_crash_loop(void *user, const char *message)
{
    (void)user;
    snprintf(loop_message, sizeof(loop_message), "%s", message);
    atomic_fetch_add(&loops_told, 1);
}

static void a_missing_program_fails_attempts_and_is_reported_once(void **state)
{
    (void)state;
    static const char *const argv[] = {"levin-no-such-program", NULL};
    atomic_store(&loops_told, 0);
    config.agent = (lvn_agent_spec){.kind = LVN_AGENT_COMMAND, .argv = argv};
    config.on_crash_loop = note_crash_loop;
    start();
    lvn_str ids[8];
    for (int i = 0; i < 8; i++)
        ids[i] = enqueue("1", 1, LVN_TIME_NULL);
    for (int i = 0; i < 8; i++)
        expect_failure(ids[i], LVN_ATTEMPT_FAILED, "the agent could not be started: there is no program");
    assert_int_equal(atomic_load(&loops_told), 1);
    assert_non_null(strstr(loop_message, "5 times in a row"));
}

static void a_warm_agent_that_cannot_import_fails_attempts_and_is_reported_once(void **state)
{
    (void)state;
    atomic_store(&loops_told, 0);
    config.on_crash_loop = note_crash_loop;
    start_warm("import levin_no_such_module\ndef solve(task): return 1\n");
    lvn_str ids[6];
    for (int i = 0; i < 6; i++)
        ids[i] = enqueue("1", 1, LVN_TIME_NULL);
    for (int i = 0; i < 6; i++)
        expect_failure(ids[i], LVN_ATTEMPT_FAILED, "No module named 'levin_no_such_module'");
    assert_int_equal(atomic_load(&loops_told), 1);
}

static void forking_is_left_when_imports_start_threads(void **state)
{
    (void)state;
    config.workers = 2;
    start_warm("import threading, time\nthreading.Thread(target=time.sleep, args=(3344,), daemon=True).start()\n"
               "def solve(task): return 'fine'\n");
    expect_output(enqueue("1", 1, LVN_TIME_NULL), "fine");
}

/* The pid of the process that has `word` among its arguments; 0: none. */
static pid_t find_process(const char *word)
{
    char command[200], text[32] = {0};
    snprintf(command, sizeof(command), "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q -- '%s' && "
                                       "[ $(cut -d' ' -f4 $p/stat) = %d ] && echo ${p#/proc/}; done 2>/dev/null", word, getpid());
    FILE *f = popen(command, "re");
    if (!fgets(text, sizeof(text), f))
        text[0] = 0;
    pclose(f);
    return (pid_t)strtol(text, NULL, 10);
}

static void workers_go_on_when_their_nursery_dies(void **state)
{
    (void)state;
    config.workers = 2;
    start_warm(warm_agent);
    lvn_str slow = enqueue("{\"do\":\"slow\",\"sleep\":1}", 1, LVN_TIME_NULL);
    expect_output(enqueue("{\"do\":\"a\"}", 1, LVN_TIME_NULL), "a");
    pid_t nursery = find_process("levin_worker.py --fork");
    assert_true(nursery > 1);
    assert_int_equal(kill(nursery, SIGKILL), 0);
    expect_output(slow, "slow");
    wait_for(enqueue("{\"do\":\"exit\"}", 1, LVN_TIME_NULL));
    wait_for(enqueue("{\"do\":\"exit\"}", 1, LVN_TIME_NULL));
    for (int i = 0; i < 4; i++) /* on workers that were started the ordinary way */
        expect_output(enqueue("{\"do\":\"b\"}", 1, LVN_TIME_NULL), "b");
}

/* ---- stopping ---- */

static void wait_busy(size_t slots)
{
    int64_t deadline = lvn_clock_monotonic_ns() + 20 * LVN_NS_PER_S;
    lvn_runner_stats stats;
    do {
        usleep(5000);
        lvn_runner_get_stats(runner, &stats);
    } while (stats.busy < slots && lvn_clock_monotonic_ns() < deadline);
    assert_int_equal(stats.busy, slots);
}

static void idle_runners_stop_at_once(void **state)
{
    (void)state;
    config.workers = 16;
    start_shell("true");
    usleep(50000);
    int64_t start_ns = lvn_clock_monotonic_ns();
    lvn_runner_stop(runner, -1);
    runner = NULL;
    assert_true(lvn_clock_monotonic_ns() - start_ns < LVN_NS_PER_S);
}

static void a_drain_finishes_what_runs_and_claims_no_more(void **state)
{
    (void)state;
    config.workers = 2;
    for (int i = 0; i < 6; i++)
        enqueue("1", 1, LVN_TIME_NULL);
    start_shell("sleep 0.5; echo '{\"output\": 1}'");
    wait_busy(2);
    lvn_runner_stop(runner, -1);
    runner = NULL;
    assert_int_equal(count_status(LVN_ROLLOUT_SUCCEEDED), 2);
    assert_int_equal(count_status(LVN_ROLLOUT_QUEUING), 4);
}

static void a_cancel_ends_agents_that_ignore_signals(void **state)
{
    (void)state;
    config.workers = 4;
    for (int i = 0; i < 6; i++)
        enqueue("\"hang\"", 1, LVN_TIME_NULL);
    start_shell("trap '' TERM INT; (trap '' TERM INT; sleep 3342.$LEVIN_TEST_PID) & while :; do sleep 0.05; done");
    wait_busy(4);
    int64_t start_ns = lvn_clock_monotonic_ns();
    lvn_runner_stop(runner, 100);
    runner = NULL;
    assert_in_range((lvn_clock_monotonic_ns() - start_ns) / LVN_NS_PER_MS, 600, 6000);
    assert_int_equal(count_status(LVN_ROLLOUT_FAILED), 4);
    assert_int_equal(count_status(LVN_ROLLOUT_QUEUING), 2);
    assert_false(is_any_running("3342"));
}

static void a_cancel_gives_agents_time_to_end(void **state)
{
    (void)state;
    config.grace_ms = 5000;
    enqueue("1", 1, LVN_TIME_NULL);
    start_shell("trap 'exit 9' INT; while :; do sleep 0.05; done");
    wait_busy(1);
    config.grace_ms = 200;
    int64_t start_ns = lvn_clock_monotonic_ns();
    lvn_runner_stop(runner, 0);
    runner = NULL;
    assert_in_range((lvn_clock_monotonic_ns() - start_ns) / LVN_NS_PER_MS, 5000, 9000); /* SIGINT was obeyed */
}

static void a_cancel_ends_warm_workers(void **state)
{
    (void)state;
    config.workers = 2;
    lvn_str id = enqueue("{\"do\":\"hang\"}", 1, LVN_TIME_NULL);
    start_warm(warm_agent);
    wait_busy(1);
    lvn_runner_cancel(runner);
    lvn_runner_cancel(runner);
    expect_failure(id, LVN_ATTEMPT_FAILED, "cancelled");
    lvn_runner_stop(runner, -1);
    runner = NULL;
    assert_false(is_any_running("3341"));
}

/* ---- checks before a run ---- */

static void check(lvn_code code, const char *words)
{
    err = (lvn_err){0};
    assert_int_equal(lvn_runner_check_agent(&config, &err), code);
    if (words && !strstr(err.message, words))
        fail_msg("%s", err.message);
    assert_int_equal(count_children(), 0);
}

static void agents_are_checked_before_a_run(void **state)
{
    (void)state;
    struct {
        const char *shell;
        lvn_code code;
        const char *words;
    } lines[] = {
        {"cat", LVN_OK, NULL},
        {"FOO=1 anything | goes \"here\"", LVN_OK, NULL},
        {"cd /tmp && python3 x.py", LVN_OK, NULL},
        {"levin-no-such-program --x", LVN_NOT_FOUND, "the agent: there is no program \"levin-no-such-program\" in PATH"},
        {"python3 /no/such/agent.py", LVN_NOT_FOUND, "the agent's file /no/such/agent.py: No such file"},
        {"if then", LVN_INVALID, "no shell line"},
        {"echo 'unfinished", LVN_INVALID, "no shell line"},
        {"  ", LVN_INVALID, "empty"},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        config.agent = (lvn_agent_spec){.kind = LVN_AGENT_COMMAND, .shell = lines[i].shell};
        check(lines[i].code, lines[i].words);
    }
    config.agent = (lvn_agent_spec){.kind = LVN_AGENT_WARM, .file = write_file("good.py", warm_agent)};
    check(LVN_OK, NULL);
    config.agent.directory = folder;
    config.agent.file = "good.py";
    check(LVN_OK, NULL);
    config.agent.function = "solved";
    check(LVN_UNAVAILABLE, "has no attribute 'solved'");
    config.agent.file = write_file("bad.py", "def solve(:\n");
    check(LVN_UNAVAILABLE, "SyntaxError");
    config.agent.file = write_file("slow.py", "import time; time.sleep(3343)\n");
    config.agent.ready_timeout_ms = 500;
    check(LVN_UNAVAILABLE, "was not ready after 0.5 s");
    config.agent.file = "/no/such.py";
    check(LVN_NOT_FOUND, "/no/such.py");
    config.agent.file = "good.py";
    config.agent.python = "no-such-python";
    check(LVN_NOT_FOUND, "no-such-python");
}

static void a_bad_configuration_is_refused(void **state)
{
    (void)state;
    lvn_runner_config good = config;
    good.agent.shell = "true";
    config = good;
    config.workers = 0;
    assert_int_equal(lvn_runner_start(&config, store, &runner, &err), LVN_INVALID);
    config = good;
    config.agent.shell = NULL;
    assert_int_equal(lvn_runner_start(&config, store, &runner, &err), LVN_INVALID);
    config = good;
    config.log_directory = "/proc/levin/logs";
    assert_int_equal(lvn_runner_start(&config, store, &runner, &err), LVN_IO);
    config.log_directory = "/dev/null";
    assert_int_equal(lvn_runner_start(&config, store, &runner, &err), LVN_IO);
    assert_null(runner);
}

int main(void)
{
    set_test_pid();
#define EACH(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(a_command_gets_its_task_and_its_addresses),
        EACH(every_failure_is_told_and_the_run_goes_on),
        EACH(the_rollouts_own_timeout_counts),
        EACH(failures_are_retried_as_the_rollout_says),
        EACH(many_slots_do_many_rollouts_once_each),
        EACH(a_huge_task_that_nobody_reads_does_not_hang),
        EACH(a_missing_program_fails_attempts_and_is_reported_once),
        EACH(the_hook_scores_and_the_reward_becomes_a_span),
        EACH(a_hook_that_fails_fails_the_attempt),
        EACH(without_a_hook_the_agents_own_reward_counts),
        EACH(warm_failures_are_told_and_the_run_goes_on),
        EACH(warm_workers_are_kept),
        EACH(a_warm_agent_that_cannot_import_fails_attempts_and_is_reported_once),
#define EACH_FORKED(name) cmocka_unit_test_prestate_setup_teardown(name, set_up, tear_down, "forked")
        EACH_FORKED(warm_failures_are_told_and_the_run_goes_on),
        EACH_FORKED(warm_workers_are_kept),
        EACH_FORKED(a_warm_agent_that_cannot_import_fails_attempts_and_is_reported_once),
        EACH_FORKED(forking_is_left_when_imports_start_threads),
        EACH_FORKED(workers_go_on_when_their_nursery_dies),
        EACH_FORKED(a_cancel_ends_warm_workers),
        EACH(idle_runners_stop_at_once),
        EACH(a_drain_finishes_what_runs_and_claims_no_more),
        EACH(a_cancel_ends_agents_that_ignore_signals),
        EACH(a_cancel_gives_agents_time_to_end),
        EACH(a_cancel_ends_warm_workers),
        EACH(agents_are_checked_before_a_run),
        EACH(a_bad_configuration_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
