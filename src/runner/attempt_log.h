/* What an agent wrote, in a file of bounded size: the first part as it comes, and, when there is more, the last
 * part after a line that says how much is missing between them. The file appears with its first byte. Failing to
 * write it (no disk space) is remembered and harms nothing else. One thread at a time. */
#ifndef LVN_RUNNER_ATTEMPT_LOG_H
#define LVN_RUNNER_ATTEMPT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { LVN_ATTEMPT_LOG_HEAD = 64 * 1024, LVN_ATTEMPT_LOG_TAIL = 64 * 1024 };

typedef struct lvn_attempt_log {
    char *path; /* owned */
    int fd;     /* -1: not opened yet */
    size_t head_used;
    char *tail; /* ring of LVN_ATTEMPT_LOG_TAIL bytes; NULL while the head has room */
    size_t tail_at;
    uint64_t past_head; /* bytes that came after the head was full */
    int failed_errno;   /* 0: fine */
} lvn_attempt_log;

/* Caller's memory. `path` is copied; an existing file is replaced when the first byte comes. */
void lvn_attempt_log_init(lvn_attempt_log *log, const char *path);
void lvn_attempt_log_write(lvn_attempt_log *log, const void *bytes, size_t len);
void lvn_attempt_log_printf(lvn_attempt_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether a file exists because something was written. */
bool lvn_attempt_log_has_file(const lvn_attempt_log *log);
/* Writes the kept end and closes; safe on a log that holds nothing. The struct may be initialised again. */
void lvn_attempt_log_done(lvn_attempt_log *log);

#endif
