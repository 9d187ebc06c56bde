/* Threads for arithmetic. They sleep between jobs: the cores are shared with others, and spinning threads would collapse. */
#ifndef LVN_ENGINE_POOL_H
#define LVN_ENGINE_POOL_H

typedef struct lvn_pool lvn_pool;

/* `threads` in all, the caller included; >= 1. */
lvn_pool *lvn_pool_new(int threads);
void lvn_pool_free(lvn_pool *pool);
int lvn_pool_threads(const lvn_pool *pool);

/* Calls run(arg, task, thread) for every task in [0, tasks), each once, on any of the threads (thread in [0, threads)), and returns
 * when all are done. One caller at a time; not from within a task. */
void lvn_pool_run(lvn_pool *pool, int tasks, void (*run)(void *arg, int task, int thread), void *arg);

#endif
