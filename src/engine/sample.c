#include "engine/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "engine/kernels.h"

enum { LANES = 16, BLOCK = 1024, BUCKETS = 4096 };

void lvn_sampler_init(lvn_sampler *sampler, int vocab)
{
    sampler->vocab = vocab;
    sampler->weights = lvn_alloc((size_t)vocab * sizeof(float));
    sampler->order = lvn_alloc((size_t)vocab * sizeof(int));
    sampler->counts = lvn_alloc(BUCKETS * sizeof(*sampler->counts));
    sampler->masses = lvn_alloc(BUCKETS * sizeof(*sampler->masses));
}

void lvn_sampler_done(lvn_sampler *sampler)
{
    free(sampler->weights);
    free(sampler->order);
    free(sampler->counts);
    free(sampler->masses);
}

/* In lanes, so that the compiler may use vectors without reordering anything that matters. The first of equals. */
static int largest(const float *x, int n)
{
    float most[LANES], best;
    int i = 0;
    for (int k = 0; k < LANES; k++)
        most[k] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
    for (; i < n; i++)
        most[0] = x[i] > most[0] ? x[i] : most[0];
    best = most[0];
    for (int k = 1; k < LANES; k++)
        best = most[k] > best ? most[k] : best;
    for (i = 0; i < n - 1 && x[i] < best; i++)
        ;
    return i;
}

static double sum_of(const float *x, int n)
{
    float sums[LANES] = {0};
    double sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += x[i + k];
    for (; i < n; i++)
        sum += (double)x[i];
    for (int k = 0; k < LANES; k++)
        sum += (double)sums[k];
    return sum;
}

/* ---- the few largest ---- */

/* A heap with the smallest of the kept ones at its root: order[0..count). */
static void sift_down(const float *x, int *heap, int count, int i)
{
    for (;;) {
        int child = 2 * i + 1;
        if (child >= count)
            return;
        if (child + 1 < count && x[heap[child + 1]] < x[heap[child]])
            child++;
        if (x[heap[i]] <= x[heap[child]])
            return;
        int swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
        i = child;
    }
}

/* The k largest of x, largest first, to `order`; returns how many. */
static int select_top(const float *x, int n, int k, int *order)
{
    k = k < n ? k : n;
    for (int i = 0; i < k; i++)
        order[i] = i;
    for (int i = k / 2; i-- > 0;)
        sift_down(x, order, k, i);
    for (int i = k; i < n; i++)
        if (x[i] > x[order[0]]) {
            order[0] = i;
            sift_down(x, order, k, 0);
        }
    for (int left = k; left > 1;) { /* heap sort: the smallest goes to the end */
        int swap = order[0];
        order[0] = order[--left];
        order[left] = swap;
        sift_down(x, order, left, 0);
    }
    return k;
}

/* ---- drawing ---- */

/* Whole blocks are stepped over by their sum. */
static int draw_all(const lvn_sampler *s, lvn_rng *rng)
{
    double sums[64], total = 0;
    int block = BLOCK;
    while (s->vocab > block * 64)
        block *= 2;
    for (int from = 0, b = 0; from < s->vocab; from += block, b++)
        total += sums[b] = sum_of(s->weights + from, s->vocab - from < block ? s->vocab - from : block);
    double left = lvn_rng_unit(rng) * total;
    int from = 0, last = -1;
    for (int b = 0; from + block < s->vocab && left >= sums[b]; b++, from += block)
        left -= sums[b];
    for (int i = from; i < s->vocab; i++) {
        if (s->weights[i] <= 0)
            continue;
        last = i;
        left -= (double)s->weights[i];
        if (left < 0)
            return i;
    }
    return last >= 0 ? last : largest(s->weights, s->vocab); /* rounding */
}

/* Positive floats are ordered as their bits are: 16 buckets an octave. */
static unsigned bucket_of(float weight)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof(bits));
    return bits >> 19;
}

static int by_weight(const void *a, const void *b, void *weights)
{
    const float *w = weights;
    int i = *(const int *)a, k = *(const int *)b;
    return w[i] != w[k] ? (w[i] < w[k] ? 1 : -1) : (i > k) - (i < k);
}

/* Among the top_k largest, and of those the fewest whose share reaches top_p. Sorting only the bucket in which the border lies costs the
 * same for flat distributions and for peaked ones. */
static int draw_restricted(lvn_sampler *s, const lvn_sampling *sampling, lvn_rng *rng)
{
    memset(s->counts, 0, BUCKETS * sizeof(*s->counts));
    memset(s->masses, 0, BUCKETS * sizeof(*s->masses));
    double total = 0, mass = 0;
    for (int i = 0; i < s->vocab; i++) {
        unsigned b = bucket_of(s->weights[i]);
        s->counts[b]++;
        s->masses[b] += (double)s->weights[i];
    }
    for (int b = 0; b < BUCKETS; b++)
        total += s->masses[b];
    int keep = sampling->top_k > 0 && sampling->top_k < s->vocab ? sampling->top_k : s->vocab, kept = 0;
    double enough = sampling->top_p < 1 ? (double)sampling->top_p * total : INFINITY;
    unsigned border = BUCKETS - 1;
    for (; border > 0 && kept + s->counts[border] < keep && mass + s->masses[border] < enough; border--) {
        kept += s->counts[border];
        mass += s->masses[border];
    }
    int count = 0, chosen = 0;
    for (int i = 0; i < s->vocab; i++)
        if (bucket_of(s->weights[i]) == border)
            s->order[count++] = i;
    qsort_r(s->order, (size_t)count, sizeof(*s->order), by_weight, s->weights);
    for (; chosen < count && (!(kept + chosen) || (kept + chosen < keep && mass < enough)); chosen++)
        mass += (double)s->weights[s->order[chosen]];
    double left = lvn_rng_unit(rng) * mass;
    for (int k = 0; k < chosen; k++)
        if ((left -= (double)s->weights[s->order[k]]) < 0)
            return s->order[k];
    for (int i = 0; kept && i < s->vocab; i++)
        if (bucket_of(s->weights[i]) > border && (left -= (double)s->weights[i]) < 0)
            return i;
    return largest(s->weights, s->vocab); /* rounding */
}

void lvn_sample(lvn_sampler *s, const float *logits, const lvn_sampling *sampling, lvn_rng *rng,
                struct lvn_token_alt *alternatives, lvn_token_info *out)
{
    bool is_greedy = sampling->temperature <= 0;
    float inverse = is_greedy ? 1.0f : 1.0f / sampling->temperature;
    const lvn_kernels *kernels = lvn_kernels_pick();
    float entropy;
    float lse = kernels->log_sum_exp(logits, s->vocab, inverse, &entropy);
    if (is_greedy) {
        out->id = largest(logits, s->vocab);
    } else {
        memcpy(s->weights, logits, (size_t)s->vocab * sizeof(*logits));
        kernels->softmax_grad(s->weights, s->vocab, inverse, lse, -sampling->temperature); /* = softmax */
        bool is_free = sampling->top_p >= 1 && sampling->top_k <= 0;
        out->id = is_free ? draw_all(s, rng) : draw_restricted(s, sampling, rng);
    }
    out->logp = logits[out->id] * inverse - lse;
    out->top = alternatives;
    int count = sampling->top_logprobs > 0 ? select_top(logits, s->vocab, sampling->top_logprobs, s->order) : 0;
    for (int i = 0; i < count; i++)
        alternatives[i] = (struct lvn_token_alt){s->order[i], logits[s->order[i]] * inverse - lse};
}
