#include "api/events.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

enum { KEPT = 8192, MAX_BUFFERED = 1 << 18, ALIVE_MS = 15000 };

typedef struct kept_event {
    const char *name;
    char *data; /* JSON */
    lvn_str rollout_id; /* within data's allocation; absent: of no rollout */
} kept_event;

typedef struct stream {
    struct stream *previous, *next;
    lvn_events *events;
    lvn_http_request *request;
    uint64_t next_number; /* of the event to be sent next */
    lvn_str rollout_id;   /* only its events; absent: all */
} stream;

struct lvn_events {
    lvn_store *store;
    lvn_loop *loop;
    char boot[20]; /* tells this process' numbers from those of one before */
    stream *streams; /* loop only */
    lvn_timer *alive; /* loop only; runs while there are streams */
    bool is_listening, is_stopped; /* loop only */
    pthread_mutex_t lock;          /* guards what follows */
    kept_event ring[KEPT];
    uint64_t next_number; /* of the next event; the first is 1 */
    bool is_flush_posted;
};

/* ---- from the store ---- */

static void add_text(lvn_buf *buf, const char *key, lvn_str text)
{
    lvn_json_write_key(buf, key);
    lvn_json_write_str(buf, text);
}

static const char *describe(const lvn_event *e, lvn_buf *buf, lvn_str *out_rollout)
{
    lvn_buf_append_char(buf, '{');
    *out_rollout = LVN_STR_ABSENT;
    const char *name = "resources";
    if (e->rollout) {
        name = "rollout";
        *out_rollout = e->rollout->rollout_id;
        add_text(buf, "rollout_id", e->rollout->rollout_id);
        add_text(buf, "status", lvn_str_of(lvn_rollout_status_name(e->rollout->status)));
    } else if (e->attempt) {
        name = "attempt";
        *out_rollout = e->attempt->rollout_id;
        add_text(buf, "rollout_id", e->attempt->rollout_id);
        add_text(buf, "attempt_id", e->attempt->attempt_id);
        lvn_json_write_key(buf, "sequence_id");
        lvn_json_write_int(buf, e->attempt->sequence_id);
        add_text(buf, "status", lvn_str_of(lvn_attempt_status_name(e->attempt->status)));
        add_text(buf, "worker_id", e->attempt->worker_id);
    } else if (e->worker) {
        name = "worker";
        add_text(buf, "worker_id", e->worker->worker_id);
        add_text(buf, "status", lvn_str_of(lvn_worker_status_name(e->worker->status)));
        add_text(buf, "current_rollout_id", e->worker->current_rollout_id);
        add_text(buf, "current_attempt_id", e->worker->current_attempt_id);
    } else if (e->resources) {
        add_text(buf, "resources_id", e->resources->resources_id);
        lvn_json_write_key(buf, "version");
        lvn_json_write_int(buf, e->resources->version);
    }
    lvn_buf_append_char(buf, '}');
    return name;
}

static void flush(void *arg);

/* On the thread that applied the change. */
static void on_event(void *user, const lvn_event *event)
{
    lvn_events *e = user;
    lvn_buf buf;
    lvn_str rollout;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    kept_event kept = {.name = describe(event, &buf, &rollout), .rollout_id = LVN_STR_ABSENT};
    if (!lvn_str_is_absent(rollout)) { /* behind the data, in the same piece of memory */
        size_t at = buf.len + 1;
        lvn_buf_append_char(&buf, '\0');
        lvn_buf_append_str(&buf, rollout);
        kept.rollout_id = (lvn_str){buf.ptr + at, rollout.len};
    }
    kept.data = lvn_buf_take(&buf, NULL);
    pthread_mutex_lock(&e->lock);
    kept_event *place = &e->ring[e->next_number++ % KEPT];
    free(place->data);
    *place = kept;
    bool must_post = !e->is_flush_posted;
    e->is_flush_posted = true;
    pthread_mutex_unlock(&e->lock);
    if (must_post)
        lvn_loop_post(e->loop, flush, e);
}

/* ---- to the streams; loop only ---- */

static void write_id(const lvn_events *e, lvn_buf *out, uint64_t number, const char *name, const char *data)
{
    lvn_buf_printf(out, "id: %s-%" PRIu64 "\nevent: %s\ndata: %s\n\n", e->boot, number, name, data);
}

/* What the stream has not had yet, as long as its reader takes it. */
static void send_pending(stream *s)
{
    lvn_events *e = s->events;
    lvn_buf out;
    lvn_buf_init(&out, LVN_BUF_NO_LIMIT);
    if (lvn_http_stream_buffered(s->request) > MAX_BUFFERED)
        return; /* goes on when that has been taken */
    pthread_mutex_lock(&e->lock);
    uint64_t end = e->next_number;
    if (s->next_number + KEPT < end) {
        s->next_number = end;
        write_id(e, &out, end - 1, "reset", "{}");
    }
    for (; s->next_number < end && out.len < MAX_BUFFERED; s->next_number++) {
        const kept_event *event = &e->ring[s->next_number % KEPT];
        if (lvn_str_is_absent(s->rollout_id) || (!lvn_str_is_absent(event->rollout_id) && lvn_str_eq(s->rollout_id, event->rollout_id)))
            write_id(e, &out, s->next_number, event->name, event->data);
    }
    pthread_mutex_unlock(&e->lock);
    if (out.len)
        lvn_http_stream_write(s->request, lvn_buf_str(&out));
    lvn_buf_done(&out);
}

static void flush(void *arg)
{
    lvn_events *e = arg;
    pthread_mutex_lock(&e->lock);
    e->is_flush_posted = false;
    pthread_mutex_unlock(&e->lock);
    for (stream *s = e->streams; s; s = s->next)
        send_pending(s);
}

static void on_drain(void *arg)
{
    send_pending(arg);
}

/* A line now and then, so that nobody between takes the connection for dead. */
static void keep_alive(void *arg)
{
    lvn_events *e = arg;
    for (stream *s = e->streams; s; s = s->next)
        lvn_http_stream_write(s->request, LVN_STR(":\n\n"));
    e->alive = e->streams ? lvn_loop_after(e->loop, ALIVE_MS, keep_alive, e) : NULL;
}

static void remove_stream(stream *s)
{
    lvn_http_request *request = s->request;
    *(s->previous ? &s->previous->next : &s->events->streams) = s->next;
    if (s->next)
        s->next->previous = s->previous;
    lvn_http_on_disconnect(request, NULL, NULL);
    lvn_http_stream_on_drain(request, NULL, NULL);
    lvn_http_release(request); /* the stream lived in its arena */
}

static void on_disconnect(void *arg)
{
    remove_stream(arg);
}

/* Where a client that had seen `last` goes on; the present when it is of another process, or was never sent. */
static uint64_t next_after(const lvn_events *e, lvn_str last, uint64_t end, bool *out_is_known)
{
    size_t boot = strlen(e->boot);
    *out_is_known = last.len > boot + 1 && last.len < boot + 22 && !memcmp(last.ptr, e->boot, boot) && last.ptr[boot] == '-';
    char digits[24] = "";
    if (*out_is_known)
        memcpy(digits, last.ptr + boot + 1, last.len - boot - 1);
    uint64_t number = strtoull(digits, NULL, 10);
    *out_is_known = *out_is_known && number < end;
    return *out_is_known ? number + 1 : end;
}

static void begin(lvn_events *e, lvn_http_request *request)
{
    stream *s = lvn_arena_zalloc(request->arena, sizeof(*s));
    *s = (stream){.events = e, .request = request, .next = e->streams, .rollout_id = lvn_http_query_get(request, "rollout_id")};
    lvn_str last = lvn_http_header_get(request, "last-event-id");
    bool is_known;
    pthread_mutex_lock(&e->lock);
    uint64_t end = e->next_number;
    pthread_mutex_unlock(&e->lock);
    s->next_number = next_after(e, last, end, &is_known);
    if (s->next)
        s->next->previous = s;
    e->streams = s;
    lvn_http_hold(request);
    lvn_http_answer_header(request, "Cache-Control", LVN_STR("no-store"));
    lvn_http_stream_begin(request, 200, "text/event-stream");
    lvn_http_on_disconnect(request, on_disconnect, s);
    lvn_http_stream_on_drain(request, on_drain, s);
    lvn_buf out;
    lvn_buf_init(&out, LVN_BUF_NO_LIMIT);
    /* Tells where the stream begins, so that a client that loses the connection before the first event misses none. */
    if (!is_known)
        write_id(e, &out, s->next_number - 1, last.len ? "reset" : "ready", "{}");
    lvn_http_stream_write(request, lvn_buf_str(&out));
    lvn_buf_done(&out);
    send_pending(s);
    if (!e->alive)
        e->alive = lvn_loop_after(e->loop, ALIVE_MS, keep_alive, e);
}

static void handle(lvn_http_request *request)
{
    lvn_events *e = request->user;
    if (e->is_stopped) {
        lvn_http_respond(request, 503, "application/json", LVN_STR("{\"detail\":\"The server is closing\"}"));
        return;
    }
    if (!e->is_listening) { /* nothing is kept for nobody */
        e->is_listening = true;
        lvn_store_listen(e->store, on_event, e);
    }
    begin(e, request);
}

/* ---- life ---- */

lvn_events *lvn_events_open(lvn_http_server *server, lvn_store *store)
{
    lvn_events *e = lvn_zalloc(sizeof(*e));
    e->store = store;
    e->loop = lvn_http_loop(server);
    e->next_number = 1;
    snprintf(e->boot, sizeof(e->boot), "%" PRIx64, (uint64_t)lvn_clock_unix_ns());
    pthread_mutex_init(&e->lock, NULL);
    lvn_http_route(server, "GET", "/v1/agl/events", handle, e);
    return e;
}

void lvn_events_stop(lvn_events *e)
{
    if (e->is_stopped)
        return;
    e->is_stopped = true;
    if (e->is_listening)
        lvn_store_listen(e->store, NULL, NULL);
    lvn_timer_cancel(e->alive);
    e->alive = NULL;
    while (e->streams) {
        lvn_http_request *request = e->streams->request;
        lvn_http_hold(request);
        remove_stream(e->streams);
        lvn_http_stream_end(request);
        lvn_http_release(request);
    }
}

void lvn_events_free(lvn_events *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < KEPT; i++)
        free(e->ring[i].data);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
