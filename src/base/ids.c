#include "base/ids.h"

#include <stdlib.h>
#include <sys/random.h>

static void fill_random(void *out, size_t size)
{
    unsigned char *p = out;
    while (size) {
        ssize_t got = getrandom(p, size, 0);
        if (got < 0)
            continue; /* only EINTR is possible once the pool is initialised */
        p += got;
        size -= (size_t)got;
    }
}

void lvn_id_hex(char *out, size_t digits)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[32];
    if (digits > 64)
        abort();
    fill_random(bytes, (digits + 1) / 2);
    for (size_t i = 0; i < digits; i++)
        out[i] = hex[i % 2 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15];
    out[digits] = '\0';
}

uint64_t lvn_id_u64(void)
{
    uint64_t value;
    fill_random(&value, sizeof(value));
    return value;
}

uint64_t lvn_rng_next(lvn_rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double lvn_rng_unit(lvn_rng *rng)
{
    return (double)(lvn_rng_next(rng) >> 11) * 0x1.0p-53;
}

uint64_t lvn_rng_below(lvn_rng *rng, uint64_t bound)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t value;
    do
        value = lvn_rng_next(rng);
    while (value >= limit);
    return value % bound;
}

void lvn_rng_permutation(lvn_rng *rng, size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)lvn_rng_below(rng, i);
        size_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}
