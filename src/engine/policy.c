#include "engine/policy.h"

#include <stdlib.h>
#include <string.h>

#include <llama.h>

#include "base/arena.h"
#include "engine/merge.h"

enum { BATCH_TOKENS = 512, GROWTH = 16, IDLE_TURNS = 32, IDLE_CELLS = 1024 };

/* The policy's weights: merged, or an adapter beside the shared model, or that alone. */
static lvn_code load_weights(lvn_policy *p, const lvn_policy_shape *shape, const char *adapter_path, lvn_err *err)
{
    if (!adapter_path)
        return LVN_OK;
    if (shape->merge_path) {
        lvn_pool *pool = lvn_pool_new(shape->threads);
        lvn_code code = lvn_merge_open(shape->merge_path, adapter_path, pool, &p->merged, err);
        lvn_pool_free(pool);
        if (code || p->merged)
            return code;
    }
    p->adapter = llama_adapter_lora_init(shape->model, adapter_path);
    return p->adapter ? LVN_OK : lvn_fail(err, LVN_INVALID, "%s: not an adapter for this model", adapter_path);
}

static lvn_code make_context(lvn_policy *p, const lvn_policy_shape *shape, lvn_err *err)
{
    struct llama_context_params params = llama_context_default_params();
    int cells = shape->parallel * 256;
    params.n_ctx = (uint32_t)(cells > shape->context_tokens ? cells : shape->context_tokens);
    params.n_batch = params.n_ubatch = BATCH_TOKENS;
    params.n_seq_max = (uint32_t)shape->parallel;
    params.n_outputs_max = (uint32_t)shape->parallel;
    params.n_threads = params.n_threads_batch = shape->threads;
    params.kv_unified = true; /* sequences share the cells of a common prefix */
    params.no_perf = true;
    p->context = llama_init_from_model(p->merged ? p->merged : shape->model, params);
    float scale = 1.0f;
    if (!p->context || (p->adapter && llama_set_adapters_lora(p->context, &p->adapter, 1, &scale)))
        return lvn_fail(err, LVN_NO_MEMORY, "no memory for a context of %u tokens", params.n_ctx);
    p->cells = (int)llama_n_ctx(p->context);
    return LVN_OK;
}

lvn_code lvn_policy_new(const lvn_policy_shape *shape, const char *adapter_path, int64_t version, lvn_policy **out, lvn_err *err)
{
    lvn_policy *p = lvn_zalloc(sizeof(*p));
    p->version = version;
    lvn_code code = load_weights(p, shape, adapter_path, err);
    if (!code)
        code = make_context(p, shape, err);
    if (code) {
        lvn_policy_free(p);
        return code;
    }
    p->slot_count = shape->parallel;
    p->slots = lvn_zalloc((size_t)p->slot_count * sizeof(*p->slots));
    for (int i = 0; i < p->slot_count; i++) {
        p->slots[i].seq = i;
        p->slots[i].tokens = lvn_alloc((size_t)shape->context_tokens * sizeof(int32_t));
    }
    *out = p;
    return LVN_OK;
}

void lvn_policy_free(lvn_policy *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->slot_count; i++)
        free(p->slots[i].tokens);
    free(p->slots);
    if (p->context)
        llama_free(p->context);
    if (p->adapter)
        llama_adapter_lora_free(p->adapter);
    if (p->merged)
        llama_model_free(p->merged);
    free(p);
}

static int common(const lvn_slot *slot, const int32_t *prompt, int count)
{
    int most = slot->count < count ? slot->count : count, i = 0;
    while (i < most && slot->tokens[i] == prompt[i])
        i++;
    return i;
}

int lvn_policy_shared(const lvn_policy *p, const int32_t *prompt, int count)
{
    int best = 0;
    for (int i = 0; i < p->slot_count; i++) {
        int shared = common(&p->slots[i], prompt, count);
        best = shared > best ? shared : best;
    }
    return best;
}

void lvn_policy_cut(lvn_policy *p, lvn_slot *slot, int count)
{
    llama_memory_seq_rm(llama_get_memory(p->context), slot->seq, count, -1);
    slot->count = count;
}

bool lvn_policy_evict(lvn_policy *p)
{
    bool had = false;
    for (int i = 0; i < p->slot_count; i++)
        if (!p->slots[i].request && p->slots[i].count) {
            lvn_policy_cut(p, &p->slots[i], 0);
            had = true;
        }
    return had;
}

/* Cells in use. Slots that begin alike are taken to share those cells, as they do unless both were computed at once; so it may be more,
 * which the decode thread finds out and copes with. */
static int used_cells(const lvn_policy *p)
{
    int used = 0;
    for (int i = 0; i < p->slot_count; i++) {
        int shared = 0;
        for (int k = 0; k < i; k++) {
            int n = common(&p->slots[k], p->slots[i].tokens, p->slots[i].count);
            shared = n > shared ? n : shared;
        }
        used += p->slots[i].count - shared;
    }
    return used;
}

/* Whether the rest of a prompt fits beside those that run, after forgetting what idle slots but `source` keep if need be. */
static bool make_room(lvn_policy *p, const lvn_slot *source, int rest)
{
    int all = 0, need = rest + GROWTH * (p->active + 1);
    for (int i = 0; i < p->slot_count; i++)
        all += p->slots[i].count;
    if (!p->active || all + need <= p->cells || used_cells(p) + need <= p->cells)
        return true;
    for (int i = 0; i < p->slot_count; i++)
        if (!p->slots[i].request && &p->slots[i] != source && p->slots[i].count)
            lvn_policy_cut(p, &p->slots[i], 0);
    return used_cells(p) + need <= p->cells;
}

/* Cells that only idle slots hold, and the longest unused of those slots. */
static int idle_cells(const lvn_policy *p, lvn_slot **out_oldest)
{
    int cells = 0;
    *out_oldest = NULL;
    for (int i = 0; i < p->slot_count; i++) {
        lvn_slot *slot = &p->slots[i];
        int shared = 0;
        if (slot->request || !slot->count)
            continue;
        for (int k = 0; k < p->slot_count; k++) {
            bool counts = p->slots[k].request || k < i;
            int n = counts ? common(&p->slots[k], slot->tokens, slot->count) : 0;
            shared = n > shared ? n : shared;
        }
        cells += slot->count - shared;
        if (!*out_oldest || slot->last_used < (*out_oldest)->last_used)
            *out_oldest = slot;
    }
    return cells;
}

void lvn_policy_tidy(lvn_policy *p)
{
    int kept = 0;
    p->turn++;
    for (int i = 0; i < p->slot_count; i++) {
        lvn_slot *slot = &p->slots[i];
        if (!slot->request && slot->count && p->turn - slot->last_used > IDLE_TURNS)
            lvn_policy_cut(p, slot, 0);
        kept += slot->request ? 0 : slot->count;
    }
    lvn_slot *oldest;
    while (kept > IDLE_CELLS && idle_cells(p, &oldest) > IDLE_CELLS) {
        kept -= oldest->count;
        lvn_policy_cut(p, oldest, 0);
    }
}

static lvn_slot *oldest_idle(const lvn_policy *p, const lvn_slot *but)
{
    lvn_slot *oldest = NULL;
    for (int i = 0; i < p->slot_count; i++) {
        lvn_slot *s = &p->slots[i];
        if (s->request || s == but)
            continue;
        bool is_better = !oldest || (!s->count && oldest->count) || (!s->count == !oldest->count && s->last_used < oldest->last_used);
        oldest = is_better ? s : oldest;
    }
    return oldest;
}

lvn_slot *lvn_policy_take(lvn_policy *p, const int32_t *prompt, int count, int *out_cached)
{
    lvn_slot *source = NULL;
    int shared = 0;
    for (int i = 0; i < p->slot_count; i++) {
        int n = common(&p->slots[i], prompt, count - 1); /* the last token is decoded anyway: its logits are wanted */
        bool is_better = n > shared || (n == shared && n && source->request && !p->slots[i].request);
        if (is_better) {
            source = &p->slots[i];
            shared = n;
        }
    }
    lvn_slot *slot = oldest_idle(p, source);
    /* An idle slot that continues is taken over; one that others may share is copied from while there are others to take. */
    if (source && !source->request && (!slot || shared == source->count))
        slot = source;
    if (!slot || !make_room(p, source, count - shared))
        return NULL;
    if (slot != source) {
        lvn_policy_cut(p, slot, 0);
        if (source && shared) {
            llama_memory_seq_cp(llama_get_memory(p->context), source->seq, slot->seq, 0, shared);
            memcpy(slot->tokens, prompt, (size_t)shared * sizeof(*prompt));
            slot->count = shared;
        }
    } else {
        lvn_policy_cut(p, slot, shared);
    }
    if (source)
        source->last_used = p->turn;
    slot->last_used = p->turn;
    *out_cached = shared;
    return slot;
}
