#include "runner/strays.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "runner/nursery.h"

enum { MAX_DEPTH = 16, MAX_ROUNDS = 64, MAX_PAUSES = 20, ENVIRON_BYTES = 128 * 1024 };

void lvn_strays_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Reads a file of /proc, terminated; -1 when it is not there. */
static ssize_t read_proc(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, out + len, size - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    out[len] = 0;
    return (ssize_t)len;
}

/* State letter and session of a process; false when it is gone. */
static bool read_stat(pid_t pid, char *out_state, pid_t *out_session)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (read_proc(path, text, sizeof(text)) <= 0)
        return false;
    const char *behind_name = strrchr(text, ')'); /* the name may hold blanks and parentheses */
    int parent, group, session;
    if (!behind_name || sscanf(behind_name + 1, " %c %d %d %d", out_state, &parent, &group, &session) != 4)
        return false;
    *out_session = session;
    return true;
}

/* Children of one thread. Returns how many were stored. */
static size_t list_children(pid_t pid, pid_t thread, pid_t *out, size_t max)
{
    char path[64], text[LVN_STRAYS_MAX * 12];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, thread);
    if (read_proc(path, text, sizeof(text)) <= 0)
        return 0;
    size_t count = 0;
    char *at = text;
    while (count < max) {
        char *end;
        long child = strtol(at, &end, 10);
        if (end == at)
            break;
        out[count++] = (pid_t)child;
        at = end;
    }
    return count;
}

static void collect(lvn_strays *strays, pid_t pid, pid_t session, int depth)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    if (!threads)
        return;
    for (struct dirent *entry; (entry = readdir(threads));) {
        if (entry->d_name[0] == '.')
            continue;
        pid_t children[LVN_STRAYS_MAX];
        size_t count = list_children(pid, (pid_t)strtol(entry->d_name, NULL, 10), children, LVN_STRAYS_MAX);
        for (size_t i = 0; i < count && strays->count < LVN_STRAYS_MAX; i++) {
            char state;
            pid_t its_session;
            if (depth > 1)
                collect(strays, children[i], session, depth - 1);
            if (strays->count == LVN_STRAYS_MAX || !read_stat(children[i], &state, &its_session) ||
                its_session == session)
                continue;
            int fd = pidfd_open(children[i], 0);
            if (fd >= 0)
                strays->pidfds[strays->count++] = fd;
        }
    }
    closedir(threads);
}

void lvn_strays_collect(lvn_strays *strays, pid_t pid)
{
    collect(strays, pid, pid, MAX_DEPTH);
}

void lvn_strays_kill(const lvn_strays *strays)
{
    for (size_t i = 0; i < strays->count; i++)
        pidfd_send_signal(strays->pidfds[i], SIGKILL, NULL, 0);
}

/* Parents stand behind their children in the list. So going backwards, whatever is collected here has been given
 * to us already: its parent was in the session (swept before) or has just been collected. */
void lvn_strays_done(lvn_strays *strays)
{
    while (strays->count) {
        int fd = strays->pidfds[--strays->count];
        siginfo_t ignored;
        while (waitid(P_PIDFD, (id_t)fd, &ignored, WEXITED) < 0 && errno == EINTR)
            ;
        close(fd);
    }
}

typedef enum marking { MARKED, UNMARKED, UNKNOWN } marking;

/* UNKNOWN: the environment reads as empty, as it does in the middle of an exec. */
static marking read_marking(pid_t pid, const char *marker)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    char *text = lvn_alloc(ENVIRON_BYTES);
    ssize_t len = read_proc(path, text, ENVIRON_BYTES);
    marking found = len == 0 ? UNKNOWN : UNMARKED;
    for (ssize_t at = 0; at < len && found == UNMARKED; at += (ssize_t)strlen(text + at) + 1)
        if (strcmp(text + at, marker) == 0)
            found = MARKED;
    free(text);
    return found;
}

/* Orphans go to the program's first thread, whose id is the pid. */
static size_t list_orphans(pid_t *out, size_t max)
{
    return list_children(getpid(), getpid(), out, max);
}

/* One look at the orphans. Returns how many were killed; *out_unknown counts those of which it could not be said. */
static size_t sweep_once(pid_t session, const char *marker, size_t *out_unknown)
{
    pid_t orphans[LVN_STRAYS_MAX];
    size_t count = list_orphans(orphans, LVN_STRAYS_MAX), killed = 0;
    *out_unknown = 0;
    for (size_t i = 0; i < count; i++) {
        char state;
        pid_t its_session;
        if (!read_stat(orphans[i], &state, &its_session))
            continue;
        marking its = its_session == session ? MARKED : state == 'Z' ? UNMARKED : read_marking(orphans[i], marker);
        *out_unknown += its == UNKNOWN;
        if (its != MARKED)
            continue;
        /* It is our child and nobody else collects it, so the pid cannot have been recycled. */
        kill(orphans[i], SIGKILL);
        if (waitpid(orphans[i], NULL, 0) == orphans[i])
            killed++;
    }
    return killed;
}

void lvn_strays_sweep(pid_t session, const char *marker)
{
    /* What is killed may hand over children of its own, so look again until nothing is found. A longer chain is
     * forking on purpose, and what is left of it is met at a later sweep. One in the middle of an exec is given a
     * moment. */
    for (int round = 0, pauses = 0; round < MAX_ROUNDS && pauses < MAX_PAUSES; round++) {
        size_t unknown;
        if (sweep_once(session, marker, &unknown))
            continue;
        if (!unknown)
            return;
        pauses++;
        poll(NULL, 0, 1);
    }
}

void lvn_strays_bury(lvn_strays_seen *seen, struct lvn_nursery *nursery)
{
    pid_t orphans[LVN_STRAYS_MAX];
    size_t count = list_orphans(orphans, LVN_STRAYS_MAX);
    lvn_strays_seen now = {.count = 0};
    for (size_t i = 0; i < count; i++) {
        char state;
        pid_t session;
        if (!read_stat(orphans[i], &state, &session) || state != 'Z' || lvn_nursery_owns(nursery, orphans[i]))
            continue;
        bool is_old = false;
        for (size_t k = 0; k < seen->count && !is_old; k++)
            is_old = seen->pids[k] == orphans[i];
        if (!is_old || waitpid(orphans[i], NULL, WNOHANG) != orphans[i])
            now.pids[now.count++] = orphans[i];
    }
    *seen = now;
}
