#include "runner/runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "runner/agent.h"
#include "runner/nursery.h"
#include "runner/shim.h"
#include "runner/slot.h"
#include "runner/snapshot.h"
#include "runner/strays.h"

enum { MAX_WORKERS = 1024, BURY_MS = 10000 };

struct lvn_runner {
    lvn_runner_config config;
    lvn_slot_shared shared;
    lvn_slot *slots;
    size_t started; /* slots with a thread */
    lvn_arena *arena;
    lvn_shim shim;
    pthread_t keeper;
    bool has_keeper;
    int ended_fd; /* readable when the keeper is to end */
};

/* ---- the keeper: heartbeats, orphans, and the end of parked claims ---- */

static void send_heartbeats(lvn_runner *r, lvn_snapshot *snapshot, lvn_arena *arena)
{
    lvn_buf stats;
    lvn_buf_init(&stats, 1 << 14);
    lvn_snapshot_write(snapshot, &stats);
    for (size_t i = 0; i < r->started; i++) {
        lvn_arena_reset(arena);
        lvn_op op = {.kind = LVN_OP_HEARTBEAT, .arena = arena};
        op.in.heartbeat.worker_id = lvn_str_of(r->slots[i].worker_id);
        op.in.heartbeat.has_stats = true;
        op.in.heartbeat.stats = lvn_buf_str(&stats);
        if (lvn_store_call(r->shared.store, &op)) {
            lvn_log(LVN_WARN, "heartbeat_failed", "worker=%s error=\"%s\"", r->slots[i].worker_id, op.err.message);
            break; /* the others would say the same */
        }
    }
    lvn_buf_done(&stats);
}

static void *keep(void *arg)
{
    lvn_runner *r = arg;
    lvn_arena *arena = lvn_arena_new(0);
    lvn_snapshot snapshot;
    lvn_snapshot_init(&snapshot);
    lvn_strays_seen seen = {.count = 0};
    bool has_heartbeat = r->config.heartbeat_ms > 0, is_draining = false, is_ended = false;
    int64_t interval_ms = has_heartbeat ? r->config.heartbeat_ms : BURY_MS;
    int64_t cpu = 0;
    while (!is_ended) {
        if (has_heartbeat)
            send_heartbeats(r, &snapshot, arena);
        lvn_strays_bury(&seen, r->shared.nursery);
        int64_t now = lvn_clock_thread_cpu_ns();
        atomic_fetch_add(&r->shared.cpu_ns, now - cpu);
        cpu = now;
        int64_t due = lvn_clock_monotonic_ns() + interval_ms * LVN_NS_PER_MS;
        for (int64_t left = 1; left > 0 && !is_ended; left = due - lvn_clock_monotonic_ns()) {
            struct pollfd fds[] = {{.fd = is_draining ? -1 : r->shared.drain_fd, .events = POLLIN},
                                   {.fd = r->ended_fd, .events = POLLIN}};
            int64_t ms = (due - lvn_clock_monotonic_ns()) / LVN_NS_PER_MS + 1;
            if (poll(fds, 2, ms > 0 ? (int)ms : 0) <= 0)
                continue;
            is_ended = fds[1].revents != 0;
            if (fds[0].revents && !is_draining) {
                is_draining = true;
                for (size_t i = 0; i < r->started; i++)
                    lvn_slot_wake(&r->slots[i]);
            }
        }
    }
    lvn_arena_free(arena);
    return NULL;
}

/* ---- start ---- */

static lvn_code check_config(const lvn_runner_config *config, lvn_err *err)
{
    const lvn_agent_spec *agent = &config->agent;
    if (config->workers < 1 || config->workers > MAX_WORKERS)
        return lvn_fail(err, LVN_INVALID, "the number of workers must be between 1 and %d", MAX_WORKERS);
    if (!config->log_directory || !*config->log_directory)
        return lvn_fail(err, LVN_INVALID, "the runner needs a log directory");
    if (agent->kind == LVN_AGENT_WARM && (!agent->file || !*agent->file))
        return lvn_fail(err, LVN_INVALID, "a warm agent needs its Python file");
    if (agent->kind == LVN_AGENT_COMMAND && !(agent->argv && agent->argv[0]) && !agent->shell)
        return lvn_fail(err, LVN_INVALID, "the agent's command is empty");
    return LVN_OK;
}

/* The folder and those above it. */
static lvn_code make_folder(const char *path, lvn_err *err)
{
    char part[4096];
    snprintf(part, sizeof(part), "%s", path);
    for (char *at = part + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        mkdir(part, 0755); /* what matters is whether the last one exists */
        *at = '/';
    }
    struct stat st;
    if ((mkdir(part, 0755) && errno != EEXIST) || stat(part, &st))
        return lvn_fail(err, LVN_IO, "log folder %s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? LVN_OK : lvn_fail(err, LVN_IO, "log folder %s is not a folder", path);
}

/* Each agent takes four descriptors of ours. What the system gives by default is enough for some 150 of them. */
static void raise_descriptor_limit(size_t workers)
{
    struct rlimit limit;
    rlim_t wanted = 256 + 8 * (rlim_t)workers;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Slots sleep in poll and must not be chosen for the program's signals. */
static int start_thread(pthread_t *out, const char *name, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed)
        pthread_setname_np(*out, name);
    return failed;
}

static lvn_code open_shared(lvn_runner *r, lvn_store *store, lvn_err *err)
{
    r->shared.config = &r->config;
    r->shared.store = store;
    r->shared.drain_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->shared.cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->shared.left_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->shared.left_fd < 0 || r->shared.drain_fd < 0 || r->shared.cancel_fd < 0 || r->ended_fd < 0)
        return lvn_fail(err, LVN_IO, "no more descriptors: %s", strerror(errno));
    if (r->config.agent.kind != LVN_AGENT_WARM)
        return LVN_OK;
    lvn_code code = lvn_shim_open(r->config.agent.shim, &r->shim, err);
    if (code)
        return code;
    r->shared.warm_argv = lvn_agent_argv(&r->config, r->shim.path, false, r->arena);
    r->shared.warm_env = lvn_agent_env(&r->config, r->arena);
    if (!r->config.agent.is_forked)
        return LVN_OK;
    lvn_nursery_config nursery = {
        .argv = lvn_agent_argv(&r->config, r->shim.path, true, r->arena),
        .env = r->shared.warm_env,
        .directory = r->config.agent.directory,
        .ready_timeout_ms = r->config.agent.ready_timeout_ms,
        .log_path = lvn_arena_printf(r->arena, "%s/nursery.log", r->config.log_directory).ptr,
    };
    return lvn_nursery_open(&nursery, &r->shared.nursery, err);
}

static lvn_code start_slot(lvn_runner *r, size_t number, lvn_err *err)
{
    lvn_slot *s = &r->slots[number];
    char name[16];
    snprintf(s->worker_id, sizeof(s->worker_id), "Worker-%zu", r->config.first_worker + number);
    snprintf(name, sizeof(name), "levin-runner-%u", (unsigned)number % 100);
    s->shared = &r->shared;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0)
        return lvn_fail(err, LVN_IO, "no more descriptors: %s", strerror(errno));
    pthread_mutex_init(&s->lock, NULL);
    int failed = start_thread(&s->thread, name, lvn_slot_run, s);
    if (!failed)
        return LVN_OK;
    pthread_mutex_destroy(&s->lock);
    close(s->wake_fd);
    return lvn_fail(err, LVN_IO, "no more threads: %s", strerror(failed));
}

lvn_code lvn_runner_start(const lvn_runner_config *config, lvn_store *store, lvn_runner **out, lvn_err *err)
{
    lvn_code code = check_config(config, err);
    if (!code)
        code = make_folder(config->log_directory, err);
    if (code)
        return code;
    lvn_strays_adopt();
    raise_descriptor_limit(config->workers);
    lvn_runner *r = lvn_zalloc(sizeof(*r));
    r->config = *config;
    lvn_agent_defaults(&r->config);
    r->arena = lvn_arena_new(0);
    r->slots = lvn_arena_array(r->arena, config->workers, sizeof(*r->slots));
    code = open_shared(r, store, err);
    for (size_t i = 0; i < config->workers && !code; i++) {
        code = start_slot(r, i, err);
        r->started += code == LVN_OK;
    }
    int failed = code ? 0 : start_thread(&r->keeper, "levin-runner", keep, r);
    r->has_keeper = !code && !failed;
    if (failed)
        code = lvn_fail(err, LVN_IO, "no more threads: %s", strerror(failed));
    if (code) {
        lvn_runner_stop(r, 0);
        return code;
    }
    *out = r;
    return LVN_OK;
}

/* ---- stop ---- */

static void raise_state(lvn_runner *r, int state)
{
    int now = atomic_load(&r->shared.state);
    while (now < state && !atomic_compare_exchange_weak(&r->shared.state, &now, state))
        ;
}

static void signal_fd(int fd)
{
    uint64_t one = 1;
    int saved = errno;
    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
        /* EAGAIN: it is readable already */
    }
    errno = saved;
}

void lvn_runner_drain(lvn_runner *r)
{
    raise_state(r, LVN_SLOT_DRAIN);
    signal_fd(r->shared.drain_fd);
}

void lvn_runner_cancel(lvn_runner *r)
{
    raise_state(r, LVN_SLOT_CANCEL);
    signal_fd(r->shared.drain_fd);
    signal_fd(r->shared.cancel_fd);
}

/* Waits until all slots have ended; when `drain_ms` have passed first, cancels what still runs. */
static void await_slots(lvn_runner *r, int64_t drain_ms)
{
    int64_t deadline = lvn_clock_monotonic_ns() + drain_ms * LVN_NS_PER_MS;
    bool has_deadline = drain_ms > 0;
    for (uint64_t ended = 0, more; ended < r->started;) {
        int64_t left_ms = has_deadline ? (deadline - lvn_clock_monotonic_ns()) / LVN_NS_PER_MS + 1 : -1;
        struct pollfd fd = {.fd = r->shared.left_fd, .events = POLLIN};
        if (has_deadline && left_ms <= 0) {
            lvn_runner_cancel(r);
            has_deadline = false;
        } else if (poll(&fd, 1, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX) > 0 &&
                   read(r->shared.left_fd, &more, sizeof(more)) == (ssize_t)sizeof(more)) {
            ended += more;
        }
    }
    for (size_t i = 0; i < r->started; i++)
        pthread_join(r->slots[i].thread, NULL);
}

void lvn_runner_stop(lvn_runner *r, int64_t drain_ms)
{
    if (!r)
        return;
    if (drain_ms == 0)
        lvn_runner_cancel(r);
    else
        lvn_runner_drain(r);
    /* The keeper wakes parked claims when it sees the drain; without one they are woken here. */
    for (size_t i = 0; i < r->started && !r->has_keeper; i++)
        lvn_slot_wake(&r->slots[i]);
    await_slots(r, drain_ms);
    signal_fd(r->ended_fd);
    if (r->has_keeper)
        pthread_join(r->keeper, NULL);
    lvn_nursery_close(r->shared.nursery);
    for (size_t i = 0; i < r->started; i++) {
        pthread_mutex_destroy(&r->slots[i].lock);
        close(r->slots[i].wake_fd);
    }
    int fds[] = {r->shared.drain_fd, r->shared.cancel_fd, r->shared.left_fd, r->ended_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    lvn_shim_close(&r->shim);
    lvn_arena_free(r->arena);
    free(r);
}

void lvn_runner_get_stats(const lvn_runner *r, lvn_runner_stats *out)
{
    const lvn_slot_shared *s = &r->shared;
    int64_t score_ns = atomic_load(&s->score_ns);
    *out = (lvn_runner_stats){
        .succeeded = atomic_load(&s->succeeded),
        .failed = atomic_load(&s->failed),
        .timeouts = atomic_load(&s->timeouts),
        .cancelled = atomic_load(&s->cancelled),
        .processes = atomic_load(&s->processes),
        .busy = atomic_load(&s->busy),
        .cpu_ns = atomic_load(&s->cpu_ns) - score_ns,
        .score_ns = score_ns,
    };
}
