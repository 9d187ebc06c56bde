#include "runner/attempt_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"

void lvn_attempt_log_init(lvn_attempt_log *log, const char *path)
{
    *log = (lvn_attempt_log){.path = lvn_strdup(path), .fd = -1};
}

static void write_out(lvn_attempt_log *log, const char *bytes, size_t len)
{
    while (len && !log->failed_errno) {
        ssize_t n = write(log->fd, bytes, len);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (n < 0 && errno != EINTR) {
            log->failed_errno = errno;
        }
    }
}

static void keep_tail(lvn_attempt_log *log, const char *bytes, size_t len)
{
    if (!log->tail)
        log->tail = lvn_alloc(LVN_ATTEMPT_LOG_TAIL);
    log->past_head += len;
    if (len > LVN_ATTEMPT_LOG_TAIL) {
        bytes += len - LVN_ATTEMPT_LOG_TAIL;
        len = LVN_ATTEMPT_LOG_TAIL;
    }
    size_t to_end = LVN_ATTEMPT_LOG_TAIL - log->tail_at;
    size_t first = len < to_end ? len : to_end;
    memcpy(log->tail + log->tail_at, bytes, first);
    memcpy(log->tail, bytes + first, len - first);
    log->tail_at = (log->tail_at + len) % LVN_ATTEMPT_LOG_TAIL;
}

void lvn_attempt_log_write(lvn_attempt_log *log, const void *bytes, size_t len)
{
    if (!len || !log->path || log->failed_errno)
        return;
    if (log->fd < 0) {
        log->fd = open(log->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (log->fd < 0) {
            log->failed_errno = errno;
            return;
        }
    }
    size_t room = LVN_ATTEMPT_LOG_HEAD - log->head_used;
    size_t now = len < room ? len : room;
    write_out(log, bytes, now);
    log->head_used += now;
    if (len > now)
        keep_tail(log, (const char *)bytes + now, len - now);
}

void lvn_attempt_log_printf(lvn_attempt_log *log, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (n > 0)
        lvn_attempt_log_write(log, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

bool lvn_attempt_log_has_file(const lvn_attempt_log *log)
{
    return log->fd >= 0;
}

static void write_tail(lvn_attempt_log *log)
{
    if (log->past_head > LVN_ATTEMPT_LOG_TAIL) {
        char line[96];
        int n = snprintf(line, sizeof(line), "\n[%" PRIu64 " bytes left out]\n", log->past_head - LVN_ATTEMPT_LOG_TAIL);
        write_out(log, line, (size_t)n);
    }
    if (log->past_head >= LVN_ATTEMPT_LOG_TAIL)
        write_out(log, log->tail + log->tail_at, LVN_ATTEMPT_LOG_TAIL - log->tail_at);
    write_out(log, log->tail, log->tail_at);
}

void lvn_attempt_log_done(lvn_attempt_log *log)
{
    if (log->tail && log->fd >= 0)
        write_tail(log);
    if (log->failed_errno)
        lvn_log(LVN_WARN, "attempt_log_incomplete", "path=\"%s\" error=\"%s\"", log->path, strerror(log->failed_errno));
    if (log->fd >= 0)
        close(log->fd);
    free(log->tail);
    free(log->path);
    *log = (lvn_attempt_log){.fd = -1};
}
