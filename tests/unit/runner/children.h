/* For the runner's tests: who is left of what a test started. */
#ifndef LVN_TESTS_RUNNER_CHILDREN_H
#define LVN_TESTS_RUNNER_CHILDREN_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Number of processes, zombies included, whose parent is this program. They are printed. */
static inline int count_children(void)
{
    int count = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[300], text[512], state;
        int parent;
        snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f)
            continue;
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        fclose(f);
        text[n] = 0;
        char *behind = strrchr(text, ')');
        if (behind && sscanf(behind + 1, " %c %d", &state, &parent) == 2 && parent == getpid()) {
            fprintf(stderr, "left over: %.60s\n", text);
            count++;
        }
    }
    if (dir)
        closedir(dir);
    return count;
}

/* Scripts of tests sleep for NUMBER.$LEVIN_TEST_PID seconds, so that they are told from those of another run of the tests. */
static inline void set_test_pid(void)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", getpid());
    setenv("LEVIN_TEST_PID", text, 1);
}

/* Whether any process of this run of the tests sleeps for `number` seconds. */
static inline bool is_any_running(const char *number)
{
    bool is_found = false;
    char word[64];
    snprintf(word, sizeof(word), "%s.%d", number, getpid());
    DIR *dir = opendir("/proc");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[300], text[4096];
        if (strtol(e->d_name, NULL, 10) == 0 || strtol(e->d_name, NULL, 10) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f)
            continue;
        size_t n = fread(text, 1, sizeof(text), f);
        fclose(f);
        if (memmem(text, n, word, strlen(word)))
            is_found = true;
    }
    if (dir)
        closedir(dir);
    return is_found;
}

static inline int count_fds(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; dir && (e = readdir(dir));)
        count += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

#endif
