/* A scorer that is a program of the user's: started once for each answer, in a process group of its
 * own. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "reward/reward.h"

extern char **environ;

enum {
    DEFAULT_TIMEOUT_MS = 30000,
    DEFAULT_MAX_OUTPUT = 64 << 10,
    TICK_MS = 20, /* between looks at the process where the kernel has no descriptor for it */
};

typedef struct child {
    pid_t pid;
    int pidfd; /* -1: this kernel has none */
    int input; /* we write, -1 when done */
    int output;
} child;

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Ends whatever is left of the group. The leader is collected last, so that its number can't have
 * been reused. */
static void child_end(child *c)
{
    siginfo_t info;
    close_fd(&c->input);
    close_fd(&c->output);
    close_fd(&c->pidfd);
    if (c->pid <= 0)
        return;
    kill(-c->pid, SIGKILL);
    while (waitid(P_PID, (id_t)c->pid, &info, WEXITED) != 0 && errno == EINTR)
        ;
    c->pid = 0;
}

static lvn_code spawn(const lvn_reward_command_config *config, int input, int output,
                      pid_t *out_pid, lvn_err *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    if (config->directory != NULL)
        posix_spawn_file_actions_addchdir_np(&actions, config->directory);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    /* The library's signature takes char *, and changes nothing. */
    const int rc = posix_spawnp(out_pid, config->argv[0], &actions, &attributes,
                                (char *const *)(uintptr_t)config->argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (rc == 0)
        return LVN_OK;
    *out_pid = 0;
    return lvn_fail(err, rc == ENOENT || rc == EACCES ? LVN_NOT_FOUND : LVN_IO,
                    "scorer %s can't be started: %s", config->argv[0], strerror(rc));
}

/* The ends of the pipes that are given away never are 0 to 2: they could then not be told from what
 * they become. */
static int away_from_standard(int fd)
{
    if (fd < 0 || fd > 2)
        return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return moved;
}

static lvn_code child_start(const lvn_reward_command_config *config, child *out, lvn_err *err)
{
    int input[2] = {-1, -1}, output[2] = {-1, -1};
    *out = (child){.pidfd = -1, .input = -1, .output = -1};
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) {
        const int why = errno;
        close_fd(&input[0]);
        close_fd(&input[1]);
        return lvn_fail(err, LVN_IO, "no pipe to the scorer: %s", strerror(why));
    }
    input[0] = away_from_standard(input[0]);
    output[1] = away_from_standard(output[1]);
    const lvn_code code = spawn(config, input[0], output[1], &out->pid, err);
    close_fd(&input[0]);
    close_fd(&output[1]);
    out->input = input[1];
    out->output = output[0];
    if (code != LVN_OK) {
        child_end(out);
        return code;
    }
    out->pidfd = pidfd_open(out->pid, 0);
    fcntl(out->input, F_SETFL, O_NONBLOCK);
    fcntl(out->output, F_SETFL, O_NONBLOCK);
    return LVN_OK;
}

/* Gives what it will take of `rest`; closes the pipe when all is given or it reads no more, which
 * is its right. */
static void feed(child *c, lvn_str *rest)
{
    while (rest->len > 0) {
        const ssize_t n = write(c->input, rest->ptr, rest->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            break;
        *rest = lvn_str_from(*rest, (size_t)n);
    }
    close_fd(&c->input);
}

/* Takes what is there. False: over the limit. */
static bool drain(child *c, lvn_buf *buf)
{
    char chunk[4096];
    while (c->output >= 0) {
        const ssize_t n = read(c->output, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            close_fd(&c->output);
        else
            lvn_buf_append(buf, chunk, (size_t)n);
        if (buf->has_failed)
            return false;
    }
    return true;
}

/* Whether the process has ended; it stays uncollected, so that its group can still be named. */
static bool has_ended(const child *c, siginfo_t *out)
{
    *out = (siginfo_t){0};
    return waitid(P_PID, (id_t)c->pid, out, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           out->si_pid == c->pid;
}

static lvn_code converse(child *c, const lvn_reward_command_config *config, lvn_str line,
                         lvn_buf *out_text, siginfo_t *out_end, lvn_err *err)
{
    const int64_t timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : DEFAULT_TIMEOUT_MS;
    const int64_t deadline_ns = lvn_clock_monotonic_ns() + timeout_ms * LVN_NS_PER_MS;
    for (;;) {
        /* Asked before the pipe is emptied: what an ended process wrote is in the pipe by then. */
        const bool is_over = has_ended(c, out_end);
        if (!drain(c, out_text))
            return lvn_fail(err, LVN_TOO_LARGE, "scorer %s printed over %zu bytes", config->argv[0],
                            out_text->max);
        if (is_over)
            return LVN_OK;
        const int64_t left_ms = (deadline_ns - lvn_clock_monotonic_ns()) / LVN_NS_PER_MS;
        if (left_ms <= 0)
            return lvn_fail(err, LVN_TIMEOUT, "scorer %s took over %lld ms", config->argv[0],
                            (long long)timeout_ms);
        struct pollfd fds[] = {
            {c->input, POLLOUT, 0}, {c->output, POLLIN, 0}, {c->pidfd, POLLIN, 0}};
        const int64_t wait_ms = c->pidfd < 0 && left_ms > TICK_MS ? TICK_MS : left_ms;
        poll(fds, 3, wait_ms > 60000 ? 60000 : (int)wait_ms);
        if (c->input >= 0 && fds[0].revents != 0)
            feed(c, &line);
    }
}

static bool as_number(const lvn_json *value, double *out)
{
    if (value != NULL && value->kind == LVN_JSON_INT)
        *out = (double)value->integer;
    else if (value != NULL && value->kind == LVN_JSON_DOUBLE)
        *out = value->number;
    else
        return false;
    return isfinite(*out);
}

static lvn_str last_line(lvn_str text)
{
    static const char blank[] = " \t\r\n\v\f";
    while (text.len > 0 && memchr(blank, text.ptr[text.len - 1], sizeof(blank) - 1) != NULL)
        text.len--;
    const char *newline = text.len ? memrchr(text.ptr, '\n', text.len) : NULL;
    return newline ? lvn_str_from(text, (size_t)(newline + 1 - text.ptr)) : text;
}

static lvn_code read_answer(const char *name, lvn_arena *arena, lvn_str text,
                            lvn_reward_command_result *out, lvn_err *err)
{
    const lvn_str line = last_line(text);
    lvn_json value;
    double reward;
    lvn_str feedback = LVN_STR_ABSENT;
    if (line.len == 0)
        return lvn_fail(err, LVN_INVALID, "scorer %s printed nothing", name);
    const bool is_json = lvn_json_parse(arena, line, &value, NULL, NULL) == LVN_OK;
    if (is_json && value.kind == LVN_JSON_OBJECT)
        feedback = lvn_json_get_str(&value, "feedback", LVN_STR_ABSENT);
    if (!is_json ||
        !as_number(value.kind == LVN_JSON_OBJECT ? lvn_json_get(&value, "reward") : &value,
                   &reward))
        return lvn_fail(
            err, LVN_INVALID,
            "the last line of scorer %s is neither a number nor {\"reward\": number}: %.*s", name,
            line.len > 200 ? 200 : (int)line.len, line.ptr);
    *out = (lvn_reward_command_result){reward, feedback};
    return LVN_OK;
}

static void append_on_one_line(lvn_buf *buf, lvn_str json)
{
    const size_t from = buf->len;
    lvn_buf_append_str(buf, json.len ? json : LVN_STR("null"));
    /* In JSON a line break can only stand between tokens. */
    for (size_t i = from; i < buf->len; i++)
        if (buf->ptr[i] == '\n' || buf->ptr[i] == '\r')
            buf->ptr[i] = ' ';
}

static lvn_code run(const lvn_reward_command_config *config, lvn_arena *arena, lvn_str line,
                    lvn_reward_command_result *out, lvn_err *err)
{
    child c;
    siginfo_t end = {0};
    lvn_buf text;
    lvn_code code = child_start(config, &c, err);
    if (code != LVN_OK)
        return code;
    lvn_buf_init(&text,
                 config->max_output_bytes > 0 ? config->max_output_bytes : DEFAULT_MAX_OUTPUT);
    code = converse(&c, config, line, &text, &end, err);
    child_end(&c);
    if (code == LVN_OK && end.si_code != CLD_EXITED)
        code = lvn_fail(err, LVN_INVALID, "scorer %s was killed by signal %d", config->argv[0],
                        end.si_status);
    else if (code == LVN_OK && end.si_status != 0)
        code = lvn_fail(err, LVN_INVALID, "scorer %s ended with exit status %d", config->argv[0],
                        end.si_status);
    if (code == LVN_OK)
        code = read_answer(config->argv[0], arena, lvn_buf_str(&text), out, err);
    lvn_buf_done(&text);
    return code;
}

/* A scorer that reads nothing makes our write raise SIGPIPE; held back in this thread and dropped,
 * so that the process need not ignore it for everyone. */
lvn_code lvn_reward_command(const lvn_reward_command_config *config, lvn_arena *arena, lvn_str task,
                            lvn_str output, lvn_reward_command_result *out, lvn_err *err)
{
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    lvn_buf line;
    lvn_buf_init(&line, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&line, "{\"task\": ");
    append_on_one_line(&line, task);
    lvn_buf_lit(&line, ", \"output\": ");
    append_on_one_line(&line, output);
    lvn_buf_lit(&line, "}\n");
    const lvn_code code = line.has_failed
                              ? lvn_fail(err, LVN_TOO_LARGE, "the answer is too long to be scored")
                              : run(config, arena, lvn_buf_str(&line), out, err);
    lvn_buf_done(&line);
    if (!sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_signal, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}
