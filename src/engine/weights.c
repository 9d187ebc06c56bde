#include "engine/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ggml.h>
#include <gguf.h>

#include "base/arena.h"

typedef struct reader {
    struct gguf_context *gguf;
    struct ggml_context *meta;
    const unsigned char *map;
    size_t size;
    const char *path;
    lvn_weights *weights;
    lvn_err *err;
    lvn_code code; /* the first failure */
} reader;

/* ---- metadata ---- */

static int64_t find_key(const reader *r, const char *key)
{
    char full[128];
    snprintf(full, sizeof(full), "%s.%s", r->weights->architecture, key);
    return gguf_find_key(r->gguf, full);
}

static int read_int(reader *r, const char *key, int fallback)
{
    int64_t id = find_key(r, key);
    if (id >= 0 && gguf_get_kv_type(r->gguf, id) == GGUF_TYPE_UINT32 && gguf_get_val_u32(r->gguf, id) <= 1 << 24)
        return (int)gguf_get_val_u32(r->gguf, id);
    if (fallback < 0 && !r->code)
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: no usable %s.%s", r->path, r->weights->architecture, key);
    return fallback;
}

static float read_float(reader *r, const char *key, float fallback)
{
    int64_t id = find_key(r, key);
    return id >= 0 && gguf_get_kv_type(r->gguf, id) == GGUF_TYPE_FLOAT32 ? gguf_get_val_f32(r->gguf, id) : fallback;
}

static void read_text(const reader *r, const char *key, char *out, size_t size)
{
    int64_t id = gguf_find_key(r->gguf, key);
    bool is_text = id >= 0 && gguf_get_kv_type(r->gguf, id) == GGUF_TYPE_STRING;
    snprintf(out, size, "%s", is_text ? gguf_get_val_str(r->gguf, id) : "");
}

static void read_dims(reader *r)
{
    lvn_dims *d = &r->weights->dims;
    read_text(r, "general.architecture", r->weights->architecture, sizeof(r->weights->architecture));
    read_text(r, "general.name", r->weights->name, sizeof(r->weights->name));
    d->rotates_halves = !strcmp(r->weights->architecture, "qwen2");
    if (!d->rotates_halves && strcmp(r->weights->architecture, "llama")) {
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: architecture \"%s\" can't be trained, only llama and qwen2", r->path,
                           r->weights->architecture);
        return;
    }
    d->layers = read_int(r, "block_count", -1);
    d->width = read_int(r, "embedding_length", -1);
    d->heads = read_int(r, "attention.head_count", -1);
    d->kv_heads = read_int(r, "attention.head_count_kv", d->heads);
    d->ffn = read_int(r, "feed_forward_length", -1);
    d->context = read_int(r, "context_length", 2048);
    if (r->code)
        return;
    if (d->heads < 1 || d->kv_heads < 1 || d->layers < 1 || d->width < 1 || d->ffn < 1 || d->heads % d->kv_heads ||
        d->width % d->heads) {
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: heads, width and layers do not fit together", r->path);
        return;
    }
    d->head_dim = read_int(r, "attention.key_length", d->width / d->heads);
    d->rope_dims = read_int(r, "rope.dimension_count", d->head_dim);
    d->epsilon = read_float(r, "attention.layer_norm_rms_epsilon", 1e-5f);
    d->rope_base = read_float(r, "rope.freq_base", 10000.0f);
    d->kv_width = d->kv_heads * d->head_dim;
    d->qkv_width = d->heads * d->head_dim + 2 * d->kv_width;
    if (d->rope_dims > d->head_dim || d->rope_dims % 2)
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: rotary dimensions %d of %d", r->path, d->rope_dims, d->head_dim);
}

/* ---- tensors ---- */

/* Dequantises tensor `name` (rows x cols) to `out`. A missing optional one returns false. */
static bool read_tensor(reader *r, const char *name, int64_t rows, int64_t cols, bool is_optional, float *out)
{
    if (r->code)
        return false;
    const struct ggml_tensor *t = ggml_get_tensor(r->meta, name);
    int64_t id = gguf_find_tensor(r->gguf, name);
    if (!t || id < 0) {
        if (!is_optional)
            r->code = lvn_fail(r->err, LVN_INVALID, "%s: tensor %s is missing", r->path, name);
        return false;
    }
    if (t->ne[0] != cols || t->ne[1] * t->ne[2] * t->ne[3] != rows) {
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: tensor %s is %ld x %ld, expected %ld x %ld", r->path, name, (long)t->ne[1],
                           (long)t->ne[0], (long)rows, (long)cols);
        return false;
    }
    size_t offset = gguf_get_data_offset(r->gguf) + gguf_get_tensor_offset(r->gguf, id);
    if (offset > r->size || ggml_nbytes(t) > r->size - offset) {
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: the file is cut off (tensor %s)", r->path, name);
        return false;
    }
    const struct ggml_type_traits *traits = ggml_get_type_traits(t->type);
    if (t->type == GGML_TYPE_F32)
        memcpy(out, r->map + offset, ggml_nbytes(t));
    else if (traits && traits->to_float)
        traits->to_float(r->map + offset, out, rows * cols);
    else
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: tensor %s has type %s, which can't be read", r->path, name,
                           ggml_type_name(t->type));
    return !r->code;
}

static float *new_floats(int64_t count)
{
    return lvn_alloc((size_t)count * sizeof(float));
}

static float *read_new(reader *r, const char *name, int64_t rows, int64_t cols, bool is_optional)
{
    float *out = new_floats(rows * cols);
    if (read_tensor(r, name, rows, cols, is_optional, out))
        return out;
    free(out);
    return NULL;
}

static bool read_part(reader *r, int layer, const char *part, int64_t rows, int64_t cols, bool is_optional, float *out)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%d.%s", layer, part);
    return read_tensor(r, name, rows, cols, is_optional, out);
}

static void read_layer(reader *r, int i)
{
    const lvn_dims *d = &r->weights->dims;
    lvn_layer_weights *l = &r->weights->layers[i];
    int64_t q = d->heads * d->head_dim, kv = d->kv_width, w = d->width;
    l->attention_norm = new_floats(w);
    l->ffn_norm = new_floats(w);
    l->qkv = new_floats((int64_t)d->qkv_width * w);
    l->out = new_floats(w * q);
    l->gate_up = new_floats(2 * (int64_t)d->ffn * w);
    l->down = new_floats(w * d->ffn);
    read_part(r, i, "attn_norm.weight", 1, w, false, l->attention_norm);
    read_part(r, i, "ffn_norm.weight", 1, w, false, l->ffn_norm);
    read_part(r, i, "attn_q.weight", q, w, false, l->qkv);
    read_part(r, i, "attn_k.weight", kv, w, false, l->qkv + q * w);
    read_part(r, i, "attn_v.weight", kv, w, false, l->qkv + (q + kv) * w);
    read_part(r, i, "attn_output.weight", w, q, false, l->out);
    read_part(r, i, "ffn_gate.weight", d->ffn, w, false, l->gate_up);
    read_part(r, i, "ffn_up.weight", d->ffn, w, false, l->gate_up + (int64_t)d->ffn * w);
    read_part(r, i, "ffn_down.weight", w, d->ffn, false, l->down);
    float *bias = lvn_zalloc((size_t)d->qkv_width * sizeof(float));
    bool has_bias = read_part(r, i, "attn_q.bias", 1, q, true, bias);
    has_bias = read_part(r, i, "attn_k.bias", 1, kv, true, bias + q) || has_bias;
    has_bias = read_part(r, i, "attn_v.bias", 1, kv, true, bias + q + kv) || has_bias;
    if (has_bias)
        l->qkv_bias = bias;
    else
        free(bias);
}

static void read_all(reader *r)
{
    lvn_weights *w = r->weights;
    read_dims(r);
    if (r->code)
        return;
    const struct ggml_tensor *embedding = ggml_get_tensor(r->meta, "token_embd.weight");
    if (!embedding) {
        r->code = lvn_fail(r->err, LVN_INVALID, "%s: tensor token_embd.weight is missing", r->path);
        return;
    }
    w->dims.vocab = (int)embedding->ne[1];
    w->embedding = read_new(r, "token_embd.weight", w->dims.vocab, w->dims.width, false);
    w->head = read_new(r, "output.weight", w->dims.vocab, w->dims.width, true);
    if (!w->head)
        w->head = w->embedding;
    w->final_norm = read_new(r, "output_norm.weight", 1, w->dims.width, false);
    w->rope_factors = read_new(r, "rope_freqs.weight", 1, w->dims.rope_dims / 2, true);
    w->layers = lvn_zalloc((size_t)w->dims.layers * sizeof(*w->layers));
    for (int i = 0; i < w->dims.layers && !r->code; i++)
        read_layer(r, i);
}

/* ---- the file ---- */

static lvn_code map_file(reader *r)
{
    int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info)) {
        int cause = errno;
        if (fd >= 0)
            close(fd);
        return lvn_fail(r->err, cause == ENOENT ? LVN_NOT_FOUND : LVN_IO, "%s: %s", r->path, strerror(cause));
    }
    char magic[4] = "";
    bool is_gguf = S_ISREG(info.st_mode) && pread(fd, magic, 4, 0) == 4 && !memcmp(magic, "GGUF", 4);
    r->size = (size_t)info.st_size;
    r->map = is_gguf ? mmap(NULL, r->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (!is_gguf)
        return lvn_fail(r->err, LVN_INVALID, "%s: not a GGUF file", r->path);
    if (r->map == MAP_FAILED) {
        r->map = NULL;
        return lvn_fail(r->err, LVN_IO, "%s: can't be mapped: %s", r->path, strerror(errno));
    }
    return LVN_OK;
}

lvn_code lvn_weights_open(const char *path, lvn_weights **out, lvn_err *err)
{
    reader r = {.path = path, .err = err, .weights = lvn_zalloc(sizeof(lvn_weights))};
    r.code = map_file(&r);
    if (!r.code) {
        struct gguf_init_params params = {.no_alloc = true, .ctx = &r.meta};
        r.gguf = gguf_init_from_file(path, params);
        if (r.gguf)
            read_all(&r);
        else
            r.code = lvn_fail(err, LVN_INVALID, "%s: a damaged GGUF file", path);
    }
    if (r.gguf)
        gguf_free(r.gguf);
    if (r.meta)
        ggml_free(r.meta);
    if (r.map)
        munmap((void *)r.map, r.size);
    if (r.code) {
        lvn_weights_close(r.weights);
        return r.code;
    }
    *out = r.weights;
    return LVN_OK;
}

void lvn_weights_close(lvn_weights *w)
{
    if (!w)
        return;
    for (int i = 0; w->layers && i < w->dims.layers; i++) {
        lvn_layer_weights *l = &w->layers[i];
        free(l->attention_norm);
        free(l->ffn_norm);
        free(l->qkv);
        free(l->qkv_bias);
        free(l->out);
        free(l->gate_up);
        free(l->down);
    }
    free(w->layers);
    if (w->head != w->embedding)
        free(w->head);
    free(w->embedding);
    free(w->final_norm);
    free(w->rope_factors);
    free(w);
}
