/* The subcommands. Each takes its own argc and argv (argv[0] is "levin NAME", for messages) and returns the exit code: 0 fine, 1 failed,
 * 2 wrong usage (argp's own exit), 130 stopped by a signal. */
#ifndef LVN_CLI_COMMANDS_H
#define LVN_CLI_COMMANDS_H

int lvn_cli_train(int argc, char **argv);
int lvn_cli_eval(int argc, char **argv);
int lvn_cli_chat(int argc, char **argv);
int lvn_cli_report(int argc, char **argv);
int lvn_cli_serve(int argc, char **argv);
int lvn_cli_ls(int argc, char **argv);
int lvn_cli_show(int argc, char **argv);
int lvn_cli_logs(int argc, char **argv);
int lvn_cli_options(int argc, char **argv);

#endif
