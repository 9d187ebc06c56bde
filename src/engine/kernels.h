/* The innermost loops, in one version for each kind of CPU. kernels_body.h is compiled once a kind with that kind's flags;
 * lvn_kernels_pick chooses at run time. All arrays are F32. */
#ifndef LVN_ENGINE_KERNELS_H
#define LVN_ENGINE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lvn_kernels {
    const char *name;
    int tile_rows, tile_cols; /* of the product's innermost block */

    /* c[tile_rows][tile_cols] (rows ldc apart) = or += a · b, a packed as [k][tile_rows], b as [k][tile_cols]. */
    void (*tile)(int k, const float *a, const float *b, float *c, size_t ldc, bool accumulate);
    /* Packs rows [0, rows) x [0, k) of a matrix with strides into panels of `width` rows: out[panel][k][width], the last one filled
     * up with zeros. element (i, j) is at m[i * row_stride + j * col_stride]. */
    void (*pack)(const float *m, size_t row_stride, size_t col_stride, int rows, int k, int width, float *out);

    /* out = x / rms(x) * weight, n values; returns 1 / rms. (Zhang and Sennrich 2019, eq. 4) */
    float (*rms_norm)(const float *x, const float *weight, int n, float epsilon, float *out);
    /* dx += gradient of the above through x, given dy and 1 / rms. */
    void (*rms_norm_back)(const float *x, const float *weight, const float *dy, float inverse_rms, int n, float *dx);
    /* out = silu(gate) * up (Shazeer 2020, SwiGLU). */
    void (*swiglu)(const float *gate, const float *up, int n, float *out);
    /* In place: dgate, dup from dout and the inputs. */
    void (*swiglu_back)(const float *gate, const float *up, const float *dout, int n, float *dgate, float *dup);
    /* row = softmax(row * scale) in place over n values. */
    void (*softmax)(float *row, int n, float scale);
    /* ds[i] = p[i] * (dp[i] - sum_j p[j] dp[j]) * scale, in place on dp. */
    void (*softmax_back)(const float *p, float *dp, int n, float scale);
    /* For a row of logits times inverse_temperature: log-sum-exp (returned) and the entropy in nats. */
    float (*log_sum_exp)(const float *logits, int n, float inverse_temperature, float *out_entropy);
    /* logits[i] = -g * exp(logits[i] * inverse_temperature - lse) * inverse_temperature, the gradient but for the target. */
    void (*softmax_grad)(float *logits, int n, float inverse_temperature, float lse, float g);
    void (*add)(float *x, const float *y, int n); /* x += y */
    double (*square_sum)(const float *x, size_t n);
    /* AdamW (Loshchilov and Hutter 2019, algorithm 2) with corrections c1, c2 = 1 - beta^t. Clears nothing. */
    void (*adamw)(float *w, const float *g, float *m, float *v, size_t n, float scale, float lr, float beta1, float beta2,
                  float epsilon, float decay, float c1, float c2);
} lvn_kernels;

/* The best for this CPU, or a lesser one named by LEVIN_KERNEL. */
const lvn_kernels *lvn_kernels_pick(void);

extern const lvn_kernels lvn_kernels_generic;
#if defined(__x86_64__)
extern const lvn_kernels lvn_kernels_avx2;
extern const lvn_kernels lvn_kernels_avx512;
#endif

#endif
