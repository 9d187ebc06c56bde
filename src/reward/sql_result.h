/* Private to reward: results of queries, compared as Spider's official scorer compares them. */
#ifndef LVN_REWARD_SQL_RESULT_H
#define LVN_REWARD_SQL_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"

typedef enum lvn_sql_type {
    LVN_SQL_NULL,
    LVN_SQL_INT,
    LVN_SQL_FLOAT,
    LVN_SQL_TEXT,
    LVN_SQL_BLOB
} lvn_sql_type;

typedef struct lvn_sql_value {
    lvn_sql_type type;
    int64_t integer;
    double number;
    lvn_str bytes; /* text (valid UTF-8) or blob */
} lvn_sql_value;

/* A gold result: rows of cells, and each distinct value once. Values that Python holds for equal (1
 * and 1.0) share a number; a cell is that number and the form it was written in. */
typedef struct lvn_sql_gold lvn_sql_gold;

/* Lives until lvn_sql_gold_free, which takes NULL and returns it. */
lvn_sql_gold *lvn_sql_gold_new(size_t columns);
lvn_sql_gold *lvn_sql_gold_free(lvn_sql_gold *gold);
/* `row` has `columns` values, whose bytes are copied. */
void lvn_sql_gold_add_row(lvn_sql_gold *gold, const lvn_sql_value *row);
size_t lvn_sql_gold_rows(const lvn_sql_gold *gold);
size_t lvn_sql_gold_columns(const lvn_sql_gold *gold);
size_t lvn_sql_gold_bytes(const lvn_sql_gold *gold); /* memory it holds, about */

/* A prediction's result, taken a row at a time against one gold. Adding says false as soon as no
 * match is possible any more; nothing need be added after that. Both calls borrow `gold`, which
 * must outlive the result. */
typedef struct lvn_sql_answer lvn_sql_answer;
lvn_sql_answer *lvn_sql_answer_new(const lvn_sql_gold *gold);
lvn_sql_answer *lvn_sql_answer_free(lvn_sql_answer *answer);
bool lvn_sql_answer_add_row(lvn_sql_answer *answer, const lvn_sql_value *row, size_t columns);

typedef enum lvn_sql_verdict { LVN_SQL_DIFFERENT, LVN_SQL_EQUAL, LVN_SQL_TOO_HARD } lvn_sql_verdict;

/* Whether some order of the answer's columns gives the gold rows: as a list when `order_matters`,
 * else as a multiset. TOO_HARD when that was not settled by `deadline_ns` (monotonic clock). */
lvn_sql_verdict lvn_sql_answer_match(const lvn_sql_answer *answer, bool order_matters,
                                     int64_t deadline_ns);

#endif
