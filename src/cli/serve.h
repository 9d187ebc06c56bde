/* `levin serve`: the store on a port, until a signal. */
#ifndef LVN_CLI_SERVE_H
#define LVN_CLI_SERVE_H

/* argv[0] is the command's name for --help. Returns the exit status: 0, 1 failed, 2 wrong usage. */
int lvn_cli_serve(int argc, char **argv);

#endif
