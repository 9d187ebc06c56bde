/* Processes that outlive the agent which started them. Private to the runner. Any thread. */
#ifndef LVN_RUNNER_STRAYS_H
#define LVN_RUNNER_STRAYS_H

#include <stddef.h>
#include <sys/types.h>

/* The variable that each spawned process has in its environment with a value of its own, and its descendants
 * inherit. */
#define LVN_STRAYS_MARKER "LEVIN_PROCESS_ID"

/* Makes this program the one that orphans of its descendants are given to, instead of init. Process-wide; stays on. */
void lvn_strays_adopt(void);

enum { LVN_STRAYS_MAX = 256 };

/* Descendants of one process, held by descriptors so that a recycled pid is never hit. */
typedef struct lvn_strays {
    int pidfds[LVN_STRAYS_MAX];
    size_t count;
} lvn_strays;

/* Adds the present descendants of `pid` that are not in its session. */
void lvn_strays_collect(lvn_strays *strays, pid_t pid);
void lvn_strays_kill(const lvn_strays *strays);
/* After kill, and after a sweep of the session: collects them and forgets. */
void lvn_strays_done(lvn_strays *strays);

/* Kills and collects the orphans given to us that belong to session `session` or carry `marker` ("NAME=VALUE"). */
void lvn_strays_sweep(pid_t session, const char *marker);

/* Collects orphans that died unnoticed: those that were dead already at the call before. Call it every few seconds
 * from one thread; a child that another part of the program waits for is never dead for that long. `seen` keeps
 * the pids between calls. */
typedef struct lvn_strays_seen {
    pid_t pids[LVN_STRAYS_MAX];
    size_t count;
} lvn_strays_seen;
struct lvn_nursery;
/* Workers of `nursery` (may be NULL) are left to their slots. */
void lvn_strays_bury(lvn_strays_seen *seen, struct lvn_nursery *nursery);

#endif
