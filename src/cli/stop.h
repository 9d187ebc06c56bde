/* Ctrl-C: the first one (or SIGTERM) asks for a clean end, the second ends the process at once. */
#ifndef LVN_CLI_STOP_H
#define LVN_CLI_STOP_H

#include <stdatomic.h>

/* Installs the handlers and ignores SIGPIPE. */
void lvn_stop_on_signals(void);
atomic_bool *lvn_stop_flag(void);

#endif
