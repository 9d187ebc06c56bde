/* levin report RUN: makes report.html again from what the run has told so far. levin options: the reference of options. */
#include <argp.h>
#include <stdio.h>

#include "cli/commands.h"
#include "config/train.h"
#include "report/report.h"

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
    const char **run = state->input;
    if (key == ARGP_KEY_ARG && !*run)
        *run = arg;
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "one RUN only");
    else if (key == ARGP_KEY_END && !*run)
        argp_error(state, "which RUN? A folder below runs/");
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static const struct argp argp = {NULL, parse_arg, "RUN", "Write RUN/report.html and RUN/curve.svg.", NULL, NULL, NULL};

int lvn_cli_report(int argc, char **argv)
{
    const char *run = NULL;
    argp_parse(&argp, argc, argv, 0, NULL, &run);
    lvn_err err;
    if (lvn_report_write(run, &err)) {
        fprintf(stderr, "levin: %s\n", err.message);
        return 1;
    }
    printf("%s/report.html\n", run);
    return 0;
}

int lvn_cli_options(int argc, char **argv)
{
    static const struct argp options_argp = {NULL, NULL, NULL, "Print what a training file may say, as a Markdown table.", NULL, NULL,
                                             NULL};
    argp_parse(&options_argp, argc, argv, 0, NULL, NULL);
    size_t count;
    const lvn_option *table = lvn_train_option_table(&count);
    lvn_buf text;
    lvn_buf_init(&text, LVN_BUF_NO_LIMIT);
    lvn_options_write_reference(table, count, &text);
    fwrite(text.ptr, 1, text.len, stdout);
    lvn_buf_done(&text);
    return 0;
}
