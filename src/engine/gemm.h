/* Matrix products in F32: C (m x n) = or += A (m x k) · B (k x n), with any strides, blocked for the caches. */
#ifndef LVN_ENGINE_GEMM_H
#define LVN_ENGINE_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/kernels.h"
#include "engine/pool.h"

/* Element (i, j) is at data[i * row + j * col]. */
typedef struct lvn_mat {
    const float *data;
    size_t row, col;
} lvn_mat;

static inline lvn_mat lvn_mat_rows(const float *data, size_t row) /* as it lies */
{
    return (lvn_mat){data, row, 1};
}
static inline lvn_mat lvn_mat_transposed(const float *data, size_t row) /* rows of `data` are the columns */
{
    return (lvn_mat){data, 1, row};
}

typedef struct lvn_gemm lvn_gemm;

/* Holds packing space, some MB a thread. The pool is borrowed. */
lvn_gemm *lvn_gemm_new(lvn_pool *pool, const lvn_kernels *kernels);
void lvn_gemm_free(lvn_gemm *gemm);

/* On all threads. */
void lvn_gemm_run(lvn_gemm *gemm, int m, int n, int k, lvn_mat a, lvn_mat b, float *c, size_t ldc, bool accumulate);
/* On the calling thread alone, from within a pool task; `thread` is the task's. */
void lvn_gemm_small(lvn_gemm *gemm, int thread, int m, int n, int k, lvn_mat a, lvn_mat b, float *c, size_t ldc,
                    bool accumulate);

#endif
