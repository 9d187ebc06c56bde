/* The loop's thread, its mailbox and its one-shot timers. Network handles are made by those who use
 * the loop. */
#include "loop/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <uv.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"

/* A turn longer than this delays everybody else on the loop, so it is reported. */
#define SLOW_TURN_NS (50 * LVN_NS_PER_MS)

typedef struct message {
    struct message *next;
    void (*fn)(void *arg);
    void *arg;
} message;

struct lvn_timer {
    uv_timer_t handle;
    lvn_timer *previous, *next; /* among the loop's live timers */
    void (*fn)(void *arg);
    void *arg;
};

struct lvn_loop {
    uv_loop_t uv;
    uv_async_t wake;
    pthread_t thread;
    char name[32];
    lvn_timer *timers; /* loop thread only */
    bool is_stopping;  /* loop thread only */
    pthread_mutex_t lock;
    message *first, **last; /* guarded by lock */
};

static message *take_all(lvn_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    message *all = loop->first;
    loop->first = NULL;
    loop->last = &loop->first;
    pthread_mutex_unlock(&loop->lock);
    return all;
}

static bool run_messages(lvn_loop *loop)
{
    /* Messages posted meanwhile wait for the next turn, so that sockets get their share. */
    int64_t before_ns = lvn_clock_monotonic_ns();
    message *first = take_all(loop);
    for (message *m = first, *next; m; m = next) {
        next = m->next;
        m->fn(m->arg);
        free(m);
        int64_t now_ns = lvn_clock_monotonic_ns();
        if (now_ns - before_ns > SLOW_TURN_NS)
            lvn_log(LVN_DEBUG, "loop_slow", "loop=%s ms=%lld", loop->name,
                    (long long)((now_ns - before_ns) / LVN_NS_PER_MS));
        before_ns = now_ns;
    }
    return first != NULL;
}

static void free_timer(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_timer(lvn_timer *timer)
{
    lvn_loop *loop = timer->handle.loop->data;
    *(timer->previous ? &timer->previous->next : &loop->timers) = timer->next;
    if (timer->next)
        timer->next->previous = timer->previous;
    uv_close((uv_handle_t *)&timer->handle, free_timer);
}

static void report_open_handle(uv_handle_t *handle, void *arg)
{
    const lvn_loop *loop = arg;
    if (uv_is_closing(handle))
        return;
    lvn_log(LVN_ERROR, "loop_handle_left_open", "loop=%s kind=%s", loop->name,
            uv_handle_type_name(uv_handle_get_type(handle)));
    uv_close(handle, NULL);
}

static void on_wake(uv_async_t *handle)
{
    lvn_loop *loop = handle->data;
    run_messages(loop);
    if (!loop->is_stopping || uv_is_closing((uv_handle_t *)handle))
        return;
    while (run_messages(loop)) /* what those messages posted themselves */
        ;
    while (loop->timers)
        close_timer(loop->timers);
    uv_close((uv_handle_t *)handle, NULL);
}

static void *run_loop(void *arg)
{
    lvn_loop *loop = arg;
    pthread_setname_np(pthread_self(), loop->name);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    return NULL;
}

lvn_code lvn_loop_start(const char *name, lvn_loop **out, lvn_err *err)
{
    lvn_loop *loop = lvn_zalloc(sizeof(*loop));
    strncpy(loop->name, name, 15); /* the kernel's limit for thread names */
    loop->last = &loop->first;
    pthread_mutex_init(&loop->lock, NULL);
    int failed = uv_loop_init(&loop->uv);
    if (failed)
        goto fail;
    loop->uv.data = loop;
    failed = uv_async_init(&loop->uv, &loop->wake, on_wake);
    if (failed)
        goto fail_loop;
    loop->wake.data = loop;
    failed = -pthread_create(&loop->thread, NULL, run_loop, loop);
    if (!failed) {
        *out = loop;
        return LVN_OK;
    }
    uv_close((uv_handle_t *)&loop->wake, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
fail_loop:
    uv_loop_close(&loop->uv);
fail:
    pthread_mutex_destroy(&loop->lock);
    free(loop);
    return lvn_fail(err, LVN_IO, "cannot start the event loop %s: %s", name, uv_strerror(failed));
}

static void begin_stop(void *arg)
{
    ((lvn_loop *)arg)->is_stopping = true;
}

void lvn_loop_stop(lvn_loop *loop)
{
    if (!loop)
        return;
    lvn_loop_post(loop, begin_stop, loop);
    pthread_join(loop->thread, NULL);
    if (uv_loop_close(&loop->uv) == UV_EBUSY) {
        uv_walk(&loop->uv, report_open_handle, loop);
        uv_run(&loop->uv, UV_RUN_DEFAULT);
        uv_loop_close(&loop->uv);
    }
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

void lvn_loop_post(lvn_loop *loop, void (*fn)(void *arg), void *arg)
{
    message *m = lvn_alloc(sizeof(*m));
    *m = (message){.fn = fn, .arg = arg};
    pthread_mutex_lock(&loop->lock);
    bool was_empty = !loop->first;
    *loop->last = m;
    loop->last = &m->next;
    /* Woken under the lock: once begin_stop is visible the loop may close the handle, but not
     * before we let go. */
    if (was_empty)
        uv_async_send(&loop->wake);
    pthread_mutex_unlock(&loop->lock);
}

typedef struct call {
    void (*fn)(void *arg);
    void *arg;
    uv_sem_t done;
} call;

static void run_call(void *arg)
{
    call *c = arg;
    c->fn(c->arg);
    uv_sem_post(&c->done);
}

void lvn_loop_call(lvn_loop *loop, void (*fn)(void *arg), void *arg)
{
    call c = {.fn = fn, .arg = arg};
    if (uv_sem_init(&c.done, 0))
        abort();
    lvn_loop_post(loop, run_call, &c);
    uv_sem_wait(&c.done);
    uv_sem_destroy(&c.done);
}

bool lvn_loop_is_current(const lvn_loop *loop)
{
    return pthread_equal(pthread_self(), loop->thread);
}

static void on_timer(uv_timer_t *handle)
{
    lvn_timer *timer = handle->data;
    void (*fn)(void *arg) = timer->fn;
    void *arg = timer->arg;
    close_timer(timer);
    fn(arg);
}

lvn_timer *lvn_loop_after(lvn_loop *loop, int64_t delay_ms, void (*fn)(void *arg), void *arg)
{
    lvn_timer *timer = lvn_zalloc(sizeof(*timer));
    uv_timer_init(&loop->uv, &timer->handle);
    timer->handle.data = timer;
    timer->fn = fn;
    timer->arg = arg;
    timer->next = loop->timers;
    if (timer->next)
        timer->next->previous = timer;
    loop->timers = timer;
    /* The loop's idea of now may be as old as the turn; a timer must not run early because of that.
     */
    uv_update_time(&loop->uv);
    uv_timer_start(&timer->handle, on_timer, delay_ms > 0 ? (uint64_t)delay_ms : 0, 0);
    return timer;
}

void lvn_timer_cancel(lvn_timer *timer)
{
    if (timer)
        close_timer(timer);
}

struct uv_loop_s *lvn_loop_uv(lvn_loop *loop)
{
    return &loop->uv;
}
