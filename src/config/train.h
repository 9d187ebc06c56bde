/* What `levin train FILE` can be told. The table in train.c says what each option means. */
#ifndef LVN_CONFIG_TRAIN_H
#define LVN_CONFIG_TRAIN_H

#include <stdint.h>

#include "config/option.h"

typedef struct lvn_train_options {
    const char *name;
    int64_t seed;
    struct {
        const char *path; /* "auto" is looked for */
        const char *cache;
        int64_t rank, context_tokens, threads, parallel, merge_megabytes;
        double alpha;
        bool keep_type;
    } model;
    struct {
        const char *kind, *file, *function, *python, *command, *llm_model;
        int64_t workers, max_attempts, max_output_bytes, recycle_after;
        double timeout_s;
        bool is_forked;
    } agent;
    struct {
        const char *folder, *train, *val, *val_extra, *warm, *hidden;
        int64_t train_limit, val_limit, warm_limit;
        bool with_joins, one_table, warm_new_databases;
    } data;
    struct {
        const char *kind, *command;
        double timeout_s;
        int64_t max_rows;
        bool keep_distinct;
    } reward;
    struct {
        bool is_on;
        const char *system, *user, *answer, *start_from;
        int64_t epochs, batch, warmup_steps;
        double learning_rate, final_ratio;
    } sft;
    struct {
        int64_t steps, tasks, samples, max_tokens, updates;
        double learning_rate, final_ratio, clip_low, clip_high, dual_clip, kl, temperature;
        bool normalize_std;
        const char *loss_scale;
        double beta2, max_grad_norm;
    } grpo;
    struct {
        int64_t every, limit, base;
        double temperature;
    } eval;
    struct {
        const char *host;
        int64_t port;
    } server;
} lvn_train_options;

const lvn_option *lvn_train_option_table(size_t *out_count);

#endif
