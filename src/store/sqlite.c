/* The SQLite backend: one file in WAL mode, one transaction a batch, durable at commit (synchronous=FULL unless relaxed). The file is
 * locked for as long as it is open: two servers never share it by accident. */
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "store/backend.h"

enum { SCHEMA_VERSION = 2, APPLICATION_ID = 0x4c76696e /* "Lvin" */ };

typedef enum statement {
    BEGIN, COMMIT, ROLLBACK, PUT_ROLLOUT, PUT_ATTEMPT, PUT_WORKER, PUT_RESOURCES, PUT_QUEUED, DROP_QUEUED, PUT_COUNTER,
    ADD_SPAN, GET_SPANS, PUT_KEY, PUT_SPAN_TOTALS, STATEMENT_COUNT
} statement;

static const char *const texts[STATEMENT_COUNT] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [PUT_ROLLOUT] = "INSERT OR REPLACE INTO rollouts(place, rollout_id, input, start_time, end_time, mode, resources_id, status, "
                    "timeout_seconds, unresponsive_seconds, max_attempts, retry_condition, metadata, has_finished_once) "
                    "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)",
    [PUT_ATTEMPT] = "INSERT OR REPLACE INTO attempts(rollout_id, sequence_id, attempt_id, start_time, end_time, status, worker_id, "
                    "last_heartbeat_time, metadata) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)",
    [PUT_WORKER] = "INSERT OR REPLACE INTO workers(place, worker_id, status, heartbeat_stats, last_heartbeat_time, last_dequeue_time, "
                   "last_busy_time, last_idle_time, current_rollout_id, current_attempt_id) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)",
    [PUT_RESOURCES] = "INSERT OR REPLACE INTO resources(place, touched, resources_id, create_time, update_time, version, resources) "
                      "VALUES(?1,?2,?3,?4,?5,?6,?7)",
    [PUT_QUEUED] = "INSERT INTO queue(place, rollout_id) VALUES(?1,?2)",
    [DROP_QUEUED] = "DELETE FROM queue WHERE place=?1",
    [PUT_COUNTER] = "INSERT OR REPLACE INTO counters(rollout_id, value) VALUES(?1,?2)",
    [ADD_SPAN] = "INSERT INTO spans(rollout_id, attempt_id, span_id, sequence_id, trace_id, parent_id, name, start_time, end_time, "
                 "status, rest) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)",
    [GET_SPANS] = "SELECT attempt_id, span_id, sequence_id, trace_id, parent_id, name, start_time, end_time, status, rest "
                  "FROM spans WHERE rollout_id=?1 ORDER BY place",
    [PUT_KEY] = "INSERT INTO enqueue_keys(key, digest, first, count) VALUES(?1,?2,?3,?4)",
    [PUT_SPAN_TOTALS] = "UPDATE span_totals SET count=?1, bytes=?2",
};

/* Version 1. What came later is in `migrations`, which a new file goes through as well. */
static const char schema[] =
    "CREATE TABLE rollouts(place INTEGER PRIMARY KEY, rollout_id TEXT NOT NULL UNIQUE, input TEXT, start_time REAL, end_time REAL,"
    " mode TEXT, resources_id TEXT, status TEXT NOT NULL, timeout_seconds REAL, unresponsive_seconds REAL,"
    " max_attempts INTEGER NOT NULL, retry_condition TEXT NOT NULL, metadata TEXT, has_finished_once INTEGER NOT NULL);"
    "CREATE TABLE attempts(rollout_id TEXT NOT NULL, sequence_id INTEGER NOT NULL, attempt_id TEXT NOT NULL, start_time REAL,"
    " end_time REAL, status TEXT NOT NULL, worker_id TEXT, last_heartbeat_time REAL, metadata TEXT,"
    " PRIMARY KEY(rollout_id, sequence_id)) WITHOUT ROWID;"
    "CREATE TABLE workers(place INTEGER PRIMARY KEY, worker_id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, heartbeat_stats TEXT,"
    " last_heartbeat_time REAL, last_dequeue_time REAL, last_busy_time REAL, last_idle_time REAL, current_rollout_id TEXT,"
    " current_attempt_id TEXT);"
    "CREATE TABLE resources(place INTEGER PRIMARY KEY, touched INTEGER NOT NULL, resources_id TEXT NOT NULL UNIQUE,"
    " create_time REAL, update_time REAL, version INTEGER NOT NULL, resources TEXT NOT NULL);"
    "CREATE TABLE queue(place INTEGER PRIMARY KEY, rollout_id TEXT NOT NULL);"
    "CREATE TABLE counters(rollout_id TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE spans(place INTEGER PRIMARY KEY, rollout_id TEXT NOT NULL, attempt_id TEXT NOT NULL, span_id TEXT NOT NULL,"
    " sequence_id INTEGER NOT NULL, trace_id TEXT, parent_id TEXT, name TEXT, start_time REAL, end_time REAL, status INTEGER,"
    " rest TEXT NOT NULL);"
    "CREATE UNIQUE INDEX spans_key ON spans(rollout_id, attempt_id, span_id);";

/* [n] leads from version n to n + 1. */
static const char *const migrations[SCHEMA_VERSION] = {
    [1] = "CREATE TABLE enqueue_keys(key TEXT PRIMARY KEY, digest INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL)"
          " WITHOUT ROWID;"
          "CREATE TABLE span_totals(count INTEGER NOT NULL, bytes INTEGER NOT NULL);" /* counting them takes as long as reading them all */
          "INSERT INTO span_totals SELECT count(*), coalesce(sum(length(CAST(rest AS BLOB))), 0) FROM spans;",
};

typedef struct span_totals {
    int64_t count, bytes;
} span_totals;

typedef struct sqlite_backend {
    lvn_backend base;
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    char *path;
    span_totals totals, committed; /* with and without the transaction that is open */
} sqlite_backend;

/* ---- errors ---- */

static lvn_code db_error(const sqlite_backend *b, lvn_err *err)
{
    int code = sqlite3_errcode(b->db);
    /* A quota and a limit on the file's size come as failed writes; SQLite no longer knows why. */
    if (code == SQLITE_FULL || sqlite3_extended_errcode(b->db) == SQLITE_IOERR_WRITE)
        return lvn_fail(err, LVN_FULL, "%s: can't grow: no space left on the disk?", b->path);
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return lvn_fail(err, LVN_CONFLICT, "%s: another process has this store open", b->path);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return lvn_fail(err, LVN_INVALID, "%s: damaged or not a store: %s", b->path, sqlite3_errmsg(b->db));
    return lvn_fail(err, LVN_IO, "%s: %s", b->path, sqlite3_errmsg(b->db));
}

static lvn_code run_sql(sqlite_backend *b, const char *sql, lvn_err *err)
{
    return sqlite3_exec(b->db, sql, NULL, NULL, NULL) == SQLITE_OK ? LVN_OK : db_error(b, err);
}

/* ---- binding and reading; an absent text is NULL, a null time is NULL ---- */

static void bind_text(sqlite3_stmt *s, int at, lvn_str text)
{
    if (lvn_str_is_absent(text))
        sqlite3_bind_null(s, at);
    else
        sqlite3_bind_text64(s, at, text.ptr, text.len, SQLITE_STATIC, SQLITE_UTF8);
}

/* SQLite stores NaN as NULL by itself, and an integer that a client gave as a time comes back as the same double. */
static void bind_time(sqlite3_stmt *s, int at, double t)
{
    sqlite3_bind_double(s, at, t);
}

static lvn_str column_text(sqlite3_stmt *s, int at)
{
    const char *text = (const char *)sqlite3_column_text(s, at);
    return text ? (lvn_str){text, (size_t)sqlite3_column_bytes(s, at)} : LVN_STR_ABSENT;
}

static double column_time(sqlite3_stmt *s, int at)
{
    return sqlite3_column_type(s, at) == SQLITE_NULL ? LVN_TIME_NULL : sqlite3_column_double(s, at);
}

/* Runs a statement that gives no rows and makes it ready for the next time. */
static lvn_code step(sqlite_backend *b, statement which, lvn_err *err)
{
    sqlite3_stmt *s = b->statements[which];
    lvn_code code = sqlite3_step(s) == SQLITE_DONE ? LVN_OK : db_error(b, err);
    sqlite3_reset(s);
    return code;
}

/* ---- transactions ---- */

static lvn_code begin(lvn_backend *base, lvn_err *err)
{
    return step((sqlite_backend *)base, BEGIN, err);
}

static void rollback(lvn_backend *base)
{
    sqlite_backend *b = (sqlite_backend *)base;
    lvn_err err;
    if (!sqlite3_get_autocommit(b->db) && step(b, ROLLBACK, &err))
        lvn_log(LVN_ERROR, "store_rollback_failed", "error=\"%s\"", err.message);
    b->totals = b->committed;
}

static lvn_code commit(lvn_backend *base, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    lvn_code code = LVN_OK;
    if (b->totals.count != b->committed.count) {
        sqlite3_bind_int64(b->statements[PUT_SPAN_TOTALS], 1, b->totals.count);
        sqlite3_bind_int64(b->statements[PUT_SPAN_TOTALS], 2, b->totals.bytes);
        code = step(b, PUT_SPAN_TOTALS, err);
    }
    if (!code)
        code = step(b, COMMIT, err); /* the caller rolls back when it fails */
    if (!code)
        b->committed = b->totals;
    return code;
}

/* ---- rows ---- */

static lvn_str retry_text(const lvn_rollout_config *config, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < config->retry_count && len + 1 < size; i++)
        out[len++] = (char)('0' + config->retry_condition[i]);
    return (lvn_str){out, len};
}

static lvn_code put_rollout(lvn_backend *base, const lvn_rollout *r, int64_t order, bool has_finished_once, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_stmt *s = b->statements[PUT_ROLLOUT];
    char *retry = lvn_alloc(r->config.retry_count + 2);
    sqlite3_bind_int64(s, 1, order);
    bind_text(s, 2, r->rollout_id);
    bind_text(s, 3, r->input);
    bind_time(s, 4, r->start_time);
    bind_time(s, 5, r->end_time);
    bind_text(s, 6, lvn_str_of(lvn_mode_name(r->mode)));
    bind_text(s, 7, r->resources_id);
    bind_text(s, 8, lvn_str_of(lvn_rollout_status_name(r->status)));
    bind_time(s, 9, r->config.timeout_seconds);
    bind_time(s, 10, r->config.unresponsive_seconds);
    sqlite3_bind_int64(s, 11, r->config.max_attempts);
    bind_text(s, 12, retry_text(&r->config, retry, r->config.retry_count + 2));
    bind_text(s, 13, r->metadata);
    sqlite3_bind_int(s, 14, has_finished_once);
    lvn_code code = step(b, PUT_ROLLOUT, err);
    free(retry);
    return code;
}

static lvn_code put_attempt(lvn_backend *base, const lvn_attempt *a, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_stmt *s = b->statements[PUT_ATTEMPT];
    bind_text(s, 1, a->rollout_id);
    sqlite3_bind_int64(s, 2, a->sequence_id);
    bind_text(s, 3, a->attempt_id);
    bind_time(s, 4, a->start_time);
    bind_time(s, 5, a->end_time);
    bind_text(s, 6, lvn_str_of(lvn_attempt_status_name(a->status)));
    bind_text(s, 7, a->worker_id);
    bind_time(s, 8, a->last_heartbeat_time);
    bind_text(s, 9, a->metadata);
    return step(b, PUT_ATTEMPT, err);
}

static lvn_code put_worker(lvn_backend *base, const lvn_worker *w, int64_t order, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_stmt *s = b->statements[PUT_WORKER];
    sqlite3_bind_int64(s, 1, order);
    bind_text(s, 2, w->worker_id);
    bind_text(s, 3, lvn_str_of(lvn_worker_status_name(w->status)));
    bind_text(s, 4, w->heartbeat_stats);
    bind_time(s, 5, w->last_heartbeat_time);
    bind_time(s, 6, w->last_dequeue_time);
    bind_time(s, 7, w->last_busy_time);
    bind_time(s, 8, w->last_idle_time);
    bind_text(s, 9, w->current_rollout_id);
    bind_text(s, 10, w->current_attempt_id);
    return step(b, PUT_WORKER, err);
}

static lvn_code put_resources(lvn_backend *base, const lvn_resources *r, int64_t order, int64_t touched, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_stmt *s = b->statements[PUT_RESOURCES];
    sqlite3_bind_int64(s, 1, order);
    sqlite3_bind_int64(s, 2, touched);
    bind_text(s, 3, r->resources_id);
    bind_time(s, 4, r->create_time);
    bind_time(s, 5, r->update_time);
    sqlite3_bind_int64(s, 6, r->version);
    bind_text(s, 7, r->resources);
    return step(b, PUT_RESOURCES, err);
}

static lvn_code put_queued(lvn_backend *base, lvn_str rollout_id, int64_t place, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_bind_int64(b->statements[PUT_QUEUED], 1, place);
    bind_text(b->statements[PUT_QUEUED], 2, rollout_id);
    return step(b, PUT_QUEUED, err);
}

static lvn_code drop_queued(lvn_backend *base, int64_t place, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_bind_int64(b->statements[DROP_QUEUED], 1, place);
    return step(b, DROP_QUEUED, err);
}

static lvn_code put_counter(lvn_backend *base, lvn_str rollout_id, int64_t value, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    bind_text(b->statements[PUT_COUNTER], 1, rollout_id);
    sqlite3_bind_int64(b->statements[PUT_COUNTER], 2, value);
    return step(b, PUT_COUNTER, err);
}

static lvn_code put_key(lvn_backend *base, const lvn_enqueue_key *key, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_stmt *s = b->statements[PUT_KEY];
    bind_text(s, 1, key->key);
    sqlite3_bind_int64(s, 2, (int64_t)key->digest);
    sqlite3_bind_int64(s, 3, key->first);
    sqlite3_bind_int64(s, 4, key->count);
    return step(b, PUT_KEY, err);
}

static lvn_code add_span(lvn_backend *base, const lvn_span *span, lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_stmt *s = b->statements[ADD_SPAN];
    bind_text(s, 1, span->rollout_id);
    bind_text(s, 2, span->attempt_id);
    bind_text(s, 3, span->span_id);
    sqlite3_bind_int64(s, 4, span->sequence_id);
    bind_text(s, 5, span->trace_id);
    bind_text(s, 6, span->parent_id);
    bind_text(s, 7, span->name);
    bind_time(s, 8, span->start_time);
    bind_time(s, 9, span->end_time);
    sqlite3_bind_int(s, 10, (int)span->status);
    bind_text(s, 11, span->rest);
    int result = sqlite3_step(s);
    lvn_code code = result == SQLITE_DONE                     ? LVN_OK
                    : sqlite3_extended_errcode(b->db) == SQLITE_CONSTRAINT_UNIQUE
                        ? lvn_fail(err, LVN_CONFLICT, "the span is there already")
                        : db_error(b, err);
    sqlite3_reset(s);
    if (!code) {
        b->totals.count++;
        b->totals.bytes += (int64_t)span->rest.len;
    }
    return code;
}

static void read_span(sqlite3_stmt *s, lvn_arena *arena, lvn_str rollout_id, lvn_span *out)
{
    *out = (lvn_span){
        .rollout_id = rollout_id,
        .attempt_id = lvn_arena_dup(arena, column_text(s, 0)),
        .span_id = lvn_arena_dup(arena, column_text(s, 1)),
        .sequence_id = sqlite3_column_int64(s, 2),
        .trace_id = lvn_arena_dup(arena, column_text(s, 3)),
        .parent_id = lvn_arena_dup(arena, column_text(s, 4)),
        .name = lvn_arena_dup(arena, column_text(s, 5)),
        .start_time = column_time(s, 6),
        .end_time = column_time(s, 7),
        .status = (lvn_span_status)sqlite3_column_int(s, 8),
        .rest = lvn_arena_dup(arena, column_text(s, 9)),
    };
}

static lvn_code get_spans(lvn_backend *base, lvn_arena *arena, lvn_str rollout_id, lvn_span **out, size_t *out_count,
                          lvn_err *err)
{
    sqlite_backend *b = (sqlite_backend *)base;
    sqlite3_stmt *s = b->statements[GET_SPANS];
    lvn_str id = lvn_arena_dup(arena, rollout_id);
    lvn_span *items = NULL;
    size_t count = 0, capacity = 0;
    bind_text(s, 1, id);
    int result;
    while ((result = sqlite3_step(s)) == SQLITE_ROW) {
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            lvn_span *grown = lvn_arena_array(arena, capacity, sizeof(*grown));
            if (count)
                memcpy(grown, items, count * sizeof(*grown));
            items = grown;
        }
        read_span(s, arena, id, &items[count++]);
    }
    lvn_code code = result == SQLITE_DONE ? LVN_OK : db_error(b, err);
    sqlite3_reset(s);
    *out = items;
    *out_count = count;
    return code;
}

/* ---- loading ---- */

static int64_t pragma_int(sqlite_backend *b, const char *sql)
{
    sqlite3_stmt *s;
    int64_t value = -1;
    if (sqlite3_prepare_v2(b->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return value;
}

typedef void (*row_fn)(sqlite3_stmt *s, const lvn_loader *loader);

static void load_rollout(sqlite3_stmt *s, const lvn_loader *loader)
{
    uint8_t retry[256];
    lvn_str digits = column_text(s, 11);
    lvn_rollout r = {.rollout_id = column_text(s, 1), .input = column_text(s, 2), .start_time = column_time(s, 3),
                     .end_time = column_time(s, 4), .resources_id = column_text(s, 6), .metadata = column_text(s, 12)};
    lvn_mode_parse(column_text(s, 5), &r.mode);
    lvn_rollout_status_parse(column_text(s, 7), &r.status);
    r.config = (lvn_rollout_config){.timeout_seconds = column_time(s, 8), .unresponsive_seconds = column_time(s, 9),
                                    .max_attempts = sqlite3_column_int64(s, 10)};
    uint8_t *list = digits.len <= sizeof(retry) ? retry : lvn_alloc(digits.len);
    for (size_t i = 0; i < digits.len; i++)
        list[i] = (uint8_t)(digits.ptr[i] - '0');
    r.config.retry_condition = list;
    r.config.retry_count = digits.len;
    loader->rollout(loader->user, &r, sqlite3_column_int64(s, 0), sqlite3_column_int(s, 13) != 0);
    if (list != retry)
        free(list);
}

static void load_attempt(sqlite3_stmt *s, const lvn_loader *loader)
{
    lvn_attempt a = {.rollout_id = column_text(s, 0), .sequence_id = sqlite3_column_int64(s, 1),
                     .attempt_id = column_text(s, 2), .start_time = column_time(s, 3), .end_time = column_time(s, 4),
                     .worker_id = column_text(s, 6), .last_heartbeat_time = column_time(s, 7), .metadata = column_text(s, 8)};
    lvn_attempt_status_parse(column_text(s, 5), &a.status);
    loader->attempt(loader->user, &a);
}

static void load_worker(sqlite3_stmt *s, const lvn_loader *loader)
{
    lvn_worker w = {.worker_id = column_text(s, 1), .heartbeat_stats = column_text(s, 3),
                    .last_heartbeat_time = column_time(s, 4), .last_dequeue_time = column_time(s, 5),
                    .last_busy_time = column_time(s, 6), .last_idle_time = column_time(s, 7),
                    .current_rollout_id = column_text(s, 8), .current_attempt_id = column_text(s, 9)};
    lvn_worker_status_parse(column_text(s, 2), &w.status);
    loader->worker(loader->user, &w, sqlite3_column_int64(s, 0));
}

static void load_resources(sqlite3_stmt *s, const lvn_loader *loader)
{
    lvn_resources r = {.resources_id = column_text(s, 2), .create_time = column_time(s, 3), .update_time = column_time(s, 4),
                       .version = sqlite3_column_int64(s, 5), .resources = column_text(s, 6)};
    loader->resources(loader->user, &r, sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1));
}

static void load_queued(sqlite3_stmt *s, const lvn_loader *loader)
{
    loader->queued(loader->user, column_text(s, 1), sqlite3_column_int64(s, 0));
}

static void load_counter(sqlite3_stmt *s, const lvn_loader *loader)
{
    loader->counter(loader->user, column_text(s, 0), sqlite3_column_int64(s, 1));
}

static void load_key(sqlite3_stmt *s, const lvn_loader *loader)
{
    lvn_enqueue_key key = {column_text(s, 0), (uint64_t)sqlite3_column_int64(s, 1), sqlite3_column_int64(s, 2), sqlite3_column_int64(s, 3)};
    loader->key(loader->user, &key);
}

static void load_spans(sqlite3_stmt *s, const lvn_loader *loader)
{
    loader->spans(loader->user, sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1));
}

static lvn_code load_rows(sqlite_backend *b, const char *sql, row_fn row, const lvn_loader *loader, lvn_err *err)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(b->db, sql, -1, &s, NULL) != SQLITE_OK)
        return db_error(b, err);
    int result;
    while ((result = sqlite3_step(s)) == SQLITE_ROW)
        row(s, loader);
    lvn_code code = result == SQLITE_DONE ? LVN_OK : db_error(b, err);
    sqlite3_finalize(s);
    return code;
}

static lvn_code load(lvn_backend *base, const lvn_loader *loader, lvn_err *err)
{
    static const struct { const char *sql; row_fn row; } parts[] = {
        {"SELECT * FROM rollouts ORDER BY place", load_rollout},
        {"SELECT * FROM attempts ORDER BY rollout_id, sequence_id", load_attempt},
        {"SELECT * FROM workers ORDER BY place", load_worker},
        {"SELECT * FROM resources ORDER BY place", load_resources},
        {"SELECT * FROM queue ORDER BY place", load_queued},
        {"SELECT * FROM counters", load_counter},
        {"SELECT count, bytes FROM span_totals", load_spans},
        {"SELECT * FROM enqueue_keys", load_key},
    };
    sqlite_backend *b = (sqlite_backend *)base;
    b->committed.count = pragma_int(b, "SELECT count FROM span_totals");
    b->committed.bytes = pragma_int(b, "SELECT bytes FROM span_totals");
    b->totals = b->committed;
    lvn_code code = LVN_OK;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && !code; i++)
        code = load_rows(b, parts[i].sql, parts[i].row, loader, err);
    return code;
}

/* ---- opening ---- */

static lvn_code check_schema(sqlite_backend *b, lvn_err *err)
{
    int64_t id = pragma_int(b, "PRAGMA application_id");
    int64_t version = pragma_int(b, "PRAGMA user_version");
    int64_t tables = pragma_int(b, "SELECT count(*) FROM sqlite_master");
    if (id < 0 || version < 0 || tables < 0)
        return db_error(b, err);
    if (id == APPLICATION_ID && version > SCHEMA_VERSION)
        return lvn_fail(err, LVN_INVALID, "%s: made by a newer levin (schema %ld, this one knows %d)", b->path, (long)version,
                        SCHEMA_VERSION);
    if (id != APPLICATION_ID && tables > 0)
        return lvn_fail(err, LVN_INVALID, "%s: a database of another program", b->path);
    if (id == APPLICATION_ID && version == SCHEMA_VERSION)
        return LVN_OK;
    char stamp[96];
    sqlite3_snprintf(sizeof(stamp), stamp, "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION_ID, SCHEMA_VERSION);
    lvn_code code = run_sql(b, "BEGIN", err);
    if (!code && id != APPLICATION_ID) {
        code = run_sql(b, schema, err);
        version = 1;
    }
    for (; !code && version < SCHEMA_VERSION; version++)
        code = run_sql(b, migrations[version], err);
    if (!code)
        code = run_sql(b, stamp, err);
    return code ? code : run_sql(b, "COMMIT", err);
}

static void close_backend(lvn_backend *base)
{
    sqlite_backend *b = (sqlite_backend *)base;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(b->statements[i]);
    sqlite3_close(b->db);
    free(b->path);
    free(b);
}

static const lvn_backend_ops sqlite_ops = {
    .name = "sqlite", .load = load, .begin = begin, .commit = commit, .rollback = rollback, .put_rollout = put_rollout,
    .put_attempt = put_attempt, .put_worker = put_worker, .put_resources = put_resources, .put_queued = put_queued,
    .drop_queued = drop_queued, .put_counter = put_counter, .put_key = put_key, .add_span = add_span, .get_spans = get_spans,
    .close = close_backend,
};

static lvn_code prepare(sqlite_backend *b, lvn_err *err)
{
    for (int i = 0; i < STATEMENT_COUNT; i++)
        if (sqlite3_prepare_v3(b->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &b->statements[i], NULL) != SQLITE_OK)
            return db_error(b, err);
    return LVN_OK;
}

lvn_code lvn_backend_sqlite_open(const char *path, bool is_relaxed, lvn_backend **out, lvn_err *err)
{
    sqlite_backend *b = lvn_zalloc(sizeof(*b));
    b->base.ops = &sqlite_ops;
    b->path = lvn_strdup(path);
    lvn_code code = LVN_OK;
    if (sqlite3_open_v2(path, &b->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        code = db_error(b, err);
    /* Exclusive locking keeps the WAL index in memory and refuses a second opener at its first touch. */
    if (!code)
        code = run_sql(b, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; BEGIN IMMEDIATE; COMMIT;", err);
    if (!code)
        code = run_sql(b, is_relaxed ? "PRAGMA synchronous=NORMAL" : "PRAGMA synchronous=FULL", err);
    if (!code)
        code = check_schema(b, err);
    if (!code)
        code = prepare(b, err);
    if (code) {
        close_backend(&b->base);
        return code;
    }
    *out = &b->base;
    return LVN_OK;
}
