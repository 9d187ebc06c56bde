#include "runner/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "runner/nursery.h"
#include "runner/spawn.h"
#include "runner/strays.h"
#include "runner/text.h"

enum {
    READ_BYTES = 32 * 1024,
    LAST_WORDS_BYTES = 400,
    KILL_WAIT_MS = 10000, /* a process in uninterruptible sleep may take its time even then */
};

struct lvn_process {
    lvn_spawned child; /* descriptors are -1 once closed; pidfd too, once collected */
    char marker[sizeof(LVN_STRAYS_MARKER) + 1 + 16];
    lvn_buf input; /* to be written, from input_at */
    size_t input_at;
    bool has_last_input;
    lvn_buf output;
    size_t limit, written;
    bool has_exited;
    lvn_attempt_log *log;
    bool log_has_output;
    char words[LAST_WORDS_BYTES + 1]; /* the end of standard error so far */
    size_t words_len;
    char last_line[2 * LAST_WORDS_BYTES];
    lvn_process_exit end; /* once collected */
    struct lvn_nursery *nursery; /* NULL: not forked from one */
    bool leaves_children;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static lvn_process *new_process(size_t limit_bytes)
{
    lvn_process *p = lvn_zalloc(sizeof(*p));
    char id[17];
    lvn_id_hex(id, 16);
    snprintf(p->marker, sizeof(p->marker), LVN_STRAYS_MARKER "=%s", id);
    p->limit = limit_bytes;
    lvn_buf_init(&p->input, LVN_BUF_NO_LIMIT);
    lvn_buf_init(&p->output, limit_bytes);
    return p;
}

lvn_code lvn_process_spawn(const lvn_process_spec *spec, lvn_process **out, lvn_err *err)
{
    lvn_process *p = new_process(spec->limit_bytes);
    lvn_code code = lvn_spawn(spec, p->marker, &p->child, err);
    if (code)
        free(p);
    else
        *out = p;
    return code;
}

lvn_code lvn_process_fork(struct lvn_nursery *nursery, size_t limit_bytes, lvn_process **out, lvn_err *err)
{
    lvn_process *p = new_process(limit_bytes);
    p->nursery = nursery;
    lvn_code code = lvn_spawn_fork(nursery, p->marker, &p->child, err);
    if (code)
        free(p);
    else
        *out = p;
    return code;
}

/* Writing to a pipe whose reader is gone must not end our program, whatever it does with SIGPIPE. */
static ssize_t write_quietly(int fd, const void *bytes, size_t len)
{
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t n = write(fd, bytes, len);
    int saved = errno;
    struct timespec at_once = {0};
    if (n < 0 && saved == EPIPE && !was_pending)
        while (sigtimedwait(&pipe_signal, NULL, &at_once) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return n;
}

static void write_input(lvn_process *p)
{
    while (p->child.in_fd >= 0 && p->input_at < p->input.len) {
        ssize_t n = write_quietly(p->child.in_fd, p->input.ptr + p->input_at, p->input.len - p->input_at);
        if (n > 0)
            p->input_at += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno == EAGAIN)
            return;
        else
            close_fd(&p->child.in_fd);
    }
    p->input_at = 0;
    lvn_buf_clear(&p->input);
    if (p->has_last_input)
        close_fd(&p->child.in_fd);
}

void lvn_process_feed(lvn_process *p, lvn_str bytes, bool is_last)
{
    if (p->child.in_fd < 0)
        return;
    lvn_buf_append_str(&p->input, bytes);
    p->has_last_input |= is_last;
    write_input(p);
}

void lvn_process_set_log(lvn_process *p, lvn_attempt_log *log, bool has_output)
{
    p->log = log;
    p->log_has_output = has_output;
}

void lvn_process_leave_children(lvn_process *p, bool leaves_children)
{
    p->leaves_children = leaves_children;
}

void lvn_process_reset_limit(lvn_process *p)
{
    p->written = 0;
}

lvn_buf *lvn_process_output(lvn_process *p)
{
    return &p->output;
}

pid_t lvn_process_pid(const lvn_process *p)
{
    return p->child.pid;
}

/* Keeps the last bytes of standard error, for last_words. */
static void hear(lvn_process *p, const char *bytes, size_t len)
{
    if (len > LAST_WORDS_BYTES) {
        bytes += len - LAST_WORDS_BYTES;
        len = LAST_WORDS_BYTES;
    }
    size_t keep = p->words_len + len > LAST_WORDS_BYTES ? LAST_WORDS_BYTES - len : p->words_len;
    memmove(p->words, p->words + p->words_len - keep, keep);
    memcpy(p->words + keep, bytes, len);
    p->words_len = keep + len;
}

const char *lvn_process_last_words(lvn_process *p)
{
    lvn_str line = lvn_text_last_line((lvn_str){p->words, p->words_len});
    lvn_text_clean(line, p->last_line, sizeof(p->last_line));
    return p->last_line;
}

static bool is_over_limit(const lvn_process *p)
{
    return p->written > p->limit || p->output.has_failed;
}

/* Reads once. Returns the number of bytes; 0: nothing now; -1: closed. */
static ssize_t read_some(lvn_process *p, int *fd, bool is_output)
{
    char bytes[READ_BYTES];
    ssize_t n = read(*fd, bytes, sizeof(bytes));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close_fd(fd);
        return -1;
    }
    p->written += (size_t)n;
    if (is_output && !is_over_limit(p))
        lvn_buf_append(&p->output, bytes, (size_t)n);
    if (!is_output)
        hear(p, bytes, (size_t)n);
    if (p->log && (!is_output || p->log_has_output))
        lvn_attempt_log_write(p->log, bytes, (size_t)n);
    return n;
}

/* Rounded up, so that a poll that times out is a deadline that has passed. */
static int ms_until(int64_t deadline_ns, int64_t now_ns)
{
    if (deadline_ns == INT64_MAX)
        return -1;
    if (deadline_ns <= now_ns)
        return 0;
    int64_t ms = (deadline_ns - now_ns + LVN_NS_PER_MS - 1) / LVN_NS_PER_MS;
    return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

unsigned lvn_process_pump(lvn_process *p, int wake_fd, int64_t deadline_ns)
{
    enum { EXIT, WAKE, IN, OUT, ERR, FDS };
    struct pollfd fds[FDS] = {
        [EXIT] = {.fd = p->has_exited ? -1 : p->child.pidfd, .events = POLLIN},
        [WAKE] = {.fd = wake_fd, .events = POLLIN},
        [IN] = {.fd = p->input.len ? p->child.in_fd : -1, .events = POLLOUT},
        [OUT] = {.fd = p->child.out_fd, .events = POLLIN},
        [ERR] = {.fd = p->child.err_fd, .events = POLLIN},
    };
    unsigned events = 0;
    int n = poll(fds, FDS, p->has_exited ? 0 : ms_until(deadline_ns, lvn_clock_monotonic_ns()));
    if (n < 0)
        n = 0; /* interrupted: whatever matters is seen by the next call */
    if (n && fds[IN].revents)
        write_input(p);
    if (n && fds[OUT].revents && read_some(p, &p->child.out_fd, true) > 0)
        events |= LVN_PROCESS_OUTPUT;
    if (n && fds[ERR].revents)
        read_some(p, &p->child.err_fd, false);
    if (n && fds[WAKE].revents)
        events |= LVN_PROCESS_WOKEN;
    if (n && fds[EXIT].revents)
        p->has_exited = true;
    if (p->child.out_fd < 0)
        events |= LVN_PROCESS_CLOSED;
    if (p->has_exited)
        events |= LVN_PROCESS_EXITED;
    if (is_over_limit(p))
        events |= LVN_PROCESS_OVERFLOW;
    if (deadline_ns <= lvn_clock_monotonic_ns())
        events |= LVN_PROCESS_DEADLINE;
    return events;
}

static void drain(lvn_process *p)
{
    while (p->child.out_fd >= 0 && !is_over_limit(p) && read_some(p, &p->child.out_fd, true) > 0)
        ;
    /* Twice the limit is enough to have seen the words before a death; a writer that escaped must not hold us here. */
    while (p->child.err_fd >= 0 && p->written <= 2 * p->limit && read_some(p, &p->child.err_fd, false) > 0)
        ;
}

static void wait_exit(lvn_process *p, int wait_ms)
{
    int64_t deadline = lvn_clock_monotonic_ns() + wait_ms * LVN_NS_PER_MS;
    while (!p->has_exited && !(lvn_process_pump(p, -1, deadline) & LVN_PROCESS_DEADLINE))
        ;
}

/* Until it is collected the leader keeps its pid, and with it the number of the group, from being used again. */
static void kill_all(lvn_process *p, const lvn_strays *strays)
{
    kill(-p->child.pid, SIGKILL);
    if (!p->has_exited)
        wait_exit(p, KILL_WAIT_MS);
    lvn_strays_kill(strays);
    drain(p);
}

static void collect_status(lvn_process *p)
{
    siginfo_t info = {0};
    int rc;
    while ((rc = waitid(P_PIDFD, (id_t)p->child.pidfd, &info, WEXITED | WNOHANG)) < 0 && errno == EINTR)
        ;
    p->end = (lvn_process_exit){.is_known = rc == 0 && info.si_pid != 0};
    if (p->end.is_known && info.si_code == CLD_EXITED)
        p->end.status = info.si_status;
    else if (p->end.is_known) {
        p->end.was_killed = true;
        p->end.signal = info.si_status;
    } else if (!p->has_exited) {
        lvn_log(LVN_ERROR, "process_will_not_die", "pid=%d", p->child.pid);
    }
}

void lvn_process_end(lvn_process *p, const lvn_process_step *steps, size_t step_count, lvn_process_exit *out)
{
    if (p->child.pidfd < 0) {
        *out = p->end;
        return;
    }
    lvn_strays strays = {.count = 0};
    wait_exit(p, 0); /* see whether it is dead already */
    for (size_t i = 0; i < step_count && !p->has_exited; i++) {
        if (steps[i].signal)
            kill(-p->child.pid, steps[i].signal);
        wait_exit(p, steps[i].wait_ms);
    }
    if (!p->has_exited && !p->leaves_children)
        lvn_strays_collect(&strays, p->child.pid);
    kill_all(p, &strays);
    collect_status(p);
    if (p->nursery)
        lvn_nursery_forget(p->nursery, p->child.pid);
    if (!p->leaves_children)
        lvn_strays_sweep(p->child.pid, p->marker);
    lvn_strays_done(&strays);
    close_fd(&p->child.pidfd);
    close_fd(&p->child.in_fd);
    close_fd(&p->child.out_fd);
    close_fd(&p->child.err_fd);
    *out = p->end;
}

lvn_process *lvn_process_free(lvn_process *p)
{
    if (!p)
        return NULL;
    lvn_process_exit ignored;
    lvn_process_end(p, NULL, 0, &ignored);
    lvn_buf_done(&p->input);
    lvn_buf_done(&p->output);
    free(p);
    return NULL;
}

void lvn_process_describe_exit(const lvn_process_exit *end, char *out, size_t out_size)
{
    if (!end->is_known)
        snprintf(out, out_size, "ended without a known exit status");
    else if (end->was_killed)
        snprintf(out, out_size, "was killed by signal %d (SIG%s)", end->signal,
                 sigabbrev_np(end->signal) ? sigabbrev_np(end->signal) : "?");
    else
        snprintf(out, out_size, "exited with status %d", end->status);
}
