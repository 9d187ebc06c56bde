#include "engine/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/arena.h"

/* A short look before going to sleep, some microseconds: jobs follow each other closely. */
enum { SPINS = 200 };

typedef struct member {
    lvn_pool *pool;
    pthread_t thread;
    int number;
} member;

struct lvn_pool {
    int threads;
    member *members; /* threads - 1 of them */

    void (*run)(void *arg, int task, int thread);
    void *arg;
    int tasks;
    atomic_int next_task;
    atomic_int left; /* members that have not finished the job */
    atomic_uint job; /* number of the current job */

    pthread_mutex_t lock; /* for the two conditions */
    pthread_cond_t has_job, is_done;
    bool is_closing;
};

static void work(lvn_pool *pool, int thread)
{
    for (int task; (task = atomic_fetch_add(&pool->next_task, 1)) < pool->tasks;)
        pool->run(pool->arg, task, thread);
}

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits for a job other than `seen`; false: the pool closes. */
static bool wait_for_job(lvn_pool *pool, unsigned *seen)
{
    for (int i = 0; i < SPINS && atomic_load(&pool->job) == *seen; i++)
        pause_briefly();
    if (atomic_load(&pool->job) == *seen) {
        pthread_mutex_lock(&pool->lock);
        while (atomic_load(&pool->job) == *seen && !pool->is_closing)
            pthread_cond_wait(&pool->has_job, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    bool has_job = atomic_load(&pool->job) != *seen;
    *seen = atomic_load(&pool->job);
    return has_job;
}

static void *serve(void *arg)
{
    member *m = arg;
    lvn_pool *pool = m->pool;
    pthread_setname_np(pthread_self(), "levin-train");
    unsigned seen = 0;
    while (wait_for_job(pool, &seen)) {
        work(pool, m->number);
        if (atomic_fetch_sub(&pool->left, 1) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->is_done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
    return NULL;
}

lvn_pool *lvn_pool_new(int threads)
{
    lvn_pool *pool = lvn_zalloc(sizeof(*pool));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->has_job, NULL);
    pthread_cond_init(&pool->is_done, NULL);
    pool->threads = 1;
    pool->members = lvn_zalloc((size_t)threads * sizeof(*pool->members));
    for (int i = 1; i < threads; i++) {
        member *m = &pool->members[i - 1];
        *m = (member){.pool = pool, .number = i};
        if (pthread_create(&m->thread, NULL, serve, m))
            break; /* fewer threads are slower, not wrong */
        pool->threads++;
    }
    return pool;
}

void lvn_pool_free(lvn_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    pthread_cond_broadcast(&pool->has_job);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i < pool->threads; i++)
        pthread_join(pool->members[i - 1].thread, NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->has_job);
    pthread_cond_destroy(&pool->is_done);
    free(pool->members);
    free(pool);
}

int lvn_pool_threads(const lvn_pool *pool)
{
    return pool->threads;
}

void lvn_pool_run(lvn_pool *pool, int tasks, void (*run)(void *arg, int task, int thread), void *arg)
{
    if (tasks <= 1 || pool->threads == 1) {
        for (int i = 0; i < tasks; i++)
            run(arg, i, 0);
        return;
    }
    pool->run = run;
    pool->arg = arg;
    pool->tasks = tasks;
    atomic_store(&pool->next_task, 0);
    atomic_store(&pool->left, pool->threads - 1);
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->job, 1);
    pthread_cond_broadcast(&pool->has_job);
    pthread_mutex_unlock(&pool->lock);
    work(pool, 0);
    for (int i = 0; i < SPINS && atomic_load(&pool->left); i++)
        pause_briefly();
    if (!atomic_load(&pool->left))
        return;
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->left))
        pthread_cond_wait(&pool->is_done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
