/* Result codes and the words that go with them.
 *
 * A function returns an lvn_code and, when it takes an lvn_err, describes a failure there. Expected outcomes
 * (nothing queued, no such row, a deadline) have codes of their own and are not logged as errors. A function
 * either handles a failure or returns it; the log line is written where the error stops. */
#ifndef LVN_BASE_ERR_H
#define LVN_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

typedef enum lvn_code {
    LVN_OK = 0,
    LVN_EMPTY,       /* nothing to give; not an error */
    LVN_NOT_FOUND,   /* the thing named does not exist */
    LVN_CONFLICT,    /* somebody else changed or owns it */
    LVN_AGAIN,       /* not now; try later */
    LVN_TIMEOUT,     /* a deadline passed */
    LVN_CANCELLED,   /* the caller gave up */
    LVN_INVALID,     /* the input is wrong; repeating it will not help */
    LVN_TOO_LARGE,   /* over a stated limit */
    LVN_FULL,        /* a bounded queue or a disk has no room */
    LVN_NO_MEMORY,   /* an allocation whose size a peer chose failed */
    LVN_IO,          /* the operating system or a backend failed */
    LVN_UNAVAILABLE, /* shutting down, or a peer is away */
    LVN_INTERNAL,    /* a bug of ours */
} lvn_code;

#define LVN_MUST_USE __attribute__((warn_unused_result))

/* Filled on failure, left alone on success. Fixed size, so it may live on the stack and be copied. */
typedef struct lvn_err {
    lvn_code code;
    char message[480];
} lvn_err;

/* Records `code` and a formatted message in `err` (may be NULL: the caller does not care) and returns `code`,
 * so that a failure is `return lvn_fail(err, LVN_IO, "...")`. Longer messages are cut. */
lvn_code lvn_fail(lvn_err *err, lvn_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of the message already in `err`; returns its code. NULL: LVN_INTERNAL. */
lvn_code lvn_fail_context(lvn_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A short stable name such as "not_found"; never NULL. */
const char *lvn_code_name(lvn_code code);

#endif
