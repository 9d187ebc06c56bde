/* Execution match: runs gold and prediction on a database that nothing can write to, and compares.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/clock.h"
#include "base/map.h"
#include "reward/reward.h"
#include "reward/sql_result.h"
#include "reward/sql_text.h"

enum {
    MAX_OPEN = 64,
    MAX_GOLD_BYTES = 32 << 20,
    PROGRESS_OPS = 2000, /* of SQLite's machine between looks at the clock; some 20 microseconds */
};

typedef struct gold_entry gold_entry;
struct gold_entry {
    gold_entry *next;
    lvn_str text;
    lvn_sql_gold *gold;
};

typedef struct database database;
struct database {
    database *next; /* most recently used first */
    char *path;
    sqlite3 *handle;
    int64_t deadline_ns;
    bool is_late;
    lvn_map golds; /* text as run -> gold_entry */
    size_t gold_bytes;
};

struct lvn_sql_scorer {
    lvn_sql_exec_config config;
    database *databases;
};

lvn_sql_scorer *lvn_sql_scorer_new(const lvn_sql_exec_config *config)
{
    lvn_sql_scorer *scorer = lvn_zalloc(sizeof(*scorer));
    if (config != NULL)
        scorer->config = *config;
    lvn_sql_exec_config *c = &scorer->config;
    c->time_limit_ms = c->time_limit_ms > 0 ? c->time_limit_ms : 5000;
    c->max_rows = c->max_rows > 0 ? c->max_rows : 200000;
    c->max_bytes = c->max_bytes > 0 ? c->max_bytes : (size_t)64 << 20;
    return scorer;
}

static void forget_golds(database *db)
{
    lvn_str text;
    void *value;
    for (size_t i = 0; lvn_map_next(&db->golds, &i, &text, &value);) {
        gold_entry *entry = value;
        lvn_sql_gold_free(entry->gold);
        free((char *)entry->text.ptr);
        free(entry);
    }
    lvn_map_done(&db->golds);
    lvn_map_init(&db->golds);
    db->gold_bytes = 0;
}

static database *database_close(database *db)
{
    if (db == NULL)
        return NULL;
    forget_golds(db);
    lvn_map_done(&db->golds);
    sqlite3_close_v2(db->handle);
    free(db->path);
    free(db);
    return NULL;
}

lvn_sql_scorer *lvn_sql_scorer_free(lvn_sql_scorer *scorer)
{
    if (scorer == NULL)
        return NULL;
    for (database *db = scorer->databases; db != NULL;) {
        database *next = db->next;
        database_close(db);
        db = next;
    }
    free(scorer);
    return NULL;
}

/* Reading is allowed, with the pragmas that only describe a table; all else is refused, whatever it
 * is. */
static int authorise(void *unused, int action, const char *first, const char *second,
                     const char *schema, const char *trigger)
{
    static const char *const pragmas[] = {"table_info", "table_xinfo", "index_list",
                                          "index_info", "index_xinfo", "foreign_key_list",
                                          "table_list"};
    (void)unused, (void)schema, (void)trigger;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        return second && sqlite3_stricmp(second, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
    case SQLITE_UPDATE: /* asked when json_each or pragma_... declares its columns; on a real table
                           it can't be run */
        return first && strcmp(first, "sqlite_master") == 0 ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_PRAGMA:
        for (size_t i = 0; first && i < sizeof(pragmas) / sizeof(pragmas[0]); i++)
            if (sqlite3_stricmp(first, pragmas[i]) == 0)
                return SQLITE_OK;
        return SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

static int look_at_clock(void *user)
{
    database *db = user;
    db->is_late = lvn_clock_monotonic_ns() > db->deadline_ns;
    return db->is_late;
}

/* The path as a URI. `immutable` spares the locks and works in a folder that can't be written; but
 * it would not see what is still in a write-ahead log. */
static char *database_uri(const char *path)
{
    static const char hex[] = "0123456789ABCDEF";
    const size_t length = strlen(path);
    char *uri = lvn_alloc(length * 3 + 64);
    struct stat log;
    size_t len = 0;
    memcpy(uri, "file:", 5);
    len = 5;
    for (const char *p = path; *p != '\0'; p++) {
        if (*p == '?' || *p == '#' || *p == '%') {
            uri[len++] = '%';
            uri[len++] = hex[(unsigned char)*p >> 4];
            uri[len++] = hex[*p & 15];
        } else {
            uri[len++] = *p;
        }
    }
    char *log_path = lvn_alloc(length + 5);
    memcpy(log_path, path, length);
    memcpy(log_path + length, "-wal", 5);
    const bool has_log = stat(log_path, &log) == 0 && log.st_size > 0;
    free(log_path);
    const char *query = has_log ? "?mode=ro" : "?mode=ro&immutable=1";
    memcpy(uri + len, query, strlen(query) + 1);
    return uri;
}

static void configure(database *db, const lvn_sql_exec_config *config)
{
    int is_on;
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DQS_DML, 1, &is_on);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DQS_DDL, 1, &is_on);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, &is_on);
    sqlite3_limit(db->handle, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(db->handle, SQLITE_LIMIT_LENGTH,
                  config->max_bytes > 1u << 30 ? 1 << 30 : (int)config->max_bytes);
    sqlite3_set_authorizer(db->handle, authorise, NULL);
    sqlite3_progress_handler(db->handle, PROGRESS_OPS, look_at_clock, db);
}

static lvn_code database_open(const lvn_sql_exec_config *config, const char *path, database **out,
                              lvn_err *err)
{
    struct stat file;
    if (stat(path, &file) != 0)
        return lvn_fail(err, LVN_NOT_FOUND, "no database at %s", path);
    database *db = lvn_zalloc(sizeof(*db));
    lvn_map_init(&db->golds);
    db->path = lvn_strdup(path);
    char *uri = database_uri(path);
    const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    const int rc = sqlite3_open_v2(uri, &db->handle, flags, NULL);
    free(uri);
    if (rc != SQLITE_OK) {
        const lvn_code code =
            lvn_fail(err, LVN_IO, "%s can't be opened: %s", path, sqlite3_errstr(rc));
        database_close(db);
        return code;
    }
    configure(db, config);
    *out = db;
    return LVN_OK;
}

/* The open database, moved to the front; the one that was used longest ago goes when there are too
 * many. */
static lvn_code use_database(lvn_sql_scorer *scorer, const char *path, database **out, lvn_err *err)
{
    database **link = &scorer->databases, **last = NULL;
    size_t count = 0;
    for (; *link != NULL && strcmp((*link)->path, path) != 0; link = &(*link)->next, count++)
        last = link;
    database *db = *link;
    if (db != NULL) {
        *link = db->next;
    } else {
        const lvn_code code = database_open(&scorer->config, path, &db, err);
        if (code != LVN_OK)
            return code;
        if (count >= MAX_OPEN)
            *last = database_close(*last);
    }
    db->next = scorer->databases;
    scorer->databases = db;
    *out = db;
    return LVN_OK;
}

/* Makes room for gold results before one more is computed. */
static void limit_golds(lvn_sql_scorer *scorer)
{
    size_t bytes = 0;
    for (const database *db = scorer->databases; db != NULL; db = db->next)
        bytes += db->gold_bytes;
    if (bytes <= MAX_GOLD_BYTES)
        return;
    for (database *db = scorer->databases; db != NULL; db = db->next)
        forget_golds(db);
}

/* What SQLite left unread, without white space and comments: Python refuses to run a text with
 * anything there. */
static bool has_more(const char *tail, const char *end)
{
    while (tail < end) {
        if (strchr(" \t\f\n\r", *tail) != NULL && *tail != '\0') {
            tail++;
        } else if (end - tail >= 2 && tail[0] == '-' && tail[1] == '-') {
            const char *newline = memchr(tail, '\n', (size_t)(end - tail));
            tail = newline ? newline + 1 : end;
        } else if (end - tail >= 2 && tail[0] == '/' && tail[1] == '*') {
            const char *close = memmem(tail + 2, (size_t)(end - tail) - 2, "*/", 2);
            tail = close ? close + 2 : end;
        } else {
            return true;
        }
    }
    return false;
}

static lvn_code sqlite_failure(database *db, const lvn_sql_exec_config *config, lvn_err *err)
{
    const int rc = sqlite3_errcode(db->handle);
    if (db->is_late)
        return lvn_fail(err, LVN_TIMEOUT, "over the time limit of %lld ms",
                        (long long)config->time_limit_ms);
    if (rc == SQLITE_AUTH)
        return lvn_fail(err, LVN_INVALID, "not allowed: the query may only read this database (%s)",
                        sqlite3_errmsg(db->handle));
    return lvn_fail(err, LVN_INVALID, "%s", sqlite3_errmsg(db->handle));
}

static void statement_cleanup(sqlite3_stmt **statement)
{
    sqlite3_finalize(*statement);
}

/* Compiles one statement under Python's rules. NULL in *out: there is nothing to run (only
 * comments), and no rows. */
static lvn_code compile(database *db, const lvn_sql_exec_config *config, lvn_str query,
                        sqlite3_stmt **out, lvn_err *err)
{
    const char *tail = NULL;
    db->deadline_ns = lvn_clock_monotonic_ns() + config->time_limit_ms * LVN_NS_PER_MS;
    db->is_late = false;
    *out = NULL;
    if (memchr(query.ptr, '\0', query.len) != NULL)
        return lvn_fail(err, LVN_INVALID, "the query contains a null character");
    if (query.len > (size_t)sqlite3_limit(db->handle, SQLITE_LIMIT_SQL_LENGTH, -1))
        return lvn_fail(err, LVN_INVALID, "query string is too large");
    if (sqlite3_prepare_v2(db->handle, query.ptr, (int)query.len, out, &tail) != SQLITE_OK)
        return sqlite_failure(db, config, err);
    if (has_more(tail, query.ptr + query.len))
        return lvn_fail(err, LVN_INVALID, "You can only execute one statement at a time.");
    if (*out != NULL && sqlite3_bind_parameter_count(*out) > 0)
        return lvn_fail(
            err, LVN_INVALID, "the query has a parameter (%s) that nothing gives a value to",
            sqlite3_bind_parameter_name(*out, 1) ? sqlite3_bind_parameter_name(*out, 1) : "?");
    return LVN_OK;
}

/* Python's bytes.decode(errors="ignore"). Copies only when something must go. */
static lvn_str valid_utf8(lvn_arena *scratch, lvn_str text)
{
    uint32_t code;
    size_t good = 0;
    const unsigned char *p = (const unsigned char *)text.ptr;
    for (size_t n;
         good < text.len && (n = lvn_sql_utf8_length(p + good, text.len - good, &code)) > 0;)
        good += n;
    if (good == text.len)
        return text;
    char *out = lvn_arena_alloc(scratch, text.len);
    size_t len = good;
    memcpy(out, text.ptr, good);
    for (size_t i = good; i < text.len;) {
        const size_t n = lvn_sql_utf8_length(p + i, text.len - i, &code);
        memcpy(out + len, p + i, n);
        len += n;
        i += n ? n : 1;
    }
    return (lvn_str){out, len};
}

/* False when the value could not be had (out of memory). */
static bool read_value(sqlite3_stmt *statement, int column, lvn_arena *scratch, lvn_sql_value *out)
{
    *out = (lvn_sql_value){.type = LVN_SQL_NULL};
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        out->type = LVN_SQL_INT;
        out->integer = sqlite3_column_int64(statement, column);
        return true;
    case SQLITE_FLOAT:
        out->type = LVN_SQL_FLOAT;
        out->number = sqlite3_column_double(statement, column);
        return true;
    case SQLITE_NULL:
        return true;
    default:
        break;
    }
    out->type = sqlite3_column_type(statement, column) == SQLITE_TEXT ? LVN_SQL_TEXT : LVN_SQL_BLOB;
    const char *bytes = out->type == LVN_SQL_TEXT
                            ? (const char *)sqlite3_column_text(statement, column)
                            : sqlite3_column_blob(statement, column);
    const size_t length = (size_t)sqlite3_column_bytes(statement, column);
    if (bytes == NULL && length > 0)
        return false;
    out->bytes = (lvn_str){bytes ? bytes : "", length};
    if (out->type == LVN_SQL_TEXT)
        out->bytes = valid_utf8(scratch, out->bytes);
    return sqlite3_errcode(sqlite3_db_handle(statement)) != SQLITE_NOMEM;
}

/* Calls `take` with each row until it says false. */
static lvn_code for_each_row(database *db, const lvn_sql_exec_config *config,
                             sqlite3_stmt *statement,
                             bool (*take)(void *user, const lvn_sql_value *row), void *user,
                             lvn_err *err)
{
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *scratch = lvn_arena_new(0);
    const int columns = sqlite3_column_count(statement);
    lvn_sql_value *row = lvn_arena_array(arena, (size_t)columns + 1, sizeof(*row));
    int rc;
    while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
        lvn_arena_reset(scratch);
        for (int c = 0; c < columns; c++)
            if (!read_value(statement, c, scratch, &row[c]))
                return lvn_fail(err, LVN_NO_MEMORY, "out of memory");
        if (!take(user, row))
            return LVN_OK;
        /* The handler counts steps of SQLite's machine, of which a cheap row takes few. */
        if (look_at_clock(db))
            return sqlite_failure(db, config, err);
    }
    return rc == SQLITE_DONE ? LVN_OK : sqlite_failure(db, config, err);
}

typedef struct gold_taker {
    const lvn_sql_exec_config *config;
    lvn_sql_gold *gold;
    bool is_too_large;
} gold_taker;

static bool take_gold_row(void *user, const lvn_sql_value *row)
{
    gold_taker *taker = user;
    lvn_sql_gold_add_row(taker->gold, row);
    taker->is_too_large = lvn_sql_gold_rows(taker->gold) > taker->config->max_rows ||
                          lvn_sql_gold_bytes(taker->gold) > taker->config->max_bytes;
    return !taker->is_too_large;
}

/* The gold's result, from before or run now. It belongs to the database and lives until the next
 * call. */
static lvn_code get_gold(database *db, const lvn_sql_exec_config *config, lvn_str query,
                         lvn_sql_gold **out, lvn_err *err)
{
    const gold_entry *known = lvn_map_get(&db->golds, query);
    if (known != NULL) {
        *out = known->gold;
        return LVN_OK;
    }
    LVN_CLEANUP(statement_cleanup) sqlite3_stmt *statement = NULL;
    lvn_code code = compile(db, config, query, &statement, err);
    if (code != LVN_OK)
        return code;
    gold_taker taker = {config, lvn_sql_gold_new((size_t)sqlite3_column_count(statement)), false};
    if (statement != NULL)
        code = for_each_row(db, config, statement, take_gold_row, &taker, err);
    if (code == LVN_OK && taker.is_too_large)
        code = lvn_fail(err, LVN_TOO_LARGE, "the result has over %zu rows or %zu bytes",
                        config->max_rows, config->max_bytes);
    if (code != LVN_OK) {
        lvn_sql_gold_free(taker.gold);
        return code;
    }
    gold_entry *entry = lvn_zalloc(sizeof(*entry));
    char *text = lvn_alloc(query.len + 1);
    memcpy(text, query.ptr, query.len);
    entry->text = (lvn_str){text, query.len};
    entry->gold = taker.gold;
    lvn_map_put(&db->golds, entry->text, entry);
    db->gold_bytes += lvn_sql_gold_bytes(entry->gold) + query.len;
    *out = entry->gold;
    return LVN_OK;
}

typedef struct answer_taker {
    lvn_sql_answer *answer;
    size_t columns;
    bool is_different;
} answer_taker;

static bool take_answer_row(void *user, const lvn_sql_value *row)
{
    answer_taker *taker = user;
    taker->is_different = !lvn_sql_answer_add_row(taker->answer, row, taker->columns);
    return !taker->is_different;
}

static lvn_code compare(database *db, const lvn_sql_exec_config *config, lvn_str query,
                        const lvn_sql_gold *gold, bool order_matters, double *out_score,
                        lvn_err *err)
{
    LVN_CLEANUP(statement_cleanup) sqlite3_stmt *statement = NULL;
    lvn_code code = compile(db, config, query, &statement, err);
    if (code != LVN_OK)
        return code;
    answer_taker taker = {lvn_sql_answer_new(gold), (size_t)sqlite3_column_count(statement), false};
    if (statement != NULL)
        code = for_each_row(db, config, statement, take_answer_row, &taker, err);
    if (code == LVN_OK && !taker.is_different) {
        const int64_t deadline = lvn_clock_monotonic_ns() + config->time_limit_ms * LVN_NS_PER_MS;
        const lvn_sql_verdict verdict = lvn_sql_answer_match(taker.answer, order_matters, deadline);
        *out_score = verdict == LVN_SQL_EQUAL ? 1 : 0;
        if (verdict == LVN_SQL_TOO_HARD)
            code = lvn_fail(err, LVN_TIMEOUT, "comparing the columns took over %lld ms",
                            (long long)config->time_limit_ms);
    }
    lvn_sql_answer_free(taker.answer);
    return code;
}

static void say_why(lvn_sql_exec_result *out, const lvn_err *why)
{
    size_t len = strnlen(why->message, sizeof(out->error) - 1);
    memcpy(out->error, why->message, len);
    out->error[len] = '\0';
    uint32_t code;
    /* A message that was cut may end inside a character. */
    for (size_t back = 1; back <= 3 && back <= len && len == sizeof(out->error) - 1; back++) {
        const unsigned char *p = (const unsigned char *)out->error + len - back;
        if ((*p & 0xc0) == 0xc0) {
            if (lvn_sql_utf8_length(p, back, &code) != back)
                out->error[len - back] = '\0';
            break;
        }
    }
}

lvn_code lvn_sql_scorer_score(lvn_sql_scorer *scorer, const char *sqlite_path, lvn_str pred,
                              lvn_str gold, lvn_sql_exec_result *out, lvn_err *err)
{
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    const lvn_sql_exec_config *config = &scorer->config;
    database *db;
    const lvn_code opened = use_database(scorer, sqlite_path, &db, err);
    if (opened != LVN_OK)
        return opened;
    limit_golds(scorer);
    *out = (lvn_sql_exec_result){0};
    lvn_err why = {0};
    lvn_str text;
    lvn_sql_gold *expected = NULL;
    lvn_code code = lvn_sql_text_prepare(arena, gold, config->keep_distinct, &text, &why);
    const bool order_matters = code == LVN_OK && lvn_sql_text_orders(text);
    if (code == LVN_OK)
        code = get_gold(db, config, lvn_sql_text_fix_year(arena, text), &expected, &why);
    out->gold_failed = code != LVN_OK;
    if (code == LVN_OK)
        code = lvn_sql_text_prepare(arena, pred, config->keep_distinct, &text, &why);
    if (code == LVN_OK)
        code = compare(db, config, lvn_sql_text_fix_year(arena, text), expected, order_matters,
                       &out->score, &why);
    if (code != LVN_OK) {
        out->timed_out = code == LVN_TIMEOUT && !out->gold_failed;
        say_why(out, &why);
    }
    return LVN_OK;
}

lvn_code lvn_reward_sql_exec(const lvn_sql_exec_config *config, const char *sqlite_path,
                             lvn_str pred, lvn_str gold, lvn_sql_exec_result *out, lvn_err *err)
{
    lvn_sql_scorer *scorer = lvn_sql_scorer_new(config);
    const lvn_code code = lvn_sql_scorer_score(scorer, sqlite_path, pred, gold, out, err);
    lvn_sql_scorer_free(scorer);
    return code;
}
