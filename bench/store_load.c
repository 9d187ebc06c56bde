/* Drives a server of the store's wire protocol over loopback: many connections, one request in flight on each, one thread.
 *
 *     store_load HOST PORT SCENARIO CONNECTIONS SECONDS PID[,PID..]
 *
 * Prints one JSON object: units done (a request, a span or a whole lifecycle, by the scenario), seconds, units a second, p50 and p99 of
 * a request's time, and the CPU time a unit that the scheduler charged to the processes PID. Any answer that is not 2xx counts as
 * an error and is shown once. Nothing in it knows Levin: v0.3's own server is measured with the same program. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 4096, REQUEST_ROOM = 1 << 16, ANSWER_ROOM = 1 << 21, ID_ROOM = 64, OTLP_SPANS = 50, SPAN_TEXT = 4600,
       MAX_SAMPLES = 8 << 20, LIFECYCLE_SPANS = 8 };

typedef struct connection connection;

/* Writes the connection's next request by its step; the answer before it is in c->answer. Sets c->is_unit on the request that
 * completes a unit, or several: c->units. */
typedef void (*scenario_step)(connection *c);

struct connection {
    int fd, number;
    char *request, *answer;
    size_t request_size, sent, received;
    size_t answer_size; /* 0: the head is not whole yet */
    char *body;
    uint64_t begin_ns;
    scenario_step step;
    int phase, units;
    uint64_t serial;
    char rollout[ID_ROOM], attempt[ID_ROOM];
};

static const char *host;
static char filler[SPAN_TEXT + 1];
static uint32_t *samples; /* microseconds times ten */
static size_t sample_count, error_count;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* ---- requests ---- */

static void set_request(connection *c, const char *method, const char *path, const char *type, const void *body, size_t size)
{
    int head = snprintf(c->request, REQUEST_ROOM, "%s /v1%s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", method,
                        path, host, type, size);
    if ((size_t)head + size > REQUEST_ROOM)
        die("a request of %zu bytes", size);
    if (size)
        memcpy(c->request + head, body, size);
    c->request_size = (size_t)head + size;
    c->units = 1;
}

__attribute__((format(printf, 3, 4))) static void post(connection *c, const char *path, const char *format, ...)
{
    static char body[REQUEST_ROOM];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(body, sizeof(body), format, args);
    va_end(args);
    set_request(c, "POST", path, "application/json", body, (size_t)size);
}

static void get(connection *c, const char *path)
{
    set_request(c, "GET", path, "application/json", NULL, 0);
}

/* The first text member of that name in the answer. */
static bool find(const connection *c, const char *name, char *out)
{
    char key[ID_ROOM];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(c->body, key);
    if (!at)
        return false;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at++ != '"')
        return false;
    size_t size = strcspn(at, "\"");
    if (size >= ID_ROOM)
        return false;
    memcpy(out, at, size);
    out[size] = '\0';
    return true;
}

static void enqueue(connection *c)
{
    post(c, "/agl/queues/rollouts/enqueue", "{\"rollouts\":[{\"input\":{\"question\":\"How many?\",\"n\":%d},\"mode\":\"train\"}]}", c->number);
}

static void dequeue(connection *c)
{
    post(c, "/agl/queues/rollouts/dequeue", "{\"limit\":1,\"worker_id\":\"worker-%d\"}", c->number);
}

static void start(connection *c)
{
    post(c, "/agl/rollouts", "{\"input\":{\"question\":\"How many?\"},\"mode\":\"train\"}");
    c->units = 0;
}

static void add_span(connection *c)
{
    uint64_t id = ++c->serial << 16 | (uint64_t)c->number;
    post(c, "/agl/spans",
         "{\"rollout_id\":\"%s\",\"attempt_id\":\"%s\",\"sequence_id\":%d,\"trace_id\":\"%032llx\",\"span_id\":\"%016llx\",\"parent_id\":null,"
         "\"name\":\"openai.chat.completion\",\"status\":{\"status_code\":\"OK\",\"description\":null},\"attributes\":{"
         "\"gen_ai.request.model\":\"policy\",\"gen_ai.usage.input_tokens\":120,\"gen_ai.prompt.0.content\":\"%s\"},\"events\":[],"
         "\"links\":[],\"start_time\":1700000000.25,\"end_time\":1700000001.5,\"context\":null,\"parent\":null,"
         "\"resource\":{\"attributes\":{},\"schema_url\":\"\"}}",
         c->rollout, c->attempt, (int)(c->serial & 0x7fffffff), (unsigned long long)id, (unsigned long long)id, filler);
}

/* ---- OTLP by hand: field numbers of opentelemetry-proto 1.x ---- */

typedef struct message {
    uint8_t bytes[1 << 15];
    size_t size;
} message;

static void put_varint(message *m, uint64_t value)
{
    for (; value > 127; value >>= 7)
        m->bytes[m->size++] = (uint8_t)(value | 128);
    m->bytes[m->size++] = (uint8_t)value;
}

static void put_bytes(message *m, int field, const void *bytes, size_t size)
{
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, size);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_time(message *m, int field, uint64_t value)
{
    put_varint(m, (uint64_t)field << 3 | 1);
    memcpy(m->bytes + m->size, &value, sizeof(value));
    m->size += sizeof(value);
}

static void put_attribute(message *m, int field, const char *key, const char *text)
{
    static message value, pair;
    value.size = pair.size = 0;
    put_bytes(&value, 1, text, strlen(text));
    put_bytes(&pair, 1, key, strlen(key));
    put_bytes(&pair, 2, value.bytes, value.size);
    put_bytes(m, field, pair.bytes, pair.size);
}

static void add_otlp(connection *c)
{
    static message span, scope, resource, resource_spans, request;
    scope.size = resource.size = resource_spans.size = request.size = 0;
    put_attribute(&resource, 1, "service.name", "agent");
    put_attribute(&resource, 1, "agentlightning.rollout_id", c->rollout);
    put_attribute(&resource, 1, "agentlightning.attempt_id", c->attempt);
    for (int i = 0; i < OTLP_SPANS; i++) {
        uint64_t id[2] = {++c->serial, (uint64_t)c->number + 1};
        span.size = 0;
        put_bytes(&span, 1, id, 16);
        put_bytes(&span, 2, id, 8);
        span.bytes[span.size - 1] = (uint8_t)(c->number & 255); /* eight bytes: serial and connection */
        span.bytes[span.size - 2] = (uint8_t)(c->number >> 8 & 255);
        put_bytes(&span, 5, "agent.step", 10);
        put_time(&span, 7, 1700000000000000000u);
        put_time(&span, 8, 1700000001000000000u);
        put_attribute(&span, 9, "gen_ai.request.model", "policy");
        put_attribute(&span, 9, "gen_ai.prompt.0.role", "user");
        put_attribute(&span, 9, "gen_ai.prompt.0.content", "How many heads of the departments are older than 56 ?");
        put_bytes(&scope, 2, span.bytes, span.size);
    }
    put_bytes(&resource_spans, 1, resource.bytes, resource.size);
    put_bytes(&resource_spans, 2, scope.bytes, scope.size);
    put_bytes(&request, 1, resource_spans.bytes, resource_spans.size);
    set_request(c, "POST", "/traces", "application/x-protobuf", request.bytes, request.size);
    c->units = OTLP_SPANS;
}

/* ---- scenarios ---- */

static void take_ids(connection *c)
{
    if (!find(c, "rollout_id", c->rollout) || !find(c, "attempt_id", c->attempt))
        die("no ids in the answer: %.300s", c->body);
}

/* First a rollout of its own, then `next` again and again. */
static void with_rollout(connection *c, scenario_step next)
{
    if (c->phase == 0) {
        c->phase = 1;
        start(c);
        return;
    }
    if (c->phase == 1) {
        take_ids(c);
        c->phase = 2;
    }
    next(c);
}

static void step_health(connection *c) { get(c, "/agl/health"); }
static void step_enqueue(connection *c) { enqueue(c); }
static void step_worker(connection *c)
{
    char path[ID_ROOM];
    snprintf(path, sizeof(path), "/agl/workers/worker-%d", c->number);
    post(c, path, "{\"heartbeat_stats\":{\"cpu\":0.5,\"memory\":123456}}");
}
static void next_sequence(connection *c)
{
    post(c, "/agl/spans/next", "{\"rollout_id\":\"%s\",\"attempt_id\":\"%s\"}", c->rollout, c->attempt);
}
static void step_sequence(connection *c) { with_rollout(c, next_sequence); }
static void get_rollout(connection *c)
{
    char path[2 * ID_ROOM];
    snprintf(path, sizeof(path), "/agl/rollouts/%s", c->rollout);
    get(c, path);
}
static void step_get(connection *c) { with_rollout(c, get_rollout); }
static void step_span(connection *c) { with_rollout(c, add_span); }
static void step_otlp(connection *c) { with_rollout(c, add_otlp); }

/* What is enqueued is dequeued: half of the requests are dequeues, and only those are units. Their CPU time is found by taking off
 * the time of enqueues measured alone, which bench/store does. */
static void step_queue(connection *c)
{
    c->phase ^= 1;
    if (c->phase)
        enqueue(c);
    else
        dequeue(c);
}

static void query_spans(connection *c)
{
    if (c->phase < 2 + 20) {
        c->phase++;
        add_span(c);
        c->units = 0;
        return;
    }
    char path[4 * ID_ROOM];
    snprintf(path, sizeof(path), "/agl/spans?rollout_id=%s&limit=20", c->rollout);
    get(c, path);
}
static void step_query_spans(connection *c) { with_rollout(c, query_spans); }
static void step_query_rollouts(connection *c)
{
    if (c->phase < 200) {
        c->phase++;
        enqueue(c);
        c->units = 0;
        return;
    }
    get(c, "/agl/rollouts?limit=100");
}

/* Enqueue, dequeue, eight spans, the end of the attempt: eleven requests. */
static void step_lifecycle(connection *c)
{
    char path[4 * ID_ROOM];
    int phase = c->phase++;
    if (phase == 0) {
        enqueue(c);
    } else if (phase == 1) {
        dequeue(c);
    } else if (phase < 2 + LIFECYCLE_SPANS) {
        if (phase == 2)
            take_ids(c);
        add_span(c);
    } else {
        snprintf(path, sizeof(path), "/agl/rollouts/%s/attempts/%s", c->rollout, c->attempt);
        post(c, path, "{\"status\":\"succeeded\"}");
        c->phase = 0;
    }
    c->units = phase == 2 + LIFECYCLE_SPANS;
}

static const struct {
    const char *name;
    scenario_step step;
} scenarios[] = {
    {"health", step_health},     {"sequence", step_sequence},       {"get", step_get},
    {"heartbeat", step_worker},  {"enqueue", step_enqueue},         {"enqueue+dequeue", step_queue},
    {"span", step_span},         {"otlp", step_otlp},               {"lifecycle", step_lifecycle},
    {"query-spans", step_query_spans}, {"query-rollouts", step_query_rollouts},
};

/* ---- connections ---- */

static void flush(connection *c)
{
    while (c->sent < c->request_size) {
        ssize_t n = send(c->fd, c->request + c->sent, c->request_size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            die("send: %s", strerror(errno));
        c->sent += (size_t)n;
    }
}

static void begin_request(connection *c)
{
    c->step(c);
    c->sent = c->received = c->answer_size = 0;
    c->begin_ns = now_ns();
    flush(c);
}

static void find_answer_size(connection *c)
{
    c->answer[c->received] = '\0';
    char *end = strstr(c->answer, "\r\n\r\n");
    if (!end)
        return;
    *end = '\0';
    const char *length = strcasestr(c->answer, "\r\ncontent-length:");
    if (!length)
        die("an answer without a length: %s", c->answer);
    *end = '\r';
    c->body = end + 4;
    c->answer_size = (size_t)(c->body - c->answer) + strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
    if (c->answer_size >= ANSWER_ROOM)
        die("an answer of %zu bytes", c->answer_size);
}

/* Whether the answer is whole. */
static bool receive(connection *c)
{
    ssize_t n = recv(c->fd, c->answer + c->received, ANSWER_ROOM - 1 - c->received, 0);
    if (n <= 0)
        die("connection %d was closed: %s", c->number, n ? strerror(errno) : "end of stream");
    c->received += (size_t)n;
    if (!c->answer_size)
        find_answer_size(c);
    if (!c->answer_size || c->received < c->answer_size)
        return false;
    c->answer[c->answer_size] = '\0';
    return true;
}

static uint64_t cpu_ns_of(const char *pid)
{
    char path[128];
    uint64_t sum = 0;
    snprintf(path, sizeof(path), "/proc/%s/task", pid);
    DIR *tasks = opendir(path);
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        snprintf(path, sizeof(path), "/proc/%s/task/%.16s/schedstat", pid, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        unsigned long long ns;
        if (file && fscanf(file, "%llu", &ns) == 1)
            sum += ns;
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return sum;
}

static uint64_t cpu_ns(const char *pids)
{
    char copy[256], *rest = copy;
    uint64_t sum = 0;
    snprintf(copy, sizeof(copy), "%s", pids);
    for (char *pid; (pid = strsep(&rest, ","));)
        sum += cpu_ns_of(pid);
    return sum;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static connection *open_connections(int count, int port, scenario_step step, int poll)
{
    connection *all = calloc((size_t)count, sizeof(*all));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die("%s is not an IPv4 address", host);
    for (int i = 0; i < count; i++) {
        connection *c = &all[i];
        int one = 1;
        c->number = i;
        c->step = step;
        c->request = malloc(REQUEST_ROOM);
        c->answer = malloc(ANSWER_ROOM);
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (connect(c->fd, (struct sockaddr *)&address, sizeof(address)))
            die("%s:%d: %s", host, port, strerror(errno));
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = c});
    }
    return all;
}

typedef struct totals {
    uint64_t units, requests, begin_ns, begin_cpu;
} totals;

static void count_answer(connection *c, totals *t, bool is_measured)
{
    if (memcmp(c->answer, "HTTP/1.1 2", 10) != 0 && !error_count++)
        fprintf(stderr, "answer %.400s\n", c->answer);
    if (!is_measured)
        return;
    t->requests++;
    t->units += (uint64_t)c->units;
    if (sample_count < MAX_SAMPLES)
        samples[sample_count++] = (uint32_t)((now_ns() - c->begin_ns) / 100);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        die("usage: store_load HOST PORT SCENARIO CONNECTIONS SECONDS PID[,PID..]");
    host = argv[1];
    int count = atoi(argv[4]);
    double seconds = atof(argv[5]);
    scenario_step step = NULL;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
        if (!strcmp(scenarios[i].name, argv[3]))
            step = scenarios[i].step;
    if (!step || count < 1 || count > MAX_CONNECTIONS)
        die("no such scenario, or not 1 to %d connections", MAX_CONNECTIONS);
    memset(filler, 'a', SPAN_TEXT);
    samples = malloc(MAX_SAMPLES * sizeof(*samples));
    int poll = epoll_create1(EPOLL_CLOEXEC);
    connection *all = open_connections(count, atoi(argv[2]), step, poll);
    for (int i = 0; i < count; i++)
        begin_request(&all[i]);
    /* A fifth of the time before anything is measured: what a scenario sets up is behind it then. */
    uint64_t start_ns = now_ns(), warm_ns = start_ns + (uint64_t)(seconds * 2e8), end_ns = warm_ns + (uint64_t)(seconds * 1e9);
    totals t = {0};
    for (uint64_t now = start_ns; now < end_ns; now = now_ns()) {
        struct epoll_event events[256];
        int ready = epoll_wait(poll, events, 256, 100);
        if (!t.begin_ns && now_ns() >= warm_ns) {
            t.begin_ns = now_ns();
            t.begin_cpu = cpu_ns(argv[6]);
        }
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (!receive(c))
                continue;
            count_answer(c, &t, t.begin_ns != 0);
            begin_request(c);
        }
    }
    double took = 1e-9 * (double)(now_ns() - t.begin_ns), cpu = (double)(cpu_ns(argv[6]) - t.begin_cpu);
    qsort(samples, sample_count, sizeof(*samples), by_value);
    double p50 = sample_count ? samples[sample_count / 2] / 10.0 : 0, p99 = sample_count ? samples[sample_count * 99 / 100] / 10.0 : 0;
    printf("{\"scenario\":\"%s\",\"connections\":%d,\"units\":%llu,\"requests\":%llu,\"seconds\":%.3f,\"units_per_second\":%.1f,"
           "\"p50_us\":%.1f,\"p99_us\":%.1f,\"cpu_us_per_unit\":%.3f,\"errors\":%zu}\n",
           argv[3], count, (unsigned long long)t.units, (unsigned long long)t.requests, took, (double)t.units / took, p50, p99,
           t.units ? cpu / 1000 / (double)t.units : 0, error_count);
    return error_count ? 1 : 0;
}
