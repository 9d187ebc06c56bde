/* The adapters: a pair (A, B) for each linear matrix, so that the matrix becomes W + scale · B · A (Hu et al. 2021). All parameters
 * lie in one array, so that gradients, moments and files are arrays of the same shape. */
#ifndef LVN_ENGINE_LORA_H
#define LVN_ENGINE_LORA_H

#include "engine/gemm.h"
#include "engine/weights.h"

/* Adapted matrices of a layer. Those that share their input come one after the other, and so do their As. */
typedef enum lvn_linear { LVN_Q, LVN_K, LVN_V, LVN_O, LVN_GATE, LVN_UP, LVN_DOWN, LVN_LINEARS } lvn_linear;
/* Stacks of them. */
typedef enum lvn_stack { LVN_STACK_QKV, LVN_STACK_OUT, LVN_STACK_GATE_UP, LVN_STACK_DOWN, LVN_STACKS } lvn_stack;

typedef struct lvn_pair {
    size_t a, b;          /* offsets in the arrays: A is (rank, in); B lies transposed, (rank, out), as its products want it */
    int in, out;
    int first_row;        /* of the matrix within its stack */
} lvn_pair;

typedef struct lvn_lora {
    int rank;
    float scale; /* alpha / rank */
    float alpha;
    int layers;
    lvn_pair *pairs; /* layers * LVN_LINEARS */
    size_t count;    /* floats */
    float *values, *gradients, *moment1, *moment2;
} lvn_lora;

typedef struct lvn_stack_shape {
    int first, count; /* linears */
    int in, out;      /* of the stacked matrix */
} lvn_stack_shape;

lvn_lora *lvn_lora_new(const lvn_dims *dims, int rank, float alpha, uint64_t seed);
void lvn_lora_free(lvn_lora *lora);
lvn_stack_shape lvn_stack_of(const lvn_dims *dims, lvn_stack stack);

static inline const lvn_pair *lvn_lora_pair(const lvn_lora *lora, int layer, int linear)
{
    return &lora->pairs[layer * LVN_LINEARS + linear];
}

/* GGUF's name of a linear ("attn_q") and Hugging Face's ("self_attn.q_proj"). */
const char *lvn_linear_gguf_name(lvn_linear linear);
const char *lvn_linear_hf_name(lvn_linear linear);

#endif
