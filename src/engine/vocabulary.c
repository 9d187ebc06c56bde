#include "engine/vocabulary.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

/* ---- tokens and text ---- */

static void read_texts(lvn_vocabulary *v)
{
    lvn_buf all;
    lvn_buf_init(&all, LVN_BUF_NO_LIMIT);
    size_t *ends = lvn_alloc((size_t)v->size * sizeof(*ends));
    for (int i = 0; i < v->size; i++) {
        char piece[512];
        int len = llama_vocab_is_control(v->vocab, i) ? 0 : llama_token_to_piece(v->vocab, i, piece, sizeof(piece), 0, false);
        lvn_buf_append(&all, piece, len > 0 ? (size_t)len : 0);
        ends[i] = all.len;
    }
    v->bytes = lvn_buf_take(&all, NULL);
    v->texts = lvn_alloc((size_t)v->size * sizeof(*v->texts));
    for (int i = 0; i < v->size; i++) {
        size_t from = i ? ends[i - 1] : 0;
        v->texts[i] = (lvn_str){v->bytes + from, ends[i] - from};
    }
    free(ends);
}

lvn_code lvn_vocabulary_tokenize(const lvn_vocabulary *v, lvn_arena *arena, lvn_str text, bool parse_special,
                                 int32_t **out_ids, size_t *out_count, lvn_err *err)
{
    if (text.len > INT_MAX / 2)
        return lvn_fail(err, LVN_TOO_LARGE, "%zu bytes of text", text.len);
    const char *bytes = text.ptr ? text.ptr : "";
    int room = (int)text.len + 8;
    int32_t *ids = lvn_arena_array(arena, (size_t)room, sizeof(*ids));
    int count = llama_tokenize(v->vocab, bytes, (int)text.len, ids, room, false, parse_special);
    if (count < 0 && count != INT_MIN) {
        room = -count;
        ids = lvn_arena_array(arena, (size_t)room, sizeof(*ids));
        count = llama_tokenize(v->vocab, bytes, (int)text.len, ids, room, false, parse_special);
    }
    if (count < 0)
        return lvn_fail(err, LVN_INTERNAL, "the text can't be tokenised");
    *out_ids = ids;
    *out_count = (size_t)count;
    return LVN_OK;
}

/* ---- the template's family ---- */

/* The text between ChatML's opening of a system turn and its end, if the template writes one out. */
static char *find_default_system(const char *template_text)
{
    static const char open[] = "<|im_start|>system";
    for (const char *at = template_text; (at = strstr(at, open));) {
        at += sizeof(open) - 1;
        at += !strncmp(at, "\\n", 2) ? 2 : *at == '\n' ? 1 : 0;
        const char *end = strstr(at, "<|im_end|>");
        size_t len = end ? (size_t)(end - at) : 0;
        bool is_text = len > 0;
        for (size_t i = 0; i < len && is_text; i++)
            is_text = !strchr("'\"{}", at[i]);
        if (!is_text)
            continue;
        char *text = lvn_alloc(len + 1);
        memcpy(text, at, len);
        text[len] = '\0';
        return text;
    }
    return NULL;
}

/* The control token that the template closes a turn with; what the file calls "eot" may be another. */
static int32_t find_end_of_turn(const lvn_vocabulary *v)
{
    const char *text = v->family == LVN_CHAT_CHATML ? "<|im_end|>" : v->family == LVN_CHAT_LLAMA3 ? "<|eot_id|>" : NULL;
    llama_token ids[8];
    if (text && llama_tokenize(v->vocab, text, (int)strlen(text), ids, 8, false, true) == 1)
        return ids[0];
    int32_t eot = llama_vocab_eot(v->vocab);
    return eot >= 0 ? eot : llama_vocab_eos(v->vocab);
}

void lvn_vocabulary_init(lvn_vocabulary *v, const struct llama_model *model)
{
    *v = (lvn_vocabulary){.vocab = llama_model_get_vocab(model)};
    v->size = llama_vocab_n_tokens(v->vocab);
    const char *text = llama_model_chat_template(model, NULL);
    if (text && strstr(text, "<|im_start|>")) {
        v->family = LVN_CHAT_CHATML;
        v->default_system = find_default_system(text);
    } else if (text && strstr(text, "<|start_header_id|>")) {
        v->family = LVN_CHAT_LLAMA3;
        v->has_dates = strstr(text, "Cutting Knowledge Date") != NULL;
    }
    v->eot = find_end_of_turn(v);
    read_texts(v);
}

void lvn_vocabulary_done(lvn_vocabulary *v)
{
    free(v->default_system);
    free(v->texts);
    free(v->bytes);
}

/* ---- chat ---- */

typedef struct id_list {
    const lvn_vocabulary *v;
    lvn_arena *arena;
    lvn_err *err;
    int32_t *ids;
    size_t count, capacity;
    lvn_code code;
} id_list;

static void add_ids(id_list *l, const int32_t *ids, size_t count)
{
    if (l->count + count > l->capacity) {
        l->capacity = (l->count + count) * 2;
        int32_t *grown = lvn_arena_array(l->arena, l->capacity, sizeof(*grown));
        if (l->count)
            memcpy(grown, l->ids, l->count * sizeof(*grown));
        l->ids = grown;
    }
    if (count)
        memcpy(l->ids + l->count, ids, count * sizeof(*ids));
    l->count += count;
}

/* `is_markup`: our own text, in which control tokens are read; a user's text never makes control tokens. */
static void add_text(id_list *l, lvn_str text, bool is_markup)
{
    int32_t *ids;
    size_t count;
    if (!l->code)
        l->code = lvn_vocabulary_tokenize(l->v, l->arena, text, is_markup, &ids, &count, l->err);
    if (!l->code)
        add_ids(l, ids, count);
}

static void add_markup(id_list *l, const char *text)
{
    add_text(l, lvn_str_of(text), true);
}

static bool is_known_role(lvn_str role)
{
    return lvn_str_is(role, "system") || lvn_str_is(role, "user") || lvn_str_is(role, "assistant") || lvn_str_is(role, "tool") ||
           lvn_str_is(role, "developer");
}

static lvn_str role_of(const lvn_chat_message *m)
{
    return lvn_str_is(m->role, "developer") ? LVN_STR("system") : m->role;
}

/* An assistant turn as it was sampled; its end token is added when it was cut. */
static void add_sampled(id_list *l, const lvn_chat_message *m, const char *end)
{
    add_ids(l, m->token_ids, m->token_count);
    if (!m->token_count || m->token_ids[m->token_count - 1] != l->v->eot)
        add_markup(l, end);
}

static void add_chatml_turn(id_list *l, const lvn_chat_message *m)
{
    lvn_str role = role_of(m);
    add_markup(l, "<|im_start|>");
    if (m->token_ids) {
        add_text(l, lvn_arena_printf(l->arena, "%.*s\n", LVN_STR_ARG(role)), false);
        add_sampled(l, m, "<|im_end|>");
    } else {
        add_text(l, lvn_arena_printf(l->arena, "%.*s\n%.*s", LVN_STR_ARG(role), LVN_STR_ARG(m->content)), false);
        add_markup(l, "<|im_end|>");
    }
    add_text(l, LVN_STR("\n"), false);
}

static lvn_str trimmed(lvn_str s)
{
    while (s.len && strchr(" \t\r\n", s.ptr[0]))
        s = (lvn_str){s.ptr + 1, s.len - 1};
    while (s.len && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    return s;
}

static void add_llama3_header(id_list *l, lvn_str role)
{
    add_markup(l, "<|start_header_id|>");
    add_text(l, role, false);
    add_markup(l, "<|end_header_id|>");
}

static void add_llama3_turn(id_list *l, const lvn_chat_message *m)
{
    add_llama3_header(l, role_of(m));
    if (m->token_ids) {
        add_text(l, LVN_STR("\n\n"), false);
        add_sampled(l, m, "<|eot_id|>");
        return;
    }
    add_text(l, lvn_arena_printf(l->arena, "\n\n%.*s", LVN_STR_ARG(trimmed(m->content))), false);
    add_markup(l, "<|eot_id|>");
}

/* Llama 3.1 and later always begin with a system turn that names two dates. Today's is the one their templates fall back to: a prompt
 * that changes overnight would not be the one that was trained on. */
static void add_llama3_dates(id_list *l, lvn_str system)
{
    add_llama3_header(l, LVN_STR("system"));
    add_text(l, lvn_arena_printf(l->arena, "\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n%.*s",
                                 LVN_STR_ARG(trimmed(system))), false);
    add_markup(l, "<|eot_id|>");
}

static void add_chatml(id_list *l, const lvn_chat_message *messages, size_t count)
{
    if (l->v->default_system && !lvn_str_is(role_of(&messages[0]), "system")) {
        lvn_chat_message system = {.role = LVN_STR("system"), .content = lvn_str_of(l->v->default_system)};
        add_chatml_turn(l, &system);
    }
    for (size_t i = 0; i < count && !l->code; i++)
        add_chatml_turn(l, &messages[i]);
    add_markup(l, "<|im_start|>");
    add_text(l, LVN_STR("assistant\n"), false);
}

static void add_llama3(id_list *l, const lvn_chat_message *messages, size_t count)
{
    bool has_system = l->v->has_dates && lvn_str_is(role_of(&messages[0]), "system");
    add_markup(l, "<|begin_of_text|>");
    if (l->v->has_dates)
        add_llama3_dates(l, has_system ? messages[0].content : LVN_STR(""));
    for (size_t i = has_system; i < count && !l->code; i++)
        add_llama3_turn(l, &messages[i]);
    add_llama3_header(l, LVN_STR("assistant"));
    add_text(l, LVN_STR("\n\n"), false);
}

lvn_code lvn_vocabulary_chat(const lvn_vocabulary *v, lvn_arena *arena, const lvn_chat_message *messages, size_t count,
                             int32_t **out_ids, size_t *out_count, lvn_err *err)
{
    id_list l = {.v = v, .arena = arena, .err = err};
    if (v->family == LVN_CHAT_UNKNOWN)
        return lvn_fail(err, LVN_INVALID, "the model's chat template is of no family known here (ChatML, Llama 3)");
    if (!count)
        return lvn_fail(err, LVN_INVALID, "no messages");
    for (size_t i = 0; i < count; i++)
        if (!is_known_role(messages[i].role))
            return lvn_fail(err, LVN_INVALID, "no role is called \"%.*s\"", LVN_STR_ARG(messages[i].role));
    (v->family == LVN_CHAT_CHATML ? add_chatml : add_llama3)(&l, messages, count);
    *out_ids = l.ids;
    *out_count = l.count;
    return l.code;
}
