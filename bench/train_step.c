/* One group through the trainer, for comparison with other implementations.
 *
 *     train_step MODEL.gguf GROUP [--threads N] [--rank R] [--alpha A] [--repeat N] [--warm STEPS] [--policy] [--out DIR]
 *
 * GROUP is a text file: the prompt's ids on the first line, then for each answer three lines: ids, weights, and log-probabilities of the
 * sampler ("-" for none). Every answer token is trained on. Times `repeat` rounds of forward, backward and an optimiser step, after
 * `warm` untimed ones, and prints one JSON object. With --out, before the timed rounds: DIR/adapter and DIR/gradient, both as PEFT
 * has them (the gradient of the group's loss in the place of the weights), and DIR/logprobs, a line an answer. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "engine/trainer.h"

enum { MAX_BRANCHES = 64, MAX_TOKENS = 4096 };

typedef struct numbers {
    double items[MAX_TOKENS];
    size_t count;
} numbers;

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static bool read_line(FILE *file, numbers *out)
{
    char *line = NULL, *end;
    size_t room = 0;
    out->count = 0;
    if (getline(&line, &room, file) <= 0) {
        free(line);
        return false;
    }
    for (char *at = line; out->count < MAX_TOKENS; at = end) {
        double value = strtod(at, &end);
        if (end == at)
            break;
        out->items[out->count++] = value;
    }
    free(line);
    return true;
}

static int32_t *ids_of(const numbers *n)
{
    int32_t *ids = calloc(n->count, sizeof(*ids));
    for (size_t i = 0; i < n->count; i++)
        ids[i] = (int32_t)n->items[i];
    return ids;
}

static float *floats_of(const numbers *n)
{
    float *values = calloc(n->count, sizeof(*values));
    for (size_t i = 0; i < n->count; i++)
        values[i] = (float)n->items[i];
    return values;
}

static void read_group(const char *path, lvn_group *group, lvn_branch *branches)
{
    static numbers line, weights, old;
    FILE *file = fopen(path, "re");
    if (!file || !read_line(file, &line))
        die(path, "no prompt in it");
    group->prompt = ids_of(&line);
    group->prompt_count = line.count;
    group->branches = branches;
    while (group->branch_count < MAX_BRANCHES && read_line(file, &line)) {
        if (!read_line(file, &weights) || !read_line(file, &old) || weights.count != line.count)
            die(path, "an answer has three lines, and as many weights as ids");
        uint8_t *mask = calloc(line.count, 1);
        memset(mask, 1, line.count);
        branches[group->branch_count++] = (lvn_branch){.tokens = ids_of(&line), .count = line.count, .mask = mask,
                                                       .weight = floats_of(&weights),
                                                       .old_logp = old.count == line.count ? floats_of(&old) : NULL};
    }
    fclose(file);
}

static void check(lvn_code code, const lvn_err *err)
{
    if (code)
        die(lvn_code_name(code), err->message);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct timing {
    double seconds, cpu;
} timing;

static timing step(lvn_trainer *t, const lvn_group *group, const lvn_loss *loss)
{
    lvn_err err = {0};
    int64_t begin = lvn_clock_monotonic_ns();
    double cpu = cpu_seconds();
    check(lvn_trainer_accumulate(t, group, loss, NULL, &err), &err);
    check(lvn_trainer_step(t, 1e-3f, NULL, &err), &err);
    return (timing){lvn_ns_to_s(lvn_clock_monotonic_ns() - begin), cpu_seconds() - cpu};
}

static const char *in_folder(const char *folder, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_out(lvn_trainer *t, const lvn_group *group, const lvn_loss *loss, const char *folder)
{
    lvn_err err = {0};
    float *rows[MAX_BRANCHES];
    for (size_t b = 0; b < group->branch_count; b++)
        rows[b] = calloc(group->branches[b].count, sizeof(float));
    check(lvn_trainer_logprobs(t, group, loss->temperature, rows, &err), &err);
    mkdir(folder, 0755);
    FILE *file = fopen(in_folder(folder, "logprobs"), "we");
    if (!file)
        die(folder, "can't be written");
    for (size_t b = 0; b < group->branch_count; b++) {
        for (size_t i = 0; i < group->branches[b].count; i++)
            fprintf(file, "%.9g ", (double)rows[b][i]);
        fputc('\n', file);
        free(rows[b]);
    }
    fclose(file);
    check(lvn_trainer_save_peft(t, in_folder(folder, "adapter"), "base", &err), &err);
    check(lvn_trainer_accumulate(t, group, loss, NULL, &err), &err);
    float *values = t->lora->values;
    t->lora->values = t->lora->gradients; /* the same layout, so the same file form */
    check(lvn_trainer_save_peft(t, in_folder(folder, "gradient"), "base", &err), &err);
    t->lora->values = values;
    lvn_trainer_zero_grad(t);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        die("usage", "train_step MODEL.gguf GROUP [--threads N] [--rank R] [--alpha A] [--repeat N] [--warm STEPS] [--policy] [--out DIR]");
    lvn_trainer_config config = {.model_path = argv[1], .rank = 16, .alpha = 32, .threads = 2, .seed = 1, .beta1 = 0.9f, .beta2 = 0.999f,
                                 .epsilon = 1e-8f};
    lvn_loss loss = {.kind = LVN_LOSS_NLL, .temperature = 1, .clip_low = 0.2f, .clip_high = 0.2f};
    int repeat = 0, warm = 1;
    const char *out = NULL;
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--policy"))
            loss.kind = LVN_LOSS_POLICY;
        else if (!strcmp(argv[i], "--threads"))
            config.threads = atoi(value), i++;
        else if (!strcmp(argv[i], "--rank"))
            config.rank = atoi(value), i++;
        else if (!strcmp(argv[i], "--alpha"))
            config.alpha = (float)atof(value), i++;
        else if (!strcmp(argv[i], "--repeat"))
            repeat = atoi(value), i++;
        else if (!strcmp(argv[i], "--warm"))
            warm = atoi(value), i++;
        else if (!strcmp(argv[i], "--out"))
            out = value, i++;
        else
            die(argv[i], "no such option");
    }
    static lvn_branch branches[MAX_BRANCHES];
    lvn_group group = {0};
    read_group(argv[2], &group, branches);
    lvn_trainer *t;
    lvn_err err = {0};
    check(lvn_trainer_open(&config, &t, &err), &err);
    for (int i = 0; i < warm; i++)
        step(t, &group, &loss);
    if (out)
        write_out(t, &group, &loss, out);
    printf("{\"kernel\":\"%s\",\"steps\":[", lvn_trainer_kernel(t));
    for (int i = 0; i < repeat; i++) {
        timing took = step(t, &group, &loss);
        printf("%s{\"seconds\":%.4f,\"cpu\":%.4f}", i ? "," : "", took.seconds, took.cpu);
    }
    printf("]}\n");
    lvn_trainer_close(t);
    return 0;
}
