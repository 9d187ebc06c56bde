/* Private to reward: what Spider's official scorer does to the text of a query before it runs. */
#ifndef LVN_REWARD_SQL_TEXT_H
#define LVN_REWARD_SQL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/* A query as code points; offset[i] is where the i-th begins in the bytes, offset[count] the end. A
 * byte that is no UTF-8 counts as one code point of its own above LVN_CODE_INVALID, which no rule
 * matches. */
typedef struct lvn_sql_codes {
    const uint32_t *code;
    const size_t *offset;
    size_t count;
} lvn_sql_codes;

enum { LVN_CODE_INVALID = 0x110000 };

typedef enum lvn_sql_kind {
    LVN_SQL_OTHER,
    LVN_SQL_WHITESPACE,
    LVN_SQL_NEWLINE,
    LVN_SQL_COMMENT_SINGLE,
    LVN_SQL_COMMENT_MULTI,
    LVN_SQL_COMMENT_HINT,
    LVN_SQL_PUNCTUATION,
    LVN_SQL_KEYWORD, /* a keyword that may matter to where a statement ends */
    LVN_SQL_CREATE,
} lvn_sql_kind;

typedef struct lvn_sql_token {
    lvn_sql_kind kind;
    size_t start; /* code points */
    size_t end;
} lvn_sql_token;

/* Reads tokens as sqlparse does. The lexer and what it returns live in `arena`. */
typedef struct lvn_sql_lexer lvn_sql_lexer;
/* Bytes of the UTF-8 sequence at `p` (at least one byte left), 0 when there is no valid one. */
size_t lvn_sql_utf8_length(const unsigned char *p, size_t left, uint32_t *out_code);
lvn_sql_codes lvn_sql_codes_of(lvn_arena *arena, lvn_str text);
lvn_sql_lexer *lvn_sql_lexer_new(lvn_arena *arena, lvn_sql_codes codes);
/* False at the end. */
bool lvn_sql_lexer_next(lvn_sql_lexer *lexer, lvn_sql_token *out);

/* Upper case as Python's str.upper has it, for the letters that can lead to ASCII. */
uint32_t lvn_sql_upper(uint32_t code);
bool lvn_sql_is_space(uint32_t code);

/* Rules 1 and 2: what is run and looked at for "order by". LVN_INVALID when the official scorer
 * would raise (nothing to parse, or far too long), with the reason in `err`. The result lives in
 * `arena`. */
lvn_code lvn_sql_text_prepare(lvn_arena *arena, lvn_str query, bool keep_distinct, lvn_str *out,
                              lvn_err *err) LVN_MUST_USE;
/* Rule 3: YEAR(CURDATE()) becomes 2020. */
lvn_str lvn_sql_text_fix_year(lvn_arena *arena, lvn_str query);
/* Rule 4: whether `prepared` contains "order by", in any case. */
bool lvn_sql_text_orders(lvn_str prepared);

#endif
