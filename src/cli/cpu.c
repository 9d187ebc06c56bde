#include "cli/cpu.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"

/* Name and CPU seconds of one thread; false when it is gone. */
static bool read_thread(const char *id, char name[64], double *out_s)
{
    char path[300], line[1024];
    snprintf(path, sizeof(path), "/proc/self/task/%s/stat", id);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool is_read = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    char *open = is_read ? strchr(line, '(') : NULL, *close = is_read ? strrchr(line, ')') : NULL;
    unsigned long user, system;
    if (!open || !close || sscanf(close + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return false;
    snprintf(name, 64, "%.*s", (int)(close - open - 1), open + 1);
    *out_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

void lvn_cpu_read(lvn_cpu_times *out)
{
    *out = (lvn_cpu_times){.total_s = lvn_ns_to_s(lvn_clock_process_cpu_ns())};
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[64];
        double seconds;
        if (e->d_name[0] == '.' || !read_thread(e->d_name, name, &seconds))
            continue;
        if (!strncmp(name, "levin-loop", 10) || !strncmp(name, "levin-http", 10))
            out->loop_s += seconds;
        else if (!strncmp(name, "levin-store", 11))
            out->store_s += seconds;
        else if (!strncmp(name, "levin-run", 9))
            out->runner_s += seconds;
    }
    if (d)
        closedir(d);
    out->model_s = out->total_s - out->loop_s - out->store_s - out->runner_s;
}

void lvn_cpu_write_json(lvn_buf *out)
{
    lvn_cpu_times t;
    lvn_cpu_read(&t);
    const struct { const char *key; double value; } rows[] = {
        {"total_s", t.total_s}, {"loop_s", t.loop_s}, {"store_s", t.store_s}, {"runner_s", t.runner_s}, {"model_s", t.model_s},
        {"overhead", t.total_s > 0 ? (t.total_s - t.model_s) / t.total_s : 0},
    };
    lvn_buf_append_char(out, '{');
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        lvn_json_write_key(out, rows[i].key);
        lvn_json_write_double(out, rows[i].value);
    }
    lvn_buf_append_char(out, '}');
}
