#include "access/access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"

enum { MIN_TOKEN = 16, MAX_FILE = 1 << 20 };

typedef struct token {
    lvn_role role;
    lvn_str text;
} token;

typedef struct token_list {
    lvn_arena *arena; /* owns this and the texts */
    token *items;
    size_t count;
} token_list;

struct lvn_access {
    lvn_http_server *server;
    char *token_file;
    char *key;
    token_list *tokens; /* loop only once the server runs; NULL: none are asked for */
    char **origins;
    size_t origin_count;
};

/* ---- the file ---- */

static lvn_code read_text(lvn_arena *arena, const char *path, lvn_str *out, lvn_err *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return lvn_fail(err, errno == ENOENT ? LVN_NOT_FOUND : LVN_IO, "%s: %s", path, strerror(errno));
    char *text = lvn_arena_alloc(arena, MAX_FILE);
    size_t size = fread(text, 1, MAX_FILE, file);
    bool is_bad = ferror(file), is_long = size == MAX_FILE;
    fclose(file);
    if (is_bad || is_long)
        return lvn_fail(err, LVN_IO, "%s: %s", path, is_long ? "more than a megabyte" : "can't be read");
    *out = (lvn_str){text, size};
    return LVN_OK;
}

/* The next word of a line; empty at its end. */
static lvn_str next_word(lvn_str *line)
{
    while (line->len && strchr(" \t\r", line->ptr[0]))
        *line = lvn_str_from(*line, 1);
    lvn_str word = {line->ptr, 0};
    while (word.len < line->len && !strchr(" \t\r", line->ptr[word.len]))
        word.len++;
    *line = lvn_str_from(*line, word.len);
    return word;
}

static lvn_code read_line(const char *path, size_t number, lvn_str line, token_list *list, lvn_err *err)
{
    lvn_str role = next_word(&line), text = next_word(&line), more = next_word(&line);
    if (!role.len || role.ptr[0] == '#')
        return LVN_OK;
    token *t = &list->items[list->count];
    if (!lvn_role_parse(role, &t->role))
        return lvn_fail(err, LVN_INVALID, "%s:%zu: a line is ROLE TOKEN, with admin, algorithm, runner or read-only as the role", path, number);
    if (text.len < MIN_TOKEN || more.len)
        return lvn_fail(err, LVN_INVALID, "%s:%zu: a token has at least %d characters and no blanks", path, number, MIN_TOKEN);
    t->text = text;
    list->count++;
    return LVN_OK;
}

static lvn_code read_tokens(const char *path, token_list **out, lvn_err *err)
{
    lvn_arena *arena = lvn_arena_new(0);
    lvn_str text;
    lvn_code code = read_text(arena, path, &text, err);
    token_list *list = lvn_arena_zalloc(arena, sizeof(*list));
    list->arena = arena;
    list->items = lvn_arena_array(arena, code ? 0 : text.len / MIN_TOKEN + 1, sizeof(*list->items));
    for (size_t number = 1; !code && text.len; number++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        lvn_str line = {text.ptr, end ? (size_t)(end - text.ptr) : text.len};
        code = read_line(path, number, line, list, err);
        text = lvn_str_from(text, line.len + (end != NULL));
    }
    if (!code && !list->count)
        code = lvn_fail(err, LVN_INVALID, "%s: no token in it", path);
    if (code)
        lvn_arena_free(arena);
    else
        *out = list;
    return code;
}

/* ---- tokens ---- */

/* Takes as long for every text of that length. */
static bool is_same(lvn_str a, lvn_str b)
{
    unsigned difference = a.len != b.len;
    for (size_t i = 0; i < a.len && i < b.len; i++)
        difference |= (unsigned char)a.ptr[i] ^ (unsigned char)b.ptr[i];
    return !difference;
}

/* What the client shows: as the store's clients and OpenAI's send it, or as Anthropic's do. */
static lvn_str shown_token(const lvn_http_request *request)
{
    lvn_str header = lvn_http_header_get(request, "authorization");
    if (header.len > 7 && !strncasecmp(header.ptr, "bearer ", 7))
        return lvn_str_from(header, 7);
    return lvn_http_header_get(request, "x-api-key");
}

static bool find_role(const token_list *list, lvn_str shown, lvn_role *out)
{
    bool is_found = false;
    for (size_t i = 0; i < list->count; i++)
        if (is_same(list->items[i].text, shown)) {
            *out = list->items[i].role;
            is_found = true;
        }
    return is_found;
}

static void refuse(lvn_http_request *request, int status, const char *detail)
{
    if (status == 401)
        lvn_http_answer_header(request, "WWW-Authenticate", LVN_STR("Bearer"));
    lvn_http_respond(request, status, "application/json", lvn_arena_printf(request->arena, "{\"detail\":\"%s\"}", detail));
}

/* Whether the request was refused. */
static bool check_token(const lvn_access *access, lvn_http_request *request)
{
    lvn_role role = LVN_ROLE_ADMIN;
    if ((!access->tokens && !access->key) || lvn_str_is(request->path, "/v1/agl/health"))
        return false;
    lvn_str shown = shown_token(request);
    bool is_key = access->key && is_same(lvn_str_of(access->key), shown);
    if (!shown.len)
        refuse(request, 401, "This server wants a token: Authorization: Bearer TOKEN");
    else if (!is_key && (!access->tokens || !find_role(access->tokens, shown, &role)))
        refuse(request, 401, "Unknown token");
    else if (!lvn_role_may(role, request->method, request->path))
        refuse(request, 403, lvn_arena_printf(request->arena, "The role %s may not do this", lvn_role_name(role)).ptr);
    else
        return false;
    return true;
}

/* ---- web pages ---- */

static bool is_allowed(const lvn_access *access, lvn_str origin)
{
    for (size_t i = 0; i < access->origin_count; i++)
        if (!strcmp(access->origins[i], "*") || lvn_str_is(origin, access->origins[i]))
            return true;
    return false;
}

/* Whether the request was a browser's question in advance, and so has been answered. */
static bool answer_origin(const lvn_access *access, lvn_http_request *request)
{
    lvn_str origin = lvn_http_header_get(request, "origin");
    if (!access->origin_count || lvn_str_is_absent(origin))
        return false;
    bool is_good = is_allowed(access, origin);
    lvn_http_answer_header(request, "Vary", LVN_STR("Origin"));
    if (is_good) {
        lvn_http_answer_header(request, "Access-Control-Allow-Origin", origin);
        lvn_http_answer_header(request, "Access-Control-Allow-Credentials", LVN_STR("true"));
    }
    bool is_preflight = lvn_str_is(request->method, "OPTIONS") &&
                        !lvn_str_is_absent(lvn_http_header_get(request, "access-control-request-method"));
    if (!is_preflight) {
        if (is_good)
            lvn_http_answer_header(request, "Access-Control-Expose-Headers", LVN_STR("*"));
        return false;
    }
    if (!is_good) {
        lvn_http_respond(request, 400, "text/plain; charset=utf-8", LVN_STR("Disallowed CORS origin"));
        return true;
    }
    lvn_str wanted = lvn_http_header_get(request, "access-control-request-headers");
    lvn_http_answer_header(request, "Access-Control-Allow-Methods", LVN_STR("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"));
    lvn_http_answer_header(request, "Access-Control-Max-Age", LVN_STR("600"));
    if (wanted.len)
        lvn_http_answer_header(request, "Access-Control-Allow-Headers", wanted);
    lvn_http_respond(request, 200, "text/plain; charset=utf-8", LVN_STR("OK"));
    return true;
}

static bool guard(lvn_http_request *request, void *user)
{
    const lvn_access *access = user;
    return answer_origin(access, request) || check_token(access, request);
}

/* ---- life ---- */

lvn_code lvn_access_open(const lvn_access_config *config, lvn_http_server *server, lvn_access **out, lvn_err *err)
{
    token_list *tokens = NULL;
    lvn_code code = config->token_file ? read_tokens(config->token_file, &tokens, err) : LVN_OK;
    if (code)
        return code;
    if (config->key && strlen(config->key) < MIN_TOKEN) {
        if (tokens)
            lvn_arena_free(tokens->arena);
        return lvn_fail(err, LVN_INVALID, "a key has at least %d characters", MIN_TOKEN);
    }
    lvn_access *access = lvn_zalloc(sizeof(*access));
    access->key = config->key ? lvn_strdup(config->key) : NULL;
    access->server = server;
    access->tokens = tokens;
    access->token_file = config->token_file ? lvn_strdup(config->token_file) : NULL;
    access->origins = lvn_zalloc((config->origin_count + 1) * sizeof(*access->origins));
    for (size_t i = 0; i < config->origin_count; i++)
        access->origins[access->origin_count++] = lvn_strdup(config->origins[i]);
    lvn_http_guard(server, guard, access);
    *out = access;
    return LVN_OK;
}

typedef struct swap {
    lvn_access *access;
    token_list *tokens;
} swap;

static void swap_tokens(void *arg)
{
    swap *s = arg;
    token_list *old = s->access->tokens;
    s->access->tokens = s->tokens;
    s->tokens = old;
}

lvn_code lvn_access_reload(lvn_access *access, lvn_err *err)
{
    if (!access->token_file)
        return LVN_OK;
    swap s = {.access = access};
    lvn_code code = read_tokens(access->token_file, &s.tokens, err);
    if (code)
        return code;
    lvn_loop_call(lvn_http_loop(access->server), swap_tokens, &s);
    lvn_arena_free(s.tokens->arena);
    return LVN_OK;
}

void lvn_access_close(lvn_access *access)
{
    if (!access)
        return;
    if (access->tokens)
        lvn_arena_free(access->tokens->arena);
    for (size_t i = 0; i < access->origin_count; i++)
        free(access->origins[i]);
    free(access->origins);
    free(access->token_file);
    free(access->key);
    free(access);
}
