#include "engine/kernels.h"

#include <stdlib.h>
#include <string.h>

const lvn_kernels *lvn_kernels_pick(void)
{
    const lvn_kernels *all[3] = {&lvn_kernels_generic};
    int count = 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        all[count++] = &lvn_kernels_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        all[count++] = &lvn_kernels_avx512;
#endif
    const char *wanted = getenv("LEVIN_KERNEL");
    for (int i = 0; wanted && i < count; i++)
        if (!strcmp(all[i]->name, wanted))
            return all[i];
    return all[count - 1];
}
