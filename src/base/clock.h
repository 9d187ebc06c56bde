/* Time. Wall-clock instants are `_unix_ns`: nanoseconds since 1970 in an int64_t. Durations and deadlines use the
 * monotonic clock. Rules never read a clock: they are given `now`. */
#ifndef LVN_BASE_CLOCK_H
#define LVN_BASE_CLOCK_H

#include <stdint.h>

#define LVN_NS_PER_S INT64_C(1000000000)
#define LVN_NS_PER_MS INT64_C(1000000)

int64_t lvn_clock_unix_ns(void);
int64_t lvn_clock_monotonic_ns(void);
/* CPU time of the whole process, user and system, all threads. */
int64_t lvn_clock_process_cpu_ns(void);
/* CPU time of the calling thread. */
int64_t lvn_clock_thread_cpu_ns(void);

static inline double lvn_ns_to_s(int64_t ns)
{
    return (double)ns / 1e9;
}

#endif
