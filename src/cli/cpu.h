/* Where the CPU time of this process went, by part. Threads are told apart by their names ("levin-loop", "levin-store",
 * "levin-runner..."); everything else is the model: sampling and training. */
#ifndef LVN_CLI_CPU_H
#define LVN_CLI_CPU_H

#include "base/buf.h"

typedef struct lvn_cpu_times {
    double total_s;   /* of the process, all threads, ended ones too */
    double loop_s;    /* HTTP and gateway */
    double store_s;
    double runner_s;
    double model_s;   /* the rest */
} lvn_cpu_times;

void lvn_cpu_read(lvn_cpu_times *out);
/* An object with the fields above and `overhead`: the part that is not the model, of the total. */
void lvn_cpu_write_json(lvn_buf *out);

#endif
