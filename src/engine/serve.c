/* The decode thread: takes requests, gives each a sequence, and decodes all sequences of a policy together, a token each a turn, with
 * pieces of new prompts between. */
#include "engine/serve.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <llama.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/f16copy.h"
#include "engine/policy.h"
#include "engine/sample.h"
#include "engine/vocabulary.h"

enum { BATCH_TOKENS = 512, STOP_TAIL = 4096 };

struct lvn_generation {
    lvn_generation *next; /* in the waiting list */
    lvn_policy *policy;
    int32_t *tokens; /* the prompt, and behind it what was answered */
    int token_count, prompt_count;
    lvn_sampling sampling;
    lvn_str *stops; /* one allocation with their bytes */
    size_t stop_count;
    int64_t deadline_ns, submitted_ns, started_ns, first_token_ns;
    void (*on_token)(void *user, const lvn_token_info *token);
    void (*on_done)(void *user, const lvn_generation_result *result);
    void *user;
    bool is_cancelled; /* guarded by the server's lock */

    /* Decode thread only. */
    lvn_slot *slot;
    lvn_rng rng;
    int cached, answered;
    int row; /* of the batch, whose logits are wanted; -1: none this turn */
    lvn_buf text; /* tail of the answer, when there are stops */
};

struct lvn_serve {
    lvn_serve_config config;
    struct llama_model *model;
    char *served_path; /* of the model's weights as they are served */
    lvn_vocabulary vocabulary;
    lvn_policy_shape shape;
    char name[128];

    pthread_mutex_t model_lock; /* the model's list of adapters: policies are made and freed under it; taken before `lock`, if both */
    pthread_t thread;
    pthread_mutex_t lock; /* guards everything down to the blank line */
    pthread_cond_t wake;
    lvn_generation *waiting, **waiting_tail;
    int waiting_count;
    lvn_policy *policies; /* newest first; the head is the current one */
    bool is_closing;
    lvn_serve_stats stats;

    lvn_sampler sampler; /* decode thread only */
    struct llama_batch batch;
};

/* ---- ending a request ---- */

static void free_request(lvn_generation *g)
{
    free(g->tokens);
    free(g->stops);
    lvn_buf_done(&g->text);
    free(g);
}

/* Lock not held. */
static void finish(lvn_serve *s, lvn_generation *g, lvn_finish how, lvn_code code, const char *message)
{
    int64_t now = lvn_clock_monotonic_ns();
    lvn_generation_result result = {
        .finish = how, .code = code, .message = message, .version = g->policy->version, .prompt_tokens = (size_t)g->prompt_count,
        .cached_tokens = (size_t)g->cached, .answer_tokens = (size_t)g->answered,
        .queued_ns = (g->started_ns ? g->started_ns : now) - g->submitted_ns,
        .first_token_ns = g->first_token_ns ? g->first_token_ns - g->submitted_ns : 0, .total_ns = now - g->submitted_ns,
    };
    pthread_mutex_lock(&s->lock);
    if (g->slot) {
        g->slot->request = NULL;
        g->slot->last_used = g->policy->turn;
        g->policy->active--;
        g->policy->is_tight = false;
        s->stats.running--;
    }
    s->stats.requests++;
    s->stats.prompt_tokens += (uint64_t)g->prompt_count;
    s->stats.cached_tokens += (uint64_t)g->cached;
    pthread_mutex_unlock(&s->lock);
    g->on_done(g->user, &result);
    free_request(g);
}

/* ---- waiting requests ---- */

static void unlink_waiting(lvn_serve *s, lvn_generation **at)
{
    lvn_generation *g = *at;
    *at = g->next;
    if (!*at)
        s->waiting_tail = at;
    s->waiting_count--;
    s->stats.waiting--;
    g->policy->waiting--;
}

/* One that need not go on: cancelled, late, or the server closes. Lock held; the request is off the list. */
static lvn_generation *take_ended(lvn_serve *s, lvn_code *out)
{
    int64_t now = lvn_clock_monotonic_ns();
    for (lvn_generation **at = &s->waiting; *at; at = &(*at)->next) {
        lvn_generation *g = *at;
        bool is_late = g->deadline_ns && now > g->deadline_ns;
        if (!g->is_cancelled && !is_late && !s->is_closing)
            continue;
        *out = is_late && !g->is_cancelled && !s->is_closing ? LVN_TIMEOUT : LVN_CANCELLED;
        unlink_waiting(s, at);
        return g;
    }
    return NULL;
}

/* The longest beginning that g shares with a prompt that is being computed right now and is not in the cache yet: better to wait for it
 * than to compute it twice. */
static bool is_worth_waiting(const lvn_policy *p, const lvn_generation *g, int shared)
{
    for (int i = 0; i < p->slot_count; i++) {
        const lvn_generation *other = p->slots[i].request;
        if (!other || p->slots[i].count >= other->prompt_count)
            continue;
        int most = other->prompt_count < g->prompt_count ? other->prompt_count : g->prompt_count, n = 0;
        while (n < most && other->tokens[n] == g->tokens[n])
            n++;
        if (n > shared + 16)
            return true;
    }
    return false;
}

/* Lock held. */
static bool admit_one(lvn_serve *s, lvn_policy *p)
{
    if (p->is_tight && p->active)
        return false;
    for (lvn_generation **at = &s->waiting; *at; at = &(*at)->next) {
        lvn_generation *g = *at;
        if (g->policy != p || is_worth_waiting(p, g, lvn_policy_shared(p, g->tokens, g->token_count)))
            continue;
        int64_t now = lvn_clock_monotonic_ns();
        int cached;
        lvn_slot *slot = lvn_policy_take(p, g->tokens, g->token_count, &cached);
        if (!slot)
            return false;
        unlink_waiting(s, at);
        slot->request = g;
        g->slot = slot;
        if (!g->started_ns) { /* not one that had to give way */
            g->started_ns = now;
            g->cached = cached;
        }
        p->active++;
        s->stats.running++;
        return true;
    }
    return false;
}

/* ---- a turn ---- */

static void add_token(struct llama_batch *b, int32_t token, int position, int seq, bool wants_logits)
{
    int i = b->n_tokens++;
    b->token[i] = token;
    b->pos[i] = position;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = seq;
    b->logits[i] = wants_logits;
}

/* What a request has that its sequence does not hold yet: one token while it answers, more of a prompt. */
static void feed(lvn_serve *s, lvn_slot *slot)
{
    lvn_generation *g = slot->request;
    for (int at = slot->count; at < g->token_count && s->batch.n_tokens < BATCH_TOKENS; at++) {
        bool is_last = at + 1 == g->token_count;
        if (is_last)
            g->row = s->batch.n_tokens;
        add_token(&s->batch, g->tokens[at], at, slot->seq, is_last);
    }
}

/* Sequences that answer come first: they must not wait for long prompts. */
static void fill_batch(lvn_serve *s, lvn_policy *p)
{
    s->batch.n_tokens = 0;
    for (int is_long = 0; is_long < 2; is_long++)
        for (int i = 0; i < p->slot_count; i++) {
            lvn_slot *slot = &p->slots[i];
            if (!slot->request || (slot->request->token_count - slot->count > 1) != is_long)
                continue;
            slot->request->row = -1;
            feed(s, slot);
        }
}

/* What the batch put into the cache. */
static void note_cached(lvn_serve *s, lvn_policy *p)
{
    for (int i = 0; i < s->batch.n_tokens; i++) {
        lvn_slot *slot = &p->slots[s->batch.seq_id[i][0]];
        slot->tokens[slot->count++] = s->batch.token[i];
    }
}

static bool ends_with_stop(lvn_generation *g, lvn_str piece)
{
    if (!g->stop_count)
        return false;
    lvn_buf_append_str(&g->text, piece);
    bool is_found = false;
    for (size_t i = 0; i < g->stop_count && !is_found; i++)
        is_found = g->stops[i].len && lvn_str_contains(lvn_buf_str(&g->text), g->stops[i]);
    if (g->text.len > STOP_TAIL)
        lvn_buf_consume(&g->text, g->text.len - STOP_TAIL / 2);
    return is_found;
}

/* Takes the next token of a request from its logits. Returns whether the answer has ended, and how. */
static bool next_token(lvn_serve *s, lvn_generation *g, const float *logits, lvn_finish *out)
{
    struct lvn_token_alt alternatives[20];
    lvn_token_info info;
    lvn_sample(&s->sampler, logits, &g->sampling, &g->rng, alternatives, &info);
    if (!g->answered++)
        g->first_token_ns = lvn_clock_monotonic_ns();
    g->tokens[g->token_count++] = info.id;
    if (g->on_token)
        g->on_token(g->user, &info);
    bool is_end = llama_vocab_is_eog(s->vocabulary.vocab, info.id);
    *out = LVN_FINISH_STOP;
    if (is_end || ends_with_stop(g, s->vocabulary.texts[info.id]))
        return true;
    *out = LVN_FINISH_LENGTH;
    return g->answered >= g->sampling.max_tokens || g->token_count >= s->config.context_tokens;
}

static void fail_all(lvn_serve *s, lvn_policy *p, const char *message)
{
    lvn_log(LVN_ERROR, "decode_failed", "error=\"%s\"", message);
    for (int i = 0; i < p->slot_count; i++) {
        lvn_generation *g = p->slots[i].request;
        if (g)
            finish(s, g, LVN_FINISH_ERROR, LVN_INTERNAL, message);
        lvn_policy_cut(p, &p->slots[i], 0);
    }
}

/* LVN_OK; LVN_FULL: the cache has no room even without what idle sequences kept. */
static lvn_code decode(lvn_serve *s, lvn_policy *p)
{
    int result = llama_decode(p->context, s->batch);
    if (result == 1 && lvn_policy_evict(p))
        result = llama_decode(p->context, s->batch);
    return result == 0 ? LVN_OK : result == 1 ? LVN_FULL : LVN_INTERNAL;
}

/* The youngest request gives way when the cache is full: it goes on later, its tokens computed again. Nobody is admitted before another
 * has ended, or they would take turns in giving way. Lock not held. */
static bool push_back_youngest(lvn_serve *s, lvn_policy *p)
{
    lvn_slot *youngest = NULL;
    for (int i = 0; i < p->slot_count; i++) {
        lvn_slot *slot = &p->slots[i];
        if (slot->request && (!youngest || slot->request->submitted_ns > youngest->request->submitted_ns))
            youngest = slot;
    }
    if (!youngest || p->active < 2)
        return false;
    lvn_generation *g = youngest->request;
    pthread_mutex_lock(&s->lock);
    youngest->request = NULL;
    g->slot = NULL;
    p->active--;
    p->is_tight = true;
    s->stats.running--;
    g->next = s->waiting;
    s->waiting = g;
    if (!g->next)
        s->waiting_tail = &g->next;
    s->waiting_count++;
    s->stats.waiting++;
    p->waiting++;
    pthread_mutex_unlock(&s->lock);
    lvn_policy_cut(p, youngest, 0);
    return true;
}

static void turn(lvn_serve *s, lvn_policy *p)
{
    int64_t begin = lvn_clock_monotonic_ns();
    fill_batch(s, p);
    if (!s->batch.n_tokens)
        return;
    lvn_policy_tidy(p);
    lvn_code code = decode(s, p);
    if (code == LVN_FULL && push_back_youngest(s, p))
        return;
    if (code) {
        fail_all(s, p, code == LVN_FULL ? "the context is full" : "llama.cpp could not decode");
        return;
    }
    note_cached(s, p);
    uint64_t answered = 0;
    for (int i = 0; i < p->slot_count; i++) {
        lvn_generation *g = p->slots[i].request;
        lvn_finish how;
        if (!g || g->row < 0)
            continue;
        answered++;
        if (next_token(s, g, llama_get_logits_ith(p->context, g->row), &how))
            finish(s, g, how, LVN_OK, NULL);
    }
    pthread_mutex_lock(&s->lock);
    s->stats.answer_tokens += answered;
    s->stats.busy_ns += lvn_clock_monotonic_ns() - begin;
    s->stats.decode_cpu_ns = lvn_clock_thread_cpu_ns();
    pthread_mutex_unlock(&s->lock);
}

/* ---- the thread ---- */

static void free_policies(lvn_serve *s, lvn_policy *list)
{
    pthread_mutex_lock(&s->model_lock);
    while (list) {
        lvn_policy *next = list->next;
        lvn_policy_free(list);
        list = next;
    }
    pthread_mutex_unlock(&s->model_lock);
}

/* Running requests that were cancelled, are late, or must go. */
static void end_running(lvn_serve *s, lvn_policy *p)
{
    int64_t now = lvn_clock_monotonic_ns();
    for (int i = 0; i < p->slot_count; i++) {
        lvn_generation *g = p->slots[i].request;
        if (!g)
            continue;
        pthread_mutex_lock(&s->lock);
        bool is_cancelled = g->is_cancelled || s->is_closing;
        pthread_mutex_unlock(&s->lock);
        if (is_cancelled)
            finish(s, g, LVN_FINISH_CANCELLED, LVN_CANCELLED, "cancelled");
        else if (g->deadline_ns && now > g->deadline_ns)
            finish(s, g, LVN_FINISH_CANCELLED, LVN_TIMEOUT, "the deadline has passed");
    }
}

/* Older policies that nobody needs any more. Lock held on entry and exit, not while they are freed. */
static void drop_drained(lvn_serve *s)
{
    lvn_policy *drained = NULL;
    for (lvn_policy **at = &s->policies->next; *at;) {
        lvn_policy *p = *at;
        if (p->active || p->waiting) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = drained;
        drained = p;
    }
    if (!drained)
        return;
    pthread_mutex_unlock(&s->lock);
    free_policies(s, drained);
    pthread_mutex_lock(&s->lock);
}

static bool has_work(const lvn_serve *s)
{
    for (const lvn_policy *p = s->policies; p; p = p->next)
        if (p->active)
            return true;
    return s->waiting != NULL;
}

static void *run(void *arg)
{
    lvn_serve *s = arg;
    pthread_setname_np(pthread_self(), "levin-decode");
    pthread_mutex_lock(&s->lock);
    while (!s->is_closing || has_work(s)) {
        lvn_code code;
        lvn_generation *ended = take_ended(s, &code);
        if (ended) {
            pthread_mutex_unlock(&s->lock);
            finish(s, ended, LVN_FINISH_CANCELLED, code, code == LVN_TIMEOUT ? "the deadline has passed" : "cancelled");
            pthread_mutex_lock(&s->lock);
            continue;
        }
        drop_drained(s);
        if (!has_work(s)) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        for (lvn_policy *p = s->policies; p; p = p->next) {
            while (p->waiting && admit_one(s, p))
                ;
            pthread_mutex_unlock(&s->lock);
            end_running(s, p);
            turn(s, p);
            pthread_mutex_lock(&s->lock); /* policies are only added in front and dropped above, so `p` is still there */
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- opening ---- */

static void on_llama_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        lvn_log(LVN_DEBUG, "llama", "text=\"%s\"", text);
}

static lvn_code load_model(lvn_serve *s, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(0);
    const char *path = s->config.model_path;
    lvn_code code = LVN_OK;
    if (!s->config.keep_type)
        code = lvn_f16_copy(arena, s->config.model_path, s->config.cache_dir, s->config.threads, &path, err);
    else if (access(path, R_OK))
        code = lvn_fail(err, LVN_NOT_FOUND, "%s: %s", path, strerror(errno));
    if (!code) {
        struct llama_model_params params = llama_model_default_params();
        s->model = llama_model_load_from_file(path, params);
        if (!s->model)
            code = lvn_fail(err, LVN_INVALID, "%s: llama.cpp can't load it (not a GGUF model of a known architecture?)", path);
        s->served_path = lvn_strdup(path);
    }
    lvn_arena_free(arena);
    return code;
}

static void free_server(lvn_serve *s)
{
    free_policies(s, s->policies);
    free(s->served_path);
    if (s->model) {
        lvn_vocabulary_done(&s->vocabulary);
        lvn_sampler_done(&s->sampler);
        llama_batch_free(s->batch);
        llama_model_free(s->model);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->model_lock);
    pthread_cond_destroy(&s->wake);
    free(s);
}

static lvn_code start(lvn_serve *s, lvn_err *err)
{
    lvn_vocabulary_init(&s->vocabulary, s->model);
    lvn_sampler_init(&s->sampler, s->vocabulary.size);
    s->batch = llama_batch_init(BATCH_TOKENS, 0, 1);
    if (llama_model_meta_val_str(s->model, "general.name", s->name, sizeof(s->name)) < 0)
        strcpy(s->name, "model");
    bool merges = llama_model_size(s->model) <= s->config.merge_bytes;
    s->shape = (lvn_policy_shape){s->model, merges ? s->served_path : NULL, s->config.threads, s->config.max_parallel,
                                  s->config.context_tokens};
    lvn_code code = lvn_policy_new(&s->shape, NULL, 0, &s->policies, err);
    int failed = code ? 0 : pthread_create(&s->thread, NULL, run, s);
    return failed ? lvn_fail(err, LVN_IO, "no thread for decoding: %s", strerror(failed)) : code;
}

lvn_code lvn_serve_open(const lvn_serve_config *config, lvn_serve **out, lvn_err *err)
{
    if (config->threads < 1 || config->max_parallel < 1 || config->max_parallel > 32 || config->context_tokens < 8)
        return lvn_fail(err, LVN_INVALID, "threads, max_parallel (1 to 32) or context_tokens is out of range");
    llama_log_set(on_llama_log, NULL);
    llama_backend_init();
    lvn_serve *s = lvn_zalloc(sizeof(*s));
    s->config = *config;
    s->waiting_tail = &s->waiting;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->model_lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    lvn_code code = load_model(s, err);
    if (!code)
        code = start(s, err);
    if (code) {
        free_server(s);
        return code;
    }
    *out = s;
    return LVN_OK;
}

void lvn_serve_close(lvn_serve *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free_server(s);
}

lvn_code lvn_serve_publish(lvn_serve *s, const char *adapter_path, int64_t version, lvn_err *err)
{
    lvn_policy *fresh;
    pthread_mutex_lock(&s->model_lock); /* two that publish at once come one after the other */
    lvn_code code = lvn_policy_new(&s->shape, adapter_path, version, &fresh, err);
    if (!code) {
        pthread_mutex_lock(&s->lock);
        fresh->next = s->policies;
        s->policies = fresh;
        pthread_cond_signal(&s->wake); /* the old one may be drained already */
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->model_lock);
    return code;
}

int64_t lvn_serve_version(const lvn_serve *serve)
{
    lvn_serve *s = (lvn_serve *)serve; /* the lock is no part of what is promised unchanged */
    pthread_mutex_lock(&s->lock);
    int64_t version = s->policies->version;
    pthread_mutex_unlock(&s->lock);
    return version;
}

/* ---- requests ---- */

static void copy_stops(lvn_generation *g, const lvn_str *stops, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += stops[i].len;
    g->stops = lvn_alloc(count * sizeof(*stops) + bytes);
    char *text = (char *)(g->stops + count);
    for (size_t i = 0; i < count; i++) {
        memcpy(text, stops[i].ptr, stops[i].len);
        g->stops[i] = (lvn_str){text, stops[i].len};
        text += stops[i].len;
    }
    g->stop_count = count;
}

static lvn_generation *new_request(const lvn_generation_request *r, size_t context_tokens)
{
    size_t answer = (size_t)r->sampling.max_tokens, room = context_tokens - r->prompt_count;
    room = r->prompt_count + (answer < room ? answer : room);
    lvn_generation *g = lvn_zalloc(sizeof(*g));
    g->tokens = lvn_alloc(room * sizeof(*g->tokens));
    memcpy(g->tokens, r->prompt, r->prompt_count * sizeof(*g->tokens));
    g->token_count = g->prompt_count = (int)r->prompt_count;
    g->sampling = r->sampling;
    if (g->sampling.top_logprobs > 20)
        g->sampling.top_logprobs = 20;
    g->rng.state = r->sampling.seed;
    g->deadline_ns = r->deadline_monotonic_ns;
    g->submitted_ns = lvn_clock_monotonic_ns();
    g->on_token = r->on_token;
    g->on_done = r->on_done;
    g->user = r->user;
    lvn_buf_init(&g->text, LVN_BUF_NO_LIMIT);
    if (r->stop_count)
        copy_stops(g, r->stops, r->stop_count);
    return g;
}

static lvn_code check_request(const lvn_serve *s, const lvn_generation_request *r, lvn_err *err)
{
    if (!r->prompt_count)
        return lvn_fail(err, LVN_INVALID, "an empty prompt");
    if (r->prompt_count >= (size_t)s->config.context_tokens)
        return lvn_fail(err, LVN_TOO_LARGE, "the prompt has %zu tokens, the context %d", r->prompt_count, s->config.context_tokens);
    if (r->sampling.max_tokens < 1 || !(r->sampling.top_p > 0) || !(r->sampling.temperature >= 0))
        return lvn_fail(err, LVN_INVALID, "max_tokens, top_p or temperature is out of range");
    for (size_t i = 0; i < r->prompt_count; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= s->vocabulary.size)
            return lvn_fail(err, LVN_INVALID, "token %d is outside the vocabulary", r->prompt[i]);
    return LVN_OK;
}

lvn_code lvn_serve_submit(lvn_serve *s, const lvn_generation_request *request, lvn_generation **out_handle, lvn_err *err)
{
    lvn_code code = check_request(s, request, err);
    if (code)
        return code;
    lvn_generation *g = new_request(request, (size_t)s->config.context_tokens);
    pthread_mutex_lock(&s->lock);
    if (s->is_closing)
        code = lvn_fail(err, LVN_UNAVAILABLE, "the sampler is closing");
    else if (s->waiting_count >= s->config.max_queue)
        code = lvn_fail(err, LVN_FULL, "%d requests are waiting already", s->waiting_count);
    if (!code) {
        g->policy = s->policies;
        g->policy->waiting++;
        *s->waiting_tail = g;
        s->waiting_tail = &g->next;
        s->waiting_count++;
        s->stats.waiting++;
        if (out_handle)
            *out_handle = g;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (code)
        free_request(g);
    return code;
}

void lvn_serve_cancel(lvn_serve *s, lvn_generation *handle)
{
    pthread_mutex_lock(&s->lock);
    handle->is_cancelled = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void lvn_serve_get_stats(lvn_serve *s, lvn_serve_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

/* ---- text ---- */

lvn_code lvn_serve_chat_tokens(lvn_serve *s, lvn_arena *arena, const lvn_chat_message *messages, size_t count, int32_t **out_ids,
                               size_t *out_count, lvn_err *err)
{
    return lvn_vocabulary_chat(&s->vocabulary, arena, messages, count, out_ids, out_count, err);
}

lvn_code lvn_serve_tokenize(lvn_serve *s, lvn_arena *arena, lvn_str text, bool parse_special, int32_t **out_ids,
                            size_t *out_count, lvn_err *err)
{
    return lvn_vocabulary_tokenize(&s->vocabulary, arena, text, parse_special, out_ids, out_count, err);
}

lvn_str lvn_serve_token_text(const lvn_serve *s, int32_t token)
{
    return token >= 0 && token < s->vocabulary.size ? s->vocabulary.texts[token] : LVN_STR("");
}

int32_t lvn_serve_eot_token(const lvn_serve *s)
{
    return s->vocabulary.eot;
}

int lvn_serve_vocab_size(const lvn_serve *s)
{
    return s->vocabulary.size;
}

int lvn_serve_context_tokens(const lvn_serve *s)
{
    return s->config.context_tokens;
}

const char *lvn_serve_model_name(const lvn_serve *s)
{
    return s->name;
}

bool lvn_serve_is_end(const lvn_serve *s, int32_t token)
{
    return llama_vocab_is_eog(s->vocabulary.vocab, token);
}
