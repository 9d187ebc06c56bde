/* Execution match, rule by rule, on a small database made here; and Spider's published cases where
 * they are at hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "reward/reward.h"

static char folder[] = "/tmp/levin-sql-XXXXXX";
static char database[64];

static const char schema[] =
    "CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, weight REAL, owner INT);"
    "INSERT INTO pet VALUES "
    "(1,'Rex','dog',12.5,1),(2,'Tom','cat',4,1),(3,'Kit','cat',NULL,2),(4,'Ada','dog',30,NULL);"
    "CREATE TABLE odd (v);"
    "INSERT INTO odd VALUES (CAST(x'61ff62' AS TEXT)), (x'6162'), ('ab'), (NULL), "
    "(9007199254740993);"
    "CREATE TABLE flag (a INT, b INT, c INT);"
    "INSERT INTO flag VALUES (0,0,1),(0,1,0),(1,0,0),(1,1,1);"
    "CREATE INDEX by_name ON pet (name);"
    "CREATE VIEW cats AS SELECT * FROM pet WHERE kind = 'cat';";

static int make_database(void **state)
{
    (void)state;
    sqlite3 *handle;
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(database, sizeof(database), "%s/a b#c%%.sqlite", folder);
    const int rc =
        sqlite3_open(database, &handle) || sqlite3_exec(handle, schema, NULL, NULL, NULL);
    return sqlite3_close(handle) || rc;
}

static int remove_database(void **state)
{
    (void)state;
    unlink(database);
    return rmdir(folder);
}

typedef struct rule_case {
    const char *why;
    const char *pred;
    const char *gold;
    int score;
    int score_keep; /* with keep_distinct */
} rule_case;

#define BOTH(n) n, n
static const rule_case cases[] = {
    {"the same text", "SELECT count(*) FROM pet", "SELECT count(*) FROM pet", BOTH(1)},
    {"another way to write it", "SELECT sum(1) FROM pet", "SELECT count(*) FROM pet", BOTH(1)},
    {"another number", "SELECT 5", "SELECT count(*) FROM pet", BOTH(0)},
    {"names of columns play no part", "SELECT name AS n FROM pet", "SELECT name FROM pet", BOTH(1)},
    {"not SQL", "I do not know", "SELECT 1", BOTH(0)},
    {"a fence is not stripped", "```sql\nSELECT 1\n```", "SELECT 1", BOTH(0)},
    {"a trailing semicolon", "SELECT 1 ;", "SELECT 1", BOTH(1)},
    {"two semicolons: SQLite has nothing to run, Python sees more", "SELECT 1;;", "SELECT 1", 1, 0},
    {"a comment before", "-- hi\nSELECT 1", "SELECT 1", BOTH(1)},
    {"a comment behind", "SELECT 1; -- hi", "SELECT 1", BOTH(1)},
    {"a block comment behind", "SELECT 1 /* hi", "SELECT 1", BOTH(1)},
    {"two statements: the first counts, or an error", "SELECT 1; SELECT 2", "SELECT 1", 1, 0},
    {"a semicolon in a literal is no end", "SELECT 'a;b'", "SELECT 'a;b'", BOTH(1)},
    {"a semicolon in parentheses is no end", "SELECT (1; SELECT 2", "SELECT 1", BOTH(0)},
    {"empty prediction", "", "SELECT 1", BOTH(0)},
    {"empty prediction raises, unless DISTINCT is kept", "", "SELECT 1 WHERE 0", 0, 1},
    {"blank prediction", " \n\t", "SELECT 1 WHERE 0", 0, 1},
    {"only a comment: no rows", "-- nothing", "SELECT 1 WHERE 0", BOTH(1)},
    {"only a semicolon: no rows", ";", "SELECT 1 WHERE 0", BOTH(1)},
    {"operators with a space: >=", "SELECT id FROM pet WHERE id > = 3",
     "SELECT id FROM pet WHERE id >= 3", BOTH(1)},
    {"operators with a space: <=", "SELECT id FROM pet WHERE id < = 3",
     "SELECT id FROM pet WHERE id <= 3", BOTH(1)},
    {"operators with a space: !=", "SELECT id FROM pet WHERE id ! = 3",
     "SELECT id FROM pet WHERE id <> 3", BOTH(1)},
    {"operators with two spaces are left alone", "SELECT 2 >  = 1", "SELECT 1", BOTH(0)},
    {"also inside a literal", "SELECT 'a > = b'", "SELECT 'a >= b'", BOTH(1)},
    {"DISTINCT is deleted", "SELECT DISTINCT kind FROM pet", "SELECT kind FROM pet", 1, 0},
    {"in the gold too", "SELECT kind FROM pet", "SELECT DISTINCT kind FROM pet", 1, 0},
    {"inside count", "SELECT count(distinct kind) FROM pet", "SELECT 4", 1, 0},
    {"directly before a parenthesis", "SELECT DISTINCT(kind) FROM pet", "SELECT kind FROM pet", 1,
     0},
    {"not inside a literal", "SELECT 'DISTINCT'", "SELECT 'distinct'", BOTH(0)},
    {"not inside a quoted name", "SELECT 1 AS \"distinct\"", "SELECT 1", BOTH(1)},
    {"not as a part of a word", "SELECT 1 AS distinctly", "SELECT 1", BOTH(1)},
    {"two spaces become one, in literals too", "SELECT 'a  b'", "SELECT 'a b'", 1, 0},
    {"three become two", "SELECT 'a   b'", "SELECT 'a  b'", 0, 0},
    {"the year", "SELECT YEAR(CURDATE())", "SELECT 2020", BOTH(1)},
    {"the year, spread out", "SELECT year ( curdate ( ) )  + 1", "SELECT 2021", BOTH(1)},
    {"the year swallows the space behind", "SELECT 1 WHERE YEAR(CURDATE()) AND 1", "SELECT 1",
     BOTH(0)},
    {"order matters when the gold orders", "SELECT name FROM pet ORDER BY id DESC",
     "SELECT name FROM pet ORDER BY id", BOTH(0)},
    {"and is free otherwise", "SELECT name FROM pet ORDER BY id DESC", "SELECT name FROM pet",
     BOTH(1)},
    {"order in a subquery counts", "SELECT name FROM pet ORDER BY id DESC",
     "SELECT name FROM (SELECT name FROM pet oRdEr By id)", BOTH(0)},
    {"two spaces between: only seen once they are one", "SELECT name FROM pet ORDER BY id DESC",
     "SELECT name FROM pet ORDER  BY id", 0, 1},
    {"even in a literal", "SELECT id FROM pet ORDER BY id DESC",
     "SELECT id FROM pet WHERE 'order by' != ''", BOTH(0)},
    {"columns may be permuted", "SELECT kind, name FROM pet", "SELECT name, kind FROM pet",
     BOTH(1)},
    {"also when order matters", "SELECT kind, id FROM pet ORDER BY id",
     "SELECT id, kind FROM pet ORDER BY id", BOTH(1)},
    {"one column more", "SELECT name, kind, name FROM pet", "SELECT name, kind FROM pet", BOTH(0)},
    {"one column less", "SELECT name FROM pet", "SELECT name, kind FROM pet", BOTH(0)},
    {"fewer rows", "SELECT name FROM pet LIMIT 3", "SELECT name FROM pet", BOTH(0)},
    {"more rows", "SELECT name FROM pet", "SELECT name FROM pet LIMIT 3", BOTH(0)},
    {"a multiset, not a set",
     "SELECT 'cat' UNION ALL SELECT 'cat' UNION ALL SELECT 'dog' UNION ALL SELECT 'cat'",
     "SELECT kind FROM pet", BOTH(0)},
    {"equal columns, other rows: no permutation",
     "SELECT a, b FROM flag WHERE a = b UNION ALL SELECT a, b FROM flag WHERE a = b",
     "SELECT a, b FROM flag", BOTH(0)},
    {"a permutation among equal columns", "SELECT c, a, b FROM flag", "SELECT a, b, c FROM flag",
     BOTH(1)},
    {"no permutation among equal columns", "SELECT a, b, 1 - c FROM flag",
     "SELECT a, b, c FROM flag", BOTH(0)},
    {"empty equals empty, whatever the columns", "SELECT 1, 2, 3 WHERE 0",
     "SELECT name FROM pet WHERE id > 9", BOTH(1)},
    {"one row of NULL is not empty", "SELECT NULL", "SELECT name FROM pet WHERE id > 9", BOTH(0)},
    {"empty is not one row of NULL", "SELECT name FROM pet WHERE id > 9", "SELECT NULL", BOTH(0)},
    {"1 is 1.0", "SELECT 4.0", "SELECT count(*) FROM pet", BOTH(1)},
    {"'4' is not 4", "SELECT '4'", "SELECT count(*) FROM pet", BOTH(0)},
    {"NULL is NULL", "SELECT NULL", "SELECT weight FROM pet WHERE id = 3", BOTH(1)},
    {"NULL is not 0", "SELECT 0", "SELECT NULL", BOTH(0)},
    {"NULL is not ''", "SELECT ''", "SELECT NULL", BOTH(0)},
    {"floats are exact", "SELECT 0.1 + 0.2", "SELECT 0.3", BOTH(0)},
    {"0.0 is -0.0", "SELECT 0.0 * -1", "SELECT 0", BOTH(1)},
    {"infinity is infinity", "SELECT 9e999", "SELECT 1e999", BOTH(1)},
    {"infinity has a sign", "SELECT -9e999", "SELECT 9e999", BOTH(0)},
    {"large integers compare exactly with floats", "SELECT 9007199254740992.0",
     "SELECT 9007199254740993", BOTH(0)},
    {"and can be equal", "SELECT 9007199254740992.0", "SELECT 9007199254740992", BOTH(1)},
    {"beyond 64 bits", "SELECT 9223372036854775808.0", "SELECT 9223372036854775807", BOTH(0)},
    {"the smallest integer", "SELECT -9223372036854775808.0", "SELECT -9223372036854775807 - 1",
     BOTH(1)},
    {"text has case", "SELECT 'REX'", "SELECT name FROM pet WHERE id = 1", BOTH(0)},
    {"invalid bytes of text are dropped", "SELECT 'ab'", "SELECT v FROM odd WHERE rowid = 1",
     BOTH(1)},
    {"a blob is not text", "SELECT 'ab'", "SELECT v FROM odd WHERE rowid = 2", BOTH(0)},
    {"a blob is a blob", "SELECT x'6162'", "SELECT v FROM odd WHERE rowid = 2", BOTH(1)},
    {"text may hold a zero byte", "SELECT 'a' || char(0) || 'b'", "SELECT 'a' || char(0) || 'c'",
     BOTH(0)},
    {"the official early rejection", "SELECT 10.0, 100.0", "SELECT 10, 100", BOTH(0)},
    {"which one number alone does not meet", "SELECT 10.0, 'x'", "SELECT 10, 'x'", BOTH(1)},
    {"a name in double quotes that is none is a literal", "SELECT id FROM pet WHERE name = \"Rex\"",
     "SELECT 1", BOTH(1)},
    {"single quotes where a name is meant", "SELECT 'name' FROM pet LIMIT 1",
     "SELECT \"name\" FROM pet LIMIT 1", BOTH(0)},
    {"a parameter is an error", "SELECT name FROM pet WHERE id = ?",
     "SELECT name FROM pet WHERE id > 9", BOTH(0)},
    {"a named parameter too", "SELECT :x", "SELECT NULL", BOTH(0)},
    {"a view can be read", "SELECT name FROM cats", "SELECT name FROM pet WHERE kind = 'cat'",
     BOTH(1)},
    {"a recursive query",
     "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 4) SELECT max(i) "
     "FROM r",
     "SELECT count(*) FROM pet", BOTH(1)},
    {"json_each reads", "SELECT value FROM json_each('[4]')", "SELECT count(*) FROM pet", BOTH(1)},
    {"a pragma that describes", "PRAGMA table_info('pet')",
     "SELECT * FROM pragma_table_info('pet')", BOTH(1)},
    {"an explanation reads", "EXPLAIN QUERY PLAN SELECT * FROM pet",
     "EXPLAIN QUERY PLAN SELECT * FROM pet", BOTH(1)},
};

static void each_rule_holds(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        const lvn_sql_exec_config config = {.keep_distinct = keep};
        lvn_sql_scorer *scorer = lvn_sql_scorer_new(&config);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            const rule_case *c = &cases[i];
            lvn_sql_exec_result out;
            lvn_err err = {0};
            assert_int_equal(lvn_sql_scorer_score(scorer, database, lvn_str_of(c->pred),
                                                  lvn_str_of(c->gold), &out, &err),
                             LVN_OK);
            if (out.gold_failed || (int)out.score != (keep ? c->score_keep : c->score))
                fail_msg("%s (keep %d): %g, %s", c->why, keep, out.score, out.error);
        }
        lvn_sql_scorer_free(scorer);
    }
}

static lvn_sql_exec_result score_once(const lvn_sql_exec_config *config, const char *pred,
                                      const char *gold)
{
    lvn_sql_exec_result out;
    lvn_err err = {0};
    assert_int_equal(
        lvn_reward_sql_exec(config, database, lvn_str_of(pred), lvn_str_of(gold), &out, &err),
        LVN_OK);
    return out;
}

static void nothing_can_be_changed_or_attached(void **state)
{
    (void)state;
    static const char *const forbidden[] = {
        "DROP TABLE pet",
        "DELETE FROM pet",
        "INSERT INTO pet VALUES (9,'x','x',1,1)",
        "UPDATE pet SET name = 'x'",
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x (a)",
        "ALTER TABLE pet RENAME TO dog",
        "ATTACH ':memory:' AS x",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO '/tmp/levin-must-not-exist'",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "UPDATE sqlite_master SET sql = 'x'",
        "COMMIT",
        "SAVEPOINT x",
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = 1",
        "PRAGMA user_version = 7",
        "PRAGMA temp_store_directory = '/tmp'",
        "SELECT load_extension('x')",
        "DELETE FROM pet RETURNING name",
        "WITH x AS (SELECT 1) DELETE FROM pet",
        "CREATE TRIGGER t AFTER INSERT ON pet BEGIN SELECT 1; END",
    };
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
        const lvn_sql_exec_result out = score_once(NULL, forbidden[i], "SELECT 1 WHERE 0");
        if (out.score != 0 || out.gold_failed || out.error[0] == '\0')
            fail_msg("%s: %g, %s", forbidden[i], out.score, out.error);
    }
    assert_int_not_equal(access("/tmp/levin-must-not-exist", F_OK), 0);
    assert_true(score_once(NULL, "SELECT count(*) FROM pet", "SELECT 4").score == 1);
}

static void a_query_without_end_is_interrupted(void **state)
{
    (void)state;
    static const char *const endless[] = {
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i FROM r WHERE i < "
        "0",
    };
    const lvn_sql_exec_config config = {.time_limit_ms = 50};
    for (size_t i = 0; i < 2; i++) {
        const int64_t start = lvn_clock_monotonic_ns();
        const lvn_sql_exec_result out = score_once(&config, endless[i], "SELECT 1");
        assert_true(out.timed_out && out.score == 0 && !out.gold_failed);
        assert_non_null(strstr(out.error, "time limit of 50 ms"));
        assert_true(lvn_clock_monotonic_ns() - start < 2 * LVN_NS_PER_S);
    }
    const lvn_sql_exec_result gold = score_once(&config, "SELECT 1", endless[0]);
    assert_true(gold.gold_failed && !gold.timed_out);
}

static void an_endless_result_ends_at_the_first_row_too_many(void **state)
{
    (void)state;
    const int64_t start = lvn_clock_monotonic_ns();
    const lvn_sql_exec_result out = score_once(
        NULL, "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT i FROM r",
        "SELECT 1");
    assert_true(out.score == 0 && !out.timed_out);
    assert_true(lvn_clock_monotonic_ns() - start < LVN_NS_PER_S);
}

static void a_gold_over_the_limits_says_so(void **state)
{
    (void)state;
    const char *rows = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < "
                       "100) SELECT i FROM r";
    const lvn_sql_exec_result many =
        score_once(&(lvn_sql_exec_config){.max_rows = 99}, "SELECT 1", rows);
    assert_true(many.gold_failed);
    assert_non_null(strstr(many.error, "over 99 rows"));
    assert_false(score_once(&(lvn_sql_exec_config){.max_rows = 100}, "SELECT 1", rows).gold_failed);
    const lvn_sql_exec_result large = score_once(&(lvn_sql_exec_config){.max_bytes = 1 << 20},
                                                 "SELECT zeroblob(2000000)", "SELECT 1");
    assert_true(large.score == 0 && strstr(large.error, "too big") != NULL);
}

static void gold_results_are_kept_within_bounds(void **state)
{
    (void)state;
    lvn_sql_scorer *scorer = lvn_sql_scorer_new(NULL);
    char gold[128], copies[70][128];
    for (int i = 0; i < 12; i++) {
        lvn_sql_exec_result out;
        snprintf(gold, sizeof(gold), "SELECT zeroblob(8000000 + %d)", i % 3);
        assert_int_equal(
            lvn_sql_scorer_score(scorer, database, lvn_str_of(gold), lvn_str_of(gold), &out, NULL),
            LVN_OK);
        assert_true(out.score == 1);
    }
    for (int i = 0; i < 140; i++) { /* more databases than stay open */
        lvn_sql_exec_result out;
        char *path = copies[i % 70];
        snprintf(path, sizeof(copies[0]), "%s/link%d.sqlite", folder, i % 70);
        if (i < 70)
            assert_int_equal(symlink(database, path), 0);
        assert_int_equal(lvn_sql_scorer_score(scorer, path, LVN_STR("SELECT 4"),
                                              LVN_STR("SELECT count(*) FROM pet"), &out, NULL),
                         LVN_OK);
        assert_true(out.score == 1);
    }
    for (int i = 0; i < 70; i++)
        unlink(copies[i]);
    lvn_sql_scorer_free(scorer);
}

static void a_broken_gold_is_told_from_a_wrong_answer(void **state)
{
    (void)state;
    const lvn_sql_exec_result out = score_once(NULL, "SELECT 1", "SELECT x FROM nowhere");
    assert_true(out.gold_failed && out.score == 0);
    assert_string_equal(out.error, "no such table: nowhere");
}

static void a_missing_database_is_an_error(void **state)
{
    (void)state;
    lvn_sql_exec_result out;
    lvn_err err = {0};
    assert_int_equal(lvn_reward_sql_exec(NULL, "/nowhere/x.sqlite", LVN_STR("SELECT 1"),
                                         LVN_STR("SELECT 1"), &out, &err),
                     LVN_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere/x.sqlite"));
}

static void zero_bytes_and_broken_text_are_errors_not_ends(void **state)
{
    (void)state;
    lvn_sql_exec_result out;
    lvn_err err = {0};
    const lvn_str zero = {"SELECT 1\0 junk", 14}, broken = {"SELECT \xff\xfe", 9};
    assert_int_equal(lvn_reward_sql_exec(NULL, database, zero, LVN_STR("SELECT 1"), &out, &err),
                     LVN_OK);
    assert_true(out.score == 0 && out.error[0] != '\0');
    assert_int_equal(lvn_reward_sql_exec(NULL, database, broken, LVN_STR("SELECT 1"), &out, &err),
                     LVN_OK);
    assert_true(out.score == 0 && out.error[0] != '\0');
    assert_int_equal(
        lvn_reward_sql_exec(NULL, database, LVN_STR_ABSENT, LVN_STR("SELECT 1"), &out, &err),
        LVN_OK);
    assert_true(out.score == 0);
}

static void *score_many(void *unused)
{
    (void)unused;
    lvn_sql_scorer *scorer = lvn_sql_scorer_new(NULL);
    size_t right = 0;
    for (size_t i = 0; i < 200; i++) {
        const rule_case *c = &cases[i % (sizeof(cases) / sizeof(cases[0]))];
        lvn_sql_exec_result out;
        if (lvn_sql_scorer_score(scorer, database, lvn_str_of(c->pred), lvn_str_of(c->gold), &out,
                                 NULL) == LVN_OK)
            right += (int)out.score == c->score;
    }
    lvn_sql_scorer_free(scorer);
    return (void *)(uintptr_t)right;
}

static void threads_score_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (size_t t = 0; t < 4; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, score_many, NULL), 0);
    for (size_t t = 0; t < 4; t++) {
        void *right;
        pthread_join(threads[t], &right);
        assert_int_equal((uintptr_t)right, 200);
    }
}

static size_t score_published(lvn_sql_scorer *const scorers[2], const char *spider,
                              const lvn_json *c)
{
    static const char *const fields[] = {"exec_match", "exec_match_keep_distinct"};
    const lvn_str db = lvn_json_get_str(c, "db_id", LVN_STR(""));
    char path[4096];
    size_t wrong = 0;
    snprintf(path, sizeof(path), "%s/database/%.*s/%.*s.sqlite", spider, LVN_STR_ARG(db),
             LVN_STR_ARG(db));
    for (int keep = 0; keep < 2; keep++) {
        lvn_sql_exec_result out;
        lvn_err err = {0};
        if (lvn_sql_scorer_score(scorers[keep], path, lvn_json_get_str(c, "pred", LVN_STR("")),
                                 lvn_json_get_str(c, "gold", LVN_STR("")), &out, &err) != LVN_OK)
            fail_msg("%s", err.message);
        if (out.gold_failed || (int64_t)out.score != lvn_json_get_int(c, fields[keep], -1)) {
            print_message("case %lld: %s\n", (long long)lvn_json_get_int(c, "case", -1), out.error);
            wrong++;
        }
    }
    return wrong;
}

static void every_published_case_agrees(void **state)
{
    (void)state;
    const char *shared = getenv("LEVIN_SHARED");
    char spider[2048], file_name[4096];
    snprintf(spider, sizeof(spider), "%s/data/spider",
             shared ? shared : LVN_SOURCE_DIR "/../shared");
    snprintf(file_name, sizeof(file_name), "%s/scorer_cases.jsonl", spider);
    FILE *file = fopen(file_name, "re");
    if (file == NULL) {
        print_message("skipped: no %s (LEVIN_SHARED)\n", file_name);
        skip();
    }
    lvn_sql_scorer *scorers[2];
    for (int keep = 0; keep < 2; keep++)
        scorers[keep] = lvn_sql_scorer_new(&(lvn_sql_exec_config){.keep_distinct = keep});
    lvn_arena *arena = lvn_arena_new(0);
    char *line = NULL;
    size_t capacity = 0, count = 0, wrong = 0;
    for (ssize_t length; (length = getline(&line, &capacity, file)) > 0;
         count++, lvn_arena_reset(arena)) {
        lvn_json c;
        assert_int_equal(lvn_json_parse(arena, (lvn_str){line, (size_t)length}, &c, NULL, NULL),
                         LVN_OK);
        wrong += score_published(scorers, spider, &c);
    }
    fclose(file);
    free(line);
    lvn_arena_free(arena);
    lvn_sql_scorer_free(scorers[0]);
    lvn_sql_scorer_free(scorers[1]);
    print_message("%zu cases, %zu scores differ\n", count, wrong);
    assert_true(count > 0);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_holds),
        cmocka_unit_test(nothing_can_be_changed_or_attached),
        cmocka_unit_test(a_query_without_end_is_interrupted),
        cmocka_unit_test(an_endless_result_ends_at_the_first_row_too_many),
        cmocka_unit_test(a_gold_over_the_limits_says_so),
        cmocka_unit_test(gold_results_are_kept_within_bounds),
        cmocka_unit_test(a_broken_gold_is_told_from_a_wrong_answer),
        cmocka_unit_test(a_missing_database_is_an_error),
        cmocka_unit_test(zero_bytes_and_broken_text_are_errors_not_ends),
        cmocka_unit_test(threads_score_side_by_side),
        cmocka_unit_test(every_published_case_agrees),
    };
    return cmocka_run_group_tests(tests, make_database, remove_database);
}
