/* levin chat RUN: talk to a checkpoint on the terminal. */
#include <argp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ids.h"
#include "cli/app.h"
#include "cli/commands.h"
#include "cli/run_folder.h"

enum { MAX_TURNS = 64 };

typedef struct chat_args {
    const char *run, *checkpoint, *system;
    double temperature;
} chat_args;

static const struct argp_option cli_options[] = {
    {"checkpoint", 'c', "WHICH", 0, "best (default), last, base, a version number, or an adapter file", 0},
    {"system", 's', "TEXT", 0, "System turn; default: the run's (option sft.system)", 0},
    {"temperature", 't', "N", 0, "Sampling temperature; default 0, greedy", 0},
    {0},
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
    chat_args *a = state->input;
    char *end;
    switch (key) {
    case 'c': a->checkpoint = arg; break;
    case 's': a->system = arg; break;
    case 't':
        a->temperature = strtod(arg, &end);
        if (*end || !(a->temperature >= 0 && a->temperature <= 5))
            argp_error(state, "--temperature wants a number between 0 and 5");
        break;
    case ARGP_KEY_ARG:
        if (a->run)
            argp_error(state, "one RUN only");
        a->run = arg;
        break;
    case ARGP_KEY_END:
        if (!a->run)
            argp_error(state, "which RUN? A folder below runs/");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp argp = {cli_options, parse_arg, "RUN",
                                 "Talk to a checkpoint. An empty line begins a new conversation; end with Ctrl-D.", NULL, NULL,
                                 NULL};

/* One answer as it is being made, on the decode thread, and waited for by the main one. */
typedef struct answer {
    lvn_serve *serve;
    lvn_buf text;
    int32_t ids[4096];
    size_t count;
    bool is_done;
    lvn_code code;
    pthread_mutex_t lock; /* guards is_done */
    pthread_cond_t done;
} answer;

static void on_token(void *user, const lvn_token_info *token)
{
    answer *a = user;
    if (a->count < sizeof(a->ids) / sizeof(*a->ids))
        a->ids[a->count++] = token->id;
    if (lvn_serve_is_end(a->serve, token->id))
        return;
    lvn_str text = lvn_serve_token_text(a->serve, token->id);
    lvn_buf_append_str(&a->text, text);
    fwrite(text.ptr, 1, text.len, stdout);
    fflush(stdout);
}

static void on_done(void *user, const lvn_generation_result *result)
{
    answer *a = user;
    pthread_mutex_lock(&a->lock);
    a->code = result->code;
    a->is_done = true;
    pthread_cond_signal(&a->done);
    pthread_mutex_unlock(&a->lock);
}

static lvn_code generate(lvn_serve *serve, lvn_arena *arena, const chat_args *args, const lvn_chat_message *messages,
                         size_t count, answer *a, lvn_err *err)
{
    int32_t *ids;
    size_t id_count;
    lvn_code code = lvn_serve_chat_tokens(serve, arena, messages, count, &ids, &id_count, err);
    if (code)
        return code;
    lvn_generation_request request = {
        .prompt = ids, .prompt_count = id_count, .on_token = on_token, .on_done = on_done, .user = a,
        .sampling = {.temperature = (float)args->temperature, .top_p = 1, .seed = lvn_id_u64(), .max_tokens = 512},
    };
    int room = lvn_serve_context_tokens(serve) - (int)id_count;
    if (room < request.sampling.max_tokens)
        request.sampling.max_tokens = room > 1 ? room : 1;
    code = lvn_serve_submit(serve, &request, NULL, err);
    if (code)
        return code;
    pthread_mutex_lock(&a->lock);
    while (!a->is_done)
        pthread_cond_wait(&a->done, &a->lock);
    pthread_mutex_unlock(&a->lock);
    putchar('\n');
    return a->code;
}

static lvn_code converse(lvn_serve *serve, const chat_args *args, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(1 << 16);
    lvn_chat_message messages[MAX_TURNS + 2];
    size_t count = 0, line_room = 0;
    char *line = NULL;
    lvn_code code = LVN_OK;
    bool is_terminal = isatty(STDIN_FILENO);
    while (!code) {
        if (is_terminal)
            fputs("> ", stdout);
        fflush(stdout);
        ssize_t len = getline(&line, &line_room, stdin);
        if (len < 0)
            break;
        while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
            len--;
        if (!len || count + 2 > MAX_TURNS)
            count = 0;
        if (!len)
            continue;
        if (!count && *args->system)
            messages[count++] = (lvn_chat_message){.role = LVN_STR("system"), .content = lvn_str_of(args->system)};
        messages[count++] = (lvn_chat_message){.role = LVN_STR("user"),
                                               .content = lvn_arena_dup(arena, (lvn_str){line, (size_t)len})};
        answer a = {.serve = serve, .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
        lvn_buf_init(&a.text, LVN_BUF_NO_LIMIT);
        code = generate(serve, arena, args, messages, count, &a, err);
        int32_t *ids = lvn_arena_array(arena, a.count, sizeof(*ids));
        memcpy(ids, a.ids, a.count * sizeof(*ids));
        messages[count++] = (lvn_chat_message){.role = LVN_STR("assistant"), .token_ids = ids, .token_count = a.count,
                                               .content = lvn_arena_dup(arena, lvn_buf_str(&a.text))};
        lvn_buf_done(&a.text);
    }
    free(line);
    lvn_arena_free(arena);
    return code;
}

static lvn_code run(chat_args *args, lvn_arena *arena, lvn_err *err)
{
    lvn_train_options o;
    const char *adapter;
    lvn_code code = lvn_run_load_config(arena, args->run, &o, err);
    if (!code)
        code = lvn_run_find_adapter(arena, args->run, args->checkpoint, &adapter, err);
    if (!code)
        code = lvn_app_find_model(arena, &o, err);
    if (code)
        return code;
    if (!args->system)
        args->system = o.sft.system;
    lvn_serve *serve;
    code = lvn_app_open_serve(&o, &serve, err);
    if (code)
        return code;
    if (*adapter)
        code = lvn_serve_publish(serve, adapter, 1, err);
    if (!code)
        code = converse(serve, args, err);
    lvn_serve_close(serve);
    return code;
}

int lvn_cli_chat(int argc, char **argv)
{
    chat_args args = {.checkpoint = "best"};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    lvn_arena *arena = lvn_arena_new(1 << 14);
    lvn_err err = {0};
    lvn_code code = run(&args, arena, &err);
    if (code)
        fprintf(stderr, "levin: %s\n", err.message);
    lvn_arena_free(arena);
    return code ? 1 : 0;
}
