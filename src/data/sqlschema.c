#include "data/sqlschema.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <strings.h>

#include "base/buf.h"

enum { MAX_TABLES = 64 };

static lvn_code open_database(const char *path, sqlite3 **out, lvn_err *err)
{
    if (sqlite3_open_v2(path, out, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_exec(*out, "SELECT 1 FROM sqlite_master", NULL, NULL, NULL) == SQLITE_OK)
        return LVN_OK;
    lvn_fail(err, LVN_NOT_FOUND, "%s: %s", path, sqlite3_errmsg(*out));
    sqlite3_close(*out);
    *out = NULL;
    return LVN_NOT_FOUND;
}

typedef struct table_list {
    lvn_arena *arena;
    lvn_str items[MAX_TABLES];
    size_t count;
} table_list;

static bool has_table(const table_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcasecmp(list->items[i].ptr, name))
            return true;
    return false;
}

static int note_table(void *user, int action, const char *table, const char *column, const char *database,
                      const char *trigger)
{
    (void)column, (void)database, (void)trigger;
    table_list *list = user;
    if (action == SQLITE_READ && table && *table && list->count < MAX_TABLES && !has_table(list, table))
        list->items[list->count++] = lvn_arena_dup(list->arena, lvn_str_of(table));
    return SQLITE_OK;
}

lvn_code lvn_sql_tables(lvn_arena *arena, const char *database, lvn_str sql, lvn_str **out, size_t *out_count, lvn_err *err)
{
    sqlite3 *db;
    lvn_code code = open_database(database, &db, err);
    if (code)
        return code;
    table_list list = {.arena = arena};
    sqlite3_set_authorizer(db, note_table, &list);
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(db, sql.ptr, (int)sql.len, &statement, NULL) != SQLITE_OK)
        code = lvn_fail(err, LVN_INVALID, "%s: %s", database, sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    sqlite3_close(db);
    if (code)
        return code;
    *out = lvn_arena_array(arena, list.count, sizeof(lvn_str));
    for (size_t i = 0; i < list.count; i++)
        (*out)[i] = list.items[i];
    *out_count = list.count;
    return LVN_OK;
}

/* A declared type as a short word, by SQLite's own rule of affinity, dates as text. */
static const char *short_type(const char *declared)
{
    static const struct { const char *part, *name; } rules[] = {
        {"int", "INT"}, {"char", "TEXT"}, {"text", "TEXT"}, {"clob", "TEXT"}, {"date", "TEXT"}, {"time", "TEXT"},
        {"real", "REAL"}, {"floa", "REAL"}, {"doub", "REAL"}, {"num", "REAL"}, {"dec", "REAL"}, {"year", "INT"},
        {"bool", "INT"},
    };
    for (size_t i = 0; declared && i < sizeof(rules) / sizeof(*rules); i++)
        if (strcasestr(declared, rules[i].part))
            return rules[i].name;
    return "TEXT";
}

static bool needs_quotes(const char *name)
{
    if (!*name || (*name >= '0' && *name <= '9'))
        return true;
    for (const char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *c))
            return true;
    return sqlite3_keyword_check(name, (int)strlen(name));
}

static void write_name(lvn_buf *out, const char *name)
{
    lvn_buf_printf(out, needs_quotes(name) ? "\"%s\"" : "%s", name);
}

static lvn_code write_table(sqlite3 *db, const char *table, lvn_buf *out, lvn_err *err)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, "SELECT name, type FROM pragma_table_info(?1)", -1, &statement, NULL) != SQLITE_OK)
        return lvn_fail(err, LVN_IO, "%s", sqlite3_errmsg(db));
    sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
    lvn_buf_lit(out, "CREATE TABLE ");
    write_name(out, table);
    const char *separator = " (";
    while (sqlite3_step(statement) == SQLITE_ROW) {
        lvn_buf_append_str(out, lvn_str_of(separator));
        write_name(out, (const char *)sqlite3_column_text(statement, 0));
        lvn_buf_printf(out, " %s", short_type((const char *)sqlite3_column_text(statement, 1)));
        separator = ", ";
    }
    lvn_buf_append_char(out, ')');
    sqlite3_finalize(statement);
    return LVN_OK;
}

static bool is_wanted(const lvn_str *only, size_t count, const char *table)
{
    for (size_t i = 0; i < count; i++)
        if (!strcasecmp(only[i].ptr, table))
            return true;
    return count == 0;
}

lvn_code lvn_sql_ddl(lvn_arena *arena, const char *database, const lvn_str *only, size_t only_count, size_t max_bytes,
                     lvn_str *out, lvn_err *err)
{
    sqlite3 *db;
    lvn_code code = open_database(database, &db, err);
    if (code)
        return code;
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    sqlite3_stmt *statement = NULL;
    sqlite3_prepare_v2(db, "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
                       -1, &statement, NULL);
    while (!code && statement && sqlite3_step(statement) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(statement, 0);
        if (!is_wanted(only, only_count, table))
            continue;
        if (text.len)
            lvn_buf_append_char(&text, '\n');
        code = write_table(db, table, &text, err);
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    lvn_str whole = lvn_buf_str(&text);
    if (whole.len > max_bytes)
        whole.len = max_bytes;
    *out = lvn_arena_dup(arena, whole);
    lvn_buf_done(&text);
    return code;
}
