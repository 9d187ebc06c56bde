/* Task sets: what agents are asked to do. A task is a JSON object; Levin looks at few of its fields.
 *
 * Files are JSON Lines (an object a line), or a JSON array of objects as Spider's own files are. For tasks over databases the
 * loader fills in what is missing: `sqlite` (made absolute; else database/<db_id>/<db_id>.sqlite below the folder) and `ddl`
 * (CREATE TABLE statements in short form). The fields named as hidden are kept from the agent. */
#ifndef LVN_DATA_DATASET_H
#define LVN_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

typedef struct lvn_task {
    lvn_str id;       /* field `id`, else "<file>:<line>" */
    lvn_str input;    /* JSON: what the agent gets */
    lvn_str metadata; /* JSON object: {"task_id": .., and the hidden fields and `sqlite`, for the scorer} */
    lvn_str db_id;    /* absent when the task has none */
    lvn_json value;   /* all fields */
} lvn_task;

typedef struct lvn_dataset {
    lvn_task *tasks;
    size_t count;
} lvn_dataset;

typedef struct lvn_dataset_config {
    const char *folder;   /* paths in tasks are relative to it, and `file` too unless absolute */
    const char *hidden;   /* fields beside gold_sql that the agent must not see, with commas between; NULL: none */
    bool needs_sql;       /* every task must have a readable database and a gold_sql */
    bool one_table;       /* keep questions whose gold reads one table, and show that table alone */
    bool with_joins;      /* keep tasks marked "joins": true */
    const lvn_dataset *not_databases_of[3]; /* leave out tasks whose db_id occurs there; NULL: none */
    int64_t limit;        /* 0: all; else so many, drawn by `seed` */
    uint64_t seed;
} lvn_dataset_config;

/* Everything lives in `arena`. LVN_NOT_FOUND: no such file or database; LVN_INVALID: a line that is no JSON object (message has
 * file and line), a task without what it needs, or no task at all. */
lvn_code lvn_dataset_load(lvn_arena *arena, const lvn_dataset_config *config, const char *file, lvn_dataset *out,
                          lvn_err *err) LVN_MUST_USE;

/* Replaces {field} in `pattern` by the task's field (text as it is, other kinds as JSON; "{{" is a brace).
 * LVN_INVALID: no such field. */
lvn_code lvn_task_format(lvn_arena *arena, const lvn_task *task, const char *pattern, lvn_str *out, lvn_err *err) LVN_MUST_USE;

/* One blank between words and none before commas or inside parentheses, outside quoted text: the shortest spelling of the
 * same query, which is the easiest to learn. */
lvn_str lvn_sql_tidy(lvn_arena *arena, lvn_str sql);

#endif
