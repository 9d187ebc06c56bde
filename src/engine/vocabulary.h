/* Private to the engine: text to token ids and back, and the chat template, over a llama.cpp vocabulary. */
#ifndef LVN_ENGINE_VOCABULARY_H
#define LVN_ENGINE_VOCABULARY_H

#include "base/buf.h"
#include "engine/serve.h"

struct llama_model;
struct llama_vocab;

typedef enum lvn_chat_family { LVN_CHAT_UNKNOWN, LVN_CHAT_CHATML, LVN_CHAT_LLAMA3 } lvn_chat_family;

typedef struct lvn_vocabulary {
    const struct llama_vocab *vocab;
    int size;
    int32_t eot;
    lvn_chat_family family;
    bool has_dates;       /* Llama 3.1 and later: the system turn begins with them */
    char *default_system; /* what the template says when there is no system turn; NULL: nothing */
    lvn_str *texts;       /* of each token */
    char *bytes;          /* what `texts` point into */
} lvn_vocabulary;

void lvn_vocabulary_init(lvn_vocabulary *vocabulary, const struct llama_model *model);
void lvn_vocabulary_done(lvn_vocabulary *vocabulary);

lvn_code lvn_vocabulary_tokenize(const lvn_vocabulary *vocabulary, lvn_arena *arena, lvn_str text, bool parse_special,
                                 int32_t **out_ids, size_t *out_count, lvn_err *err) LVN_MUST_USE;
/* See lvn_serve_chat_tokens. */
lvn_code lvn_vocabulary_chat(const lvn_vocabulary *vocabulary, lvn_arena *arena, const lvn_chat_message *messages, size_t count,
                             int32_t **out_ids, size_t *out_count, lvn_err *err) LVN_MUST_USE;

#endif
