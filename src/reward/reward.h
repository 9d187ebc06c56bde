/* Scorers: what an agent's answer is worth.
 *
 * sql_exec: execution match as Spider's official scorer decides it. Prediction and gold run on the
 * task's SQLite database and the results are compared, so that another way to write the same query
 * scores 1.
 *
 * command: any program that reads a task and an output and prints a number. */
#ifndef LVN_REWARD_REWARD_H
#define LVN_REWARD_REWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/* Zero in a field picks its default. */
typedef struct lvn_sql_exec_config {
    int64_t time_limit_ms; /* for each of the two queries and for the comparison; default 5,000 */
    size_t max_rows;       /* of the gold result; default 200,000 */
    size_t max_bytes;      /* of the gold result, and of one value; default 64 MiB */
    bool keep_distinct;    /* false, as the official scorer is usually run: DISTINCT is deleted from
                              both queries */
} lvn_sql_exec_config;

typedef struct lvn_sql_exec_result {
    double score;     /* 1 or 0 */
    bool gold_failed; /* the gold query itself does not run: the task is broken, and the score (0)
                         says nothing */
    bool timed_out;   /* the prediction ran into time_limit_ms */
    char error[256];  /* why prediction or gold did not run; empty when both did. Cut, UTF-8 */
} lvn_sql_exec_result;

/* Keeps databases open and gold results computed, for a caller that scores many answers to the same
 * tasks. Bounded: at most 64 databases, and 32 MiB of gold results plus the one in use. The
 * databases must not change meanwhile. One thread at a time; a thread that scores has its own. */
typedef struct lvn_sql_scorer lvn_sql_scorer;

/* `config` is copied; NULL: all defaults. Never fails. */
lvn_sql_scorer *lvn_sql_scorer_new(const lvn_sql_exec_config *config);
/* NULL is fine. Returns NULL. */
lvn_sql_scorer *lvn_sql_scorer_free(lvn_sql_scorer *scorer);

/* Scores `pred` against `gold` on the database at `sqlite_path`. Blocks up to three times the time
 * limit.
 *
 * The database is opened read-only. A statement that would write, attach, change settings or load
 * code is refused and scores 0 with the reason in out->error; so does any other error of the
 * prediction. Only rows that can still lead to a match are kept, so the prediction's result may be
 * of any size.
 *
 * LVN_OK: *out is filled. LVN_NOT_FOUND: no such database. LVN_IO: it can't be opened. */
lvn_code lvn_sql_scorer_score(lvn_sql_scorer *scorer, const char *sqlite_path, lvn_str pred,
                              lvn_str gold, lvn_sql_exec_result *out, lvn_err *err) LVN_MUST_USE;

/* The same once, with nothing kept. Any thread. */
lvn_code lvn_reward_sql_exec(const lvn_sql_exec_config *config, const char *sqlite_path,
                             lvn_str pred, lvn_str gold, lvn_sql_exec_result *out,
                             lvn_err *err) LVN_MUST_USE;

typedef struct lvn_reward_command_config {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH */
    const char *directory;   /* where it runs; NULL: here */
    int64_t timeout_ms;      /* default 30,000 */
    size_t max_output_bytes; /* of its standard output; default 64 KiB */
} lvn_reward_command_config;

typedef struct lvn_reward_command_result {
    double reward;    /* finite */
    lvn_str feedback; /* from "feedback"; absent when there is none */
} lvn_reward_command_result;

/* Runs the command once for one answer: one line {"task": ..., "output": ...} on its standard
 * input, then end of file. `task` and `output` are JSON texts (put in as they are; absent: null).
 * The last non-empty line of its standard output must be a number or {"reward": number, "feedback":
 * text}. Standard error goes to ours.
 *
 * The command has its own process group, which is killed whole when the call ends, however it ends.
 * Blocks; any thread. out->feedback lives in `arena`.
 *
 * LVN_OK. LVN_NOT_FOUND: it can't be started. LVN_TIMEOUT. LVN_TOO_LARGE: too much output.
 * LVN_INVALID: it failed (exit status, signal) or printed something else. LVN_IO. */
lvn_code lvn_reward_command(const lvn_reward_command_config *config, lvn_arena *arena, lvn_str task,
                            lvn_str output, lvn_reward_command_result *out,
                            lvn_err *err) LVN_MUST_USE;

#endif
