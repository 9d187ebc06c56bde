/* Structured log lines (logfmt) on standard error. Any thread; one write a line, so lines do not mix.
 *
 * WARN: we coped. ERROR: someone must act. Never a prompt, a key or a body at INFO or above. */
#ifndef LVN_BASE_LOG_H
#define LVN_BASE_LOG_H

typedef enum lvn_log_level { LVN_DEBUG, LVN_INFO, LVN_WARN, LVN_ERROR } lvn_log_level;

/* Lines below `level` are dropped. Set once at start, before threads. Default: LVN_INFO. */
void lvn_log_set_level(lvn_log_level level);
lvn_log_level lvn_log_get_level(void);
/* Lines go to this descriptor instead of standard error (2). */
void lvn_log_set_fd(int fd);

/* `event` is a fixed snake_case name; `format` gives the key=value pairs, e.g. "rollout=%s error=\"%s\"". */
void lvn_log(lvn_log_level level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
