#include "engine/merge.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ggml.h>
#include <gguf.h>
#include <llama.h>

#include "base/arena.h"
#include "engine/gemm.h"

enum { PIECE_ROWS = 64 };

typedef struct merger {
    lvn_pool *pool;
    lvn_gemm *gemm;
    struct gguf_context *model;
    struct ggml_context *shapes; /* of the model's tensors, without data */
    unsigned char *bytes;        /* its file, mapped for this process alone: matrices are merged in place */
    size_t size;
    size_t data; /* where the tensors begin */
    struct gguf_context *adapter;
    struct ggml_context *pairs; /* with data */
    float alpha;
} merger;

/* ---- what fits what ---- */

static bool is_float(enum ggml_type type)
{
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

static struct ggml_tensor *pair_half(const merger *m, const char *name, char which)
{
    char full[GGML_MAX_NAME + 8];
    snprintf(full, sizeof(full), "%s.lora_%c", name, which);
    return ggml_get_tensor(m->pairs, full);
}

/* Whether `half`, a tensor of the adapter, is one of a pair for a matrix of the model. */
static bool fits(const merger *m, const char *half)
{
    char name[GGML_MAX_NAME];
    snprintf(name, sizeof(name), "%s", half);
    char *suffix = strstr(name, ".lora_");
    if (!suffix)
        return false;
    *suffix = '\0';
    const struct ggml_tensor *w = ggml_get_tensor(m->shapes, name), *a = pair_half(m, name, 'a'), *b = pair_half(m, name, 'b');
    /* The embedding may be the head as well, and its pairs lie the other way round. */
    return w && a && b && strcmp(name, "token_embd.weight") != 0 && is_float(w->type) && a->type == GGML_TYPE_F32 &&
           b->type == GGML_TYPE_F32 && ggml_n_dims(w) == 2 && a->ne[0] == w->ne[0] && b->ne[1] == w->ne[1] && a->ne[1] == b->ne[0];
}

static bool all_fit(const merger *m)
{
    for (int64_t i = 0; i < gguf_get_n_tensors(m->adapter); i++)
        if (!fits(m, gguf_get_tensor_name(m->adapter, i)))
            return false;
    for (struct ggml_tensor *t = ggml_get_first_tensor(m->shapes); t; t = ggml_get_next_tensor(m->shapes, t)) {
        size_t at = m->data + gguf_get_tensor_offset(m->model, gguf_find_tensor(m->model, t->name));
        if (at > m->size || ggml_nbytes(t) > m->size - at)
            return false;
    }
    return true;
}

/* ---- merging ---- */

typedef struct product {
    merger *m;
    enum ggml_type type;
    unsigned char *w;
    const float *a, *b; /* b is scaled already */
    int rows, cols, rank;
    size_t row_bytes;
    float *space; /* (threads, PIECE_ROWS, cols) */
} product;

static void to_float(enum ggml_type type, const void *from, float *to, int64_t count)
{
    if (type == GGML_TYPE_F16)
        ggml_fp16_to_fp32_row(from, to, count);
    else if (type == GGML_TYPE_BF16)
        ggml_bf16_to_fp32_row(from, to, count);
    else
        memcpy(to, from, (size_t)count * sizeof(float));
}

static void from_float(enum ggml_type type, const float *from, void *to, int64_t count)
{
    if (type == GGML_TYPE_F16)
        ggml_fp32_to_fp16_row(from, to, count);
    else if (type == GGML_TYPE_BF16)
        ggml_fp32_to_bf16_row(from, to, count);
    else
        memcpy(to, from, (size_t)count * sizeof(float));
}

static void merge_piece(void *arg, int task, int thread)
{
    const product *p = arg;
    int first = task * PIECE_ROWS, rows = p->rows - first < PIECE_ROWS ? p->rows - first : PIECE_ROWS;
    size_t cols = (size_t)p->cols, offset = (size_t)first * p->row_bytes;
    float *values = p->space + (size_t)thread * PIECE_ROWS * cols;
    to_float(p->type, p->w + offset, values, (int64_t)rows * p->cols);
    lvn_gemm_small(p->m->gemm, thread, rows, p->cols, p->rank, lvn_mat_rows(p->b + (size_t)first * (size_t)p->rank, (size_t)p->rank),
                   lvn_mat_rows(p->a, cols), values, cols, true);
    from_float(p->type, values, p->w + offset, (int64_t)rows * p->cols);
}

static void merge_matrix(merger *m, const struct ggml_tensor *a)
{
    char name[GGML_MAX_NAME];
    snprintf(name, sizeof(name), "%.*s", (int)(strlen(a->name) - strlen(".lora_a")), a->name);
    const struct ggml_tensor *b = pair_half(m, name, 'b'), *w = ggml_get_tensor(m->shapes, name);
    product p = {.m = m, .type = w->type, .a = a->data, .rows = (int)w->ne[1], .cols = (int)w->ne[0], .rank = (int)a->ne[1]};
    p.w = m->bytes + m->data + gguf_get_tensor_offset(m->model, gguf_find_tensor(m->model, name));
    p.row_bytes = ggml_row_size(w->type, w->ne[0]);
    float scale = m->alpha / (float)p.rank, *scaled = lvn_alloc(ggml_nbytes(b));
    for (int64_t i = 0; i < ggml_nelements(b); i++)
        scaled[i] = scale * ((const float *)b->data)[i];
    p.b = scaled;
    p.space = lvn_alloc((size_t)lvn_pool_threads(m->pool) * PIECE_ROWS * (size_t)p.cols * sizeof(float));
    lvn_pool_run(m->pool, (p.rows + PIECE_ROWS - 1) / PIECE_ROWS, merge_piece, &p);
    free(p.space);
    free(scaled);
}

static void merge_all(merger *m)
{
    for (int64_t i = 0; i < gguf_get_n_tensors(m->adapter); i++) {
        const struct ggml_tensor *half = ggml_get_tensor(m->pairs, gguf_get_tensor_name(m->adapter, i));
        if (strstr(half->name, ".lora_a"))
            merge_matrix(m, half);
    }
}

/* ---- the files ---- */

/* A file in memory with the model's bytes, mapped to be changed. */
static int copy_model(merger *m, const char *path)
{
    int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("merged-model", MFD_CLOEXEC);
    struct stat info = {0};
    bool is_good = from >= 0 && to >= 0 && !fstat(from, &info) && info.st_size > 0;
    m->size = (size_t)info.st_size;
    for (off_t done = 0; is_good && done < info.st_size;)
        is_good = sendfile(to, from, &done, (size_t)(info.st_size - done)) > 0;
    void *bytes = is_good ? mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0) : MAP_FAILED;
    if (from >= 0)
        close(from);
    if (bytes != MAP_FAILED) {
        m->bytes = bytes;
        return to;
    }
    if (to >= 0)
        close(to);
    return -1;
}

static bool read_model(merger *m, const char *path)
{
    struct gguf_init_params params = {.no_alloc = true, .ctx = &m->shapes};
    m->model = gguf_init_from_file(path, params);
    struct stat info;
    if (!m->model || stat(path, &info))
        return false;
    m->data = gguf_get_data_offset(m->model);
    m->size = (size_t)info.st_size;
    return true;
}

static bool read_adapter(merger *m, const char *path)
{
    struct gguf_init_params params = {.no_alloc = false, .ctx = &m->pairs};
    m->adapter = gguf_init_from_file(path, params);
    if (!m->adapter)
        return false;
    int64_t alpha = gguf_find_key(m->adapter, "adapter.lora.alpha");
    if (alpha < 0 || gguf_get_kv_type(m->adapter, alpha) != GGUF_TYPE_FLOAT32)
        return false;
    m->alpha = gguf_get_val_f32(m->adapter, alpha);
    return true;
}

static void done(merger *m)
{
    lvn_gemm_free(m->gemm);
    if (m->bytes)
        munmap(m->bytes, m->size);
    if (m->model)
        gguf_free(m->model);
    if (m->shapes)
        ggml_free(m->shapes);
    if (m->adapter)
        gguf_free(m->adapter);
    if (m->pairs)
        ggml_free(m->pairs);
}

lvn_code lvn_merge_open(const char *model_path, const char *adapter_path, lvn_pool *pool, struct llama_model **out, lvn_err *err)
{
    merger m = {.pool = pool, .gemm = lvn_gemm_new(pool, lvn_kernels_pick())};
    lvn_code code = LVN_OK;
    *out = NULL;
    if (access(adapter_path, R_OK) || !read_adapter(&m, adapter_path)) {
        code = lvn_fail(err, LVN_INVALID, "%s: not an adapter", adapter_path);
    } else if (read_model(&m, model_path) && all_fit(&m)) {
        int fd = copy_model(&m, model_path);
        FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
        if (file) {
            merge_all(&m);
            rewind(file);
            *out = llama_model_load_from_file_ptr(file, llama_model_default_params()); /* keeps a mapping of its own */
            fclose(file);
        }
        if (!*out)
            code = lvn_fail(err, LVN_NO_MEMORY, "no memory for a merged copy of the model (%zu MB)", m.size >> 20);
    }
    done(&m);
    return code;
}
