/* Choosing a token from a row of logits. Pure but for the generator. */
#ifndef LVN_ENGINE_SAMPLE_H
#define LVN_ENGINE_SAMPLE_H

#include "base/ids.h"
#include "engine/serve.h"

/* Scratch of a decode thread: vocabulary-sized. */
typedef struct lvn_sampler {
    int vocab;
    float *weights; /* probabilities at the temperature */
    int *order;
    int *counts;    /* of tokens by the size of their weight, and what they weigh together: for top-k and top-p */
    double *masses;
} lvn_sampler;

void lvn_sampler_init(lvn_sampler *sampler, int vocab);
void lvn_sampler_done(lvn_sampler *sampler);

/* Draws by `sampling` (temperature 0: the largest logit). out->logp as serve.h says; out->top points to `alternatives`, which has room for
 * sampling->top_logprobs. Uses one number of `rng` unless greedy. */
void lvn_sample(lvn_sampler *sampler, const float *logits, const lvn_sampling *sampling, lvn_rng *rng,
                struct lvn_token_alt *alternatives, lvn_token_info *out);

#endif
