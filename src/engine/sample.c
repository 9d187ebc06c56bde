#include "engine/sample.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "engine/kernels.h"

void lvn_sampler_init(lvn_sampler *sampler, int vocab)
{
    sampler->vocab = vocab;
    sampler->weights = lvn_alloc((size_t)vocab * sizeof(float));
    sampler->order = lvn_alloc((size_t)vocab * sizeof(int));
}

void lvn_sampler_done(lvn_sampler *sampler)
{
    free(sampler->weights);
    free(sampler->order);
}

static int largest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
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

static int draw_all(const lvn_sampler *s, double total, lvn_rng *rng)
{
    double want = lvn_rng_unit(rng) * total, sum = 0;
    int last = 0;
    for (int i = 0; i < s->vocab; i++) {
        if (s->weights[i] <= 0)
            continue;
        last = i;
        sum += (double)s->weights[i];
        if (sum > want)
            return i;
    }
    return last; /* rounding */
}

/* Among the top_k largest, and of those the fewest whose share reaches top_p. */
static int draw_restricted(const lvn_sampler *s, const lvn_sampling *sampling, double total, lvn_rng *rng)
{
    int keep = s->vocab;
    if (sampling->top_k > 0 && sampling->top_k < keep)
        keep = sampling->top_k;
    int first = keep < 256 ? keep : 256;
    double mass = 0;
    int count = 0;
    for (int size = first;; size = size * 8 < keep ? size * 8 : keep) { /* seldom more than the first look is needed */
        select_top(s->weights, s->vocab, size, s->order);
        mass = 0;
        for (count = 0; count < size; count++) {
            if (sampling->top_p < 1 && count > 0 && mass >= (double)sampling->top_p * total)
                break;
            mass += (double)s->weights[s->order[count]];
        }
        if (count < size || size == keep)
            break;
    }
    double want = lvn_rng_unit(rng) * mass, sum = 0;
    for (int i = 0; i < count; i++) {
        sum += (double)s->weights[s->order[i]];
        if (sum > want)
            return s->order[i];
    }
    return s->order[count - 1];
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
        for (int i = 0; i < s->vocab; i++)
            s->weights[i] = logits[i];
        kernels->softmax_grad(s->weights, s->vocab, inverse, lse, -sampling->temperature); /* = softmax */
        double total = 1; /* up to rounding, which the draws allow for */
        bool is_free = sampling->top_p >= 1 && sampling->top_k <= 0;
        out->id = is_free ? draw_all(s, total, rng) : draw_restricted(s, sampling, total, rng);
    }
    out->logp = logits[out->id] * inverse - lse;
    out->top = alternatives;
    int count = sampling->top_logprobs > 0 ? select_top(logits, s->vocab, sampling->top_logprobs, s->order) : 0;
    for (int i = 0; i < count; i++)
        alternatives[i] = (struct lvn_token_alt){s->order[i], logits[s->order[i]] * inverse - lse};
}
