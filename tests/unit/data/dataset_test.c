#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <sqlite3.h>

#include "data/dataset.h"

typedef struct fixture {
    lvn_arena *arena;
    char folder[64];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    f->arena = lvn_arena_new(0);
    strcpy(f->folder, "/tmp/levin-data-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    char path[256];
    snprintf(path, sizeof(path), "%s/database", f->folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/database/shop", f->folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/database/shop/shop.sqlite", f->folder);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TABLE item (id INTEGER PRIMARY KEY, name VARCHAR(20), price DECIMAL(5,2), \"two words\" "
                                  "DATETIME); CREATE TABLE sale (item_id int, n int);",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%s'", f->folder);
    assert_int_equal(system(command), 0);
    lvn_arena_free(f->arena);
    free(f);
    return 0;
}

static lvn_code load(fixture *f, const char *text, lvn_dataset_config config, lvn_dataset *out, lvn_err *err)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/tasks", f->folder);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    config.folder = f->folder;
    return lvn_dataset_load(f->arena, &config, "tasks", out, err);
}

static void the_agent_does_not_see_the_gold_and_the_scorer_does(void **state)
{
    fixture *f = *state;
    lvn_dataset d;
    lvn_err err = {0};
    assert_int_equal(load(f, "{\"id\":\"a\",\"db_id\":\"shop\",\"question\":\"How many?\",\"gold_sql\":\"SELECT 1\",\"answer\":\"42\"}\n\n",
                          (lvn_dataset_config){.needs_sql = true, .hidden = "other,  answer"}, &d, &err),
                     LVN_OK);
    assert_int_equal(d.count, 1);
    assert_null(strstr(d.tasks[0].input.ptr, "SELECT 1"));
    assert_non_null(strstr(d.tasks[0].input.ptr, "How many?"));
    assert_non_null(strstr(d.tasks[0].metadata.ptr, "SELECT 1"));
    assert_null(strstr(d.tasks[0].input.ptr, "42"));
    assert_non_null(strstr(d.tasks[0].metadata.ptr, "42"));
    lvn_str path = lvn_json_get_str(&d.tasks[0].value, "sqlite", LVN_STR(""));
    assert_int_equal(path.ptr[0], '/');
    assert_int_equal(access(path.ptr, R_OK), 0);
}

static void a_missing_schema_is_read_from_the_database(void **state)
{
    fixture *f = *state;
    lvn_dataset d;
    lvn_err err = {0};
    const char *text = "[{\"db_id\":\"shop\",\"question\":\"q\",\"query\":\"SELECT name FROM item\"},"
                       "{\"db_id\":\"shop\",\"question\":\"q\",\"query\":\"SELECT name FROM item JOIN sale ON id = item_id\"}]";
    assert_int_equal(load(f, text, (lvn_dataset_config){.needs_sql = true}, &d, &err), LVN_OK);
    assert_int_equal(d.count, 2);
    assert_string_equal(lvn_json_get_str(&d.tasks[0].value, "ddl", LVN_STR("")).ptr,
                        "CREATE TABLE item (id INT, name TEXT, price REAL, \"two words\" TEXT)\n"
                        "CREATE TABLE sale (item_id INT, n INT)");
    assert_int_equal(load(f, text, (lvn_dataset_config){.needs_sql = true, .one_table = true}, &d, &err), LVN_OK);
    assert_int_equal(d.count, 1);
    assert_string_equal(lvn_json_get_str(&d.tasks[0].value, "ddl", LVN_STR("")).ptr,
                        "CREATE TABLE item (id INT, name TEXT, price REAL, \"two words\" TEXT)");
}

static void wrong_lines_are_named_with_file_and_line(void **state)
{
    fixture *f = *state;
    static const char *const cases[][2] = {
        {"{\"id\":\"a\"}\n{oops}\n", "tasks:2: not JSON"},
        {"{\"id\":\"a\"}\n[1]\n", "tasks:2: a task must be a JSON object"},
        {"", "no task in it"},
        {"\n  \n", "no task in it"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        lvn_dataset d;
        lvn_err err = {0};
        assert_int_equal(load(f, cases[i][0], (lvn_dataset_config){0}, &d, &err), LVN_INVALID);
        if (!strstr(err.message, cases[i][1]))
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i][1]);
    }
    lvn_dataset d;
    lvn_err err = {0};
    lvn_dataset_config sql = {.needs_sql = true};
    assert_int_equal(load(f, "{\"db_id\":\"none\",\"gold_sql\":\"SELECT 1\"}\n", sql, &d, &err), LVN_NOT_FOUND);
    assert_non_null(strstr(err.message, "tasks:1"));
    assert_int_equal(load(f, "{\"db_id\":\"shop\"}\n", sql, &d, &err), LVN_INVALID);
    assert_non_null(strstr(err.message, "gold_sql"));
}

static void a_limit_draws_the_same_tasks_for_the_same_seed(void **state)
{
    fixture *f = *state;
    char text[4096] = "";
    for (int i = 0; i < 50; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "{\"id\":\"t%d\"}\n", i);
    lvn_dataset a, b, c;
    lvn_err err = {0};
    assert_int_equal(load(f, text, (lvn_dataset_config){.limit = 10, .seed = 1}, &a, &err), LVN_OK);
    assert_int_equal(load(f, text, (lvn_dataset_config){.limit = 10, .seed = 1}, &b, &err), LVN_OK);
    assert_int_equal(load(f, text, (lvn_dataset_config){.limit = 10, .seed = 2}, &c, &err), LVN_OK);
    assert_int_equal(a.count, 10);
    bool differs = false;
    for (size_t i = 0; i < 10; i++) {
        assert_true(lvn_str_eq(a.tasks[i].id, b.tasks[i].id));
        differs = differs || !lvn_str_eq(a.tasks[i].id, c.tasks[i].id);
        for (size_t k = 0; k < i; k++)
            assert_false(lvn_str_eq(a.tasks[i].id, a.tasks[k].id));
    }
    assert_true(differs);
}

static void databases_of_other_sets_and_joins_are_left_out(void **state)
{
    fixture *f = *state;
    lvn_dataset held, rest;
    lvn_err err = {0};
    assert_int_equal(load(f, "{\"db_id\":\"a\"}\n", (lvn_dataset_config){0}, &held, &err), LVN_OK);
    const char *text = "{\"id\":\"1\",\"db_id\":\"a\"}\n{\"id\":\"2\",\"db_id\":\"b\"}\n{\"id\":\"3\",\"db_id\":\"b\",\"joins\":true}\n";
    assert_int_equal(load(f, text, (lvn_dataset_config){.not_databases_of = {&held}}, &rest, &err), LVN_OK);
    assert_int_equal(rest.count, 1);
    assert_true(lvn_str_is(rest.tasks[0].id, "2"));
}

static void patterns_are_filled_from_the_task(void **state)
{
    fixture *f = *state;
    lvn_dataset d;
    lvn_err err = {0};
    assert_int_equal(load(f, "{\"q\":\"Who?\",\"n\":3}\n", (lvn_dataset_config){0}, &d, &err), LVN_OK);
    lvn_str out;
    assert_int_equal(lvn_task_format(f->arena, &d.tasks[0], "{{{q} {n}", &out, &err), LVN_OK);
    assert_string_equal(out.ptr, "{Who? 3");
    assert_int_equal(lvn_task_format(f->arena, &d.tasks[0], "{nope}", &out, &err), LVN_INVALID);
}

static void queries_are_tidied_outside_quotes_only(void **state)
{
    fixture *f = *state;
    static const char *const cases[][2] = {
        {"SELECT name ,  born FROM t\n WHERE a  =  'x ,  y' ;", "SELECT name, born FROM t WHERE a = 'x ,  y'"},
        {"SELECT count ( * ) FROM t", "SELECT count (*) FROM t"},
        {"SELECT a,b", "SELECT a, b"},
        {"  ", ""},
        {"SELECT \"a  b\"", "SELECT \"a  b\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_string_equal(lvn_sql_tidy(f->arena, lvn_str_of(cases[i][0])).ptr, cases[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_agent_does_not_see_the_gold_and_the_scorer_does, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_schema_is_read_from_the_database, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_lines_are_named_with_file_and_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_limit_draws_the_same_tasks_for_the_same_seed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(databases_of_other_sets_and_joins_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(patterns_are_filled_from_the_task, set_up, tear_down),
        cmocka_unit_test_setup_teardown(queries_are_tidied_outside_quotes_only, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
