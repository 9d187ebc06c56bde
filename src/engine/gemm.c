/* The left side is packed whole (by all threads); then each thread takes bands of columns, packs the right side of a band a block of k
 * at a time, and runs the tile kernel over all rows. A packed right panel stays in L1, the left block in L2. */
#include "engine/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { BLOCK_K = 192, BAND_PANELS = 4, MAX_TILE = 14 * 32, LINE = 64, MIN_SHARED_PACK = 8192 };

typedef struct space {
    float *data;
    size_t capacity;
} space;

typedef struct worker {
    space left, right;
} worker;

struct lvn_gemm {
    lvn_pool *pool;
    const lvn_kernels *kernels;
    space left; /* of the product on all threads */
    worker *workers;
};

typedef struct product {
    lvn_gemm *gemm;
    int m, n, k;
    lvn_mat a, b;
    float *c;
    size_t ldc;
    bool accumulate;
    float *packed; /* [block of k][panel of rows][k][tile_rows] */
    int row_panels;
    int bands, row_parts; /* a task is a band of columns and a part of the row panels */
} product;

static float *reserve(space *s, size_t floats)
{
    if (s->capacity < floats) {
        free(s->data);
        s->capacity = floats + floats / 4;
        s->data = aligned_alloc(LINE, (s->capacity * sizeof(float) + LINE - 1) / LINE * LINE);
        if (!s->data)
            abort();
    }
    return s->data;
}

lvn_gemm *lvn_gemm_new(lvn_pool *pool, const lvn_kernels *kernels)
{
    lvn_gemm *gemm = lvn_zalloc(sizeof(*gemm));
    gemm->pool = pool;
    gemm->kernels = kernels;
    gemm->workers = lvn_zalloc((size_t)lvn_pool_threads(pool) * sizeof(*gemm->workers));
    return gemm;
}

void lvn_gemm_free(lvn_gemm *gemm)
{
    if (!gemm)
        return;
    for (int i = 0; i < lvn_pool_threads(gemm->pool); i++) {
        free(gemm->workers[i].left.data);
        free(gemm->workers[i].right.data);
    }
    free(gemm->left.data);
    free(gemm->workers);
    free(gemm);
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* Rows of panel `panel`, all blocks of k. */
static void pack_left(void *arg, int panel, int thread)
{
    (void)thread;
    product *p = arg;
    const lvn_kernels *kernels = p->gemm->kernels;
    int width = kernels->tile_rows, first = panel * width;
    int rows = min_int(width, p->m - first);
    for (int k0 = 0; k0 < p->k; k0 += BLOCK_K) {
        int depth = min_int(BLOCK_K, p->k - k0);
        float *out = p->packed + (size_t)k0 * (size_t)p->row_panels * (size_t)width + (size_t)panel * (size_t)depth * (size_t)width;
        kernels->pack(p->a.data + (size_t)first * p->a.row + (size_t)k0 * p->a.col, p->a.row, p->a.col, rows, depth, width, out);
    }
}

/* One tile at the edge of C goes through a full-sized buffer. */
static void edge_tile(const lvn_kernels *kernels, int depth, const float *left, const float *right, float *c, size_t ldc, int rows,
                      int cols, bool accumulate)
{
    float full[MAX_TILE];
    size_t width = (size_t)kernels->tile_cols;
    kernels->tile(depth, left, right, full, width, false);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float *out = &c[(size_t)i * ldc + (size_t)j];
            *out = accumulate ? *out + full[(size_t)i * width + (size_t)j] : full[(size_t)i * width + (size_t)j];
        }
}

static void band_block(const product *p, int first_col, int cols, int first_panel, int end_panel, int k0, int depth,
                       float *right)
{
    const lvn_kernels *kernels = p->gemm->kernels;
    int width = kernels->tile_cols, height = kernels->tile_rows;
    bool accumulate = p->accumulate || k0 > 0;
    kernels->pack(p->b.data + (size_t)first_col * p->b.col + (size_t)k0 * p->b.row, p->b.col, p->b.row, cols, depth, width, right);
    const float *left = p->packed + (size_t)k0 * (size_t)p->row_panels * (size_t)height;
    for (int j = 0; j < cols; j += width) {
        const float *panel = right + (size_t)j * (size_t)depth;
        int wide = min_int(width, cols - j);
        for (int r = first_panel; r < end_panel; r++) {
            int i = r * height, high = min_int(height, p->m - i);
            const float *rows = left + (size_t)r * (size_t)depth * (size_t)height;
            float *c = p->c + (size_t)i * p->ldc + (size_t)(first_col + j);
            if (wide == width && high == height)
                kernels->tile(depth, rows, panel, c, p->ldc, accumulate);
            else
                edge_tile(kernels, depth, rows, panel, c, p->ldc, high, wide, accumulate);
        }
    }
}

static void band(void *arg, int task, int thread)
{
    product *p = arg;
    int width = p->gemm->kernels->tile_cols * BAND_PANELS;
    int first = task / p->row_parts * width, cols = min_int(width, p->n - first);
    int part = task % p->row_parts;
    int first_panel = part * p->row_panels / p->row_parts, end_panel = (part + 1) * p->row_panels / p->row_parts;
    float *right = reserve(&p->gemm->workers[thread].right, (size_t)BLOCK_K * (size_t)width);
    for (int k0 = 0; k0 < p->k; k0 += BLOCK_K)
        band_block(p, first, cols, first_panel, end_panel, k0, min_int(BLOCK_K, p->k - k0), right);
}

static product begin(lvn_gemm *gemm, int m, int n, int k, lvn_mat a, lvn_mat b, float *c, size_t ldc, bool accumulate, space *left)
{
    product p = {.gemm = gemm, .m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = ldc, .accumulate = accumulate};
    p.row_panels = (m + gemm->kernels->tile_rows - 1) / gemm->kernels->tile_rows;
    int width = gemm->kernels->tile_cols * BAND_PANELS;
    p.bands = (n + width - 1) / width;
    p.row_parts = 1;
    p.packed = reserve(left, (size_t)p.row_panels * (size_t)gemm->kernels->tile_rows * (size_t)k);
    return p;
}

void lvn_gemm_run(lvn_gemm *gemm, int m, int n, int k, lvn_mat a, lvn_mat b, float *c, size_t ldc, bool accumulate)
{
    if (m <= 0 || n <= 0)
        return;
    product p = begin(gemm, m, n, k, a, b, c, ldc, accumulate, &gemm->left);
    int threads = lvn_pool_threads(gemm->pool);
    if (p.bands < 2 * threads) /* few columns: the rows are shared out too, each part packs the right side for itself */
        p.row_parts = min_int(p.row_panels, (2 * threads + p.bands - 1) / p.bands);
    if (p.row_panels * k < MIN_SHARED_PACK)
        for (int i = 0; i < p.row_panels; i++)
            pack_left(&p, i, 0);
    else
        lvn_pool_run(gemm->pool, p.row_panels, pack_left, &p);
    lvn_pool_run(gemm->pool, p.bands * p.row_parts, band, &p);
}

void lvn_gemm_small(lvn_gemm *gemm, int thread, int m, int n, int k, lvn_mat a, lvn_mat b, float *c, size_t ldc,
                    bool accumulate)
{
    if (m <= 0 || n <= 0)
        return;
    product p = begin(gemm, m, n, k, a, b, c, ldc, accumulate, &gemm->workers[thread].left);
    for (int i = 0; i < p.row_panels; i++)
        pack_left(&p, i, thread);
    for (int i = 0; i < p.bands; i++)
        band(&p, i, thread);
}
