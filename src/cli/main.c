#include <stdio.h>
#include <string.h>

#include "cli/serve.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command;

static const command commands[] = {
    {"serve", lvn_cli_serve, "the store over HTTP"},
};
enum { COMMAND_COUNT = sizeof(commands) / sizeof(*commands) };

static void print_help(FILE *to)
{
    fprintf(to, "Usage: levin COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\nlevin COMMAND --help says more.\n");
}

int main(int argc, char **argv)
{
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
