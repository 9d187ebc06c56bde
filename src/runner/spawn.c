#include "runner/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "runner/nursery.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

static lvn_code check_program(const char *path, const char *name, lvn_err *err)
{
    struct stat st;
    if (stat(path, &st))
        return lvn_fail(err, LVN_NOT_FOUND, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return lvn_fail(err, LVN_INVALID, "%s is not a program but a %s", name,
                        S_ISDIR(st.st_mode) ? "folder" : "special file");
    if (access(path, X_OK))
        return lvn_fail(err, LVN_INVALID, "%s cannot be executed (chmod +x, or name its interpreter)", name);
    return LVN_OK;
}

lvn_code lvn_process_find(const char *name, const char *directory, char *out, size_t out_size, lvn_err *err)
{
    if (!*name)
        return lvn_fail(err, LVN_INVALID, "the command is empty");
    char found[PATH_MAX];
    if (strchr(name, '/')) {
        if (*name == '/' || !directory)
            snprintf(found, sizeof(found), "%s", name);
        else
            snprintf(found, sizeof(found), "%s/%s", directory, name);
        lvn_code code = check_program(found, name, err);
        if (!code)
            snprintf(out, out_size, "%s", found);
        return code;
    }
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin"; *at;) {
        size_t len = strcspn(at, ":");
        snprintf(found, sizeof(found), "%.*s/%s", len ? (int)len : 1, len ? at : ".", name);
        if (!check_program(found, name, NULL)) {
            snprintf(out, out_size, "%s", found);
            return LVN_OK;
        }
        at += len + (at[len] == ':');
    }
    return lvn_fail(err, LVN_NOT_FOUND, "there is no program \"%s\" in PATH", name);
}

enum { EXTRA_FILENO = STDERR_FILENO + 1 };
enum { IN_CHILD, IN_OURS, OUT_OURS, OUT_CHILD, ERR_OURS, ERR_CHILD, STATUS_OURS, STATUS_CHILD, FD_COUNT };

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* A pipe whose ends are above the descriptors that the child gets, even when those are closed in our program: dup2
 * in the child would else overwrite what it still needs. */
static bool open_pipe(int *out_read, int *out_write)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return false;
    for (int i = 0; i < 2; i++) {
        if (ends[i] > EXTRA_FILENO)
            continue;
        int higher = fcntl(ends[i], F_DUPFD_CLOEXEC, EXTRA_FILENO + 1);
        close(ends[i]);
        ends[i] = higher;
    }
    *out_read = ends[0];
    *out_write = ends[1];
    return ends[0] >= 0 && ends[1] >= 0;
}

static bool open_pipes(int fds[FD_COUNT])
{
    for (int i = 0; i < FD_COUNT; i++)
        fds[i] = -1;
    if (!open_pipe(&fds[IN_CHILD], &fds[IN_OURS]) || !open_pipe(&fds[OUT_OURS], &fds[OUT_CHILD]) ||
        !open_pipe(&fds[ERR_OURS], &fds[ERR_CHILD]) || !open_pipe(&fds[STATUS_OURS], &fds[STATUS_CHILD]))
        return false;
    return !fcntl(fds[IN_OURS], F_SETFL, O_NONBLOCK) && !fcntl(fds[OUT_OURS], F_SETFL, O_NONBLOCK) &&
           !fcntl(fds[ERR_OURS], F_SETFL, O_NONBLOCK);
}

/* What the child needs, made before it exists: it shares our memory until exec and may only make system calls. */
typedef struct plan {
    const char *path, *directory;
    char *const *argv, *const *env;
    const int *fds;
    int extra_fd; /* -1: none */
    pid_t parent;
} plan;

/* What went wrong in the child, sent through the status pipe, which closes by itself when exec succeeds. */
typedef struct trouble {
    int number;
    bool is_directory;
} trouble;

static void reset_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int i = 1; i < NSIG; i++)
        sigaction(i, &standard, NULL); /* fails for those that cannot be caught: fine */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void __attribute__((noreturn)) run_child(const plan *p)
{
    trouble what = {0};
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != p->parent) /* it died before the line above */
        _exit(127);
    reset_signals();
    if (dup2(p->fds[IN_CHILD], STDIN_FILENO) >= 0 && dup2(p->fds[OUT_CHILD], STDOUT_FILENO) >= 0 &&
        dup2(p->fds[ERR_CHILD], STDERR_FILENO) >= 0) {
        syscall(SYS_close_range, EXTRA_FILENO, ~0U, CLOSE_RANGE_CLOEXEC);
        if (p->extra_fd == EXTRA_FILENO)
            fcntl(EXTRA_FILENO, F_SETFD, 0);
        else if (p->extra_fd >= 0)
            dup2(p->extra_fd, EXTRA_FILENO);
        what.is_directory = p->directory && chdir(p->directory);
        if (!what.is_directory)
            execve(p->path, p->argv, p->env);
    }
    what.number = errno;
    while (write(p->fds[STATUS_CHILD], &what, sizeof(what)) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* vfork, because fork copies the page tables of a process that maps gigabytes of weights, once for each rollout.
 * Signals stay blocked meanwhile: a handler must not run in a child that shares our memory. */
static pid_t start_child(const plan *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = vfork();
    if (pid == 0)
        run_child(p);
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return pid;
}

static lvn_code explain(const trouble *what, const lvn_process_spec *spec, lvn_err *err)
{
    if (what->is_directory)
        return lvn_fail(err, LVN_NOT_FOUND, "folder %s: %s", spec->directory, strerror(what->number));
    if (what->number == ENOEXEC)
        return lvn_fail(err, LVN_INVALID, "%s cannot be executed: not a program (a script begins with a line such as "
                                          "#!/bin/sh)", spec->argv[0]);
    if (what->number == ENOENT)
        return lvn_fail(err, LVN_NOT_FOUND, "%s cannot be executed: its interpreter does not exist", spec->argv[0]);
    return lvn_fail(err, what->number == EAGAIN || what->number == ENOMEM ? LVN_IO : LVN_INVALID,
                    "%s cannot be executed: %s", spec->argv[0], strerror(what->number));
}

/* Blocks until exec has happened or failed; the child keeps the status pipe until then. */
static lvn_code await_exec(const lvn_process_spec *spec, int fds[FD_COUNT], pid_t pid, lvn_err *err)
{
    for (int i = 0; i < FD_COUNT; i++)
        if (i == IN_CHILD || i == OUT_CHILD || i == ERR_CHILD || i == STATUS_CHILD)
            close_fd(&fds[i]);
    trouble what;
    ssize_t n;
    while ((n = read(fds[STATUS_OURS], &what, sizeof(what))) < 0 && errno == EINTR)
        ;
    if (n != (ssize_t)sizeof(what))
        return LVN_OK;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return explain(&what, spec, err);
}

static char **with_marker(const char *const *env, const char *marker)
{
    size_t count = 0;
    while (env && env[count])
        count++;
    char **out = lvn_alloc((count + 2) * sizeof(*out));
    out[0] = (char *)(uintptr_t)marker;
    for (size_t i = 0; i < count; i++)
        out[i + 1] = (char *)(uintptr_t)env[i];
    out[count + 1] = NULL;
    return out;
}

lvn_code lvn_spawn(const lvn_process_spec *spec, const char *marker, lvn_spawned *out, lvn_err *err)
{
    char path[PATH_MAX];
    if (!spec->argv || !spec->argv[0])
        return lvn_fail(err, LVN_INVALID, "the command is empty");
    lvn_code code = lvn_process_find(spec->argv[0], spec->directory, path, sizeof(path), err);
    if (code)
        return code;
    /* Made absolute before the child changes its folder: PATH may hold relative entries. Links stay as they are,
     * since a Python finds its virtual environment by the name it was called with. */
    char absolute[2 * PATH_MAX], here[PATH_MAX];
    bool is_relative = path[0] != '/' && getcwd(here, sizeof(here));
    snprintf(absolute, sizeof(absolute), "%s%s%s", is_relative ? here : "", is_relative ? "/" : "", path);
    int fds[FD_COUNT];
    pid_t pid = -1;
    int pidfd = -1;
    char **env = with_marker(spec->env, marker);
    if (open_pipes(fds)) {
        plan p = {.path = absolute, .directory = spec->directory, .argv = (char *const *)(uintptr_t)spec->argv,
                  .env = env, .fds = fds, .extra_fd = spec->has_extra_fd ? spec->extra_fd : -1, .parent = getpid()};
        pid = start_child(&p);
    }
    code = pid > 0 ? await_exec(spec, fds, pid, err)
                   : lvn_fail(err, LVN_IO, "no process could be started: %s", strerror(errno));
    if (!code && (pidfd = pidfd_open(pid, 0)) < 0) {
        code = lvn_fail(err, LVN_IO, "process %d cannot be watched: %s", pid, strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    free(env);
    if (!code) {
        *out = (lvn_spawned){pid, pidfd, fds[IN_OURS], fds[OUT_OURS], fds[ERR_OURS]};
        fds[IN_OURS] = fds[OUT_OURS] = fds[ERR_OURS] = -1;
    }
    for (int i = 0; i < FD_COUNT; i++)
        close_fd(&fds[i]);
    return code;
}

lvn_code lvn_spawn_fork(struct lvn_nursery *nursery, const char *marker, lvn_spawned *out, lvn_err *err)
{
    int fds[FD_COUNT];
    pid_t pid = 0;
    lvn_code code = open_pipes(fds) ? LVN_OK : lvn_fail(err, LVN_IO, "no pipes: %s", strerror(errno));
    if (!code) {
        const int standard[3] = {fds[IN_CHILD], fds[OUT_CHILD], fds[ERR_CHILD]};
        code = lvn_nursery_fork(nursery, marker, standard, &pid, err);
    }
    int pidfd = code ? -1 : pidfd_open(pid, 0);
    if (!code && pidfd < 0) {
        code = lvn_fail(err, LVN_IO, "process %d cannot be watched: %s", pid, strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        lvn_nursery_forget(nursery, pid);
    }
    if (!code) {
        *out = (lvn_spawned){pid, pidfd, fds[IN_OURS], fds[OUT_OURS], fds[ERR_OURS]};
        fds[IN_OURS] = fds[OUT_OURS] = fds[ERR_OURS] = -1;
    }
    for (int i = 0; i < FD_COUNT; i++)
        close_fd(&fds[i]);
    return code;
}
