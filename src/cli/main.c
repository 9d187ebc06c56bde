#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command;

static const command commands[] = {
    {"train", lvn_cli_train, "train an agent as a YAML file says"},
    {"serve", lvn_cli_serve, "the store, and with a model the gateway, over HTTP"},
    {"eval", lvn_cli_eval, "measure a checkpoint of a run"},
    {"chat", lvn_cli_chat, "talk to a checkpoint of a run"},
    {"report", lvn_cli_report, "write a run's report again"},
    {"ls", lvn_cli_ls, "list the rollouts of a run"},
    {"show", lvn_cli_show, "show a rollout: its calls, as text"},
    {"logs", lvn_cli_logs, "print what a rollout's attempts wrote"},
    {"options", lvn_cli_options, "print what a training file may say, as Markdown"},
};
enum { COMMAND_COUNT = sizeof(commands) / sizeof(*commands) };

static void print_help(FILE *to)
{
    fprintf(to, "Usage: levin COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\nlevin COMMAND --help says more.\n");
}

/* ggml's OpenMP threads spin between small jobs, which collapses when the cores are shared (with the agents, for a start). The runtime reads
 * its settings when it is loaded, before main: so they are set and the program is started again, once. */
static void make_waiting_passive(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("LEVIN_RESTARTED"))
        return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("GOMP_SPINCOUNT", "200", 0); /* a few microseconds: jobs follow each other closely */
    setenv("LEVIN_RESTARTED", "1", 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    make_waiting_passive(argv);
    argp_err_exit_status = 2;
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("levin " LVN_VERSION "\n");
        return 0;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            char name[64];
            snprintf(name, sizeof(name), "levin %s", commands[i].name);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    fprintf(stderr, "levin: no command \"%s\"\n", argv[1]);
    print_help(stderr);
    return 2;
}
