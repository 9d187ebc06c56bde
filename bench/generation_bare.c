/* The least that generation with llama.cpp can be: every prompt once, copied to the sequences that
 * share it, then one token a turn for all sequences that still run, the largest logit taken. Reads
 * a batch from standard input: a line a sequence, first how many tokens it answers, then the ids of
 * its prompt. Sequences with the same prompt follow each other. Prints seconds and tokens a second.
 * bench/generation compares this with the gateway. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <llama.h>

enum { MAX_SEQUENCES = 32, MAX_PROMPT = 2048, BATCH_TOKENS = 512 };

typedef struct sequence {
    int wanted, answered, count;
    llama_token prompt[MAX_PROMPT], last;
} sequence;

static sequence all[MAX_SEQUENCES];
static int sequence_count;

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void be_quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static void read_batch(void)
{
    char *line = NULL;
    size_t room = 0;
    while (sequence_count < MAX_SEQUENCES && getline(&line, &room, stdin) > 0) {
        sequence *s = &all[sequence_count++];
        char *at = line, *end;
        s->wanted = (int)strtol(at, &at, 10);
        for (long id; s->count < MAX_PROMPT && (id = strtol(at, &end, 10), end != at); at = end)
            s->prompt[s->count++] = (llama_token)id;
    }
    free(line);
}

static void add(struct llama_batch *b, llama_token token, int position, int seq, bool wants_logits)
{
    int i = b->n_tokens++;
    b->token[i] = token;
    b->pos[i] = position;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = seq;
    b->logits[i] = wants_logits;
}

static void decode(struct llama_context *context, struct llama_batch *b)
{
    if (!llama_decode(context, *b))
        return;
    fprintf(stderr, "llama.cpp could not decode\n");
    exit(1);
}

static llama_token largest(struct llama_context *context, int row, int vocab)
{
    const float *logits = llama_get_logits_ith(context, row);
    int best = 0;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void compute_prompts(struct llama_context *context, struct llama_batch *b, int vocab)
{
    for (int i = 0; i < sequence_count; i++) {
        sequence *s = &all[i];
        const sequence *before = i ? s - 1 : NULL;
        if (before && before->count == s->count &&
            !memcmp(before->prompt, s->prompt, sizeof(*s->prompt) * (size_t)s->count)) {
            llama_memory_seq_cp(llama_get_memory(context), i - 1, i, 0, s->count);
            s->last = before->last;
        } else {
            for (int from = 0; from < s->count; from += BATCH_TOKENS) {
                int to = from + BATCH_TOKENS < s->count ? from + BATCH_TOKENS : s->count;
                b->n_tokens = 0;
                for (int k = from; k < to; k++)
                    add(b, s->prompt[k], k, i, k + 1 == s->count);
                decode(context, b);
            }
            s->last = largest(context, b->n_tokens - 1, vocab);
        }
        s->answered = 1;
    }
}

static bool turn(struct llama_context *context, struct llama_batch *b, int vocab)
{
    int who[MAX_SEQUENCES];
    b->n_tokens = 0;
    for (int i = 0; i < sequence_count; i++)
        if (all[i].answered < all[i].wanted) {
            who[b->n_tokens] = i;
            add(b, all[i].last, all[i].count + all[i].answered - 1, i, true);
        }
    if (!b->n_tokens)
        return false;
    decode(context, b);
    for (int row = 0; row < b->n_tokens; row++) {
        all[who[row]].last = largest(context, row, vocab);
        all[who[row]].answered++;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "Usage: generation_bare MODEL.gguf THREADS < BATCH\n");
        return 2;
    }
    llama_log_set(be_quiet, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = MAX_SEQUENCES * 256;
    params.n_batch = params.n_ubatch = BATCH_TOKENS;
    params.n_seq_max = params.n_outputs_max = MAX_SEQUENCES;
    params.n_threads = params.n_threads_batch = (int)strtol(argv[2], NULL, 10);
    params.kv_unified = true;
    params.no_perf = true;
    struct llama_context *context = model ? llama_init_from_model(model, params) : NULL;
    if (!context) {
        fprintf(stderr, "%s can't be used\n", argv[1]);
        return 1;
    }
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_batch batch = llama_batch_init(BATCH_TOKENS, 0, 1);
    read_batch();
    add(&batch, 1, 0, 0, true); /* once before: memory is touched, threads exist */
    decode(context, &batch);
    llama_memory_clear(llama_get_memory(context), false);

    double begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    compute_prompts(context, &batch, vocab);
    while (turn(context, &batch, vocab))
        ;
    double seconds = now(CLOCK_MONOTONIC) - begin;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    int answered = 0;
    for (int i = 0; i < sequence_count; i++)
        answered += all[i].answered;
    printf("%.3f %.3f %.1f\n", seconds, cpu, answered / seconds);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
