#include "engine/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { CHUNK = 48 }; /* query rows handled together */

/* Rows [first, end) of the sequence that are handled together: all of the prompt, or all of branches. Each row sees `shared` keys from 0 on,
 * and its own segment's up to itself. */
typedef struct chunk {
    int first, end, shared;
} chunk;

struct lvn_attention {
    lvn_pool *pool;
    const lvn_kernels *kernels;
    lvn_gemm *gemm;
    const lvn_weights *weights;

    float *cosine, *sine; /* (positions, rope_dims / 2) */
    int positions;

    chunk *chunks;
    int chunk_count, chunk_capacity;
    int score_width; /* most keys of a row */
    float **scores, **d_scores; /* a thread: (CHUNK, score_width) */
    size_t score_capacity;
    float *d_key, *d_value; /* (heads, T, head_dim) */
    size_t d_capacity;

    /* of the job that runs */
    const lvn_packed *packed;
    const float *qkv, *d_mixed;
    float *out, *d_qkv;
    bool is_back;
};

lvn_attention *lvn_attention_new(lvn_pool *pool, const lvn_kernels *kernels, lvn_gemm *gemm, const lvn_weights *weights)
{
    lvn_attention *a = lvn_zalloc(sizeof(*a));
    a->pool = pool;
    a->kernels = kernels;
    a->gemm = gemm;
    a->weights = weights;
    a->scores = lvn_zalloc((size_t)lvn_pool_threads(pool) * sizeof(float *));
    a->d_scores = lvn_zalloc((size_t)lvn_pool_threads(pool) * sizeof(float *));
    return a;
}

void lvn_attention_free(lvn_attention *a)
{
    if (!a)
        return;
    for (int i = 0; i < lvn_pool_threads(a->pool); i++) {
        free(a->scores[i]);
        free(a->d_scores[i]);
    }
    free(a->scores);
    free(a->d_scores);
    free(a->cosine);
    free(a->sine);
    free(a->chunks);
    free(a->d_key);
    free(a->d_value);
    free(a);
}

/* ---- preparing ---- */

static void make_tables(lvn_attention *a, int positions)
{
    if (positions <= a->positions)
        return;
    const lvn_dims *d = &a->weights->dims;
    size_t half = (size_t)d->rope_dims / 2;
    a->positions = positions;
    a->cosine = lvn_realloc(a->cosine, (size_t)positions * half * sizeof(float));
    a->sine = lvn_realloc(a->sine, (size_t)positions * half * sizeof(float));
    for (size_t i = 0; i < half; i++) {
        double frequency = pow((double)d->rope_base, -2.0 * (double)i / (double)d->rope_dims);
        if (a->weights->rope_factors)
            frequency /= (double)a->weights->rope_factors[i];
        for (int p = 0; p < positions; p++) {
            a->cosine[(size_t)p * half + i] = (float)cos(frequency * p);
            a->sine[(size_t)p * half + i] = (float)sin(frequency * p);
        }
    }
}

static void add_chunks(lvn_attention *a, int first, int end, int shared)
{
    for (; first < end; first += CHUNK) {
        if (a->chunk_count == a->chunk_capacity) {
            a->chunk_capacity = a->chunk_capacity ? a->chunk_capacity * 2 : 32;
            a->chunks = lvn_realloc(a->chunks, (size_t)a->chunk_capacity * sizeof(*a->chunks));
        }
        a->chunks[a->chunk_count++] = (chunk){first, first + CHUNK < end ? first + CHUNK : end, shared};
    }
}

void lvn_attention_prepare(lvn_attention *a, const lvn_packed *packed)
{
    int longest = packed->prompt, most_position = 0;
    for (int b = 0; b < packed->branches; b++) {
        int keys = packed->prompt + packed->branch_first[b + 1] - packed->branch_first[b];
        longest = keys > longest ? keys : longest;
    }
    for (int t = 0; t < packed->count; t++)
        most_position = packed->positions[t] > most_position ? packed->positions[t] : most_position;
    make_tables(a, most_position + 1);
    a->chunk_count = 0;
    add_chunks(a, 0, packed->prompt, 0);
    add_chunks(a, packed->prompt, packed->count, packed->prompt);
    a->score_width = longest;
    size_t need = (size_t)CHUNK * (size_t)longest;
    if (need > a->score_capacity) {
        a->score_capacity = need;
        for (int i = 0; i < lvn_pool_threads(a->pool); i++) {
            a->scores[i] = lvn_realloc(a->scores[i], need * sizeof(float));
            a->d_scores[i] = lvn_realloc(a->d_scores[i], need * sizeof(float));
        }
    }
}

/* ---- rotation (Su et al. 2021) ---- */

static void rotate_head(const lvn_dims *d, float *x, const float *cosine, const float *sine, float sign)
{
    int half = d->rope_dims / 2;
    int step = d->rotates_halves ? 1 : 2, distance = d->rotates_halves ? half : 1;
    for (int i = 0; i < half; i++) {
        float *first = x + i * step, *second = first + distance;
        float a = *first, b = *second, s = sign * sine[i];
        *first = a * cosine[i] - b * s;
        *second = a * s + b * cosine[i];
    }
}

static void rotate_token(void *arg, int task, int thread)
{
    (void)thread;
    lvn_attention *a = arg;
    const lvn_dims *d = &a->weights->dims;
    size_t half = (size_t)d->rope_dims / 2;
    for (int t = task * 16; t < a->packed->count && t < (task + 1) * 16; t++) {
        float *row = a->out + (size_t)t * (size_t)d->qkv_width;
        size_t at = (size_t)a->packed->positions[t] * half;
        for (int h = 0; h < d->heads + d->kv_heads; h++) /* keys follow the queries */
            rotate_head(d, row + h * d->head_dim, a->cosine + at, a->sine + at, a->is_back ? -1.0f : 1.0f);
    }
}

void lvn_attention_rotate(lvn_attention *a, const lvn_packed *packed, float *qkv, bool is_back)
{
    a->packed = packed;
    a->out = qkv;
    a->is_back = is_back;
    lvn_pool_run(a->pool, (packed->count + 15) / 16, rotate_token, a);
}

/* ---- one head, one chunk ---- */

/* Where a head's parts lie in the packed arrays, and its thread. */
typedef struct head_job {
    const lvn_attention *a;
    int thread;
    const float *q, *k, *v; /* rows qkv_width apart */
    size_t stride;
    int dim;
    float *scores; /* (rows, score_width) */
} head_job;

static head_job head_of(const lvn_attention *a, int head, int thread)
{
    const lvn_dims *d = &a->weights->dims;
    int group = head / (d->heads / d->kv_heads);
    const float *k = a->qkv + d->heads * d->head_dim + group * d->head_dim;
    return (head_job){.a = a, .thread = thread, .q = a->qkv + head * d->head_dim, .k = k, .v = k + d->kv_width,
                      .stride = (size_t)d->qkv_width, .dim = d->head_dim, .scores = a->scores[thread]};
}

static const float *row_of(const float *base, size_t stride, int row)
{
    return base + (size_t)row * stride;
}

/* A run of rows of one segment inside a chunk. */
typedef struct piece {
    int first, end;   /* rows */
    int segment_first; /* its keys begin here */
} piece;

/* The piece that begins at row `at` of the chunk. */
static piece piece_at(const lvn_attention *a, const chunk *c, int at)
{
    const lvn_packed *p = a->packed;
    if (!c->shared)
        return (piece){at, c->end, 0};
    int b = 0;
    while (p->branch_first[b + 1] <= at)
        b++;
    int end = p->branch_first[b + 1] < c->end ? p->branch_first[b + 1] : c->end;
    return (piece){at, end, p->branch_first[b]};
}

/* out (rows, score_width) = left rows · keysᵀ over what each row of the chunk may see and a little more; the rest is left as it was. */
static void row_products(const head_job *j, const chunk *c, const float *left, size_t left_stride, const float *keys, float *out)
{
    size_t width = (size_t)j->a->score_width;
    lvn_gemm_small(j->a->gemm, j->thread, c->end - c->first, c->shared, j->dim,
                   lvn_mat_rows(row_of(left, left_stride, c->first), left_stride), lvn_mat_transposed(keys, j->stride), out, width,
                   false);
    for (int at = c->first; at < c->end;) {
        piece p = piece_at(j->a, c, at);
        lvn_gemm_small(j->a->gemm, j->thread, p.end - p.first, p.end - p.segment_first, j->dim,
                       lvn_mat_rows(row_of(left, left_stride, p.first), left_stride),
                       lvn_mat_transposed(row_of(keys, j->stride, p.segment_first), j->stride),
                       out + (size_t)(p.first - c->first) * width + c->shared, width, false);
        at = p.end;
    }
}

/* Probabilities of the chunk's rows; what a row may not see becomes 0. */
static void probabilities(const head_job *j, const chunk *c)
{
    size_t width = (size_t)j->a->score_width;
    float scale = 1.0f / sqrtf((float)j->dim);
    row_products(j, c, j->q, j->stride, j->k, j->scores);
    for (int at = c->first; at < c->end;) {
        piece p = piece_at(j->a, c, at);
        for (int row = p.first; row < p.end; row++) {
            float *s = j->scores + (size_t)(row - c->first) * width;
            int seen = c->shared + row - p.segment_first + 1;
            j->a->kernels->softmax(s, seen, scale);
            memset(s + seen, 0, (size_t)(p.end - 1 - row) * sizeof(float));
        }
        at = p.end;
    }
}

/* out rows of the chunk = or += weights · values over what the rows see. */
static void weighted_sum(const head_job *j, const chunk *c, const float *weights, const float *values, float *out, size_t out_stride)
{
    size_t width = (size_t)j->a->score_width;
    lvn_gemm_small(j->a->gemm, j->thread, c->end - c->first, j->dim, c->shared, lvn_mat_rows(weights, width),
                   lvn_mat_rows(values, j->stride), out + (size_t)c->first * out_stride, out_stride, false);
    for (int at = c->first; at < c->end;) {
        piece p = piece_at(j->a, c, at);
        lvn_gemm_small(j->a->gemm, j->thread, p.end - p.first, j->dim, p.end - p.segment_first,
                       lvn_mat_rows(weights + (size_t)(p.first - c->first) * width + c->shared, width),
                       lvn_mat_rows(row_of(values, j->stride, p.segment_first), j->stride),
                       out + (size_t)p.first * out_stride, out_stride, c->shared > 0);
        at = p.end;
    }
}

/* out (T, dim) of keys or values += weightsᵀ · rows, over what the chunk's rows see. */
static void scatter(const head_job *j, const chunk *c, const float *weights, const float *rows, size_t row_stride, float *out)
{
    size_t width = (size_t)j->a->score_width, dim = (size_t)j->dim;
    lvn_gemm_small(j->a->gemm, j->thread, c->shared, j->dim, c->end - c->first, lvn_mat_transposed(weights, width),
                   lvn_mat_rows(row_of(rows, row_stride, c->first), row_stride), out, dim, true);
    for (int at = c->first; at < c->end;) {
        piece p = piece_at(j->a, c, at);
        lvn_gemm_small(j->a->gemm, j->thread, p.end - p.segment_first, j->dim, p.end - p.first,
                       lvn_mat_transposed(weights + (size_t)(p.first - c->first) * width + c->shared, width),
                       lvn_mat_rows(row_of(rows, row_stride, p.first), row_stride), out + (size_t)p.segment_first * dim, dim,
                       true);
        at = p.end;
    }
}

/* ---- forward ---- */

static void forward_task(void *arg, int task, int thread)
{
    lvn_attention *a = arg;
    const lvn_dims *d = &a->weights->dims;
    int head = task / a->chunk_count;
    const chunk *c = &a->chunks[task % a->chunk_count];
    head_job j = head_of(a, head, thread);
    probabilities(&j, c);
    weighted_sum(&j, c, j.scores, j.v, a->out + head * d->head_dim, (size_t)(d->heads * d->head_dim));
}

void lvn_attention_forward(lvn_attention *a, const lvn_packed *packed, const float *qkv, float *mixed)
{
    a->packed = packed;
    a->qkv = qkv;
    a->out = mixed;
    lvn_pool_run(a->pool, a->weights->dims.heads * a->chunk_count, forward_task, a);
}

/* ---- backward ---- */

static void backward_head(void *arg, int head, int thread)
{
    lvn_attention *a = arg;
    const lvn_dims *d = &a->weights->dims;
    size_t width = (size_t)a->score_width, mixed_stride = (size_t)(d->heads * d->head_dim);
    size_t own = (size_t)head * (size_t)a->packed->count * (size_t)d->head_dim;
    float scale = 1.0f / sqrtf((float)d->head_dim);
    head_job j = head_of(a, head, thread);
    const float *d_out = a->d_mixed + head * d->head_dim;
    float *ds = a->d_scores[thread];
    memset(a->d_key + own, 0, (size_t)a->packed->count * (size_t)d->head_dim * sizeof(float));
    memset(a->d_value + own, 0, (size_t)a->packed->count * (size_t)d->head_dim * sizeof(float));
    for (int i = 0; i < a->chunk_count; i++) {
        const chunk *c = &a->chunks[i];
        probabilities(&j, c);
        scatter(&j, c, j.scores, d_out, mixed_stride, a->d_value + own);
        row_products(&j, c, d_out, mixed_stride, j.v, ds);
        for (int at = c->first; at < c->end;) {
            piece p = piece_at(a, c, at);
            for (int row = p.first; row < p.end; row++) {
                size_t offset = (size_t)(row - c->first) * width;
                /* Where the probability is 0 so is the gradient, so the whole width may be taken. */
                a->kernels->softmax_back(j.scores + offset, ds + offset, c->shared + p.end - p.segment_first, scale);
            }
            at = p.end;
        }
        weighted_sum(&j, c, ds, j.k, a->d_qkv + head * d->head_dim, (size_t)d->qkv_width);
        scatter(&j, c, ds, j.q, j.stride, a->d_key + own);
    }
}

/* Keys and values are shared by a group of heads: their gradients add up. */
static void gather_token(void *arg, int task, int thread)
{
    (void)thread;
    lvn_attention *a = arg;
    const lvn_dims *d = &a->weights->dims;
    int count = a->packed->count, each = d->heads / d->kv_heads;
    size_t dim = (size_t)d->head_dim;
    for (int t = task * 16; t < count && t < (task + 1) * 16; t++)
        for (int g = 0; g < d->kv_heads; g++) {
            float *k = a->d_qkv + (size_t)t * (size_t)d->qkv_width + (size_t)(d->heads + g) * dim;
            float *v = k + d->kv_width;
            memset(k, 0, dim * sizeof(float));
            memset(v, 0, dim * sizeof(float));
            for (int h = g * each; h < (g + 1) * each; h++) {
                size_t from = ((size_t)h * (size_t)count + (size_t)t) * dim;
                a->kernels->add(k, a->d_key + from, d->head_dim);
                a->kernels->add(v, a->d_value + from, d->head_dim);
            }
        }
}

void lvn_attention_backward(lvn_attention *a, const lvn_packed *packed, const float *qkv, const float *d_mixed, float *d_qkv)
{
    const lvn_dims *d = &a->weights->dims;
    size_t need = (size_t)(d->heads * d->head_dim) * (size_t)packed->count;
    if (need > a->d_capacity) {
        a->d_capacity = need;
        a->d_key = lvn_realloc(a->d_key, need * sizeof(float));
        a->d_value = lvn_realloc(a->d_value, need * sizeof(float));
    }
    a->packed = packed;
    a->qkv = qkv;
    a->d_mixed = d_mixed;
    a->d_qkv = d_qkv;
    lvn_pool_run(a->pool, d->heads, backward_head, a);
    lvn_pool_run(a->pool, (packed->count + 15) / 16, gather_token, a);
}
