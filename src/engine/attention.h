/* Grouped-query attention over a packed sequence, with rotary positions. Probabilities are computed again in backward rather than
 * kept: they would be the largest thing in memory. */
#ifndef LVN_ENGINE_ATTENTION_H
#define LVN_ENGINE_ATTENTION_H

#include "engine/decoder.h"

typedef struct lvn_attention lvn_attention;

lvn_attention *lvn_attention_new(lvn_pool *pool, const lvn_kernels *kernels, lvn_gemm *gemm, const lvn_weights *weights);
void lvn_attention_free(lvn_attention *attention);

/* Tables and space for this packing; before the functions below. */
void lvn_attention_prepare(lvn_attention *attention, const lvn_packed *packed);
/* Rotates q and k of qkv (T, qkv_width) in place; `is_back` the other way, for gradients. */
void lvn_attention_rotate(lvn_attention *attention, const lvn_packed *packed, float *qkv, bool is_back);
/* mixed (T, heads * head_dim) from rotated qkv. */
void lvn_attention_forward(lvn_attention *attention, const lvn_packed *packed, const float *qkv, float *mixed);
/* d_qkv (T, qkv_width), still rotated, from d_mixed. */
void lvn_attention_backward(lvn_attention *attention, const lvn_packed *packed, const float *qkv, const float *d_mixed,
                            float *d_qkv);

#endif
