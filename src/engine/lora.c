#include "engine/lora.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/ids.h"

static const struct { const char *gguf, *hf; } names[LVN_LINEARS] = {
    [LVN_Q] = {"attn_q", "self_attn.q_proj"},     [LVN_K] = {"attn_k", "self_attn.k_proj"},
    [LVN_V] = {"attn_v", "self_attn.v_proj"},     [LVN_O] = {"attn_output", "self_attn.o_proj"},
    [LVN_GATE] = {"ffn_gate", "mlp.gate_proj"},   [LVN_UP] = {"ffn_up", "mlp.up_proj"},
    [LVN_DOWN] = {"ffn_down", "mlp.down_proj"},
};

const char *lvn_linear_gguf_name(lvn_linear linear)
{
    return names[linear].gguf;
}

const char *lvn_linear_hf_name(lvn_linear linear)
{
    return names[linear].hf;
}

static void shape_of(const lvn_dims *d, int linear, int *in, int *out)
{
    int q = d->heads * d->head_dim;
    *in = linear == LVN_O ? q : linear == LVN_DOWN ? d->ffn : d->width;
    *out = linear == LVN_Q                         ? q
           : linear == LVN_K || linear == LVN_V    ? d->kv_width
           : linear == LVN_GATE || linear == LVN_UP ? d->ffn
                                                    : d->width;
}

lvn_stack_shape lvn_stack_of(const lvn_dims *dims, lvn_stack stack)
{
    static const int first[] = {LVN_Q, LVN_O, LVN_GATE, LVN_DOWN}, count[] = {3, 1, 2, 1};
    lvn_stack_shape s = {.first = first[stack], .count = count[stack]};
    for (int i = 0; i < s.count; i++) {
        int out;
        shape_of(dims, s.first + i, &s.in, &out);
        s.out += out;
    }
    return s;
}

/* As of a stack first, then its Bs. */
static void lay_out(lvn_lora *lora, const lvn_dims *dims)
{
    size_t at = 0;
    for (int layer = 0; layer < lora->layers; layer++)
        for (int k = 0; k < LVN_STACKS; k++) {
            lvn_stack_shape s = lvn_stack_of(dims, (lvn_stack)k);
            lvn_pair *pairs = &lora->pairs[layer * LVN_LINEARS + s.first];
            int row = 0;
            for (int i = 0; i < s.count; i++) {
                shape_of(dims, s.first + i, &pairs[i].in, &pairs[i].out);
                pairs[i].first_row = row;
                row += pairs[i].out;
                pairs[i].a = at;
                at += (size_t)lora->rank * (size_t)pairs[i].in;
            }
            for (int i = 0; i < s.count; i++) {
                pairs[i].b = at;
                at += (size_t)lora->rank * (size_t)pairs[i].out;
            }
        }
    lora->count = at;
}

/* Normal noise by Box and Muller. */
static float normal(lvn_rng *rng)
{
    double u = 1.0 - lvn_rng_unit(rng), v = lvn_rng_unit(rng);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

lvn_lora *lvn_lora_new(const lvn_dims *dims, int rank, float alpha, uint64_t seed)
{
    lvn_lora *lora = lvn_zalloc(sizeof(*lora));
    lora->rank = rank;
    lora->alpha = alpha;
    lora->scale = alpha / (float)rank;
    lora->layers = dims->layers;
    lora->pairs = lvn_zalloc((size_t)dims->layers * LVN_LINEARS * sizeof(*lora->pairs));
    lay_out(lora, dims);
    lora->values = lvn_zalloc(lora->count * sizeof(float));
    lora->gradients = lvn_zalloc(lora->count * sizeof(float));
    lora->moment1 = lvn_zalloc(lora->count * sizeof(float));
    lora->moment2 = lvn_zalloc(lora->count * sizeof(float));
    lvn_rng rng = {seed};
    for (int i = 0; i < dims->layers * LVN_LINEARS; i++) {
        const lvn_pair *p = &lora->pairs[i];
        float deviation = 1.0f / sqrtf(3.0f * (float)p->in); /* the variance of PEFT's default start */
        for (size_t k = 0; k < (size_t)rank * (size_t)p->in; k++)
            lora->values[p->a + k] = deviation * normal(&rng);
    }
    return lora;
}

void lvn_lora_free(lvn_lora *lora)
{
    if (!lora)
        return;
    free(lora->pairs);
    free(lora->values);
    free(lora->gradients);
    free(lora->moment1);
    free(lora->moment2);
    free(lora);
}
