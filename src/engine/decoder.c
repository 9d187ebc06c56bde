#include "engine/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "engine/attention.h"

typedef struct kept_layer {
    float *x_in;    /* (T, width) */
    float *qkv;     /* (T, qkv_width), rotated */
    float *mixed;   /* (T, heads * head_dim): attention's output */
    float *x_mid;   /* (T, width) */
    float *gate_up; /* (T, 2 * ffn) */
} kept_layer;

struct lvn_decoder {
    lvn_pool *pool;
    const lvn_kernels *kernels;
    const lvn_weights *weights;
    lvn_lora *lora;
    lvn_gemm *gemm;
    lvn_attention *attention;

    float *merged[LVN_STACKS]; /* all layers of a stack, W + scale B A */
    bool is_merged;

    int capacity, kept_layers; /* tokens and layers that the buffers below hold */
    kept_layer *kept;
    float *x, *normed, *wide, *wide2, *d_x, *d_wide, *d_small, *inverse; /* scratch, (T, ...) */
    float *h, *d_h;                                                     /* (3 * rank, T) */
    float *hidden;                                                      /* (R, width) */
};

/* ---- memory ---- */

static size_t kept_floats_a_token(const lvn_dims *d)
{
    return (size_t)(2 * d->width + d->qkv_width + d->heads * d->head_dim + 2 * d->ffn);
}

size_t lvn_decoder_kept_floats(const lvn_weights *weights, int tokens)
{
    return kept_floats_a_token(&weights->dims) * (size_t)weights->dims.layers * (size_t)tokens;
}

static void free_buffers(lvn_decoder *n)
{
    for (int i = 0; i < n->kept_layers; i++) {
        free(n->kept[i].x_in);
        free(n->kept[i].qkv);
        free(n->kept[i].mixed);
        free(n->kept[i].x_mid);
        free(n->kept[i].gate_up);
    }
    free(n->kept);
    float *scratch[] = {n->x, n->normed, n->wide, n->wide2, n->d_x, n->d_wide, n->d_small, n->inverse, n->h, n->d_h, n->hidden};
    for (size_t i = 0; i < sizeof(scratch) / sizeof(*scratch); i++)
        free(scratch[i]);
    n->kept = NULL;
    n->kept_layers = n->capacity = 0;
    n->x = n->normed = n->wide = n->wide2 = n->d_x = n->d_wide = n->d_small = n->inverse = n->h = n->d_h = n->hidden = NULL;
}

static float *floats(size_t a, size_t b)
{
    return lvn_alloc(a * b * sizeof(float));
}

static void reserve(lvn_decoder *n, int tokens, int layers)
{
    if (tokens <= n->capacity && layers <= n->kept_layers)
        return;
    const lvn_dims *d = &n->weights->dims;
    int kept_layers = layers > n->kept_layers ? layers : n->kept_layers;
    size_t t = (size_t)(tokens > n->capacity ? tokens : n->capacity);
    free_buffers(n);
    n->capacity = (int)t;
    n->kept_layers = kept_layers;
    n->kept = lvn_zalloc((size_t)kept_layers * sizeof(*n->kept));
    for (int i = 0; i < kept_layers; i++) {
        n->kept[i].x_in = floats(t, (size_t)d->width);
        n->kept[i].qkv = floats(t, (size_t)d->qkv_width);
        n->kept[i].mixed = floats(t, (size_t)(d->heads * d->head_dim));
        n->kept[i].x_mid = floats(t, (size_t)d->width);
        n->kept[i].gate_up = floats(t, (size_t)(2 * d->ffn));
    }
    size_t wide = (size_t)(2 * d->ffn > d->qkv_width ? 2 * d->ffn : d->qkv_width);
    n->x = floats(t, (size_t)d->width);
    n->normed = floats(t, (size_t)d->width);
    n->wide = floats(t, wide);
    n->wide2 = floats(t, (size_t)d->ffn);
    n->d_x = floats(t, (size_t)d->width);
    n->d_wide = floats(t, wide);
    n->d_small = floats(t, (size_t)(d->heads * d->head_dim > d->width ? d->heads * d->head_dim : d->width));
    n->inverse = floats(t, 1);
    n->h = floats(t, (size_t)(3 * n->lora->rank));
    n->d_h = floats(t, (size_t)(3 * n->lora->rank));
    n->hidden = floats(t, (size_t)d->width);
}

lvn_decoder *lvn_decoder_new(lvn_pool *pool, const lvn_kernels *kernels, const lvn_weights *weights, lvn_lora *lora)
{
    lvn_decoder *n = lvn_zalloc(sizeof(*n));
    n->pool = pool;
    n->kernels = kernels;
    n->weights = weights;
    n->lora = lora;
    n->gemm = lvn_gemm_new(pool, kernels);
    n->attention = lvn_attention_new(pool, kernels, n->gemm, weights);
    for (int k = 0; k < LVN_STACKS; k++) {
        lvn_stack_shape s = lvn_stack_of(&weights->dims, (lvn_stack)k);
        n->merged[k] = floats((size_t)weights->dims.layers * (size_t)s.in, (size_t)s.out);
    }
    return n;
}

void lvn_decoder_free(lvn_decoder *n)
{
    if (!n)
        return;
    free_buffers(n);
    for (int k = 0; k < LVN_STACKS; k++)
        free(n->merged[k]);
    lvn_attention_free(n->attention);
    lvn_gemm_free(n->gemm);
    free(n);
}

void lvn_decoder_touch(lvn_decoder *n)
{
    n->is_merged = false;
}

/* ---- weights ---- */

static const float *base_stack(const lvn_decoder *n, int layer, lvn_stack stack)
{
    const lvn_layer_weights *l = &n->weights->layers[layer];
    const float *all[] = {l->qkv, l->out, l->gate_up, l->down};
    return all[stack];
}

static float *merged_stack(const lvn_decoder *n, int layer, lvn_stack stack)
{
    lvn_stack_shape s = lvn_stack_of(&n->weights->dims, stack);
    return n->merged[stack] + (size_t)layer * (size_t)s.in * (size_t)s.out;
}

/* W + scale · B · A for every matrix; a twentieth of a second for 135M parameters, once an optimiser step. */
static void merge(lvn_decoder *n)
{
    if (n->is_merged)
        return;
    const lvn_lora *lora = n->lora;
    int most = n->weights->dims.ffn > n->weights->dims.width ? n->weights->dims.ffn : n->weights->dims.width;
    float *scaled = floats((size_t)lora->rank, (size_t)most);
    for (int layer = 0; layer < n->weights->dims.layers; layer++)
        for (int k = 0; k < LVN_STACKS; k++) {
            lvn_stack_shape s = lvn_stack_of(&n->weights->dims, (lvn_stack)k);
            float *out = merged_stack(n, layer, (lvn_stack)k);
            memcpy(out, base_stack(n, layer, (lvn_stack)k), (size_t)s.in * (size_t)s.out * sizeof(float));
            for (int i = 0; i < s.count; i++) {
                const lvn_pair *p = lvn_lora_pair(lora, layer, s.first + i);
                for (int e = 0; e < lora->rank * p->out; e++)
                    scaled[e] = lora->scale * lora->values[p->b + (size_t)e];
                lvn_gemm_run(n->gemm, p->out, p->in, lora->rank, lvn_mat_transposed(scaled, (size_t)p->out),
                             lvn_mat_rows(lora->values + p->a, (size_t)p->in), out + (size_t)p->first_row * (size_t)p->in,
                             (size_t)p->in, true);
            }
        }
    free(scaled);
    n->is_merged = true;
}

/* ---- loops over tokens, shared out in pieces ---- */

enum { PIECE = 16 };

typedef struct token_loop {
    lvn_decoder *n;
    int count;
    const float *x, *weight, *dy;
    float *out, *out2;
    const float *in2;
} token_loop;

static void run_loop(lvn_decoder *n, token_loop *loop, void (*run)(void *, int, int))
{
    loop->n = n;
    lvn_pool_run(n->pool, (loop->count + PIECE - 1) / PIECE, run, loop);
}

#define FOR_PIECE(t, loop, task) \
    for (int t = (task) * PIECE; t < (loop)->count && t < ((task) + 1) * PIECE; t++)

static void norm_piece(void *arg, int task, int thread)
{
    (void)thread;
    token_loop *l = arg;
    size_t w = (size_t)l->n->weights->dims.width;
    FOR_PIECE(t, l, task)
    l->n->inverse[t] = l->n->kernels->rms_norm(l->x + (size_t)t * w, l->weight, (int)w, l->n->weights->dims.epsilon,
                                               l->out + (size_t)t * w);
}

static void norm_back_piece(void *arg, int task, int thread)
{
    (void)thread;
    token_loop *l = arg;
    size_t w = (size_t)l->n->weights->dims.width;
    FOR_PIECE(t, l, task)
    l->n->kernels->rms_norm_back(l->x + (size_t)t * w, l->weight, l->dy + (size_t)t * w, l->n->inverse[t], (int)w,
                                 l->out + (size_t)t * w);
}

static void swiglu_piece(void *arg, int task, int thread)
{
    (void)thread;
    token_loop *l = arg;
    size_t f = (size_t)l->n->weights->dims.ffn;
    FOR_PIECE(t, l, task)
    l->n->kernels->swiglu(l->x + (size_t)t * 2 * f, l->x + (size_t)t * 2 * f + f, (int)f, l->out + (size_t)t * f);
}

static void swiglu_back_piece(void *arg, int task, int thread)
{
    (void)thread;
    token_loop *l = arg;
    size_t f = (size_t)l->n->weights->dims.ffn;
    FOR_PIECE(t, l, task)
    l->n->kernels->swiglu_back(l->x + (size_t)t * 2 * f, l->x + (size_t)t * 2 * f + f, l->dy + (size_t)t * f, (int)f,
                               l->out + (size_t)t * 2 * f, l->out + (size_t)t * 2 * f + f);
}

static void bias_piece(void *arg, int task, int thread)
{
    (void)thread;
    token_loop *l = arg;
    int w = l->n->weights->dims.qkv_width;
    FOR_PIECE(t, l, task)
    l->n->kernels->add(l->out + (size_t)t * (size_t)w, l->weight, w);
}

static void rms_norm(lvn_decoder *n, const float *x, const float *weight, int count, float *out)
{
    token_loop loop = {.count = count, .x = x, .weight = weight, .out = out};
    run_loop(n, &loop, norm_piece);
}

/* ---- forward ---- */

/* y (T, out) = or += x (T, in) · Wᵀ */
static void apply_stack(lvn_decoder *n, int layer, lvn_stack stack, bool uses_adapter, const float *x, int count, float *y,
                        bool accumulate)
{
    lvn_stack_shape s = lvn_stack_of(&n->weights->dims, stack);
    const float *w = uses_adapter ? merged_stack(n, layer, stack) : base_stack(n, layer, stack);
    lvn_gemm_run(n->gemm, count, s.out, s.in, lvn_mat_rows(x, (size_t)s.in), lvn_mat_transposed(w, (size_t)s.in), y,
                 (size_t)s.out, accumulate);
}

static void forward_layer(lvn_decoder *n, const lvn_packed *packed, int layer, bool uses_adapter, kept_layer *k, float *x)
{
    const lvn_layer_weights *w = &n->weights->layers[layer];
    int count = packed->count;
    size_t x_bytes = (size_t)count * (size_t)n->weights->dims.width * sizeof(float);
    memcpy(k->x_in, x, x_bytes);
    rms_norm(n, x, w->attention_norm, count, n->normed);
    apply_stack(n, layer, LVN_STACK_QKV, uses_adapter, n->normed, count, k->qkv, false);
    if (w->qkv_bias) {
        token_loop loop = {.count = count, .weight = w->qkv_bias, .out = k->qkv};
        run_loop(n, &loop, bias_piece);
    }
    lvn_attention_rotate(n->attention, packed, k->qkv, false);
    lvn_attention_forward(n->attention, packed, k->qkv, k->mixed);
    apply_stack(n, layer, LVN_STACK_OUT, uses_adapter, k->mixed, count, x, true);
    memcpy(k->x_mid, x, x_bytes);
    rms_norm(n, x, w->ffn_norm, count, n->normed);
    apply_stack(n, layer, LVN_STACK_GATE_UP, uses_adapter, n->normed, count, k->gate_up, false);
    token_loop loop = {.count = count, .x = k->gate_up, .out = n->wide2};
    run_loop(n, &loop, swiglu_piece);
    apply_stack(n, layer, LVN_STACK_DOWN, uses_adapter, n->wide2, count, x, true);
}

const float *lvn_decoder_forward(lvn_decoder *n, const lvn_packed *packed, bool uses_adapter, bool keeps)
{
    const lvn_dims *d = &n->weights->dims;
    size_t w = (size_t)d->width;
    reserve(n, packed->count, keeps ? d->layers : 1);
    lvn_attention_prepare(n->attention, packed);
    if (uses_adapter)
        merge(n);
    for (int t = 0; t < packed->count; t++)
        memcpy(n->x + (size_t)t * w, n->weights->embedding + (size_t)packed->tokens[t] * w, w * sizeof(float));
    for (int i = 0; i < d->layers; i++)
        forward_layer(n, packed, i, uses_adapter, &n->kept[keeps ? i : 0], n->x);
    for (int r = 0; r < packed->rows; r++)
        n->kernels->rms_norm(n->x + (size_t)packed->row_token[r] * w, n->weights->final_norm, (int)w, d->epsilon,
                             n->hidden + (size_t)r * w);
    return n->hidden;
}

/* ---- backward ---- */

/* The adapters' gradients of a stack from its input x (T, in) and the gradient dy (T, out) of its output. */
static void adapter_gradients(lvn_decoder *n, int layer, lvn_stack stack, const float *x, const float *dy, int count)
{
    lvn_lora *lora = n->lora;
    lvn_stack_shape s = lvn_stack_of(&n->weights->dims, stack);
    const lvn_pair *first = lvn_lora_pair(lora, layer, s.first);
    int rank = lora->rank, all = rank * s.count;
    size_t t = (size_t)count;
    /* H = A · xᵀ, (all, T) */
    lvn_gemm_run(n->gemm, all, count, s.in, lvn_mat_rows(lora->values + first->a, (size_t)s.in), lvn_mat_transposed(x, (size_t)s.in),
                 n->h, t, false);
    for (size_t i = 0; i < (size_t)all * t; i++)
        n->h[i] *= lora->scale;
    for (int i = 0; i < s.count; i++) {
        const lvn_pair *p = lvn_lora_pair(lora, layer, s.first + i);
        const float *rows = dy + p->first_row;
        const float *h = n->h + (size_t)(i * rank) * t;
        /* dBᵀ (rank, out) += scale H · dy */
        lvn_gemm_run(n->gemm, rank, p->out, count, lvn_mat_rows(h, t), lvn_mat_rows(rows, (size_t)s.out),
                     lora->gradients + p->b, (size_t)p->out, true);
        /* dH (rank, T) = Bᵀ · dyᵀ */
        lvn_gemm_run(n->gemm, rank, count, p->out, lvn_mat_rows(lora->values + p->b, (size_t)p->out),
                     lvn_mat_transposed(rows, (size_t)s.out), n->d_h + (size_t)(i * rank) * t, t, false);
    }
    for (size_t i = 0; i < (size_t)all * t; i++)
        n->d_h[i] *= lora->scale;
    /* dA (all, in) += scale dH · x */
    lvn_gemm_run(n->gemm, all, s.in, count, lvn_mat_rows(n->d_h, t), lvn_mat_rows(x, (size_t)s.in), lora->gradients + first->a,
                 (size_t)s.in, true);
}

/* dx (T, in) = dy (T, out) · W */
static void apply_stack_back(lvn_decoder *n, int layer, lvn_stack stack, const float *dy, int count, float *dx)
{
    lvn_stack_shape s = lvn_stack_of(&n->weights->dims, stack);
    lvn_gemm_run(n->gemm, count, s.in, s.out, lvn_mat_rows(dy, (size_t)s.out),
                 lvn_mat_rows(merged_stack(n, layer, stack), (size_t)s.in), dx, (size_t)s.in, false);
}

/* d_x += gradient through a norm whose input was x and whose output's gradient is dy; needs n->inverse of that norm. */
static void norm_back(lvn_decoder *n, const float *x, const float *weight, const float *dy, int count)
{
    token_loop loop = {.count = count, .x = x, .weight = weight, .dy = dy, .out = n->d_x};
    run_loop(n, &loop, norm_back_piece);
}

static void backward_ffn(lvn_decoder *n, int layer, const kept_layer *k, int count)
{
    token_loop act = {.count = count, .x = k->gate_up, .out = n->wide2};
    run_loop(n, &act, swiglu_piece);
    adapter_gradients(n, layer, LVN_STACK_DOWN, n->wide2, n->d_x, count);
    apply_stack_back(n, layer, LVN_STACK_DOWN, n->d_x, count, n->wide);
    token_loop back = {.count = count, .x = k->gate_up, .dy = n->wide, .out = n->d_wide};
    run_loop(n, &back, swiglu_back_piece);
    rms_norm(n, k->x_mid, n->weights->layers[layer].ffn_norm, count, n->normed);
    adapter_gradients(n, layer, LVN_STACK_GATE_UP, n->normed, n->d_wide, count);
    apply_stack_back(n, layer, LVN_STACK_GATE_UP, n->d_wide, count, n->d_small);
    norm_back(n, k->x_mid, n->weights->layers[layer].ffn_norm, n->d_small, count);
}

static void backward_attention(lvn_decoder *n, const lvn_packed *packed, int layer, const kept_layer *k)
{
    int count = packed->count;
    adapter_gradients(n, layer, LVN_STACK_OUT, k->mixed, n->d_x, count);
    apply_stack_back(n, layer, LVN_STACK_OUT, n->d_x, count, n->d_small);
    lvn_attention_backward(n->attention, packed, k->qkv, n->d_small, n->d_wide);
    lvn_attention_rotate(n->attention, packed, n->d_wide, true);
    rms_norm(n, k->x_in, n->weights->layers[layer].attention_norm, count, n->normed);
    adapter_gradients(n, layer, LVN_STACK_QKV, n->normed, n->d_wide, count);
    if (layer == 0)
        return; /* nothing below is trained */
    apply_stack_back(n, layer, LVN_STACK_QKV, n->d_wide, count, n->d_small);
    norm_back(n, k->x_in, n->weights->layers[layer].attention_norm, n->d_small, count);
}

void lvn_decoder_backward(lvn_decoder *n, const lvn_packed *packed, float *d_hidden)
{
    size_t w = (size_t)n->weights->dims.width;
    memset(n->d_x, 0, (size_t)packed->count * w * sizeof(float));
    for (int r = 0; r < packed->rows; r++) { /* several rows may come from one token: branches share the prompt's last */
        const float *x = n->x + (size_t)packed->row_token[r] * w;
        float inverse = n->kernels->rms_norm(x, n->weights->final_norm, (int)w, n->weights->dims.epsilon, n->normed);
        n->kernels->rms_norm_back(x, n->weights->final_norm, d_hidden + (size_t)r * w, inverse, (int)w,
                                  n->d_x + (size_t)packed->row_token[r] * w);
    }
    for (int i = n->weights->dims.layers - 1; i >= 0; i--) {
        backward_ffn(n, i, &n->kept[i], packed->count);
        backward_attention(n, packed, i, &n->kept[i]);
    }
}

/* ---- head ---- */

void lvn_decoder_logits(lvn_decoder *n, const float *hidden, int rows, float *logits)
{
    size_t w = (size_t)n->weights->dims.width;
    lvn_gemm_run(n->gemm, rows, n->weights->dims.vocab, (int)w, lvn_mat_rows(hidden, w), lvn_mat_transposed(n->weights->head, w),
                 logits, (size_t)n->weights->dims.vocab, false);
}

void lvn_decoder_logits_back(lvn_decoder *n, const float *d_logits, int rows, float *d_hidden)
{
    size_t w = (size_t)n->weights->dims.width, v = (size_t)n->weights->dims.vocab;
    lvn_gemm_run(n->gemm, rows, (int)w, (int)v, lvn_mat_rows(d_logits, v), lvn_mat_rows(n->weights->head, w), d_hidden, w, false);
}
