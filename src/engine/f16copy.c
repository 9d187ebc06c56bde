#include "engine/f16copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <gguf.h>
#include <llama.h>

#include "base/log.h"

static lvn_code make_folders(lvn_arena *arena, const char *path, lvn_err *err)
{
    char *part = (char *)lvn_arena_dup(arena, lvn_str_of(path)).ptr;
    for (char *slash = part + 1;; slash++) {
        char c = *slash;
        if (c && c != '/')
            continue;
        *slash = '\0';
        if (mkdir(part, 0755) && errno != EEXIST)
            return lvn_fail(err, errno == ENOSPC ? LVN_FULL : LVN_IO, "%s: %s", part, strerror(errno));
        if (!c)
            return LVN_OK;
        *slash = c;
    }
}

/* Whether the weights are floats already; LVN_INVALID when it is no GGUF. */
static lvn_code look(const char *path, bool *is_float, size_t *out_f16_bytes, lvn_err *err)
{
    char magic[4] = "";
    FILE *file = fopen(path, "rbe");
    if (!file)
        return lvn_fail(err, errno == ENOENT ? LVN_NOT_FOUND : LVN_IO, "%s: %s", path, strerror(errno));
    bool is_gguf = fread(magic, 4, 1, file) == 1 && !memcmp(magic, "GGUF", 4);
    fclose(file);
    struct ggml_context *meta = NULL;
    struct gguf_init_params params = {.no_alloc = true, .ctx = &meta};
    struct gguf_context *gguf = is_gguf ? gguf_init_from_file(path, params) : NULL;
    if (!gguf)
        return lvn_fail(err, LVN_INVALID, "%s: not a GGUF file", path);
    *is_float = true;
    *out_f16_bytes = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(meta); t; t = ggml_get_next_tensor(meta, t)) {
        *is_float = *is_float && (t->type == GGML_TYPE_F32 || t->type == GGML_TYPE_F16 || t->type == GGML_TYPE_BF16);
        *out_f16_bytes += (size_t)ggml_nelements(t) * 2;
    }
    gguf_free(gguf);
    ggml_free(meta);
    return LVN_OK;
}

static lvn_code make_copy(const char *from, const char *to, size_t bytes, int threads, lvn_arena *arena, const char *cache_dir,
                          lvn_err *err)
{
    struct statvfs space;
    if (statvfs(cache_dir, &space) == 0 && (uint64_t)space.f_bavail * space.f_frsize < bytes + (16u << 20))
        return lvn_fail(err, LVN_FULL, "%s: no room for the F16 copy of the model (%zu MB)", cache_dir, bytes >> 20);
    const char *temporary = lvn_arena_printf(arena, "%s.%ld", to, (long)getpid()).ptr;
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = LLAMA_FTYPE_MOSTLY_F16;
    params.allow_requantize = true;
    params.nthread = threads;
    lvn_log(LVN_INFO, "f16_copy", "path=%s", to);
    if (llama_model_quantize(from, temporary, &params) || rename(temporary, to)) {
        unlink(temporary);
        return lvn_fail(err, LVN_IO, "%s: the F16 copy could not be made", to);
    }
    return LVN_OK;
}

lvn_code lvn_f16_copy(lvn_arena *arena, const char *model_path, const char *cache_dir, int threads, const char **out, lvn_err *err)
{
    bool is_float = true;
    size_t bytes = 0;
    struct stat info;
    lvn_code code = look(model_path, &is_float, &bytes, err);
    if (code)
        return code;
    *out = model_path;
    if (is_float)
        return LVN_OK;
    code = make_folders(arena, cache_dir, err);
    if (code)
        return code;
    if (stat(model_path, &info))
        return lvn_fail(err, LVN_IO, "%s: %s", model_path, strerror(errno));
    const char *slash = strrchr(model_path, '/');
    /* Size and time tie the copy to the file it was made from. */
    *out = lvn_arena_printf(arena, "%s/%s.%ld.%ld.f16.gguf", cache_dir, slash ? slash + 1 : model_path, (long)info.st_size,
                            (long)info.st_mtime)
               .ptr;
    if (access(*out, R_OK) == 0)
        return LVN_OK;
    return make_copy(model_path, *out, bytes, threads, arena, cache_dir, err);
}
