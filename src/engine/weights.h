/* A decoder of the Llama family as F32 matrices, read from a GGUF file of any weight type. */
#ifndef LVN_ENGINE_WEIGHTS_H
#define LVN_ENGINE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct lvn_dims {
    int layers, width, heads, kv_heads, head_dim, ffn, vocab, context;
    int rope_dims;
    float epsilon, rope_base;
    bool rotates_halves; /* qwen2: dimension i pairs with i + d/2; llama (in GGUF's order): 2i with 2i + 1 */
    int kv_width, qkv_width; /* derived */
} lvn_dims;

/* Matrices that share their input are stacked: [q; k; v], [gate; up]. All are rows of outputs, each `in` long. */
typedef struct lvn_layer_weights {
    float *attention_norm, *ffn_norm; /* (width) */
    float *qkv;                       /* (qkv_width, width) */
    float *qkv_bias;                  /* (qkv_width) or NULL */
    float *out;                       /* (width, heads * head_dim) */
    float *gate_up;                   /* (2 * ffn, width) */
    float *down;                      /* (width, ffn) */
} lvn_layer_weights;

typedef struct lvn_weights {
    lvn_dims dims;
    float *embedding; /* (vocab, width) */
    float *head;      /* (vocab, width); may be `embedding` */
    float *final_norm;
    float *rope_factors; /* (rope_dims / 2) or NULL */
    lvn_layer_weights *layers;
    char architecture[32];
    char name[96];
} lvn_weights;

/* LVN_NOT_FOUND; LVN_INVALID: no GGUF, another architecture, a missing or odd tensor, a file that is cut off. */
lvn_code lvn_weights_open(const char *path, lvn_weights **out, lvn_err *err) LVN_MUST_USE;
void lvn_weights_close(lvn_weights *weights);

#endif
