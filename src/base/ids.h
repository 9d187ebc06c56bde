/* Random identifiers, from the kernel's generator. Any thread. */
#ifndef LVN_BASE_IDS_H
#define LVN_BASE_IDS_H

#include <stddef.h>
#include <stdint.h>

/* Writes `digits` random lower-case hex digits and a terminating zero to `out` (digits + 1 bytes, digits <= 64). */
void lvn_id_hex(char *out, size_t digits);
uint64_t lvn_id_u64(void);

/* A small seeded generator (splitmix64) for shuffles and sampling: same seed, same numbers on every machine. */
typedef struct lvn_rng {
    uint64_t state;
} lvn_rng;
uint64_t lvn_rng_next(lvn_rng *rng);
double lvn_rng_unit(lvn_rng *rng); /* in [0, 1) */
/* Uniform in [0, bound), bound > 0. */
uint64_t lvn_rng_below(lvn_rng *rng, uint64_t bound);
/* order = a random permutation of 0 .. count - 1 (Fisher and Yates). */
void lvn_rng_permutation(lvn_rng *rng, size_t *order, size_t count);

#endif
