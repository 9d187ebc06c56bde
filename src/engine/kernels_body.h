/* Included once by each kernels_KIND.c, which says VECTOR (floats in a register), TILE_ROWS, TILE_VECTORS and KERNEL_NAME, and is compiled
 * with that kind's flags. Plain loops: the compiler vectorises them (associative arithmetic is allowed in these files only). */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/kernels.h"

typedef float vec __attribute__((vector_size(VECTOR * 4), aligned(4)));

enum { TILE_COLS = TILE_VECTORS * VECTOR };

static void tile(int k, const float *a, const float *b, float *c, size_t ldc, bool accumulate)
{
    vec sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < TILE_ROWS; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = (vec){0};
    for (int p = 0; p < k; p++, a += TILE_ROWS, b += TILE_COLS) {
        vec right[TILE_VECTORS];
        for (int j = 0; j < TILE_VECTORS; j++)
            right[j] = *(const vec *)(b + j * VECTOR);
        for (int i = 0; i < TILE_ROWS; i++)
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] += a[i] * right[j];
    }
    for (int i = 0; i < TILE_ROWS; i++, c += ldc)
        for (int j = 0; j < TILE_VECTORS; j++) {
            vec *out = (vec *)(c + j * VECTOR);
            *out = accumulate ? *out + sum[i][j] : sum[i][j];
        }
}

typedef float vec4 __attribute__((vector_size(16), aligned(4)));

/* to[p][i] = from[i][p] of a block of 4 x 4; rows `from_row` and `to_row` floats apart. */
static inline void transpose4(const float *from, size_t from_row, float *to, size_t to_row)
{
    vec4 a = *(const vec4 *)from, b = *(const vec4 *)(from + from_row), c = *(const vec4 *)(from + 2 * from_row),
         d = *(const vec4 *)(from + 3 * from_row);
    vec4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    vec4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(vec4 *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(vec4 *)(to + to_row) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(vec4 *)(to + 2 * to_row) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(vec4 *)(to + 3 * to_row) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* A row of m becomes a column of the panel. */
static void pack_across(const float *m, size_t row_stride, int rows, int k, size_t width, float *out)
{
    for (int p = 0; p < k; p += 4) {
        int deep = k - p < 4 ? k - p : 4, i = 0;
        for (; deep == 4 && i + 4 <= rows; i += 4)
            transpose4(m + (size_t)i * row_stride + p, row_stride, out + (size_t)p * width + i, width);
        for (; i < rows; i++)
            for (int q = p; q < p + deep; q++)
                out[(size_t)q * width + (size_t)i] = m[(size_t)i * row_stride + (size_t)q];
    }
}

/* `width` is a constant where this is inlined. */
static inline void pack_along(const float *m, size_t col_stride, int k, int width, float *out)
{
    for (int p = 0; p < k; p++, m += col_stride, out += width)
        for (int i = 0; i < width; i++)
            out[i] = m[i];
}

static void pack_panel(const float *m, size_t row_stride, size_t col_stride, int rows, int k, int width, float *out)
{
    if (rows < width)
        memset(out, 0, (size_t)k * (size_t)width * sizeof(float));
    if (row_stride == 1 && rows == TILE_COLS && width == TILE_COLS) {
        pack_along(m, col_stride, k, TILE_COLS, out);
    } else if (row_stride == 1 && rows == TILE_ROWS && width == TILE_ROWS) {
        pack_along(m, col_stride, k, TILE_ROWS, out);
    } else if (col_stride == 1) {
        pack_across(m, row_stride, rows, k, (size_t)width, out);
    } else {
        for (int p = 0; p < k; p++, m += col_stride, out += width)
            for (int i = 0; i < rows; i++)
                out[i] = m[(size_t)i * row_stride];
    }
}

static void pack(const float *m, size_t row_stride, size_t col_stride, int rows, int k, int width, float *out)
{
    for (int i = 0; i < rows; i += width, out += (size_t)k * (size_t)width)
        pack_panel(m + (size_t)i * row_stride, row_stride, col_stride, rows - i < width ? rows - i : width, k, width, out);
}

/* e^x by 2^n times a polynomial of degree 6 on [-ln2/2, ln2/2]; relative error below 2e-7. */
static inline float fast_exp(float x)
{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = __builtin_floorf(x * 1.44269504f + 0.5f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { int32_t i; float f; } power = {((int32_t)n + 127) << 23};
    return p * power.f;
}

static float rms_norm(const float *x, const float *weight, int n, float epsilon, float *out)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    float inverse = 1.0f / sqrtf(sum / (float)n + epsilon);
    for (int i = 0; i < n; i++)
        out[i] = x[i] * inverse * weight[i];
    return inverse;
}

static void rms_norm_back(const float *x, const float *weight, const float *dy, float inverse, int n, float *dx)
{
    float dot = 0;
    for (int i = 0; i < n; i++)
        dot += dy[i] * weight[i] * x[i];
    float factor = dot * inverse * inverse * inverse / (float)n;
    for (int i = 0; i < n; i++)
        dx[i] += dy[i] * weight[i] * inverse - x[i] * factor;
}

static void swiglu(const float *gate, const float *up, int n, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
}

static void swiglu_back(const float *gate, const float *up, const float *dout, int n, float *dgate, float *dup)
{
    for (int i = 0; i < n; i++) {
        float g = gate[i], u = up[i], d = dout[i];
        float s = 1.0f / (1.0f + fast_exp(-g));
        dup[i] = d * g * s;
        dgate[i] = d * u * s * (1.0f + g * (1.0f - s));
    }
}

static void softmax(float *row, int n, float scale)
{
    float most = row[0], sum = 0;
    for (int i = 1; i < n; i++)
        most = row[i] > most ? row[i] : most;
    for (int i = 0; i < n; i++) {
        row[i] = fast_exp((row[i] - most) * scale);
        sum += row[i];
    }
    float inverse = 1.0f / sum;
    for (int i = 0; i < n; i++)
        row[i] *= inverse;
}

static void softmax_back(const float *p, float *dp, int n, float scale)
{
    float dot = 0;
    for (int i = 0; i < n; i++)
        dot += p[i] * dp[i];
    for (int i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - dot) * scale;
}

static float log_sum_exp(const float *logits, int n, float inverse_temperature, float *out_entropy)
{
    float most = logits[0];
    for (int i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    /* Sums of blocks, so that 49,152 small terms do not drown. */
    double sum = 0, weighted = 0;
    for (int from = 0; from < n; from += 1024) {
        int to = from + 1024 < n ? from + 1024 : n;
        float block = 0, block_weighted = 0;
        for (int i = from; i < to; i++) {
            float z = (logits[i] - most) * inverse_temperature;
            float e = fast_exp(z);
            block += e;
            block_weighted += e * z;
        }
        sum += (double)block;
        weighted += (double)block_weighted;
    }
    float log_sum = (float)log(sum);
    *out_entropy = log_sum - (float)(weighted / sum);
    return most * inverse_temperature + log_sum;
}

static void softmax_grad(float *logits, int n, float inverse_temperature, float lse, float g)
{
    float factor = -g * inverse_temperature;
    for (int i = 0; i < n; i++)
        logits[i] = factor * fast_exp(logits[i] * inverse_temperature - lse);
}

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static double square_sum(const float *x, size_t n)
{
    double sum = 0;
    for (size_t from = 0; from < n; from += 4096) {
        size_t to = from + 4096 < n ? from + 4096 : n;
        float block = 0;
        for (size_t i = from; i < to; i++)
            block += x[i] * x[i];
        sum += (double)block;
    }
    return sum;
}

static void adamw(float *w, const float *g, float *m, float *v, size_t n, float scale, float lr, float beta1, float beta2,
                  float epsilon, float decay, float c1, float c2)
{
    for (size_t i = 0; i < n; i++) {
        float gradient = g[i] * scale;
        m[i] = beta1 * m[i] + (1.0f - beta1) * gradient;
        v[i] = beta2 * v[i] + (1.0f - beta2) * gradient * gradient;
        w[i] -= lr * (m[i] / c1 / (sqrtf(v[i] / c2) + epsilon) + decay * w[i]);
    }
}

const lvn_kernels KERNEL_NAME = {
    .name = KERNEL_TEXT, .tile_rows = TILE_ROWS, .tile_cols = TILE_COLS, .tile = tile, .pack = pack, .rms_norm = rms_norm,
    .rms_norm_back = rms_norm_back, .swiglu = swiglu, .swiglu_back = swiglu_back, .softmax = softmax,
    .softmax_back = softmax_back, .log_sum_exp = log_sum_exp, .softmax_grad = softmax_grad, .add = add,
    .square_sum = square_sum, .adamw = adamw,
};
