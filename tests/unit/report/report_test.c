#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "report/report.h"

static char folder[64];

static void write_metrics(const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static char *read_page(void)
{
    static char text[1 << 17];
    char path[128];
    snprintf(path, sizeof(path), "%s/report.html", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/levin-report-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static const char lines[] =
    "{\"kind\":\"eval\",\"set\":\"val\",\"step\":-1,\"score\":0.01,\"count\":60}\n"
    "{\"kind\":\"answer\",\"set\":\"val\",\"step\":-1,\"task\":\"a\",\"question\":\"How <many>?\",\"gold\":\"SELECT 1\","
    "\"answer\":\"There are\",\"reward\":0.0}\n"
    "{\"kind\":\"sft\",\"step\":1,\"loss\":2.0}\n"
    "{\"kind\":\"eval\",\"set\":\"val\",\"step\":0,\"score\":0.333,\"count\":60}\n"
    "{\"kind\":\"grpo\",\"step\":1,\"reward\":0.111}\n{\"kind\":\"grpo\",\"step\":2,\"reward\":0.222}\n"
    "{\"kind\":\"grpo\",\"step\":2,\"reward\":0.444}\n"
    "{\"kind\":\"eval\",\"set\":\"val\",\"step\":2,\"score\":0.5,\"count\":60}\n"
    "{\"kind\":\"answer\",\"set\":\"val\",\"step\":2,\"task\":\"a\",\"question\":\"How <many>?\",\"gold\":\"SELECT 1\","
    "\"answer\":\"SELECT 1\",\"reward\":1.0}\n";

static void the_page_shows_scores_and_answers_before_and_after(void **state)
{
    (void)state;
    write_metrics(lines);
    lvn_err err = {0};
    assert_int_equal(lvn_report_write(folder, &err), LVN_OK);
    const char *page = read_page();
    assert_non_null(strstr(page, "0.010"));
    assert_non_null(strstr(page, "0.333"));
    assert_non_null(strstr(page, "0.500"));
    assert_non_null(strstr(page, "How &lt;many&gt;?"));
    assert_null(strstr(page, "How <many>?"));
    assert_non_null(strstr(page, "There are"));
    assert_non_null(strstr(page, "<svg"));
    assert_null(strstr(page, "http://") && !strstr(page, "http://www.w3.org/2000/svg") ? page : NULL);
}

static void a_step_that_was_done_again_counts_once(void **state)
{
    (void)state;
    write_metrics(lines);
    lvn_err err = {0};
    assert_int_equal(lvn_report_write(folder, &err), LVN_OK);
    assert_non_null(strstr(read_page(), "<td class=n>2<td class=n>0.444"));
    assert_null(strstr(read_page(), "0.222"));
}

static void a_line_cut_off_at_the_end_is_left_out_and_a_damaged_one_is_not(void **state)
{
    (void)state;
    char text[4096];
    lvn_err err = {0};
    snprintf(text, sizeof(text), "%s%s", lines, "{\"kind\":\"ev");
    write_metrics(text);
    assert_int_equal(lvn_report_write(folder, &err), LVN_OK);
    snprintf(text, sizeof(text), "%s%s", "{\"kind\":\"ev\n", lines);
    write_metrics(text);
    assert_int_equal(lvn_report_write(folder, &err), LVN_INVALID);
    assert_non_null(strstr(err.message, "metrics.jsonl:1"));
}

static void a_run_that_has_told_nothing_yet_has_a_page(void **state)
{
    (void)state;
    write_metrics("");
    lvn_err err = {0};
    assert_int_equal(lvn_report_write(folder, &err), LVN_OK);
    assert_int_equal(lvn_report_write("/nonexistent", &err), LVN_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_page_shows_scores_and_answers_before_and_after, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_that_was_done_again_counts_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_cut_off_at_the_end_is_left_out_and_a_damaged_one_is_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_that_has_told_nothing_yet_has_a_page, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
