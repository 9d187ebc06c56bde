/* The executor: one thread that takes what has queued up as one batch, applies it in one transaction, commits once, and only then
 * answers. It also parks waits and dequeues, and is the watchdog. On a store in memory others may take its turn for a moment. */
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/apply.h"

enum { DEFAULT_QUEUE = 65536, DEFAULT_WATCHDOG_MS = 100, MAX_BATCH = 512 };

typedef struct op_list {
    lvn_op *head, **tail;
    size_t count;
} op_list;

struct lvn_store {
    lvn_state state;
    double (*now)(void *);
    void *now_user;
    int watchdog_ms;
    size_t max_queue;
    double begin_time;
    bool is_instant; /* nothing on a disk: a commit costs nothing */

    pthread_t thread;
    /* Held by whoever applies operations: guards state and what is parked. Taken before `lock`, if both. */
    pthread_mutex_t turn;
    pthread_mutex_t lock; /* guards what is below, down to the blank line */
    pthread_cond_t wake;
    op_list incoming;
    lvn_op **cancelled; /* asked to be given up */
    size_t cancelled_count, cancelled_capacity;
    bool is_closing;
    bool has_news; /* for the executor, from lvn_store_try: a nearer deadline, or the end of somebody's wait */

    lvn_op **parked;
    size_t parked_count, parked_capacity;
};

static double wall_clock(void *user)
{
    (void)user;
    return lvn_ns_to_s(lvn_clock_unix_ns());
}

static void list_init(op_list *list)
{
    list->head = NULL;
    list->tail = &list->head;
    list->count = 0;
}

static void list_add(op_list *list, lvn_op *op)
{
    op->internal.next = NULL;
    *list->tail = op;
    list->tail = &op->internal.next;
    list->count++;
}

/* ---- parking ---- */

static double parked_seconds(const lvn_op *op)
{
    return op->kind == LVN_OP_WAIT ? op->in.wait.timeout_s : op->in.dequeue.wait_s;
}

/* Monotonic instant at which a parked operation gives up; INT64_MAX: never. */
static int64_t parked_deadline(const lvn_op *op)
{
    double seconds = parked_seconds(op);
    if (isnan(seconds) || seconds > 1e9)
        return INT64_MAX;
    return op->internal.submitted_ns + (int64_t)(seconds * 1e9);
}

static bool wants_to_wait(const lvn_store *store, const lvn_op *op)
{
    if (op->kind == LVN_OP_WAIT)
        return !(op->in.wait.timeout_s <= 0) && !lvn_wait_is_over(&store->state, op);
    return op->kind == LVN_OP_DEQUEUE && op->in.dequeue.wait_s > 0 && op->in.dequeue.limit > 0 &&
           op->out.rollouts.count == 0;
}

static void park(lvn_store *store, lvn_op *op)
{
    if (store->parked_count == store->parked_capacity) {
        store->parked_capacity = store->parked_capacity ? store->parked_capacity * 2 : 16;
        store->parked = lvn_realloc(store->parked, store->parked_capacity * sizeof(*store->parked));
    }
    store->parked[store->parked_count++] = op;
}

static void unpark(lvn_store *store, size_t index)
{
    memmove(store->parked + index, store->parked + index + 1, (store->parked_count - index - 1) * sizeof(*store->parked));
    store->parked_count--;
}

static void finish(lvn_op *op)
{
    op->done(op); /* the op may be gone afterwards */
}

static void cancel_op(lvn_op *op)
{
    memset(&op->out, 0, sizeof(op->out));
    op->code = lvn_fail(&op->err, LVN_CANCELLED, "given up");
    finish(op);
}

/* Parked operations that can go on, in the order they came, as a batch. */
static void collect_ready(lvn_store *store, int64_t now_ns, op_list *out)
{
    bool may_be_over = store->state.has_finished_some;
    size_t work = store->state.has_queued_some ? store->state.queue_tail - store->state.queue_head : 0;
    for (size_t i = 0; i < store->parked_count;) {
        lvn_op *op = store->parked[i];
        bool is_late = parked_deadline(op) <= now_ns;
        bool is_ready = op->kind == LVN_OP_WAIT ? may_be_over && lvn_wait_is_over(&store->state, op) : work > 0;
        if (!is_ready && !is_late) {
            i++;
            continue;
        }
        if (op->kind == LVN_OP_DEQUEUE) {
            work -= work > 0;
            if (is_late)
                op->in.dequeue.wait_s = 0; /* answers with what there is */
        } else if (is_late) {
            op->in.wait.timeout_s = 0;
        }
        unpark(store, i);
        list_add(out, op);
    }
    store->state.has_finished_some = store->state.has_queued_some = false;
}

/* ---- batches ---- */

static bool is_backend_failure(lvn_code code)
{
    return code == LVN_IO || code == LVN_FULL;
}

/* Applies the operations in one transaction. LVN_OK: all are answered by their own codes and durable; else nothing happened. */
static lvn_code try_batch(lvn_store *store, const op_list *batch, lvn_err *err)
{
    lvn_state *s = &store->state;
    double now = store->now(store->now_user);
    lvn_code code = lvn_state_begin(s, err);
    if (code)
        return code;
    code = lvn_apply_watchdog(s, now, err);
    for (lvn_op *op = batch->head; op && !code; op = op->internal.next) {
        lvn_apply(s, op, now);
        /* Decided here, with what it saw: a later operation of the batch may end the wait, and the answer would miss that. */
        op->internal.parked = op->code == LVN_OK && wants_to_wait(store, op) ? store : NULL;
        if (op->kind == LVN_OP_STATISTICS)
            op->out.statistics.uptime_s = now - store->begin_time;
        if (is_backend_failure(op->code)) {
            code = op->code;
            *err = op->err;
        }
    }
    if (code) {
        lvn_state_rollback(s);
        return code;
    }
    return lvn_state_commit(s, err);
}

static void answer(lvn_store *store, op_list *batch)
{
    for (lvn_op *op = batch->head; op;) {
        lvn_op *next = op->internal.next;
        if (op->internal.parked)
            park(store, op);
        else
            finish(op);
        op = next;
    }
}

/* A batch that failed as a whole is done again one by one, so that reads go on while the disk is full. */
static void run_batch(lvn_store *store, op_list *batch)
{
    lvn_err err = {0};
    lvn_code code = try_batch(store, batch, &err);
    if (!code) {
        answer(store, batch);
        return;
    }
    if (!batch->head) {
        lvn_log(LVN_WARN, "store_watchdog_failed", "error=\"%s\"", err.message);
        return;
    }
    if (batch->count == 1) {
        batch->head->code = code;
        batch->head->err = err;
        lvn_log(LVN_WARN, "store_operation_failed", "error=\"%s\"", err.message);
        finish(batch->head);
        return;
    }
    for (lvn_op *op = batch->head; op;) {
        lvn_op *next = op->internal.next;
        op_list one;
        list_init(&one);
        list_add(&one, op);
        run_batch(store, &one);
        op = next;
    }
}

/* ---- the thread ---- */

/* When the executor must look again by itself; INT64_MAX: never. */
static int64_t next_look(const lvn_store *store)
{
    int64_t now_ns = lvn_clock_monotonic_ns();
    int64_t wake_ns = INT64_MAX;
    for (size_t i = 0; i < store->parked_count; i++) {
        int64_t deadline = parked_deadline(store->parked[i]);
        wake_ns = deadline < wake_ns ? deadline : wake_ns;
    }
    double deadline = lvn_state_next_deadline(&store->state);
    if (isfinite(deadline)) {
        double left = deadline - store->now(store->now_user);
        double most = (double)store->watchdog_ms / 1000;
        /* With an injected clock time may jump, so look at least every watchdog_ms; the wall clock is trusted to run. */
        if (store->now != wall_clock && left > most)
            left = most;
        int64_t at = now_ns + (left > 0 ? (int64_t)(left * 1e9) + LVN_NS_PER_MS : LVN_NS_PER_MS);
        wake_ns = at < wake_ns ? at : wake_ns;
    }
    return wake_ns;
}

/* Sleeps until somebody signals or that instant has come. Lock held. */
static void sleep_until(lvn_store *store, int64_t wake_ns)
{
    if (wake_ns == INT64_MAX) {
        pthread_cond_wait(&store->wake, &store->lock);
        return;
    }
    struct timespec until = {.tv_sec = wake_ns / LVN_NS_PER_S, .tv_nsec = wake_ns % LVN_NS_PER_S};
    pthread_cond_timedwait(&store->wake, &store->lock, &until);
}

static void take_incoming(lvn_store *store, op_list *batch)
{
    list_init(batch);
    while (store->incoming.head && batch->count < MAX_BATCH) {
        lvn_op *op = store->incoming.head;
        store->incoming.head = op->internal.next;
        if (!store->incoming.head)
            store->incoming.tail = &store->incoming.head;
        store->incoming.count--;
        list_add(batch, op);
    }
}

static bool list_has(const op_list *list, const lvn_op *op)
{
    for (const lvn_op *o = list->head; o; o = o->internal.next)
        if (o == op)
            return true;
    return false;
}

static bool take_parked(lvn_store *store, const lvn_op *op)
{
    for (size_t i = 0; i < store->parked_count; i++)
        if (store->parked[i] == op) {
            unpark(store, i);
            return true;
        }
    return false;
}

/* Ends parked operations that were given up; one that is not parked yet is tried again after the batch that may park it. Lock held
 * on entry and exit; released for the callbacks. */
static void end_cancelled(lvn_store *store, const op_list *batch)
{
    size_t kept = 0;
    for (size_t i = 0; i < store->cancelled_count; i++) {
        lvn_op *op = store->cancelled[i];
        if (take_parked(store, op)) {
            pthread_mutex_unlock(&store->lock);
            cancel_op(op);
            pthread_mutex_lock(&store->lock);
        } else if (list_has(batch, op) || list_has(&store->incoming, op)) {
            store->cancelled[kept++] = op;
        }
    }
    store->cancelled_count = kept;
}

static bool is_watchdog_due(const lvn_store *store)
{
    return lvn_state_next_deadline(&store->state) < store->now(store->now_user);
}

/* One round of the executor: what has queued up, and what can go on because of it. Turn held. False: the store has been closed and
 * nothing is left. */
static bool run_round(lvn_store *store)
{
    op_list batch, ready;
    pthread_mutex_lock(&store->lock);
    take_incoming(store, &batch);
    store->has_news = false;
    end_cancelled(store, &batch);
    bool is_last = store->is_closing && !batch.count;
    pthread_mutex_unlock(&store->lock);
    if (is_last)
        return false;
    if (batch.count || is_watchdog_due(store))
        run_batch(store, &batch);
    list_init(&ready);
    collect_ready(store, lvn_clock_monotonic_ns(), &ready);
    if (ready.count)
        run_batch(store, &ready);
    return true;
}

static void *run(void *arg)
{
    lvn_store *store = arg;
    pthread_setname_np(pthread_self(), "levin-store");
    pthread_mutex_lock(&store->turn);
    while (run_round(store)) {
        /* The second batch may have set these through the watchdog: then look at the parked ones once more. */
        bool is_ready = store->state.has_finished_some || store->state.has_queued_some;
        int64_t wake_ns = next_look(store);
        pthread_mutex_unlock(&store->turn);
        pthread_mutex_lock(&store->lock);
        if (!store->incoming.count && !store->cancelled_count && !store->is_closing && !store->has_news && !is_ready)
            sleep_until(store, wake_ns);
        pthread_mutex_unlock(&store->lock);
        pthread_mutex_lock(&store->turn);
    }
    while (store->parked_count)
        cancel_op(store->parked[--store->parked_count]);
    pthread_mutex_unlock(&store->turn);
    return NULL;
}

/* ---- the front ---- */

static lvn_code open_backend(const lvn_store_config *config, lvn_backend **out, lvn_err *err)
{
    if (!strcmp(config->url, "memory"))
        return lvn_backend_memory_open(out, err);
    if (!strncmp(config->url, "sqlite:", 7) && config->url[7])
        return lvn_backend_sqlite_open(config->url + 7, config->is_relaxed, out, err);
    return lvn_fail(err, LVN_INVALID, "no store is called \"%s\"; say memory or sqlite:PATH", config->url);
}

lvn_code lvn_store_open(const lvn_store_config *config, lvn_store **out, lvn_err *err)
{
    lvn_backend *backend;
    lvn_code code = open_backend(config, &backend, err);
    if (code)
        return code;
    lvn_store *store = lvn_zalloc(sizeof(*store));
    code = lvn_state_open(&store->state, backend, err);
    if (code) {
        lvn_state_close(&store->state);
        free(store);
        return code;
    }
    store->now = config->now ? config->now : wall_clock;
    store->now_user = config->now_user;
    store->watchdog_ms = config->watchdog_ms > 0 ? config->watchdog_ms : DEFAULT_WATCHDOG_MS;
    store->max_queue = config->max_queue ? config->max_queue : DEFAULT_QUEUE;
    store->begin_time = store->now(store->now_user);
    store->is_instant = backend->ops->is_instant;
    list_init(&store->incoming);
    pthread_mutex_init(&store->turn, NULL);
    pthread_mutex_init(&store->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&store->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    int failed = pthread_create(&store->thread, NULL, run, store);
    if (failed) {
        lvn_state_close(&store->state);
        free(store);
        return lvn_fail(err, LVN_IO, "no thread for the store: %s", strerror(failed));
    }
    *out = store;
    return LVN_OK;
}

void lvn_store_close(lvn_store *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&store->lock);
    store->is_closing = true;
    pthread_cond_signal(&store->wake);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->thread, NULL);
    lvn_state_close(&store->state);
    pthread_mutex_destroy(&store->turn);
    pthread_mutex_destroy(&store->lock);
    pthread_cond_destroy(&store->wake);
    free(store->cancelled);
    free(store->parked);
    free(store);
}

lvn_code lvn_store_submit(lvn_store *store, lvn_op *op, lvn_err *err)
{
    op->internal.submitted_ns = lvn_clock_monotonic_ns();
    lvn_code code = LVN_OK;
    pthread_mutex_lock(&store->lock);
    if (store->is_closing)
        code = lvn_fail(err, LVN_UNAVAILABLE, "the store is closing");
    else if (store->incoming.count >= store->max_queue)
        code = lvn_fail(err, LVN_FULL, "%zu operations are waiting already", store->incoming.count);
    else
        list_add(&store->incoming, op);
    if (!code)
        pthread_cond_signal(&store->wake);
    pthread_mutex_unlock(&store->lock);
    return code;
}

/* Reads rows in memory only, and few. */
static bool is_quick_read(const lvn_op *op)
{
    switch (op->kind) {
    case LVN_OP_GET_ROLLOUT:
    case LVN_OP_QUERY_ATTEMPTS:
    case LVN_OP_GET_LATEST_ATTEMPT:
    case LVN_OP_GET_RESOURCES:
    case LVN_OP_GET_WORKER:
    case LVN_OP_STATISTICS: return true;
    case LVN_OP_QUERY_ROLLOUTS:
        return !op->in.query_rollouts.has_status_in && !op->in.query_rollouts.rollout_id_in.is_given &&
               lvn_str_is_absent(op->in.query_rollouts.rollout_id_contains) && lvn_str_is_absent(op->in.query_rollouts.page.sort_by) &&
               op->in.query_rollouts.page.limit <= 256 && op->in.query_rollouts.page.limit > 0;
    default: return false;
    }
}

/* Short enough, where no disk is behind it, for a thread that must not block. */
static bool is_quick_write(const lvn_op *op)
{
    switch (op->kind) {
    case LVN_OP_ENQUEUE: return op->in.enqueue.count <= 16;
    case LVN_OP_DEQUEUE: return op->in.dequeue.wait_s <= 0 && op->in.dequeue.limit <= 16;
    case LVN_OP_ADD_SPANS: return op->in.add_spans.count <= 128;
    case LVN_OP_START_ROLLOUT:
    case LVN_OP_START_ATTEMPT:
    case LVN_OP_UPDATE_ROLLOUT:
    case LVN_OP_UPDATE_ATTEMPT:
    case LVN_OP_QUERY_SPANS: /* no write, but the backend's */
    case LVN_OP_NEXT_SEQUENCE:
    case LVN_OP_ADD_RESOURCES:
    case LVN_OP_UPDATE_RESOURCES:
    case LVN_OP_HEARTBEAT: return true;
    default: return false;
    }
}

static void apply_read(lvn_store *store, lvn_op *op, double now)
{
    lvn_apply(&store->state, op, now);
    if (op->kind == LVN_OP_STATISTICS)
        op->out.statistics.uptime_s = now - store->begin_time;
}

/* Turn held. */
static void apply_here(lvn_store *store, lvn_op *op)
{
    double before = lvn_state_next_deadline(&store->state);
    op_list one;
    list_init(&one);
    op->internal.submitted_ns = lvn_clock_monotonic_ns();
    list_add(&one, op);
    lvn_err err;
    lvn_code code = try_batch(store, &one, &err);
    if (code) {
        op->code = code;
        op->err = err;
    }
    bool has_ready = store->parked_count && (store->state.has_finished_some || store->state.has_queued_some);
    if (!has_ready)
        store->state.has_finished_some = store->state.has_queued_some = false;
    if (!has_ready && lvn_state_next_deadline(&store->state) >= before)
        return;
    pthread_mutex_lock(&store->lock);
    store->has_news = true;
    pthread_cond_signal(&store->wake);
    pthread_mutex_unlock(&store->lock);
}

bool lvn_store_try(lvn_store *store, lvn_op *op)
{
    bool is_read = is_quick_read(op);
    if (!is_read && !(store->is_instant && is_quick_write(op)))
        return false;
    if (pthread_mutex_trylock(&store->turn))
        return false;
    pthread_mutex_lock(&store->lock);
    bool is_free = !store->incoming.count && !store->is_closing;
    pthread_mutex_unlock(&store->lock);
    if (is_read && is_watchdog_due(store)) /* it may change what is read */
        is_free = false;
    if (is_free && is_read)
        apply_read(store, op, store->now(store->now_user));
    else if (is_free)
        apply_here(store, op);
    pthread_mutex_unlock(&store->turn);
    return is_free;
}

typedef struct call_wait {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
} call_wait;

static void end_call(lvn_op *op)
{
    call_wait *wait = op->user;
    pthread_mutex_lock(&wait->lock);
    wait->is_done = true;
    pthread_cond_signal(&wait->done);
    pthread_mutex_unlock(&wait->lock);
}

lvn_code lvn_store_call(lvn_store *store, lvn_op *op)
{
    call_wait wait = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    op->done = end_call;
    op->user = &wait;
    lvn_err err = {0};
    lvn_code code = lvn_store_submit(store, op, &err);
    if (code) { /* else the op is the executor's until it is done */
        op->code = code;
        op->err = err;
        return code;
    }
    pthread_mutex_lock(&wait.lock);
    while (!wait.is_done)
        pthread_cond_wait(&wait.done, &wait.lock);
    pthread_mutex_unlock(&wait.lock);
    pthread_mutex_destroy(&wait.lock);
    pthread_cond_destroy(&wait.done);
    return op->code;
}

void lvn_store_cancel(lvn_store *store, lvn_op *op)
{
    pthread_mutex_lock(&store->lock);
    if (store->cancelled_count == store->cancelled_capacity) {
        store->cancelled_capacity = store->cancelled_capacity ? store->cancelled_capacity * 2 : 16;
        store->cancelled = lvn_realloc(store->cancelled, store->cancelled_capacity * sizeof(*store->cancelled));
    }
    store->cancelled[store->cancelled_count++] = op;
    pthread_cond_signal(&store->wake);
    pthread_mutex_unlock(&store->lock);
}

void lvn_store_listen(lvn_store *store, void (*fn)(void *user, const lvn_event *event), void *user)
{
    pthread_mutex_lock(&store->turn);
    store->state.on_event = fn;
    store->state.on_event_user = user;
    pthread_mutex_unlock(&store->turn);
}

int64_t lvn_store_cpu_ns(const lvn_store *store)
{
    clockid_t clock;
    struct timespec t;
    if (pthread_getcpuclockid(store->thread, &clock) || clock_gettime(clock, &t))
        return 0;
    return t.tv_sec * LVN_NS_PER_S + t.tv_nsec;
}
