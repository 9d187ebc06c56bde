/* What a machine is doing, for worker heartbeats (spec/execution.md section 4). Private to the runner. */
#ifndef LVN_RUNNER_SNAPSHOT_H
#define LVN_RUNNER_SNAPSHOT_H

#include <stdint.h>

#include "base/buf.h"

/* What does not change, and the counters that usage is the difference of. */
typedef struct lvn_snapshot {
    char host[256], os[256], cpu_name[128];
    int cores, threads;
    uint64_t busy_ticks, all_ticks;
} lvn_snapshot;

/* Reads /proc once. */
void lvn_snapshot_init(lvn_snapshot *snapshot);
/* Appends a JSON object. CPU usage is that since the call before. A few file reads, well under a millisecond. */
void lvn_snapshot_write(lvn_snapshot *snapshot, lvn_buf *out);

#endif
