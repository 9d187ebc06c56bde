#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "config/train.h"

typedef struct fixture {
    lvn_arena *arena;
    lvn_train_options options;
    const lvn_option *table;
    size_t count;
    char path[64];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    f->arena = lvn_arena_new(0);
    f->table = lvn_train_option_table(&f->count);
    lvn_options_default(f->table, f->count, f->arena, &f->options);
    strcpy(f->path, "/tmp/levin-option-XXXXXX");
    close(mkstemp(f->path));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    unlink(f->path);
    lvn_arena_free(f->arena);
    free(f);
    return 0;
}

static lvn_code read_text(fixture *f, const char *text, lvn_err *err)
{
    FILE *file = fopen(f->path, "w");
    fputs(text, file);
    fclose(file);
    return lvn_options_read(f->table, f->count, f->arena, f->path, &f->options, err);
}

static void expect_error(void **state, const char *text, const char *part)
{
    lvn_err err = {0};
    assert_int_not_equal(read_text(*state, text, &err), LVN_OK);
    if (!strstr(err.message, part))
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void every_default_is_within_its_own_range(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < f->count; i++) {
        lvn_err err = {0};
        char assignment[256];
        snprintf(assignment, sizeof(assignment), "%s=%s", f->table[i].key, f->table[i].fallback);
        if (lvn_options_set(f->table, f->count, f->arena, assignment, &f->options, &err))
            fail_msg("%s", err.message);
    }
}

static void a_file_overrides_what_it_names_and_paths_are_relative_to_it(void **state)
{
    fixture *f = *state;
    lvn_err err = {0};
    assert_int_equal(read_text(f,
                               "# a comment\nname: x\ngrpo:\n  steps: 7\n  learning_rate: 1e-4\nagent: {file: a.py}\n"
                               "sft:\n  on: false\n  system: \"two\\nlines\"\n",
                               &err),
                     LVN_OK);
    assert_string_equal(f->options.name, "x");
    assert_int_equal(f->options.grpo.steps, 7);
    assert_true(f->options.grpo.learning_rate == 1e-4);
    assert_string_equal(f->options.agent.file, "/tmp/a.py");
    assert_false(f->options.sft.is_on);
    assert_string_equal(f->options.sft.system, "two\nlines");
    assert_int_equal(f->options.grpo.samples, 8);
}

static void a_misspelt_key_is_named_with_its_line_and_the_nearest_one(void **state)
{
    expect_error(state, "name: x\ngrpo:\n  stesp: 7\n", "line 3: unknown key \"grpo.stesp\"; did you mean \"grpo.steps\"?");
    expect_error(state, "grop:\n  steps: 1\n", "line 1: unknown key");
    expect_error(state, "zzzzzzzzzzzzzzzz: 1\n", "line 1: unknown key \"zzzzzzzzzzzzzzzz\"");
}

static void wrong_values_are_refused_with_their_line(void **state)
{
    expect_error(state, "grpo:\n  steps: many\n", "line 2: grpo.steps wants a number");
    expect_error(state, "grpo:\n  steps: 1.5\n", "whole number");
    expect_error(state, "grpo:\n  samples: 1\n", "must lie between 2 and 256");
    expect_error(state, "agent:\n  kind: hot\n", "must be one of warm|command");
    expect_error(state, "sft:\n  on: maybe\n", "true or false");
    expect_error(state, "grpo:\n  steps: [1, 2]\n", "wants a single value");
    expect_error(state, "grpo: 3\n", "wants a map of options");
    expect_error(state, "seed: 1\nseed: 2\n", "line 2: \"seed\" is given twice");
    expect_error(state, "- a\n- b\n", "must be a map");
    expect_error(state, "name: \"x\n", "not YAML");
    expect_error(state, "grpo:\n\tsteps: 1\n", "not YAML");
    expect_error(state, "grpo:\n  learning_rate: .nan\n", "wants a number");
}

static void a_missing_file_is_not_found(void **state)
{
    fixture *f = *state;
    lvn_err err = {0};
    assert_int_equal(lvn_options_read(f->table, f->count, f->arena, "/nonexistent.yaml", &f->options, &err), LVN_NOT_FOUND);
}

static void an_assignment_sets_one_option(void **state)
{
    fixture *f = *state;
    lvn_err err = {0};
    assert_int_equal(lvn_options_set(f->table, f->count, f->arena, "sft.user={ddl}={question}", &f->options, &err), LVN_OK);
    assert_string_equal(f->options.sft.user, "{ddl}={question}");
    assert_int_equal(lvn_options_set(f->table, f->count, f->arena, "sft.usr=1", &f->options, &err), LVN_INVALID);
    assert_non_null(strstr(err.message, "sft.user"));
    assert_int_equal(lvn_options_set(f->table, f->count, f->arena, "sft.user", &f->options, &err), LVN_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_default_is_within_its_own_range, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_overrides_what_it_names_and_paths_are_relative_to_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_misspelt_key_is_named_with_its_line_and_the_nearest_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_values_are_refused_with_their_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_file_is_not_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_assignment_sets_one_option, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
