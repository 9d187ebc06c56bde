/* The trainer: LoRA adapters on a frozen decoder of the Llama family, forward and backward by our own kernels.
 *
 * A trainer owns F32 weights dequantised from a GGUF file, one LoRA pair (A, B) for each of the seven linear
 * matrices of every layer (q, k, v, o, gate, up, down), their gradients and the AdamW moments. It shares no memory with the
 * sampler: the two meet in the adapter file and in token ids.
 *
 * Work arrives as groups: one prompt and any number of branches behind it. A group is one packed sequence in which
 * each branch sees the prompt and itself, so the prompt is computed once.
 *
 * One thread at a time per trainer; calls block for as long as the arithmetic takes and use `threads` threads, the
 * caller included, which sleep between calls. Nothing here reads a clock or a random source: same inputs and seed, same
 * results on one machine and thread count. */
#ifndef LVN_ENGINE_TRAIN_H
#define LVN_ENGINE_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct lvn_trainer lvn_trainer;

typedef struct lvn_trainer_config {
    const char *model_path; /* GGUF; architecture llama or qwen2 */
    int rank;               /* 1..256 */
    float alpha;            /* the adapter's output is scaled by alpha / rank */
    int threads;            /* >= 1 */
    uint64_t seed;          /* A starts as seeded normal noise, B as zeros */
    float beta1, beta2, epsilon, weight_decay; /* AdamW; decay is decoupled */
    float max_grad_norm;    /* 0: no clipping */
} lvn_trainer_config;

/* Reads the model (about 0.7 s for 135M parameters, 540 MB as F32). LVN_NOT_FOUND; LVN_INVALID (not a GGUF, another
 * architecture, an odd shape: the message says which); LVN_NO_MEMORY. */
lvn_code lvn_trainer_open(const lvn_trainer_config *config, lvn_trainer **out, lvn_err *err) LVN_MUST_USE;
void lvn_trainer_close(lvn_trainer *trainer);

/* One completion behind the group's prompt. All arrays have `count` entries and are borrowed for the call.
 * tokens[0] follows the prompt's last token and is predicted by it. */
typedef struct lvn_branch {
    const int32_t *tokens;
    size_t count;
    const uint8_t *mask;   /* 1: this token was chosen by the policy and is trained on; 0: context only */
    const float *old_logp; /* log-probability under the sampling policy; NULL: ratio 1 (on-policy) or SFT */
    const float *weight;   /* the loss of token i is multiplied by weight[i]; NULL: 1. Carries advantage and scaling
                              for LVN_LOSS_POLICY, so it may be negative */
} lvn_branch;

typedef struct lvn_group {
    const int32_t *prompt;
    size_t prompt_count; /* >= 1 */
    const lvn_branch *branches;
    size_t branch_count;
} lvn_group;

typedef enum lvn_loss_kind {
    LVN_LOSS_NLL,    /* sum of weight * -logp over masked tokens (SFT) */
    LVN_LOSS_POLICY, /* clipped surrogate, PPO eq. 7 (Schulman et al. 2017): with r = exp(logp - old_logp) and A = weight,
                        sum of max(-A r, -A clamp(r, 1 - clip_low, 1 + clip_high)); for A < 0 at most -A * dual_clip
                        (Ye et al. 2020) when dual_clip > 0 */
} lvn_loss_kind;

typedef struct lvn_loss {
    lvn_loss_kind kind;
    float temperature; /* logits are divided by it before the softmax; 1 for SFT. > 0 */
    float clip_low, clip_high, dual_clip;
    float kl_coef;     /* adds kl_coef * k3 estimate of KL(policy || base) a masked token, scaled by |kl_scale| below; 0: off.
                          Costs one more forward pass (adapter off) */
    float kl_scale;    /* per-token factor of the KL term, e.g. 1 / tokens of the step */
} lvn_loss;

typedef struct lvn_train_stats {
    double loss;         /* sum, as above */
    double logp_sum;     /* over masked tokens */
    double ratio_sum;    /* sum of r over masked tokens */
    double kl_old_sum;   /* sum of (r - 1 - log r): how far the policy has moved from the sampler */
    double kl_base_sum;
    double entropy_sum;  /* of the full distribution at masked tokens, nats */
    size_t masked_tokens, clipped_tokens, total_tokens;
    double max_abs_dlogp; /* largest |logp - old_logp| over masked tokens with an old_logp */
} lvn_train_stats;

/* Adds the gradient of the group's loss to the accumulated gradient and adds to `stats` (may be NULL; the caller
 * clears it). LVN_TOO_LARGE: more tokens than the model's context, or than memory allows; LVN_INVALID: a token outside
 * the vocabulary or a non-finite loss (nothing was accumulated). */
lvn_code lvn_trainer_accumulate(lvn_trainer *trainer, const lvn_group *group, const lvn_loss *loss,
                                lvn_train_stats *stats, lvn_err *err) LVN_MUST_USE;

/* Forward only: out_logp[b][i] = log-probability of token i of branch b at `temperature`. The rows are the caller's. */
lvn_code lvn_trainer_logprobs(lvn_trainer *trainer, const lvn_group *group, float temperature, float *const *out_logp,
                              lvn_err *err) LVN_MUST_USE;

/* Clips the accumulated gradient to max_grad_norm, does one AdamW update with learning rate `lr`, clears the gradient.
 * out_grad_norm (may be NULL) is the norm before clipping. A non-finite gradient changes nothing and is LVN_INVALID. */
lvn_code lvn_trainer_step(lvn_trainer *trainer, float lr, double *out_grad_norm, lvn_err *err) LVN_MUST_USE;
void lvn_trainer_zero_grad(lvn_trainer *trainer);
/* Optimiser steps taken, restored by load_state. */
int64_t lvn_trainer_step_count(const lvn_trainer *trainer);
/* Forgets the moments and the step count (between a warm start and reinforcement), keeps the weights. */
void lvn_trainer_reset_optimizer(lvn_trainer *trainer);

/* Files are written beside their name and renamed, so a reader sees the old or the new one whole.
 * GGUF: a LoRA adapter that llama.cpp loads. PEFT: a folder with adapter_config.json and adapter_model.safetensors that
 * PEFT loads (q and k rows in Hugging Face's order, unlike GGUF's). State: parameters, moments and step count. */
lvn_code lvn_trainer_save_gguf(const lvn_trainer *trainer, const char *path, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_trainer_save_peft(const lvn_trainer *trainer, const char *folder, const char *base_model_name,
                               lvn_err *err) LVN_MUST_USE;
lvn_code lvn_trainer_save_state(const lvn_trainer *trainer, const char *path, lvn_err *err) LVN_MUST_USE;
/* LVN_INVALID: not such a file, or of another shape. On failure the trainer is unchanged. */
lvn_code lvn_trainer_load_state(lvn_trainer *trainer, const char *path, lvn_err *err) LVN_MUST_USE;
/* Takes the weights of an adapter written by save_gguf; moments and step count are cleared. */
lvn_code lvn_trainer_load_gguf(lvn_trainer *trainer, const char *path, lvn_err *err) LVN_MUST_USE;

/* Which kernel the CPU was found to support: "avx512bf16", "avx512", "avx2", "generic". The environment variable
 * LEVIN_KERNEL forces a lesser one (for tests). */
const char *lvn_trainer_kernel(const lvn_trainer *trainer);
size_t lvn_trainer_parameter_count(const lvn_trainer *trainer);

#endif
