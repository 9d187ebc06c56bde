/* Forward and backward of a packed sequence through the decoder. */
#ifndef LVN_ENGINE_DECODER_H
#define LVN_ENGINE_DECODER_H

#include "engine/gemm.h"
#include "engine/lora.h"
#include "engine/train.h"
#include "engine/weights.h"

/* A group laid out as one sequence: the prompt, then each branch. A token sees the prompt's tokens up to itself and, in a branch, the
 * branch's own up to itself; positions go on from the prompt's end in every branch. */
typedef struct lvn_packed {
    int count;        /* T: all tokens */
    int prompt;       /* P */
    int32_t *tokens;  /* (T) */
    int *positions;   /* (T) */
    int *branch_first; /* (branches + 1): start of each branch, and T */
    int branches;
    /* Rows whose next token is trained on: the predicting token, its target, and where the target is. */
    int rows;
    int *row_token;   /* (R) index into the sequence */
    int32_t *target;  /* (R) */
    int *row_branch, *row_index; /* (R) */
} lvn_packed;

typedef struct lvn_decoder lvn_decoder;

/* Borrows all. */
lvn_decoder *lvn_decoder_new(lvn_pool *pool, const lvn_kernels *kernels, const lvn_weights *weights, lvn_lora *lora);
void lvn_decoder_free(lvn_decoder *decoder);

/* Forgets the merged weights: the adapters' values have changed. */
void lvn_decoder_touch(lvn_decoder *decoder);

/* Runs the layers; returns the normalised hidden states of the R rows, (R, width), which live until the next call. With
 * `uses_adapter` false the bare model. `keeps` remembers what backward needs. */
const float *lvn_decoder_forward(lvn_decoder *decoder, const lvn_packed *packed, bool uses_adapter, bool keeps);

/* From the gradient of those hidden states (R, width; overwritten) to the adapters' gradients, which are added to. After a forward
 * with `keeps`. */
void lvn_decoder_backward(lvn_decoder *decoder, const lvn_packed *packed, float *d_hidden);

/* logits (n, vocab) of n hidden rows, and d_hidden (n, width) = d_logits · head. */
void lvn_decoder_logits(lvn_decoder *decoder, const float *hidden, int n, float *logits);
void lvn_decoder_logits_back(lvn_decoder *decoder, const float *d_logits, int n, float *d_hidden);

/* Floats that `keeps` costs for so many tokens. */
size_t lvn_decoder_kept_floats(const lvn_weights *weights, int tokens);

#endif
