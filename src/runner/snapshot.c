#include "runner/snapshot.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"

static void read_ticks(uint64_t *out_busy, uint64_t *out_all)
{
    uint64_t t[8] = {0};
    FILE *f = fopen("/proc/stat", "re");
    if (!f)
        return;
    if (fscanf(f, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
               &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) >= 4) {
        uint64_t idle = t[3] + t[4];
        *out_all = t[0] + t[1] + t[2] + t[3] + t[4] + t[5] + t[6] + t[7];
        *out_busy = *out_all - idle;
    }
    fclose(f);
}

/* Name of the processor and the number of distinct cores. */
static void read_cpu(lvn_snapshot *s)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    int cores = 0;
    while (f && fgets(line, sizeof(line), f)) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        if (!s->cpu_name[0] && strncmp(line, "model name", 10) == 0)
            snprintf(s->cpu_name, sizeof(s->cpu_name), "%.120s", value);
        if (strncmp(line, "cpu cores", 9) == 0 && sscanf(value, "%d", &cores) != 1)
            cores = 0;
    }
    if (f)
        fclose(f);
    s->threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    s->cores = cores > 0 && cores < s->threads ? cores : s->threads;
}

void lvn_snapshot_init(lvn_snapshot *s)
{
    *s = (lvn_snapshot){.cores = 1};
    struct utsname name;
    if (!uname(&name)) {
        snprintf(s->host, sizeof(s->host), "%s", name.nodename);
        snprintf(s->os, sizeof(s->os), "%s %s", name.sysname, name.release);
    }
    read_cpu(s);
    read_ticks(&s->busy_ticks, &s->all_ticks);
}

static double two_digits(double value)
{
    return (double)(int64_t)(value * 100.0 + 0.5) / 100.0;
}

static void put_number(lvn_buf *out, const char *key, double value)
{
    lvn_json_write_key(out, key);
    lvn_json_write_double(out, two_digits(value));
}

static void put_usage(lvn_buf *out, const char *kind, double used_bytes, double total_bytes)
{
    char key[32];
    snprintf(key, sizeof(key), "%s_used_gb", kind);
    put_number(out, key, used_bytes / 1e9);
    snprintf(key, sizeof(key), "%s_total_gb", kind);
    put_number(out, key, total_bytes / 1e9);
    snprintf(key, sizeof(key), "%s_pct", kind);
    put_number(out, key, total_bytes > 0 ? 100.0 * used_bytes / total_bytes : 0.0);
}

static void put_memory(lvn_buf *out)
{
    double total_kb = 0, available_kb = 0;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof(line), f) && available_kb == 0.0)
        if (sscanf(line, "MemTotal: %lf", &total_kb) != 1 && sscanf(line, "MemAvailable: %lf", &available_kb) != 1)
            continue;
    if (f)
        fclose(f);
    put_usage(out, "mem", (total_kb - available_kb) * 1024, total_kb * 1024);
}

static void put_network(lvn_buf *out)
{
    double received = 0, sent = 0;
    char line[512];
    FILE *f = fopen("/proc/net/dev", "re");
    while (f && fgets(line, sizeof(line), f)) {
        char *behind = strchr(line, ':');
        double in, to;
        if (behind && sscanf(behind + 1, "%lf %*f %*f %*f %*f %*f %*f %*f %lf", &in, &to) == 2) {
            received += in;
            sent += to;
        }
    }
    if (f)
        fclose(f);
    put_number(out, "bytes_sent_mb", sent / 1e6);
    put_number(out, "bytes_recv_mb", received / 1e6);
}

void lvn_snapshot_write(lvn_snapshot *s, lvn_buf *out)
{
    char time_text[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%S", localtime_r(&now, &parts));
    lvn_buf_append_char(out, '{');
    lvn_json_write_key(out, "timestamp");
    lvn_json_write_str(out, lvn_str_of(time_text));
    lvn_json_write_key(out, "host");
    lvn_json_write_str(out, lvn_str_of(s->host));
    lvn_json_write_key(out, "os");
    lvn_json_write_str(out, lvn_str_of(s->os));
    lvn_json_write_key(out, "cpu_name");
    lvn_json_write_str(out, lvn_str_of(s->cpu_name));
    lvn_json_write_key(out, "cpu_cores");
    lvn_json_write_int(out, s->cores);
    lvn_json_write_key(out, "cpu_threads");
    lvn_json_write_int(out, s->threads);
    uint64_t busy = s->busy_ticks, all = s->all_ticks;
    read_ticks(&s->busy_ticks, &s->all_ticks);
    double passed = (double)(s->all_ticks - all);
    put_number(out, "cpu_usage_pct", passed > 0 ? 100.0 * (double)(s->busy_ticks - busy) / passed : 0.0);
    put_memory(out);
    struct statvfs disk;
    if (!statvfs("/", &disk))
        put_usage(out, "disk", (double)(disk.f_blocks - disk.f_bfree) * (double)disk.f_frsize,
                  (double)disk.f_blocks * (double)disk.f_frsize);
    put_network(out);
    lvn_buf_append_char(out, '}');
}
