/* The trainer's front: packing, losses, the optimiser. */
#include "engine/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "engine/trainer.h"

/* Rows of logits in memory at once: 64 x 49,152 floats are 12.6 MB. */
enum { LOGIT_ROWS = 64, MAX_TOKENS = 1 << 16 };
/* Kept activations of one packed sequence may take so much. */
static const size_t MAX_KEPT_BYTES = (size_t)3 << 30;

/* ---- life ---- */

lvn_code lvn_trainer_open(const lvn_trainer_config *config, lvn_trainer **out, lvn_err *err)
{
    if (config->rank < 1 || config->rank > 256 || config->threads < 1 || !(config->alpha > 0))
        return lvn_fail(err, LVN_INVALID, "rank %d, alpha %g or threads %d is out of range", config->rank, (double)config->alpha,
                        config->threads);
    lvn_weights *weights;
    lvn_code code = lvn_weights_open(config->model_path, &weights, err);
    if (code)
        return code;
    lvn_trainer *t = lvn_zalloc(sizeof(*t));
    t->config = *config;
    t->weights = weights;
    t->pool = lvn_pool_new(config->threads);
    t->kernels = lvn_kernels_pick();
    t->lora = lvn_lora_new(&weights->dims, config->rank, config->alpha, config->seed);
    t->decoder = lvn_decoder_new(t->pool, t->kernels, weights, t->lora);
    *out = t;
    return LVN_OK;
}

void lvn_trainer_close(lvn_trainer *t)
{
    if (!t)
        return;
    lvn_decoder_free(t->decoder);
    lvn_lora_free(t->lora);
    lvn_pool_free(t->pool);
    lvn_weights_close(t->weights);
    free(t);
}

int64_t lvn_trainer_step_count(const lvn_trainer *t)
{
    return t->steps;
}

const char *lvn_trainer_kernel(const lvn_trainer *t)
{
    return t->kernels->name;
}

size_t lvn_trainer_parameter_count(const lvn_trainer *t)
{
    return t->lora->count;
}

/* ---- packing ---- */

static lvn_code check_tokens(const lvn_trainer *t, const int32_t *tokens, size_t count, lvn_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= t->weights->dims.vocab)
            return lvn_fail(err, LVN_INVALID, "token %d is outside the vocabulary of %d", tokens[i], t->weights->dims.vocab);
    return LVN_OK;
}

static lvn_code check_group(const lvn_trainer *t, const lvn_group *g, lvn_err *err)
{
    if (!g->prompt_count)
        return lvn_fail(err, LVN_INVALID, "a group needs a prompt of at least one token");
    size_t total = g->prompt_count;
    lvn_code code = check_tokens(t, g->prompt, g->prompt_count, err);
    for (size_t b = 0; b < g->branch_count && !code; b++) {
        total += g->branches[b].count;
        if (g->prompt_count + g->branches[b].count > (size_t)t->weights->dims.context)
            return lvn_fail(err, LVN_TOO_LARGE, "%zu tokens in a row, the model's context has %d",
                            g->prompt_count + g->branches[b].count, t->weights->dims.context);
        code = check_tokens(t, g->branches[b].tokens, g->branches[b].count, err);
    }
    if (code)
        return code;
    if (total > MAX_TOKENS || lvn_decoder_kept_floats(t->weights, (int)total) * sizeof(float) > MAX_KEPT_BYTES)
        return lvn_fail(err, LVN_TOO_LARGE, "a group of %zu tokens is more than memory is given for", total);
    return LVN_OK;
}

static void add_row(lvn_packed *p, int from, int32_t target, int branch, int index)
{
    p->row_token[p->rows] = from;
    p->target[p->rows] = target;
    p->row_branch[p->rows] = branch;
    p->row_index[p->rows++] = index;
}

/* With `all_rows` every branch token is a target, else those with mask 1. */
static lvn_packed *pack(lvn_arena *arena, const lvn_group *g, bool all_rows)
{
    size_t total = g->prompt_count;
    for (size_t b = 0; b < g->branch_count; b++)
        total += g->branches[b].count;
    lvn_packed *p = lvn_arena_zalloc(arena, sizeof(*p));
    p->count = (int)total;
    p->prompt = (int)g->prompt_count;
    p->branches = (int)g->branch_count;
    p->tokens = lvn_arena_array(arena, total, sizeof(int32_t));
    p->positions = lvn_arena_array(arena, total, sizeof(int));
    p->branch_first = lvn_arena_array(arena, g->branch_count + 1, sizeof(int));
    p->row_token = lvn_arena_array(arena, total, sizeof(int));
    p->target = lvn_arena_array(arena, total, sizeof(int32_t));
    p->row_branch = lvn_arena_array(arena, total, sizeof(int));
    p->row_index = lvn_arena_array(arena, total, sizeof(int));
    int at = 0;
    for (; at < p->prompt; at++) {
        p->tokens[at] = g->prompt[at];
        p->positions[at] = at;
    }
    for (int b = 0; b < p->branches; b++) {
        const lvn_branch *branch = &g->branches[b];
        p->branch_first[b] = at;
        for (int i = 0; i < (int)branch->count; i++, at++) {
            p->tokens[at] = branch->tokens[i];
            p->positions[at] = p->prompt + i;
            if (all_rows || branch->mask[i])
                add_row(p, i ? at - 1 : p->prompt - 1, branch->tokens[i], b, i);
        }
    }
    p->branch_first[p->branches] = at;
    return p;
}

/* ---- losses ---- */

typedef struct loss_job {
    lvn_trainer *t;
    const lvn_group *group;
    const lvn_packed *packed;
    const lvn_loss *loss;
    const float *base_logp; /* (R) or NULL */
    lvn_train_stats *stats; /* of this group */
    float *logits;
    int first, rows; /* of the packed rows whose logits these are */
    lvn_train_stats *row_stats; /* (LOGIT_ROWS) */
} loss_job;

/* d loss / d logp of one policy token; fills its statistics. */
static float policy_gradient(const lvn_loss *loss, float logp, float old, float weight, lvn_train_stats *s)
{
    double difference = (double)logp - (double)old;
    difference = difference > 20 ? 20 : difference < -20 ? -20 : difference;
    double r = exp(difference), a = (double)weight;
    double clipped = fmin(fmax(r, 1 - (double)loss->clip_low), 1 + (double)loss->clip_high);
    double l = fmax(-a * r, -a * clipped);
    bool is_clipped = -a * clipped > -a * r;
    if (a < 0 && loss->dual_clip > 0 && l > -a * (double)loss->dual_clip) {
        l = -a * (double)loss->dual_clip;
        is_clipped = true;
    }
    s->loss = l;
    s->ratio_sum = r;
    s->kl_old_sum = r - 1 - difference;
    s->clipped_tokens = is_clipped;
    s->max_abs_dlogp = fabs(difference);
    return is_clipped ? 0.0f : (float)(-a * r);
}

static float token_gradient(const loss_job *job, int row, float logp, lvn_train_stats *s)
{
    const lvn_loss *loss = job->loss;
    const lvn_branch *branch = &job->group->branches[job->packed->row_branch[row]];
    int i = job->packed->row_index[row];
    float weight = branch->weight ? branch->weight[i] : 1.0f;
    float g;
    if (loss->kind == LVN_LOSS_NLL) {
        s->loss = -(double)weight * (double)logp;
        s->ratio_sum = 1;
        g = -weight;
    } else {
        g = policy_gradient(loss, logp, branch->old_logp ? branch->old_logp[i] : logp, weight, s);
    }
    if (job->base_logp) { /* k3 (Schulman 2020): e^d - 1 - d with d = base - policy */
        double d = fmin(fmax((double)job->base_logp[row] - (double)logp, -20), 20);
        double factor = (double)loss->kl_coef * (double)loss->kl_scale;
        s->kl_base_sum = exp(d) - 1 - d;
        s->loss += factor * s->kl_base_sum;
        g += (float)(factor * (1 - exp(d)));
    }
    return g;
}

/* One row: log-probability, statistics, and the gradient in place of the logits. */
static void loss_row(void *arg, int task, int thread)
{
    (void)thread;
    loss_job *job = arg;
    int vocab = job->t->weights->dims.vocab, row = job->first + task;
    float *logits = job->logits + (size_t)task * (size_t)vocab;
    float inverse = 1.0f / job->loss->temperature, entropy;
    int32_t target = job->packed->target[row];
    float lse = job->t->kernels->log_sum_exp(logits, vocab, inverse, &entropy);
    float logp = logits[target] * inverse - lse;
    lvn_train_stats *s = &job->row_stats[task];
    *s = (lvn_train_stats){.logp_sum = (double)logp, .entropy_sum = (double)entropy, .masked_tokens = 1};
    float g = token_gradient(job, row, logp, s);
    /* d logp / d logits = (onehot - softmax) / temperature */
    job->t->kernels->softmax_grad(logits, vocab, inverse, lse, g);
    logits[target] += g * inverse;
}

static void add_stats(lvn_train_stats *to, const lvn_train_stats *from)
{
    to->loss += from->loss;
    to->logp_sum += from->logp_sum;
    to->ratio_sum += from->ratio_sum;
    to->kl_old_sum += from->kl_old_sum;
    to->kl_base_sum += from->kl_base_sum;
    to->entropy_sum += from->entropy_sum;
    to->masked_tokens += from->masked_tokens;
    to->clipped_tokens += from->clipped_tokens;
    to->total_tokens += from->total_tokens;
    to->max_abs_dlogp = fmax(to->max_abs_dlogp, from->max_abs_dlogp);
}

/* Hidden states to loss and the gradient of the hidden states. */
static void run_losses(loss_job *job, const float *hidden, float *d_hidden)
{
    lvn_trainer *t = job->t;
    size_t width = (size_t)t->weights->dims.width;
    lvn_train_stats row_stats[LOGIT_ROWS];
    job->row_stats = row_stats;
    job->logits = lvn_alloc((size_t)LOGIT_ROWS * (size_t)t->weights->dims.vocab * sizeof(float));
    for (job->first = 0; job->first < job->packed->rows; job->first += LOGIT_ROWS) {
        int left = job->packed->rows - job->first;
        job->rows = left < LOGIT_ROWS ? left : LOGIT_ROWS;
        size_t offset = (size_t)job->first * width;
        lvn_decoder_logits(t->decoder, hidden + offset, job->rows, job->logits);
        lvn_pool_run(t->pool, job->rows, loss_row, job);
        for (int i = 0; i < job->rows; i++)
            add_stats(job->stats, &row_stats[i]);
        lvn_decoder_logits_back(t->decoder, job->logits, job->rows, d_hidden + offset);
    }
    free(job->logits);
}

typedef struct logp_job {
    lvn_trainer *t;
    const lvn_packed *packed;
    const float *logits;
    float inverse_temperature;
    int first;
    float *out; /* (R) */
} logp_job;

static void logp_row(void *arg, int task, int thread)
{
    (void)thread;
    logp_job *job = arg;
    int vocab = job->t->weights->dims.vocab, row = job->first + task;
    const float *logits = job->logits + (size_t)task * (size_t)vocab;
    float entropy;
    float lse = job->t->kernels->log_sum_exp(logits, vocab, job->inverse_temperature, &entropy);
    job->out[row] = logits[job->packed->target[row]] * job->inverse_temperature - lse;
}

static void run_logp(lvn_trainer *t, const lvn_packed *packed, const float *hidden, float temperature, float *out)
{
    logp_job job = {.t = t, .packed = packed, .inverse_temperature = 1.0f / temperature, .out = out};
    float *logits = lvn_alloc((size_t)LOGIT_ROWS * (size_t)t->weights->dims.vocab * sizeof(float));
    job.logits = logits;
    for (; job.first < packed->rows; job.first += LOGIT_ROWS) {
        int left = packed->rows - job.first, rows = left < LOGIT_ROWS ? left : LOGIT_ROWS;
        lvn_decoder_logits(t->decoder, hidden + (size_t)job.first * (size_t)t->weights->dims.width, rows, logits);
        lvn_pool_run(t->pool, rows, logp_row, &job);
    }
    free(logits);
}

/* ---- the public operations ---- */

lvn_code lvn_trainer_accumulate(lvn_trainer *t, const lvn_group *group, const lvn_loss *loss, lvn_train_stats *stats, lvn_err *err)
{
    lvn_code code = check_group(t, group, err);
    if (code)
        return code;
    if (!(loss->temperature > 0))
        return lvn_fail(err, LVN_INVALID, "temperature must be above 0");
    lvn_arena *arena = lvn_arena_new(1 << 16);
    lvn_packed *packed = pack(arena, group, false);
    lvn_train_stats own = {.total_tokens = (size_t)packed->count};
    if (packed->rows) {
        loss_job job = {.t = t, .group = group, .packed = packed, .loss = loss, .stats = &own};
        if (loss->kl_coef > 0) {
            float *base = lvn_arena_array(arena, (size_t)packed->rows, sizeof(float));
            run_logp(t, packed, lvn_decoder_forward(t->decoder, packed, false, false), loss->temperature, base);
            job.base_logp = base;
        }
        size_t width = (size_t)t->weights->dims.width;
        float *d_hidden = lvn_arena_array(arena, (size_t)packed->rows * width, sizeof(float));
        run_losses(&job, lvn_decoder_forward(t->decoder, packed, true, true), d_hidden);
        if (isfinite(own.loss))
            lvn_decoder_backward(t->decoder, packed, d_hidden);
        else
            code = lvn_fail(err, LVN_INVALID, "the loss is not finite");
    }
    if (!code && stats)
        add_stats(stats, &own);
    lvn_arena_free(arena);
    return code;
}

lvn_code lvn_trainer_logprobs(lvn_trainer *t, const lvn_group *group, float temperature, float *const *out_logp, lvn_err *err)
{
    lvn_code code = check_group(t, group, err);
    if (code)
        return code;
    lvn_arena *arena = lvn_arena_new(1 << 16);
    lvn_packed *packed = pack(arena, group, true);
    float *logp = lvn_arena_array(arena, (size_t)packed->rows, sizeof(float));
    run_logp(t, packed, lvn_decoder_forward(t->decoder, packed, true, false), temperature, logp);
    for (int r = 0; r < packed->rows; r++)
        out_logp[packed->row_branch[r]][packed->row_index[r]] = logp[r];
    lvn_arena_free(arena);
    return LVN_OK;
}

void lvn_trainer_zero_grad(lvn_trainer *t)
{
    memset(t->lora->gradients, 0, t->lora->count * sizeof(float));
}

lvn_code lvn_trainer_step(lvn_trainer *t, float lr, double *out_grad_norm, lvn_err *err)
{
    lvn_lora *lora = t->lora;
    double norm = sqrt(t->kernels->square_sum(lora->gradients, lora->count));
    if (!isfinite(norm))
        return lvn_fail(err, LVN_INVALID, "the gradient is not finite");
    float limit = t->config.max_grad_norm;
    float scale = limit > 0 && norm > (double)limit ? (float)((double)limit / norm) : 1.0f;
    t->steps++;
    float c1 = (float)(1 - pow((double)t->config.beta1, (double)t->steps));
    float c2 = (float)(1 - pow((double)t->config.beta2, (double)t->steps));
    t->kernels->adamw(lora->values, lora->gradients, lora->moment1, lora->moment2, lora->count, scale, lr, t->config.beta1,
                      t->config.beta2, t->config.epsilon, t->config.weight_decay, c1, c2);
    lvn_trainer_zero_grad(t);
    lvn_decoder_touch(t->decoder);
    if (out_grad_norm)
        *out_grad_norm = norm;
    return LVN_OK;
}

void lvn_trainer_reset_optimizer(lvn_trainer *t)
{
    memset(t->lora->moment1, 0, t->lora->count * sizeof(float));
    memset(t->lora->moment2, 0, t->lora->count * sizeof(float));
    t->steps = 0;
}
