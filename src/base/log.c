#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* The log sink is one of the two mutable globals that the house style allows. */
static _Atomic int threshold = LVN_INFO;
static _Atomic int sink_fd = STDERR_FILENO;

void lvn_log_set_level(lvn_log_level level)
{
    threshold = (int)level;
}

lvn_log_level lvn_log_get_level(void)
{
    return (lvn_log_level)threshold;
}

void lvn_log_set_fd(int fd)
{
    sink_fd = fd;
}

void lvn_log(lvn_log_level level, const char *event, const char *format, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    if ((int)level < threshold)
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char line[2048];
    size_t used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    used += (size_t)snprintf(line + used, sizeof(line) - used, ".%03ldZ level=%s event=%s ", now.tv_nsec / 1000000,
                             names[level], event);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof(line) - used - 1, format, args);
    va_end(args);
    if (more > 0)
        used += (size_t)more;
    if (used > sizeof(line) - 2)
        used = sizeof(line) - 2;
    for (size_t i = 0; i < used; i++)
        if (line[i] == '\n' || line[i] == '\r')
            line[i] = ' ';
    line[used++] = '\n';
    ssize_t ignored = write(sink_fd, line, used);
    (void)ignored;
}
