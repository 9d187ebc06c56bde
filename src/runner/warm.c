#include "runner/warm.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "runner/nursery.h"
#include "runner/text.h"

enum {
    PAUSE_FIRST_MS = 100,
    PAUSE_MOST_MS = 5000,
    EAGER_DEATHS = 3,     /* from here on an idle worker is started again only for a task */
    GOODBYE_WAIT_MS = 500, /* to leave by itself once its input is closed */
    EXIT_WAIT_MS = 1000,
    SHOWN_BYTES = 300,
};

struct lvn_warm {
    const lvn_warm_config *config;
    lvn_process *process; /* NULL: none */
    bool is_ready;
    int64_t ready_deadline_ns;
    int64_t pause_until_ns;
    unsigned deaths, starts;
    size_t answers; /* of this process */
    int64_t next_id;
    lvn_attempt_log own_log;
    lvn_err why; /* what became of the last process or start */
};

lvn_warm *lvn_warm_new(const lvn_warm_config *config)
{
    lvn_warm *w = lvn_zalloc(sizeof(*w));
    w->config = config;
    lvn_attempt_log_init(&w->own_log, config->log_path ? config->log_path : "/dev/null");
    return w;
}

unsigned lvn_warm_deaths(const lvn_warm *w)
{
    return w->deaths;
}

unsigned lvn_warm_starts(const lvn_warm *w)
{
    return w->starts;
}

pid_t lvn_warm_pid(const lvn_warm *w)
{
    return w->process ? lvn_process_pid(w->process) : 0;
}

void lvn_warm_end(lvn_warm *w, const lvn_process_step *steps, size_t step_count)
{
    if (!w->process)
        return;
    lvn_process_exit ignored;
    lvn_process_end(w->process, steps, step_count, &ignored);
    w->process = lvn_process_free(w->process);
    w->is_ready = false;
}

/* One that is not busy gets the chance to leave by itself, so that its exit handlers run. */
static void say_goodbye(lvn_warm *w)
{
    if (!w->process)
        return;
    lvn_process_feed(w->process, LVN_STR(""), true);
    lvn_process_step steps[] = {{0, GOODBYE_WAIT_MS}, w->config->term};
    lvn_warm_end(w, steps, 2);
}

lvn_warm *lvn_warm_free(lvn_warm *w)
{
    if (!w)
        return NULL;
    say_goodbye(w);
    lvn_attempt_log_done(&w->own_log);
    free(w);
    return NULL;
}

static void count_death(lvn_warm *w)
{
    /* The first is no pattern: start again at once. */
    int64_t pause_ms = w->deaths == 0 ? 0 : PAUSE_FIRST_MS << (w->deaths < 7 ? w->deaths - 1 : 6);
    if (pause_ms > PAUSE_MOST_MS)
        pause_ms = PAUSE_MOST_MS;
    w->pause_until_ns = lvn_clock_monotonic_ns() + pause_ms * LVN_NS_PER_MS;
    w->deaths++;
}

/* Collects a process that ended by itself and says in `why` how. */
static void bury(lvn_warm *w, const char *when)
{
    lvn_process_exit end;
    char how[96];
    lvn_process_end(w->process, NULL, 0, &end);
    lvn_process_describe_exit(&end, how, sizeof(how));
    const char *words = lvn_process_last_words(w->process);
    lvn_fail(&w->why, LVN_IO, "the worker %s %s%s%s", how, when, *words ? ": " : "", words);
    lvn_warm_end(w, NULL, 0);
    count_death(w);
}

/* Ends a process that broke the protocol; `why` is set before. */
static void expel(lvn_warm *w)
{
    lvn_warm_end(w, NULL, 0);
    count_death(w);
}

/* LVN_UNAVAILABLE from the nursery means that it is of no use (any more), so the ordinary way it is. */
static lvn_code start_process(lvn_warm *w)
{
    lvn_process_spec spec = {.argv = w->config->argv, .env = w->config->env, .directory = w->config->directory,
                             .limit_bytes = w->config->limit_bytes};
    lvn_code code = w->config->nursery ? lvn_process_fork(w->config->nursery, spec.limit_bytes, &w->process, &w->why)
                                       : LVN_UNAVAILABLE;
    return code == LVN_UNAVAILABLE ? lvn_process_spawn(&spec, &w->process, &w->why) : code;
}

void lvn_warm_start(lvn_warm *w)
{
    int64_t now = lvn_clock_monotonic_ns();
    if (w->process || now < w->pause_until_ns || !lvn_nursery_is_settled(w->config->nursery))
        return;
    w->starts++;
    w->answers = 0;
    w->is_ready = false;
    if (start_process(w)) {
        count_death(w);
        return;
    }
    lvn_process_set_log(w->process, &w->own_log, false);
    w->ready_deadline_ns = now + w->config->ready_timeout_ms * LVN_NS_PER_MS;
}

/* The next whole line of output, without its end. Borrowed from the output; *out_used bytes are to be consumed
 * with it. */
static bool next_line(lvn_buf *output, lvn_str *out_line, size_t *out_used)
{
    const char *end = output->len ? memchr(output->ptr, '\n', output->len) : NULL;
    if (!end)
        return false;
    *out_line = (lvn_str){output->ptr, (size_t)(end - output->ptr)};
    *out_used = out_line->len + 1;
    return true;
}

/* A worker whose output has ended is mostly about to die; its exit status says more than that. */
static bool is_exiting(lvn_warm *w)
{
    int64_t deadline = lvn_clock_monotonic_ns() + EXIT_WAIT_MS * LVN_NS_PER_MS;
    unsigned events;
    do
        events = lvn_process_pump(w->process, -1, deadline);
    while (!(events & (LVN_PROCESS_EXITED | LVN_PROCESS_DEADLINE | LVN_PROCESS_OVERFLOW)));
    return events & LVN_PROCESS_EXITED;
}

static void explain_unready(lvn_warm *w, lvn_str line, const lvn_json *said)
{
    char shown[SHOWN_BYTES];
    lvn_str error = said ? lvn_json_get_str(said, "error", LVN_STR_ABSENT) : LVN_STR_ABSENT;
    lvn_text_clean(lvn_str_is_absent(error) ? line : error, shown, sizeof(shown));
    lvn_fail(&w->why, LVN_CONFLICT, "the worker %s: %s",
             lvn_str_is_absent(error) ? "did not say that it is ready but" : "could not load the agent", shown);
}

/* Looks for the ready line. False: there was something else, the process is gone. */
static bool read_ready(lvn_warm *w)
{
    lvn_str line;
    size_t used;
    lvn_buf *output = lvn_process_output(w->process);
    if (!next_line(output, &line, &used))
        return true;
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    lvn_json value;
    bool is_object = !lvn_result_read_line(arena, line, &value, NULL);
    bool is_ready = is_object && lvn_json_get_bool(&value, "ready", false);
    if (!is_ready) {
        explain_unready(w, line, is_object ? &value : NULL);
        expel(w);
        return false;
    }
    lvn_buf_consume(output, used);
    lvn_process_reset_limit(w->process);
    w->is_ready = true;
    return true;
}

/* Whether a worker that has nothing to do said or did something that ends it. */
static void judge_idle(lvn_warm *w, unsigned events)
{
    if (!w->is_ready && (events & LVN_PROCESS_OUTPUT) && !read_ready(w))
        return;
    bool has_output = w->is_ready && lvn_process_output(w->process)->len;
    if ((events & LVN_PROCESS_EXITED) || ((events & LVN_PROCESS_CLOSED) && is_exiting(w))) {
        bury(w, w->is_ready ? "between tasks" : "before it was ready");
    } else if (has_output || (events & (LVN_PROCESS_CLOSED | LVN_PROCESS_OVERFLOW))) {
        lvn_fail(&w->why, LVN_CONFLICT, "the worker %s",
                 has_output ? "wrote to its standard output without a task"
                            : events & LVN_PROCESS_CLOSED ? "closed its standard output" : "wrote without end");
        expel(w);
    }
}

void lvn_warm_idle(lvn_warm *w, int wake_fd)
{
    for (;;) {
        if (!w->process && w->deaths < EAGER_DEATHS)
            lvn_warm_start(w);
        if (w->process) {
            unsigned events = lvn_process_pump(w->process, wake_fd, INT64_MAX);
            judge_idle(w, events);
            if (events & LVN_PROCESS_WOKEN)
                return;
            continue;
        }
        bool is_settled = lvn_nursery_is_settled(w->config->nursery);
        struct pollfd fds[] = {{.fd = wake_fd, .events = POLLIN},
                               {.fd = is_settled ? -1 : lvn_nursery_settled_fd(w->config->nursery), .events = POLLIN}};
        int64_t pause_ms = (w->pause_until_ns - lvn_clock_monotonic_ns()) / LVN_NS_PER_MS + 1;
        bool is_waiting_pause = w->deaths < EAGER_DEATHS && pause_ms > 0;
        if (poll(fds, 2, is_waiting_pause ? (int)pause_ms : -1) > 0 && fds[0].revents)
            return;
    }
}

static lvn_code say_unavailable(const lvn_warm *w, lvn_err *err)
{
    return lvn_fail(err, LVN_UNAVAILABLE, "%s", w->why.message);
}

/* Waits until the pause after a death is over. False: cancelled. */
static bool sit_out_pause(const lvn_warm *w, int cancel_fd)
{
    struct pollfd fd = {.fd = cancel_fd, .events = POLLIN};
    for (;;) {
        int64_t left = w->pause_until_ns - lvn_clock_monotonic_ns();
        int n = poll(&fd, 1, left <= 0 ? 0 : (int)(left / LVN_NS_PER_MS + 1));
        if (n > 0)
            return false;
        if (left <= 0)
            return true;
    }
}

/* False: cancelled. The nursery settles within its own ready timeout. */
static bool await_nursery(const lvn_warm *w, int cancel_fd)
{
    while (!lvn_nursery_is_settled(w->config->nursery)) {
        struct pollfd fds[] = {{.fd = cancel_fd, .events = POLLIN},
                               {.fd = lvn_nursery_settled_fd(w->config->nursery), .events = POLLIN}};
        if (poll(fds, 2, -1) > 0 && fds[0].revents)
            return false;
    }
    return true;
}

lvn_code lvn_warm_await_ready(lvn_warm *w, int cancel_fd, lvn_err *err)
{
    if (w->process) /* it may have died since it was last looked at; that is worth another start */
        judge_idle(w, lvn_process_pump(w->process, -1, 0));
    if (!w->process && !(sit_out_pause(w, cancel_fd) && await_nursery(w, cancel_fd)))
        return lvn_fail(err, LVN_CANCELLED, "cancelled before the worker was started");
    lvn_warm_start(w);
    while (w->process && !w->is_ready) {
        unsigned events = lvn_process_pump(w->process, cancel_fd, w->ready_deadline_ns);
        judge_idle(w, events);
        if (!w->process || w->is_ready)
            break;
        if (events & LVN_PROCESS_WOKEN)
            return lvn_fail(err, LVN_CANCELLED, "cancelled before the worker was ready");
        if (events & LVN_PROCESS_DEADLINE) {
            const char *words = lvn_process_last_words(w->process);
            lvn_fail(&w->why, LVN_TIMEOUT, "the worker was not ready after %.1f s%s%s",
                     (double)w->config->ready_timeout_ms / 1e3, *words ? "; it said: " : "", words);
            lvn_warm_end(w, &w->config->term, 1);
            count_death(w);
        }
    }
    return w->is_ready ? LVN_OK : say_unavailable(w, err);
}

static void feed_task(lvn_warm *w, const lvn_warm_task *task)
{
    lvn_buf line; /* in one piece: each feed is a write */
    lvn_buf_init(&line, LVN_BUF_NO_LIMIT);
    lvn_buf_printf(&line, "{\"id\": %" PRId64 ", \"task\": ", ++w->next_id);
    lvn_buf_append_str(&line, task->task);
    lvn_buf_lit(&line, ", \"env\": ");
    lvn_buf_append_str(&line, task->env);
    lvn_buf_lit(&line, "}\n");
    lvn_process_reset_limit(w->process);
    lvn_process_feed(w->process, lvn_buf_str(&line), false);
    lvn_buf_done(&line);
}

static lvn_code breach(lvn_warm *w, lvn_err *err, const char *what, lvn_str line)
{
    char shown[SHOWN_BYTES];
    lvn_text_clean(line, shown, sizeof(shown));
    lvn_fail(&w->why, LVN_CONFLICT, "%s: %s", what, shown);
    expel(w);
    return lvn_fail(err, LVN_CONFLICT, "%s", w->why.message);
}

static lvn_code read_failure(const lvn_json *answer, lvn_attempt_log *log, lvn_err *err)
{
    lvn_str traceback = lvn_json_get_str(answer, "traceback", LVN_STR(""));
    if (log && traceback.len) {
        lvn_attempt_log_write(log, traceback.ptr, traceback.len);
        lvn_attempt_log_write(log, "\n", 1);
    }
    char words[400];
    lvn_text_clean(lvn_json_get_str(answer, "error", LVN_STR("(no reason given)")), words, sizeof(words));
    return lvn_fail(err, LVN_INVALID, "the agent raised %s", words);
}

/* One whole line has come. */
static lvn_code read_answer(lvn_warm *w, const lvn_warm_task *task, lvn_str line, size_t used, lvn_arena *arena,
                            lvn_result *out, lvn_err *err)
{
    lvn_json answer;
    lvn_buf *output = lvn_process_output(w->process);
    if (lvn_result_read_line(arena, line, &answer, NULL))
        return breach(w, err, "the worker's answer is not a JSON object", line);
    const lvn_json *ok = lvn_json_get(&answer, "ok");
    if (lvn_json_get_int(&answer, "id", 0) != w->next_id || !ok || ok->kind != LVN_JSON_BOOL)
        return breach(w, err, "the worker's answer has a wrong \"id\" or no \"ok\"", line);
    lvn_buf_consume(output, used); /* from here on `line` is gone; the answer lies in the arena */
    if (output->len)
        return breach(w, err, "the worker wrote more than one answer", lvn_buf_str(output));
    w->deaths = 0;
    w->answers++;
    if (!ok->boolean)
        return read_failure(&answer, task->log, err);
    lvn_code code = lvn_result_parse(arena, &answer, out, err);
    return code ? lvn_fail_context(err, "the agent's answer is") : LVN_OK;
}

/* Reads until there is an answer or a reason to stop. */
static lvn_code await_answer(lvn_warm *w, const lvn_warm_task *task, lvn_arena *arena, lvn_result *out, lvn_err *err)
{
    for (;;) {
        unsigned events = lvn_process_pump(w->process, task->cancel_fd, task->deadline_ns);
        lvn_str line;
        size_t used;
        if (next_line(lvn_process_output(w->process), &line, &used))
            return read_answer(w, task, line, used, arena, out, err);
        if ((events & LVN_PROCESS_EXITED) || ((events & LVN_PROCESS_CLOSED) && is_exiting(w))) {
            bury(w, "in the middle of the task");
            return lvn_fail(err, LVN_IO, "%s", w->why.message);
        }
        if (events & LVN_PROCESS_OVERFLOW) {
            expel(w);
            return lvn_fail(err, LVN_TOO_LARGE, "the agent wrote more than %zu bytes", w->config->limit_bytes);
        }
        if (events & LVN_PROCESS_CLOSED)
            return breach(w, err, "the worker closed its standard output", lvn_buf_str(lvn_process_output(w->process)));
        if (events & LVN_PROCESS_DEADLINE) {
            lvn_warm_end(w, &w->config->term, 1);
            return lvn_fail(err, LVN_TIMEOUT, "the agent ran out of time");
        }
        if (events & LVN_PROCESS_WOKEN)
            return lvn_fail(err, LVN_CANCELLED, "cancelled");
    }
}

lvn_code lvn_warm_call(lvn_warm *w, const lvn_warm_task *task, lvn_arena *arena, lvn_result *out, lvn_err *err)
{
    if (!w->process || !w->is_ready)
        return lvn_fail(err, LVN_INTERNAL, "there is no worker that is ready");
    lvn_process_set_log(w->process, task->log, false);
    feed_task(w, task);
    lvn_code code = await_answer(w, task, arena, out, err);
    if (w->process)
        lvn_process_set_log(w->process, &w->own_log, false);
    if (w->process && w->config->recycle_after && w->answers >= w->config->recycle_after) {
        say_goodbye(w);
        lvn_warm_start(w);
    }
    return code;
}
