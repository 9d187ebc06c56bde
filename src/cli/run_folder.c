#include "cli/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"

/* ---- files ---- */

const char *lvn_run_path(lvn_arena *arena, const char *run, const char *format, ...)
{
    char part[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof(part), format, args);
    va_end(args);
    return lvn_arena_printf(arena, "%s/%s", run, part).ptr;
}

static lvn_code io_error(lvn_err *err, const char *path)
{
    lvn_code code = errno == ENOSPC || errno == EDQUOT ? LVN_FULL : errno == ENOENT ? LVN_NOT_FOUND : LVN_IO;
    return lvn_fail(err, code, "%s: %s", path, strerror(errno));
}

lvn_code lvn_write_whole(const char *path, lvn_str text, lvn_err *err)
{
    char temporary[4096];
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return io_error(err, temporary);
    bool is_good = true;
    for (size_t at = 0; at < text.len && is_good;) {
        ssize_t put = write(fd, text.ptr + at, text.len - at);
        if (put < 0 && errno == EINTR)
            continue;
        is_good = put >= 0;
        at += is_good ? (size_t)put : 0;
    }
    is_good = is_good && fsync(fd) == 0;
    lvn_code code = is_good ? LVN_OK : io_error(err, path);
    close(fd);
    if (is_good && rename(temporary, path))
        code = io_error(err, path);
    if (code)
        unlink(temporary);
    return code;
}

lvn_code lvn_read_whole(lvn_arena *arena, const char *path, size_t max_bytes, lvn_str *out, lvn_err *err)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return io_error(err, path);
    struct stat info;
    lvn_code code = fstat(fileno(file), &info) ? io_error(err, path) : LVN_OK;
    if (!code && (info.st_size < 0 || (uint64_t)info.st_size > max_bytes))
        code = lvn_fail(err, LVN_TOO_LARGE, "%s: larger than %zu bytes", path, max_bytes);
    if (!code) {
        char *text = lvn_arena_alloc(arena, (size_t)info.st_size + 1);
        size_t got = fread(text, 1, (size_t)info.st_size, file);
        text[got] = '\0';
        *out = (lvn_str){text, got};
    }
    fclose(file);
    return code;
}

/* ---- the folder ---- */

static lvn_code make_folder(const char *path, lvn_err *err)
{
    return mkdir(path, 0755) && errno != EEXIST ? io_error(err, path) : LVN_OK;
}

static lvn_code make_parents(const char *path, lvn_err *err)
{
    char part[4096];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        lvn_code code = make_folder(part, err);
        if (code)
            return code;
        *slash = '/';
    }
    return make_folder(part, err);
}

static lvn_code take_lock(lvn_arena *arena, lvn_run_folder *folder, lvn_err *err)
{
    const char *path = lvn_run_path(arena, folder->path, "lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return io_error(err, path);
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        char owner[64] = "";
        ssize_t got = read(fd, owner, sizeof(owner) - 1);
        owner[got > 0 ? got : 0] = '\0';
        owner[strcspn(owner, "\n")] = '\0';
        close(fd);
        return lvn_fail(err, LVN_CONFLICT, "%s: process %s is working on this run; stop it or choose another --run",
                        folder->path, owner);
    }
    if (ftruncate(fd, 0) || dprintf(fd, "%ld\n", (long)getpid()) < 0)
        lvn_log(LVN_WARN, "lock_not_named", "path=%s", path);
    folder->lock_fd = fd;
    return LVN_OK;
}

static lvn_code check_space(const char *path, uint64_t need_bytes, lvn_err *err)
{
    struct statvfs space;
    if (statvfs(path, &space))
        return io_error(err, path);
    uint64_t free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    if (free_bytes >= need_bytes)
        return LVN_OK;
    return lvn_fail(err, LVN_FULL, "%s: %lu MB are free, a run needs %lu MB; make room or choose another --run", path,
                    (unsigned long)(free_bytes >> 20), (unsigned long)(need_bytes >> 20));
}

lvn_code lvn_run_folder_open(lvn_arena *arena, const char *path, bool is_resume, uint64_t need_bytes, lvn_run_folder *out,
                             lvn_err *err)
{
    static const char *const parts[] = {"logs", "state", "policy", "checkpoints"};
    bool exists = access(lvn_run_path(arena, path, "config.json"), F_OK) == 0;
    if (exists && !is_resume)
        return lvn_fail(err, LVN_CONFLICT, "%s: there is a run already; say --resume to go on with it, or choose another --run",
                        path);
    if (!exists && is_resume)
        return lvn_fail(err, LVN_NOT_FOUND, "%s: no run to resume there", path);
    lvn_code code = make_parents(path, err);
    if (code)
        return code;
    char *resolved = realpath(path, NULL);
    if (!resolved)
        return io_error(err, path);
    *out = (lvn_run_folder){.path = lvn_arena_dup(arena, lvn_str_of(resolved)).ptr, .lock_fd = -1};
    free(resolved);
    code = check_space(out->path, need_bytes, err);
    if (!code)
        code = take_lock(arena, out, err);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && !code; i++)
        code = make_folder(lvn_run_path(arena, out->path, "%s", parts[i]), err);
    if (code)
        lvn_run_folder_close(out);
    return code;
}

void lvn_run_folder_close(lvn_run_folder *folder)
{
    if (folder->lock_fd >= 0)
        close(folder->lock_fd);
    folder->lock_fd = -1;
}

/* ---- configuration ---- */

lvn_code lvn_run_save_config(const char *run, const lvn_train_options *options, lvn_err *err)
{
    size_t count;
    const lvn_option *table = lvn_train_option_table(&count);
    lvn_arena *arena = lvn_arena_new(0);
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_options_write_json(table, count, options, &text);
    lvn_buf_append_char(&text, '\n');
    lvn_code code = lvn_write_whole(lvn_run_path(arena, run, "config.json"), lvn_buf_str(&text), err);
    lvn_buf_done(&text);
    lvn_arena_free(arena);
    return code;
}

static lvn_code apply_member(lvn_arena *arena, const lvn_json_member *m, lvn_train_options *options, lvn_err *err)
{
    size_t count;
    const lvn_option *table = lvn_train_option_table(&count);
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_buf_append_str(&text, m->key);
    lvn_buf_append_char(&text, '=');
    if (m->value.kind == LVN_JSON_STRING)
        lvn_buf_append_str(&text, m->value.string);
    else
        lvn_json_write(&text, &m->value);
    lvn_code code = lvn_options_set(table, count, arena, lvn_buf_str(&text).ptr, options, err);
    lvn_buf_done(&text);
    return code;
}

lvn_code lvn_run_load_config(lvn_arena *arena, const char *run, lvn_train_options *options, lvn_err *err)
{
    size_t count;
    const lvn_option *table = lvn_train_option_table(&count);
    lvn_options_default(table, count, arena, options);
    const char *path = lvn_run_path(arena, run, "config.json");
    lvn_str text;
    lvn_json value;
    lvn_code code = lvn_read_whole(arena, path, 1 << 20, &text, err);
    if (code)
        return code == LVN_NOT_FOUND ? lvn_fail(err, code, "%s: not the folder of a run (no config.json)", run) : code;
    if (lvn_json_parse(arena, text, &value, NULL, err) || value.kind != LVN_JSON_OBJECT)
        return lvn_fail(err, LVN_INVALID, "%s: damaged", path);
    for (size_t i = 0; i < value.object.count; i++) {
        code = apply_member(arena, &value.object.members[i], options, err);
        if (code)
            return lvn_fail_context(err, "%s", path);
    }
    return LVN_OK;
}

/* ---- progress ---- */

static void state_name(char *out, size_t size, const lvn_progress *p)
{
    snprintf(out, size, "trainer-%ld-%ld.state", (long)p->sft_done, (long)p->grpo_done);
}

static void remove_other_states(const char *run, const char *keep)
{
    char folder[4096], path[8192];
    snprintf(folder, sizeof(folder), "%s/state", run);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "trainer-", 8) || !strcmp(e->d_name, keep))
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
}

static void write_progress(lvn_buf *b, const lvn_progress *p)
{
    const struct { const char *key; int64_t value; } ints[] = {
        {"sft_done", p->sft_done}, {"grpo_done", p->grpo_done}, {"version", p->version}, {"best_version", p->best_version},
        {"is_base_measured", p->is_base_measured}, {"is_sft_measured", p->is_sft_measured}, {"is_complete", p->is_complete},
    };
    lvn_buf_append_char(b, '{');
    for (size_t i = 0; i < sizeof(ints) / sizeof(*ints); i++) {
        lvn_json_write_key(b, ints[i].key);
        lvn_json_write_int(b, ints[i].value);
    }
    lvn_json_write_key(b, "best_score");
    lvn_json_write_double(b, p->best_score);
    lvn_json_write_key(b, "seconds");
    lvn_json_write_double(b, p->seconds);
    lvn_buf_lit(b, "}\n");
}

lvn_code lvn_run_save_progress(const char *run, const lvn_progress *progress, const lvn_trainer *trainer, lvn_err *err)
{
    char name[128];
    state_name(name, sizeof(name), progress);
    lvn_arena *arena = lvn_arena_new(0);
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    write_progress(&text, progress);
    lvn_code code = lvn_trainer_save_state(trainer, lvn_run_path(arena, run, "state/%s", name), err);
    if (!code)
        code = lvn_write_whole(lvn_run_path(arena, run, "state/progress.json"), lvn_buf_str(&text), err);
    if (!code)
        remove_other_states(run, name);
    lvn_buf_done(&text);
    lvn_arena_free(arena);
    return code;
}

static void read_progress(const lvn_json *v, lvn_progress *p)
{
    *p = (lvn_progress){
        .sft_done = lvn_json_get_int(v, "sft_done", 0),
        .grpo_done = lvn_json_get_int(v, "grpo_done", 0),
        .version = lvn_json_get_int(v, "version", 0),
        .best_version = lvn_json_get_int(v, "best_version", -1),
        .is_base_measured = lvn_json_get_int(v, "is_base_measured", 0) != 0,
        .is_sft_measured = lvn_json_get_int(v, "is_sft_measured", 0) != 0,
        .is_complete = lvn_json_get_int(v, "is_complete", 0) != 0,
        .best_score = lvn_json_get_number(v, "best_score", -1),
        .seconds = lvn_json_get_number(v, "seconds", 0),
    };
}

lvn_code lvn_run_load_progress(const char *run, lvn_progress *progress, lvn_trainer *trainer, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(0);
    lvn_str text;
    lvn_json value;
    *progress = (lvn_progress){.best_score = -1, .best_version = -1};
    lvn_code code = lvn_read_whole(arena, lvn_run_path(arena, run, "state/progress.json"), 1 << 16, &text, err);
    if (code == LVN_NOT_FOUND)
        code = LVN_EMPTY;
    if (!code)
        code = lvn_json_parse(arena, text, &value, NULL, err);
    if (!code) {
        char name[128];
        read_progress(&value, progress);
        state_name(name, sizeof(name), progress);
        if (trainer)
            code = lvn_trainer_load_state(trainer, lvn_run_path(arena, run, "state/%s", name), err);
    }
    lvn_arena_free(arena);
    return code;
}

/* ---- checkpoints ---- */

static lvn_code point_link(lvn_arena *arena, const char *run, const char *name, const char *target, lvn_err *err)
{
    const char *path = lvn_run_path(arena, run, "checkpoints/%s", name);
    const char *temporary = lvn_run_path(arena, run, "checkpoints/.%s", name);
    unlink(temporary);
    if (symlink(target, temporary) || rename(temporary, path))
        return io_error(err, path);
    return LVN_OK;
}

lvn_code lvn_run_save_checkpoint(const char *run, int64_t version, bool is_best, const lvn_trainer *trainer, const char *base_name,
                                 lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(0);
    const char *folder = lvn_run_path(arena, run, "checkpoints/v%ld", (long)version);
    lvn_code code = make_folder(folder, err);
    if (!code)
        code = lvn_trainer_save_gguf(trainer, lvn_run_path(arena, folder, "adapter.gguf"), err);
    if (!code)
        code = lvn_trainer_save_peft(trainer, lvn_run_path(arena, folder, "peft"), base_name, err);
    const char *name = strrchr(folder, '/') + 1;
    if (!code)
        code = point_link(arena, run, "last", name, err);
    if (!code && is_best)
        code = point_link(arena, run, "best", name, err);
    lvn_arena_free(arena);
    return code;
}

lvn_code lvn_run_find_adapter(lvn_arena *arena, const char *run, const char *which, const char **out, lvn_err *err)
{
    if (!strcmp(which, "base")) {
        *out = "";
        return LVN_OK;
    }
    bool is_number = *which && strspn(which, "0123456789") == strlen(which);
    *out = is_number                                          ? lvn_run_path(arena, run, "checkpoints/v%s/adapter.gguf", which)
           : !strcmp(which, "best") || !strcmp(which, "last") ? lvn_run_path(arena, run, "checkpoints/%s/adapter.gguf", which)
                                                              : which;
    if (access(*out, R_OK) == 0)
        return LVN_OK;
    return lvn_fail(err, LVN_NOT_FOUND, "%s: no such checkpoint; say best, last, base, a version below %s/checkpoints, or a file",
                    *out, run);
}
