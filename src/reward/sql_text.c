/* The text rules of Spider's official scorer: spaces inside operators, DISTINCT, the first
 * statement, the current year. Where a statement ends is sqlparse's decision, not SQLite's: a
 * semicolon inside parentheses or a BEGIN block does not count. */
#include "reward/sql_text.h"

#include <ctype.h>

#include "base/buf.h"

enum {
    MAX_BLOCKS = 256,
    MAX_TOKENS =
        10000, /* sqlparse refuses to group a longer statement, and the official scorer raises */
};

typedef enum block {
    BLOCK_NONE,
    BLOCK_DECLARE,
    BLOCK_BEGIN,
    BLOCK_FOR,
    BLOCK_WHILE,
    BLOCK_LOOP,
    BLOCK_IF,
    BLOCK_CASE
} block;

/* sqlparse's StatementSplitter. */
typedef struct splitter {
    block blocks[MAX_BLOCKS];
    size_t block_count;
    block unconfirmed; /* FOR or WHILE, waiting for its LOOP or DO */
    int level;
    size_t tokens;
    bool is_create;
    bool has_seen_begin;
    bool is_ended; /* only blanks may still belong to the statement */
    bool has_content;
} splitter;

static void push(splitter *s, block b)
{
    /* Deeper than any query SQLite would parse; losing a block then only moves the end of a
     * statement that fails. */
    if (s->block_count < MAX_BLOCKS)
        s->blocks[s->block_count++] = b;
}

static block top(const splitter *s)
{
    return s->block_count ? s->blocks[s->block_count - 1] : BLOCK_NONE;
}

static bool is_inside_begin(const splitter *s)
{
    for (size_t i = 0; i < s->block_count; i++)
        if (s->blocks[i] == BLOCK_BEGIN)
            return true;
    return false;
}

/* Whether the token's text in upper case is `word`. */
static bool reads(const lvn_sql_codes *codes, const lvn_sql_token *token, const char *word)
{
    size_t i = token->start;
    while (i < token->end && *word != '\0' &&
           lvn_sql_upper(codes->code[i]) == (uint32_t)(unsigned char)*word)
        i++, word++;
    return i == token->end && *word == '\0';
}

/* Python's t.lower() == "distinct": letters outside ASCII that only turn into these in upper case
 * do not count. */
static bool is_distinct(const lvn_sql_codes *codes, const lvn_sql_token *token)
{
    for (size_t i = token->start; i < token->end; i++)
        if (codes->code[i] >= 0x80)
            return false;
    return reads(codes, token, "DISTINCT");
}

static int pop_if(splitter *s, bool matches)
{
    if (!matches || s->block_count == 0)
        return 0;
    s->block_count--;
    return -1;
}

static int close_block(splitter *s, const lvn_sql_codes *codes, const lvn_sql_token *token)
{
    const block last = top(s);
    if (reads(codes, token, "END IF"))
        return pop_if(s, last == BLOCK_IF);
    if (reads(codes, token, "END FOR"))
        return pop_if(s, last == BLOCK_FOR);
    if (reads(codes, token, "END WHILE"))
        return pop_if(s, last == BLOCK_WHILE);
    if (reads(codes, token, "END LOOP"))
        return pop_if(s, last == BLOCK_LOOP || last == BLOCK_FOR || last == BLOCK_WHILE);
    if (reads(codes, token, "END CASE"))
        return pop_if(s, last == BLOCK_CASE);
    if (!reads(codes, token, "END"))
        return 0;
    pop_if(s, true);
    return -1; /* also without a block: an ordinary CASE ... END lowers the level for good, as in
                  sqlparse */
}

/* Inside BEGIN: loops and conditions. False when the keyword is none of them. */
static bool open_nested(splitter *s, const lvn_sql_codes *codes, const lvn_sql_token *token,
                        int *out_change)
{
    const bool is_loop = reads(codes, token, "LOOP");
    *out_change = 1;
    if (reads(codes, token, "FOR") || reads(codes, token, "WHILE")) {
        s->unconfirmed = reads(codes, token, "FOR") ? BLOCK_FOR : BLOCK_WHILE;
        *out_change = 0;
        return true;
    }
    if ((is_loop || reads(codes, token, "DO")) && s->unconfirmed != BLOCK_NONE) {
        push(s, s->unconfirmed);
        s->unconfirmed = BLOCK_NONE;
        return true;
    }
    if (is_loop || reads(codes, token, "IF") || reads(codes, token, "CASE")) {
        push(s, is_loop ? BLOCK_LOOP : reads(codes, token, "IF") ? BLOCK_IF : BLOCK_CASE);
        return true;
    }
    return false;
}

static int keyword_change(splitter *s, const lvn_sql_codes *codes, const lvn_sql_token *token)
{
    if (reads(codes, token, "DECLARE") && s->is_create && s->block_count == 0) {
        push(s, BLOCK_DECLARE);
        return 1;
    }
    if (reads(codes, token, "BEGIN")) {
        s->has_seen_begin = true;
        const bool was_declared = top(s) == BLOCK_DECLARE;
        pop_if(s, was_declared);
        push(s, BLOCK_BEGIN);
        return was_declared ? 0 : 1;
    }
    if (s->has_seen_begin && (reads(codes, token, "TRANSACTION") || reads(codes, token, "WORK") ||
                              reads(codes, token, "DEFERRED") || reads(codes, token, "IMMEDIATE") ||
                              reads(codes, token, "EXCLUSIVE"))) {
        s->has_seen_begin = false;
        return pop_if(s, top(s) == BLOCK_BEGIN);
    }
    int change;
    if (is_inside_begin(s) && open_nested(s, codes, token, &change))
        return change;
    return close_block(s, codes, token);
}

static int level_change(splitter *s, const lvn_sql_codes *codes, const lvn_sql_token *token)
{
    const uint32_t first = codes->code[token->start];
    if (token->kind == LVN_SQL_PUNCTUATION && first == ';') {
        s->unconfirmed = BLOCK_NONE;
        const bool had_begin = s->has_seen_begin;
        s->has_seen_begin = false;
        return pop_if(s, had_begin && top(s) == BLOCK_BEGIN);
    }
    if (token->kind == LVN_SQL_PUNCTUATION)
        return first == '(' ? 1 : first == ')' ? -1 : 0;
    if (token->kind == LVN_SQL_CREATE)
        s->is_create = true;
    return token->kind == LVN_SQL_KEYWORD ? keyword_change(s, codes, token) : 0;
}

static bool is_go(const lvn_sql_codes *codes, const lvn_sql_token *token)
{
    const size_t length = token->end - token->start;
    return token->kind == LVN_SQL_KEYWORD && length >= 2 && codes->code[token->start] == 'G' &&
           codes->code[token->start + 1] == 'O' &&
           (length == 2 || lvn_sql_is_space(codes->code[token->start + 2]));
}

/* Takes the next token; true when it begins a new statement. */
static bool split_before(splitter *s, const lvn_sql_codes *codes, const lvn_sql_token *token)
{
    const bool is_blank =
        token->kind == LVN_SQL_WHITESPACE || token->kind == LVN_SQL_COMMENT_SINGLE;
    const bool begins = s->is_ended && !is_blank;
    if (begins)
        *s = (splitter){0};
    s->level += level_change(s, codes, token);
    s->tokens++;
    if (token->kind != LVN_SQL_WHITESPACE && token->kind != LVN_SQL_NEWLINE)
        s->has_content = true;
    if (token->kind == LVN_SQL_PUNCTUATION && codes->code[token->start] == ';') {
        s->has_seen_begin = false;
        if (s->level <= 0 && !is_inside_begin(s))
            s->is_ended = true;
    } else if (is_go(codes, token)) {
        s->is_ended = true;
    } else if (!is_blank && token->kind != LVN_SQL_NEWLINE &&
               token->kind != LVN_SQL_COMMENT_MULTI &&
               !(token->kind == LVN_SQL_KEYWORD && reads(codes, token, "BEGIN"))) {
        s->has_seen_begin = false;
    }
    return begins;
}

static lvn_str replace(lvn_arena *arena, lvn_str text, lvn_str from, lvn_str to)
{
    if (!lvn_str_contains(text, from))
        return text;
    char *out = lvn_arena_alloc(arena, text.len + 1);
    size_t len = 0;
    for (size_t i = 0; i < text.len;) {
        if (lvn_str_starts_with(lvn_str_from(text, i), from)) {
            memcpy(out + len, to.ptr, to.len); /* `to` is never longer than `from` */
            len += to.len;
            i += from.len;
        } else {
            out[len++] = text.ptr[i++];
        }
    }
    return (lvn_str){out, len};
}

/* The first statement without its DISTINCTs. All statements are read, since too long a one fails
 * the whole. */
static lvn_code first_statement(lvn_arena *arena, lvn_str text, lvn_str *out, lvn_err *err)
{
    const lvn_sql_codes codes = lvn_sql_codes_of(arena, text);
    lvn_sql_lexer *lexer = lvn_sql_lexer_new(arena, codes);
    char *kept = lvn_arena_alloc(arena, text.len + 1);
    size_t len = 0;
    bool is_first = true;
    splitter split = {0};
    lvn_sql_token token;
    while (lvn_sql_lexer_next(lexer, &token)) {
        if (split_before(&split, &codes, &token))
            is_first = false;
        if (split.tokens > MAX_TOKENS)
            return lvn_fail(err, LVN_INVALID, "the query has over %d words", MAX_TOKENS);
        if (!is_first || is_distinct(&codes, &token))
            continue;
        const size_t start = codes.offset[token.start], bytes = codes.offset[token.end] - start;
        memcpy(kept + len, text.ptr + start, bytes);
        len += bytes;
    }
    if (is_first && !split.has_content)
        return lvn_fail(err, LVN_INVALID, "the query is empty");
    *out = (lvn_str){kept, len};
    return LVN_OK;
}

lvn_code lvn_sql_text_prepare(lvn_arena *arena, lvn_str query, bool keep_distinct, lvn_str *out,
                              lvn_err *err)
{
    lvn_str text = query.ptr ? query : LVN_STR("");
    text = replace(arena, text, LVN_STR("> ="), LVN_STR(">="));
    text = replace(arena, text, LVN_STR("< ="), LVN_STR("<="));
    text = replace(arena, text, LVN_STR("! ="), LVN_STR("!="));
    if (!keep_distinct) {
        const lvn_code code = first_statement(arena, text, &text, err);
        if (code != LVN_OK)
            return code;
        text = replace(arena, text, LVN_STR("  "), LVN_STR(" "));
    }
    *out = text;
    return LVN_OK;
}

/* YEAR ( CURDATE ( ) ), and the white space behind it. */
static size_t match_year(const lvn_sql_codes *codes, size_t i)
{
    for (const char *p = "YEAR ( CURDATE ( ) ) "; *p != '\0'; p++) {
        if (*p == ' ') {
            while (i < codes->count && lvn_sql_is_space(codes->code[i]))
                i++;
        } else if (i < codes->count && codes->code[i] < 0x80 &&
                   lvn_sql_upper(codes->code[i]) == (uint32_t)(unsigned char)*p) {
            i++;
        } else {
            return 0;
        }
    }
    return i;
}

lvn_str lvn_sql_text_fix_year(lvn_arena *arena, lvn_str query)
{
    const lvn_sql_codes codes = lvn_sql_codes_of(arena, query);
    char *out = lvn_arena_alloc(arena, query.len + 1);
    size_t len = 0;
    for (size_t i = 0; i < codes.count;) {
        const size_t end = match_year(&codes, i);
        if (end > 0) {
            memcpy(out + len, "2020", 4);
            len += 4;
            i = end;
        } else {
            const size_t bytes = codes.offset[i + 1] - codes.offset[i];
            memcpy(out + len, query.ptr + codes.offset[i], bytes);
            len += bytes;
            i++;
        }
    }
    return (lvn_str){out, len};
}

bool lvn_sql_text_orders(lvn_str prepared)
{
    static const char wanted[] = "order by";
    for (size_t i = 0; i + sizeof(wanted) - 1 <= prepared.len; i++) {
        size_t k = 0;
        while (wanted[k] != '\0' && tolower((unsigned char)prepared.ptr[i + k]) == wanted[k])
            k++;
        if (wanted[k] == '\0')
            return true;
    }
    return false;
}
