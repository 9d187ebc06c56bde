#include "runner/nursery.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "runner/process.h"
#include "runner/result.h"

enum { MAX_WORKERS = 1024, FORK_WAIT_MS = 10000, NURSERY_OUTPUT = 1 << 30 };

struct lvn_nursery {
    lvn_nursery_config config;
    pthread_t thread;
    int ours, theirs;       /* the channel; theirs is closed once it was handed over */
    int settled_fd, end_fd; /* eventfds, readable for good */
    atomic_bool is_settled, is_working;
    lvn_attempt_log log; /* of the thread */
    pthread_mutex_t lock; /* one request at a time; guards workers */
    pid_t workers[MAX_WORKERS];
    size_t worker_count;
};

static void settle(lvn_nursery *n, bool is_working)
{
    uint64_t one = 1;
    atomic_store(&n->is_working, is_working);
    if (!atomic_exchange(&n->is_settled, true))
        while (write(n->settled_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
}

/* True: it said that it can fork. */
static bool read_ready_line(lvn_process *process)
{
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    const lvn_buf *output = lvn_process_output(process);
    const char *end = memchr(output->ptr, '\n', output->len);
    lvn_json said;
    return end && !lvn_result_read_line(arena, (lvn_str){output->ptr, (size_t)(end - output->ptr)}, &said, NULL) &&
           lvn_json_get_bool(&said, "ready", false) && lvn_json_get_bool(&said, "fork", false);
}

/* Reads what it says until it ends (false) or is to end (true). */
static bool watch(lvn_nursery *n, lvn_process *process)
{
    int64_t deadline = lvn_clock_monotonic_ns() + n->config.ready_timeout_ms * LVN_NS_PER_MS;
    const unsigned over = LVN_PROCESS_EXITED | LVN_PROCESS_CLOSED | LVN_PROCESS_OVERFLOW | LVN_PROCESS_DEADLINE;
    for (;;) {
        unsigned events = lvn_process_pump(process, n->end_fd, deadline);
        if (events & LVN_PROCESS_WOKEN)
            return true;
        bool has_line = !atomic_load(&n->is_settled) && lvn_process_output(process)->len;
        if (has_line && read_ready_line(process)) {
            settle(n, true);
            deadline = INT64_MAX;
        } else if (has_line || (events & over)) {
            lvn_log(LVN_WARN, "nursery_does_not_work", "error=\"%s\" now=\"workers are started one by one\"",
                    has_line ? "the imports left threads running, or failed" : lvn_process_last_words(process));
            return false;
        }
    }
}

static void *run(void *arg)
{
    lvn_nursery *n = arg;
    lvn_process_spec spec = {.argv = n->config.argv, .env = n->config.env, .directory = n->config.directory,
                             .limit_bytes = NURSERY_OUTPUT, .extra_fd = n->theirs, .has_extra_fd = true};
    lvn_process *process = NULL;
    lvn_err err = {0};
    if (lvn_process_spawn(&spec, &process, &err)) {
        lvn_log(LVN_WARN, "nursery_does_not_start", "error=\"%s\"", err.message);
    } else {
        close(n->theirs);
        n->theirs = -1;
        lvn_process_set_log(process, &n->log, false);
        lvn_process_leave_children(process, true); /* workers go on when it dies .. */
        if (watch(n, process))
            lvn_process_leave_children(process, false); /* .. but nothing outlives the runner */
    }
    settle(n, false);
    shutdown(n->ours, SHUT_RDWR); /* a request in flight fails now, not after its time */
    lvn_process_exit ignored;
    if (process)
        lvn_process_end(process, &(lvn_process_step){0, 200}, 1, &ignored);
    lvn_process_free(process);
    return NULL;
}

static void destroy(lvn_nursery *n)
{
    int fds[] = {n->ours, n->theirs, n->settled_fd, n->end_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    lvn_attempt_log_done(&n->log);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

lvn_code lvn_nursery_open(const lvn_nursery_config *config, lvn_nursery **out, lvn_err *err)
{
    lvn_nursery *n = lvn_zalloc(sizeof(*n));
    int ends[2] = {-1, -1};
    int failed = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? errno : 0;
    n->config = *config;
    n->ours = ends[0];
    n->theirs = ends[1];
    n->settled_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    n->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&n->lock, NULL);
    lvn_attempt_log_init(&n->log, config->log_path ? config->log_path : "/dev/null");
    if (n->settled_fd < 0 || n->end_fd < 0)
        failed = EMFILE;
    if (!failed)
        failed = pthread_create(&n->thread, NULL, run, n);
    if (failed) {
        destroy(n);
        return lvn_fail(err, LVN_IO, "the nursery of the workers: %s", strerror(failed));
    }
    pthread_setname_np(n->thread, "levin-runner-n");
    *out = n;
    return LVN_OK;
}

void lvn_nursery_close(lvn_nursery *n)
{
    if (!n)
        return;
    uint64_t one = 1;
    while (write(n->end_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(n->thread, NULL);
    destroy(n);
}

int lvn_nursery_settled_fd(const lvn_nursery *n)
{
    return n ? n->settled_fd : -1;
}

bool lvn_nursery_is_settled(const lvn_nursery *n)
{
    return !n || atomic_load(&n->is_settled);
}

static bool send_request(lvn_nursery *n, const char *marker, const int fds[3])
{
    struct iovec text = {(void *)(uintptr_t)marker, strlen(marker)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(3 * sizeof(int));
    memcpy(CMSG_DATA(header), fds, 3 * sizeof(int));
    return sendmsg(n->ours, &message, MSG_NOSIGNAL) == (ssize_t)text.iov_len;
}

/* The pid that it answers; 0: none came. */
static pid_t read_reply(lvn_nursery *n)
{
    struct pollfd fd = {.fd = n->ours, .events = POLLIN};
    char reply[32];
    int ready;
    while ((ready = poll(&fd, 1, FORK_WAIT_MS)) < 0 && errno == EINTR)
        ;
    ssize_t len = ready > 0 ? recv(n->ours, reply, sizeof(reply) - 1, 0) : 0;
    if (len <= 0)
        return 0;
    reply[len] = 0;
    long pid = strtol(reply, NULL, 10);
    return pid > 1 ? (pid_t)pid : 0;
}

lvn_code lvn_nursery_fork(lvn_nursery *n, const char *marker, const int fds[3], pid_t *out, lvn_err *err)
{
    pid_t pid = 0;
    pthread_mutex_lock(&n->lock);
    if (atomic_load(&n->is_working) && n->worker_count < MAX_WORKERS) {
        if (send_request(n, marker, fds))
            pid = read_reply(n);
        if (pid)
            n->workers[n->worker_count++] = pid;
        else
            atomic_store(&n->is_working, false); /* replies would be out of step from here on */
    }
    pthread_mutex_unlock(&n->lock);
    if (!pid)
        return lvn_fail(err, LVN_UNAVAILABLE, "the nursery of the workers does not work");
    *out = pid;
    return LVN_OK;
}

void lvn_nursery_forget(lvn_nursery *n, pid_t worker)
{
    pthread_mutex_lock(&n->lock);
    for (size_t i = 0; i < n->worker_count; i++)
        if (n->workers[i] == worker)
            n->workers[i--] = n->workers[--n->worker_count];
    pthread_mutex_unlock(&n->lock);
}

bool lvn_nursery_owns(lvn_nursery *n, pid_t pid)
{
    bool is_found = false;
    if (!n)
        return false;
    pthread_mutex_lock(&n->lock);
    for (size_t i = 0; i < n->worker_count && !is_found; i++)
        is_found = n->workers[i] == pid;
    pthread_mutex_unlock(&n->lock);
    return is_found;
}
