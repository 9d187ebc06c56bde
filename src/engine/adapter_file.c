/* Adapters and training state as files. Inside, B lies (rank, out) and matrices are in GGUF's order; files have B as (out, rank), and
 * PEFT's also undo the reordering that GGUF makes of the rows of q and k in the llama architecture. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ggml.h>
#include <gguf.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "engine/trainer.h"

/* ---- writing a file whole ---- */

static lvn_code file_error(lvn_err *err, const char *path)
{
    lvn_code code = errno == ENOSPC || errno == EDQUOT ? LVN_FULL : errno == ENOENT ? LVN_NOT_FOUND : LVN_IO;
    return lvn_fail(err, code, "%s: %s", path, strerror(errno));
}

typedef struct part {
    const void *bytes;
    size_t size;
} part;

static bool write_parts(int fd, const part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at < parts[i].size;) {
            ssize_t put = write(fd, (const char *)parts[i].bytes + at, parts[i].size - at);
            if (put < 0 && errno != EINTR)
                return false;
            at += put > 0 ? (size_t)put : 0;
        }
    return true;
}

static lvn_code write_file(const char *path, const part *parts, size_t count, lvn_err *err)
{
    char temporary[4096];
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return file_error(err, temporary);
    lvn_code code = write_parts(fd, parts, count) ? LVN_OK : file_error(err, temporary);
    if (close(fd) && !code)
        code = file_error(err, temporary);
    if (!code && rename(temporary, path))
        code = file_error(err, path);
    if (code)
        unlink(temporary);
    return code;
}

/* ---- shapes ---- */

static void transpose(const float *from, int rows, int cols, float *to)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            to[(size_t)j * (size_t)rows + (size_t)i] = from[(size_t)i * (size_t)cols + (size_t)j];
}

/* ---- GGUF ---- */

static void add_tensor(struct gguf_context *gguf, struct ggml_context *meta, int layer, int linear, char which, int cols, int rows,
                       const float *data)
{
    struct ggml_tensor *t = ggml_new_tensor_2d(meta, GGML_TYPE_F32, cols, rows);
    ggml_format_name(t, "blk.%d.%s.weight.lora_%c", layer, lvn_linear_gguf_name((lvn_linear)linear), which);
    memcpy(t->data, data, ggml_nbytes(t));
    gguf_add_tensor(gguf, t);
}

lvn_code lvn_trainer_save_gguf(const lvn_trainer *trainer, const char *path, lvn_err *err)
{
    const lvn_lora *lora = trainer->lora;
    size_t tensors = (size_t)lora->layers * LVN_LINEARS * 2;
    struct ggml_init_params params = {.mem_size = lora->count * sizeof(float) + tensors * (ggml_tensor_overhead() + 64)};
    struct ggml_context *meta = ggml_init(params);
    struct gguf_context *gguf = gguf_init_empty();
    gguf_set_val_str(gguf, "general.type", "adapter");
    gguf_set_val_str(gguf, "general.architecture", trainer->weights->architecture);
    gguf_set_val_str(gguf, "adapter.type", "lora");
    gguf_set_val_f32(gguf, "adapter.lora.alpha", lora->alpha);
    float *b = NULL;
    for (int i = 0; i < lora->layers * LVN_LINEARS; i++) {
        const lvn_pair *p = &lora->pairs[i];
        b = lvn_realloc(b, (size_t)lora->rank * (size_t)p->out * sizeof(float));
        transpose(lora->values + p->b, lora->rank, p->out, b);
        add_tensor(gguf, meta, i / LVN_LINEARS, i % LVN_LINEARS, 'a', p->in, lora->rank, lora->values + p->a);
        add_tensor(gguf, meta, i / LVN_LINEARS, i % LVN_LINEARS, 'b', lora->rank, p->out, b);
    }
    free(b);
    char temporary[4096];
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    errno = 0;
    lvn_code code = LVN_OK;
    if (!gguf_write_to_file(gguf, temporary, false) || rename(temporary, path)) {
        if (!errno)
            errno = EIO;
        code = file_error(err, path);
        unlink(temporary);
    }
    gguf_free(gguf);
    ggml_free(meta);
    return code;
}

static lvn_code read_pair(const lvn_trainer *trainer, struct ggml_context *data, int index, float *values, const char *path,
                          lvn_err *err)
{
    const lvn_lora *lora = trainer->lora;
    const lvn_pair *p = &lora->pairs[index];
    char name[96];
    snprintf(name, sizeof(name), "blk.%d.%s.weight.lora_a", index / LVN_LINEARS,
             lvn_linear_gguf_name((lvn_linear)(index % LVN_LINEARS)));
    const struct ggml_tensor *a = ggml_get_tensor(data, name);
    name[strlen(name) - 1] = 'b';
    const struct ggml_tensor *b = ggml_get_tensor(data, name);
    bool fits = a && b && a->type == GGML_TYPE_F32 && b->type == GGML_TYPE_F32 && a->ne[0] == p->in && a->ne[1] == lora->rank &&
                b->ne[0] == lora->rank && b->ne[1] == p->out;
    if (!fits)
        return lvn_fail(err, LVN_INVALID, "%s: %s is missing or has another shape (rank %d, F32 expected)", path, name, lora->rank);
    memcpy(values + p->a, a->data, ggml_nbytes(a));
    transpose(b->data, p->out, lora->rank, values + p->b);
    return LVN_OK;
}

lvn_code lvn_trainer_load_gguf(lvn_trainer *trainer, const char *path, lvn_err *err)
{
    lvn_lora *lora = trainer->lora;
    if (access(path, R_OK))
        return file_error(err, path);
    struct ggml_context *data = NULL;
    struct gguf_init_params params = {.no_alloc = false, .ctx = &data};
    struct gguf_context *gguf = gguf_init_from_file(path, params);
    if (!gguf)
        return lvn_fail(err, LVN_INVALID, "%s: not a GGUF file", path);
    float *values = lvn_alloc(lora->count * sizeof(float));
    lvn_code code = LVN_OK;
    for (int i = 0; i < lora->layers * LVN_LINEARS && !code; i++)
        code = read_pair(trainer, data, i, values, path, err);
    int64_t key = gguf_find_key(gguf, "adapter.lora.alpha");
    if (!code && (key < 0 || gguf_get_val_f32(gguf, key) != lora->alpha))
        code = lvn_fail(err, LVN_INVALID, "%s: its alpha is not %g", path, (double)lora->alpha);
    if (!code) {
        memcpy(lora->values, values, lora->count * sizeof(float));
        lvn_trainer_reset_optimizer(trainer);
        lvn_trainer_zero_grad(trainer);
        lvn_decoder_touch(trainer->decoder);
    }
    free(values);
    gguf_free(gguf);
    ggml_free(data);
    return code;
}

/* ---- PEFT ---- */

/* Row of GGUF's matrix that holds Hugging Face's row `row` of a head of `dim` rows: GGUF interleaves the two halves. */
static int gguf_row(int row, int dim)
{
    int head = row / dim, in_head = row % dim, half = dim / 2;
    return head * dim + (in_head < half ? in_head * 2 : (in_head - half) * 2 + 1);
}

/* B as PEFT has it: (out, rank). */
static void hf_b(const lvn_trainer *trainer, int linear, const lvn_pair *p, float *out)
{
    const lvn_lora *lora = trainer->lora;
    bool is_permuted = !trainer->weights->dims.rotates_halves && (linear == LVN_Q || linear == LVN_K);
    for (int row = 0; row < p->out; row++) {
        int from = is_permuted ? gguf_row(row, trainer->weights->dims.head_dim) : row;
        for (int k = 0; k < lora->rank; k++)
            out[(size_t)row * (size_t)lora->rank + (size_t)k] = lora->values[p->b + (size_t)k * (size_t)p->out + (size_t)from];
    }
}

static void write_header(lvn_buf *b, int layer, int linear, char which, int rows, int cols, size_t *offset)
{
    size_t end = *offset + (size_t)rows * (size_t)cols * sizeof(float);
    lvn_buf_printf(b, "%s\"base_model.model.model.layers.%d.%s.lora_%c.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
                      "\"data_offsets\":[%zu,%zu]}",
                   b->len > 1 ? "," : "", layer, lvn_linear_hf_name((lvn_linear)linear), which, rows, cols, *offset, end);
    *offset = end;
}

/* safetensors: the header's length, the header, the tensors. */
static lvn_code save_tensors(const lvn_trainer *trainer, const char *path, lvn_err *err)
{
    const lvn_lora *lora = trainer->lora;
    lvn_buf header;
    lvn_buf_init(&header, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&header, '{');
    float *data = lvn_alloc(lora->count * sizeof(float));
    size_t offset = 0, at = 0;
    for (int i = 0; i < lora->layers * LVN_LINEARS; i++) {
        const lvn_pair *p = &lora->pairs[i];
        size_t a_count = (size_t)lora->rank * (size_t)p->in, b_count = (size_t)lora->rank * (size_t)p->out;
        write_header(&header, i / LVN_LINEARS, i % LVN_LINEARS, 'A', lora->rank, p->in, &offset);
        write_header(&header, i / LVN_LINEARS, i % LVN_LINEARS, 'B', p->out, lora->rank, &offset);
        memcpy(data + at, lora->values + p->a, a_count * sizeof(float));
        hf_b(trainer, i % LVN_LINEARS, p, data + at + a_count);
        at += a_count + b_count;
    }
    lvn_buf_append_char(&header, '}');
    while (header.len % 8)
        lvn_buf_append_char(&header, ' ');
    uint64_t length = header.len;
    const part parts[] = {{&length, sizeof(length)}, {header.ptr, header.len}, {data, lora->count * sizeof(float)}};
    lvn_code code = write_file(path, parts, 3, err);
    free(data);
    lvn_buf_done(&header);
    return code;
}

lvn_code lvn_trainer_save_peft(const lvn_trainer *trainer, const char *folder, const char *base_model_name, lvn_err *err)
{
    char path[4096];
    if (mkdir(folder, 0755) && errno != EEXIST)
        return file_error(err, folder);
    lvn_buf config;
    lvn_buf_init(&config, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&config, "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"base_model_name_or_path\":");
    lvn_json_write_str(&config, lvn_str_of(base_model_name));
    lvn_buf_printf(&config, ",\"r\":%d,\"lora_alpha\":%g,\"lora_dropout\":0.0,\"bias\":\"none\",\"fan_in_fan_out\":false,"
                            "\"inference_mode\":true,\"target_modules\":[\"q_proj\",\"k_proj\",\"v_proj\",\"o_proj\","
                            "\"gate_proj\",\"up_proj\",\"down_proj\"]}\n",
                   trainer->lora->rank, (double)trainer->lora->alpha);
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    const part text = {config.ptr, config.len};
    lvn_code code = write_file(path, &text, 1, err);
    lvn_buf_done(&config);
    if (code)
        return code;
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
    return save_tensors(trainer, path, err);
}

/* ---- state ---- */

typedef struct state_header {
    char magic[8];
    int64_t rank, count, steps;
    double alpha;
} state_header;

static const char state_magic[8] = {'L', 'V', 'N', 'S', 'T', 'A', 'T', '1'};

lvn_code lvn_trainer_save_state(const lvn_trainer *trainer, const char *path, lvn_err *err)
{
    const lvn_lora *lora = trainer->lora;
    state_header header = {.rank = lora->rank, .count = (int64_t)lora->count, .steps = trainer->steps, .alpha = (double)lora->alpha};
    memcpy(header.magic, state_magic, sizeof(state_magic));
    size_t bytes = lora->count * sizeof(float);
    const part parts[] = {{&header, sizeof(header)}, {lora->values, bytes}, {lora->moment1, bytes}, {lora->moment2, bytes}};
    return write_file(path, parts, 4, err);
}

lvn_code lvn_trainer_load_state(lvn_trainer *trainer, const char *path, lvn_err *err)
{
    lvn_lora *lora = trainer->lora;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return file_error(err, path);
    state_header h;
    size_t bytes = lora->count * sizeof(float);
    float *data = lvn_alloc(3 * bytes);
    lvn_code code = LVN_OK;
    if (fread(&h, sizeof(h), 1, file) != 1 || memcmp(h.magic, state_magic, sizeof(h.magic)))
        code = lvn_fail(err, LVN_INVALID, "%s: not a trainer's state", path);
    else if (h.rank != lora->rank || h.count != (int64_t)lora->count || h.alpha != (double)lora->alpha)
        code = lvn_fail(err, LVN_INVALID, "%s: of another shape (rank %ld, alpha %g)", path, (long)h.rank, h.alpha);
    else if (fread(data, bytes, 3, file) != 3)
        code = lvn_fail(err, LVN_INVALID, "%s: cut off", path);
    fclose(file);
    if (!code) {
        memcpy(lora->values, data, bytes);
        memcpy(lora->moment1, data + lora->count, bytes);
        memcpy(lora->moment2, data + 2 * lora->count, bytes);
        trainer->steps = h.steps;
        lvn_trainer_zero_grad(trainer);
        lvn_decoder_touch(trainer->decoder);
    }
    free(data);
    return code;
}
