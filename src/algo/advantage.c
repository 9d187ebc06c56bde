#include "algo/advantage.h"

#include <math.h>
#include <string.h>

bool lvn_advantage_grpo(const double *rewards, size_t count, bool normalize_std, double *out)
{
    if (count == 1) {
        out[0] = normalize_std ? rewards[0] / (1 + 1e-6) : rewards[0];
        return true;
    }
    bool has_spread = false;
    double mean = 0;
    for (size_t i = 0; i < count; i++) {
        mean += rewards[i] / (double)count;
        has_spread = has_spread || rewards[i] != rewards[0];
    }
    if (!has_spread) {
        memset(out, 0, count * sizeof(*out));
        return false;
    }
    double square = 0;
    for (size_t i = 0; i < count; i++)
        square += (rewards[i] - mean) * (rewards[i] - mean);
    double scale = normalize_std ? sqrt(square / (double)(count - 1)) + 1e-6 : 1;
    for (size_t i = 0; i < count; i++)
        out[i] = (rewards[i] - mean) / scale;
    return true;
}
