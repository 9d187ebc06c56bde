#include "cli/stop.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* A signal handler has no context to be given: the second mutable global that the house style allows. */
static atomic_bool stop;

static void on_signal(int number)
{
    (void)number;
    if (atomic_exchange(&stop, true))
        _exit(130);
    static const char text[] = "\nstopping; once more to stop at once\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)ignored;
}

void lvn_stop_on_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

atomic_bool *lvn_stop_flag(void)
{
    return &stop;
}
