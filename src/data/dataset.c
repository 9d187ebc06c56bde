#include "data/dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/map.h"
#include "data/sqlschema.h"

enum { MAX_FILE_BYTES = 1 << 30, MAX_DDL_BYTES = 2048 };

/* Whether `key` is in a list of names with commas between, or is the gold query, which only the scorer may ever see. */
static bool is_hidden(const char *names, lvn_str key)
{
    if (lvn_str_is(key, "gold_sql"))
        return true;
    for (const char *at = names; at && *at;) {
        at += strspn(at, ", ");
        size_t length = strcspn(at, ", ");
        if (length && lvn_str_eq((lvn_str){at, length}, key))
            return true;
        at += length;
    }
    return false;
}

static lvn_code read_file(lvn_arena *arena, const char *path, lvn_str *out, lvn_err *err)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return lvn_fail(err, LVN_NOT_FOUND, "%s: %s", path, strerror(errno));
    lvn_buf text;
    lvn_buf_init(&text, MAX_FILE_BYTES);
    size_t got;
    do {
        char *room = lvn_buf_reserve(&text, 1 << 16);
        got = room ? fread(room, 1, 1 << 16, file) : 0;
        text.len += got;
    } while (got);
    lvn_code code = LVN_OK;
    if (text.has_failed)
        code = lvn_fail(err, LVN_TOO_LARGE, "%s: larger than 1 GiB", path);
    else if (ferror(file))
        code = lvn_fail(err, LVN_IO, "%s: %s", path, strerror(errno));
    else
        *out = lvn_arena_dup(arena, lvn_buf_str(&text));
    lvn_buf_done(&text);
    fclose(file);
    return code;
}

static void set_field(lvn_arena *arena, lvn_json *object, const char *key, lvn_str value)
{
    lvn_json *old = (lvn_json *)lvn_json_get(object, key);
    if (!old) {
        lvn_json_member *grown = lvn_arena_array(arena, object->object.count + 1, sizeof(*grown));
        if (object->object.count)
            memcpy(grown, object->object.members, object->object.count * sizeof(*grown));
        grown[object->object.count].key = lvn_str_of(key);
        old = &grown[object->object.count].value;
        object->object.members = grown;
        object->object.count++;
    }
    old->kind = LVN_JSON_STRING;
    old->string = value;
}

/* ---- databases ---- */

static lvn_str absolute(lvn_arena *arena, const char *folder, lvn_str path)
{
    lvn_str joined = path.len && path.ptr[0] == '/' ? path
                                                    : lvn_arena_printf(arena, "%s/%.*s", folder, LVN_STR_ARG(path));
    char *resolved = realpath(lvn_arena_dup(arena, joined).ptr, NULL);
    if (!resolved)
        return joined;
    joined = lvn_arena_dup(arena, lvn_str_of(resolved));
    free(resolved);
    return joined;
}

static void complete_database(lvn_arena *arena, const char *folder, lvn_json *task)
{
    lvn_str db_id = lvn_json_get_str(task, "db_id", LVN_STR_ABSENT);
    lvn_str path = lvn_json_get_str(task, "sqlite", LVN_STR_ABSENT);
    if (lvn_str_is_absent(path) && !lvn_str_is_absent(db_id))
        path = lvn_arena_printf(arena, "database/%.*s/%.*s.sqlite", LVN_STR_ARG(db_id), LVN_STR_ARG(db_id));
    if (!lvn_str_is_absent(path))
        set_field(arena, task, "sqlite", absolute(arena, folder, path));
    /* Spider's own files call the gold `query`. */
    lvn_str gold = lvn_json_get_str(task, "gold_sql", lvn_json_get_str(task, "query", LVN_STR_ABSENT));
    if (!lvn_str_is_absent(gold) && !lvn_json_get(task, "gold_sql"))
        set_field(arena, task, "gold_sql", gold);
}

typedef enum verdict { KEEP, DROP } verdict;

/* Adds `ddl` where it is missing and applies one_table. */
static lvn_code complete_schema(lvn_arena *arena, const lvn_dataset_config *config, lvn_json *task, verdict *out, lvn_err *err)
{
    *out = KEEP;
    lvn_str path = lvn_json_get_str(task, "sqlite", LVN_STR_ABSENT);
    lvn_str gold = lvn_json_get_str(task, "gold_sql", LVN_STR_ABSENT);
    if (config->needs_sql) {
        if (lvn_str_is_absent(path) || lvn_str_is_absent(gold))
            return lvn_fail(err, LVN_INVALID, "the task has no %s", lvn_str_is_absent(gold) ? "gold_sql" : "sqlite or db_id");
        if (access(path.ptr, R_OK))
            return lvn_fail(err, LVN_NOT_FOUND, "the task's database %s: %s", path.ptr, strerror(errno));
    }
    bool needs_ddl = !lvn_str_is_absent(path) && !lvn_json_get(task, "ddl") && access(path.ptr, R_OK) == 0;
    lvn_str *tables = NULL;
    size_t count = 0;
    if (config->one_table && needs_ddl) {
        lvn_code code = lvn_sql_tables(arena, path.ptr, gold, &tables, &count, err);
        if (code)
            return code;
        if (count != 1) {
            *out = DROP;
            return LVN_OK;
        }
    }
    if (!needs_ddl)
        return LVN_OK;
    lvn_str ddl;
    lvn_code code = lvn_sql_ddl(arena, path.ptr, tables, count, MAX_DDL_BYTES, &ddl, err);
    if (!code)
        set_field(arena, task, "ddl", ddl);
    return code;
}

/* ---- tasks ---- */

static lvn_str write_part(lvn_arena *arena, const lvn_task *task, const char *hidden, bool for_agent)
{
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&text, '{');
    if (!for_agent) {
        lvn_json_write_key(&text, "task_id");
        lvn_json_write_str(&text, task->id);
    }
    for (size_t i = 0; i < task->value.object.count; i++) {
        const lvn_json_member *m = &task->value.object.members[i];
        bool belongs = for_agent ? !is_hidden(hidden, m->key) : is_hidden(hidden, m->key) || lvn_str_is(m->key, "sqlite");
        if (!belongs)
            continue;
        lvn_json_write_key(&text, m->key.ptr);
        lvn_json_write(&text, &m->value);
    }
    lvn_buf_append_char(&text, '}');
    lvn_str copy = lvn_arena_dup(arena, lvn_buf_str(&text));
    lvn_buf_done(&text);
    return copy;
}

static bool is_excluded(const lvn_map *databases, const lvn_dataset_config *config, const lvn_json *value)
{
    lvn_str db_id = lvn_json_get_str(value, "db_id", LVN_STR_ABSENT);
    if (!lvn_str_is_absent(db_id) && lvn_map_get(databases, db_id))
        return true;
    return !config->with_joins && lvn_json_get_bool(value, "joins", false);
}

typedef struct loader {
    lvn_arena *arena;
    const lvn_dataset_config *config;
    const char *path;
    lvn_map excluded;
    lvn_task *tasks;
    size_t count, capacity;
} loader;

static lvn_code add_task(loader *l, lvn_json *value, size_t line, lvn_err *err)
{
    if (value->kind != LVN_JSON_OBJECT)
        return lvn_fail(err, LVN_INVALID, "%s:%zu: a task must be a JSON object", l->path, line);
    if (is_excluded(&l->excluded, l->config, value))
        return LVN_OK;
    complete_database(l->arena, l->config->folder, value);
    verdict keep;
    lvn_code code = complete_schema(l->arena, l->config, value, &keep, err);
    if (code) {
        lvn_fail_context(err, "%s:%zu", l->path, line);
        return code;
    }
    if (keep == DROP)
        return LVN_OK;
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? l->capacity * 2 : 64;
        l->tasks = lvn_realloc(l->tasks, l->capacity * sizeof(*l->tasks));
    }
    lvn_task *task = &l->tasks[l->count++];
    const char *slash = strrchr(l->path, '/');
    *task = (lvn_task){.value = *value, .db_id = lvn_json_get_str(value, "db_id", LVN_STR_ABSENT)};
    task->id = lvn_json_get_str(value, "id", LVN_STR_ABSENT);
    if (lvn_str_is_absent(task->id))
        task->id = lvn_arena_printf(l->arena, "%s:%zu", slash ? slash + 1 : l->path, line);
    task->input = write_part(l->arena, task, l->config->hidden, true);
    task->metadata = write_part(l->arena, task, l->config->hidden, false);
    return LVN_OK;
}

static lvn_code parse_lines(loader *l, lvn_str text, lvn_err *err)
{
    size_t line = 0;
    for (size_t at = 0; at < text.len;) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        lvn_str row = {text.ptr + at, end ? (size_t)(end - text.ptr) - at : text.len - at};
        at += row.len + 1;
        line++;
        if (strspn(row.ptr, " \t\r") >= row.len)
            continue;
        lvn_json value;
        lvn_err cause;
        if (lvn_json_parse(l->arena, row, &value, NULL, &cause))
            return lvn_fail(err, LVN_INVALID, "%s:%zu: not JSON: %s", l->path, line, cause.message);
        lvn_code code = add_task(l, &value, line, err);
        if (code)
            return code;
    }
    return LVN_OK;
}

static lvn_code parse_array(loader *l, lvn_str text, lvn_err *err)
{
    lvn_json value;
    lvn_err cause;
    if (lvn_json_parse(l->arena, text, &value, NULL, &cause))
        return lvn_fail(err, LVN_INVALID, "%s: not JSON: %s", l->path, cause.message);
    for (size_t i = 0; i < value.array.count; i++) {
        lvn_code code = add_task(l, &value.array.items[i], i + 1, err);
        if (code)
            return code;
    }
    return LVN_OK;
}

/* Draws `limit` tasks without replacement; their order is the draw's. */
static void draw(loader *l, uint64_t seed, size_t limit)
{
    lvn_rng rng = {seed ^ UINT64_C(0x7461736b73)};
    for (size_t i = 0; i < limit; i++) {
        size_t j = i + (size_t)lvn_rng_below(&rng, l->count - i);
        lvn_task moved = l->tasks[i];
        l->tasks[i] = l->tasks[j];
        l->tasks[j] = moved;
    }
    l->count = limit;
}

static lvn_code load(loader *l, lvn_err *err)
{
    lvn_str text;
    lvn_code code = read_file(l->arena, l->path, &text, err);
    if (code)
        return code;
    size_t blanks = strspn(text.ptr, " \t\r\n");
    code = blanks < text.len && text.ptr[blanks] == '[' ? parse_array(l, text, err) : parse_lines(l, text, err);
    if (!code && !l->count)
        code = lvn_fail(err, LVN_INVALID, "%s: no task in it", l->path);
    return code;
}

lvn_code lvn_dataset_load(lvn_arena *arena, const lvn_dataset_config *config, const char *file, lvn_dataset *out, lvn_err *err)
{
    loader l = {.arena = arena, .config = config};
    l.path = *file == '/' ? file : lvn_arena_printf(arena, "%s/%s", *config->folder ? config->folder : ".", file).ptr;
    lvn_map_init(&l.excluded);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; config->not_databases_of[k] && i < config->not_databases_of[k]->count; i++)
            if (!lvn_str_is_absent(config->not_databases_of[k]->tasks[i].db_id))
                lvn_map_put(&l.excluded, config->not_databases_of[k]->tasks[i].db_id, &l);
    lvn_code code = load(&l, err);
    if (!code) {
        if (config->limit > 0 && (size_t)config->limit < l.count)
            draw(&l, config->seed, (size_t)config->limit);
        out->count = l.count;
        out->tasks = lvn_arena_array(arena, l.count, sizeof(lvn_task));
        memcpy(out->tasks, l.tasks, l.count * sizeof(lvn_task));
    }
    free(l.tasks);
    lvn_map_done(&l.excluded);
    return code;
}

static lvn_code write_field(const lvn_task *task, lvn_str name, lvn_buf *text, lvn_err *err)
{
    for (size_t i = 0; i < task->value.object.count; i++) {
        const lvn_json_member *m = &task->value.object.members[i];
        if (!lvn_str_eq(m->key, name))
            continue;
        if (m->value.kind == LVN_JSON_STRING)
            lvn_buf_append_str(text, m->value.string);
        else
            lvn_json_write(text, &m->value);
        return LVN_OK;
    }
    return lvn_fail(err, LVN_INVALID, "task %.*s has no field \"%.*s\"", LVN_STR_ARG(task->id), LVN_STR_ARG(name));
}

lvn_code lvn_task_format(lvn_arena *arena, const lvn_task *task, const char *pattern, lvn_str *out, lvn_err *err)
{
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_code code = LVN_OK;
    for (const char *p = pattern; *p && !code; p++) {
        const char *end = *p == '{' && p[1] != '{' ? strchr(p, '}') : NULL;
        if (end) {
            code = write_field(task, (lvn_str){p + 1, (size_t)(end - p) - 1}, &text, err);
            p = end;
        } else {
            lvn_buf_append_char(&text, *p);
            p += *p == '{' && p[1] == '{';
        }
    }
    if (!code)
        *out = lvn_arena_dup(arena, lvn_buf_str(&text));
    lvn_buf_done(&text);
    return code;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

lvn_str lvn_sql_tidy(lvn_arena *arena, lvn_str sql)
{
    char *out = lvn_arena_alloc(arena, sql.len * 2 + 1);
    size_t len = 0;
    char quote = 0;
    for (size_t i = 0; i < sql.len; i++) {
        char c = sql.ptr[i];
        if (quote) {
            out[len++] = c;
            quote = c == quote ? 0 : quote;
            continue;
        }
        if (is_blank(c)) {
            if (len && out[len - 1] != ' ' && out[len - 1] != '(')
                out[len++] = ' ';
            continue;
        }
        if ((c == ',' || c == ')') && len && out[len - 1] == ' ')
            len--;
        out[len++] = c;
        if (c == ',')
            out[len++] = ' ';
        if (c == '\'' || c == '"')
            quote = c;
    }
    while (len && (out[len - 1] == ' ' || out[len - 1] == ';'))
        len--;
    out[len] = '\0';
    return (lvn_str){out, len};
}
