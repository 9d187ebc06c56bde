/* Private to data: what a task's database looks like. */
#ifndef LVN_DATA_SQLSCHEMA_H
#define LVN_DATA_SQLSCHEMA_H

#include "base/arena.h"
#include "base/err.h"

/* The tables that `sql` reads, each once, in the order SQLite's authorizer names them. LVN_INVALID: it does not compile. */
lvn_code lvn_sql_tables(lvn_arena *arena, const char *database, lvn_str sql, lvn_str **out, size_t *out_count,
                        lvn_err *err) LVN_MUST_USE;

/* CREATE TABLE statements in short form, a line each: of `only` (count 0: of all tables), at most max_bytes long. */
lvn_code lvn_sql_ddl(lvn_arena *arena, const char *database, const lvn_str *only, size_t only_count, size_t max_bytes,
                     lvn_str *out, lvn_err *err) LVN_MUST_USE;

#endif
