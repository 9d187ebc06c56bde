/* Tokens of a query, with exactly the boundaries that Python's sqlparse 0.6.1 finds. Only what
 * decides two questions is told apart: which words are DISTINCT, and where the first statement
 * ends. Rules are tried in sqlparse's order; where one of its regular expressions backtracks, the
 * comment says how that is reproduced. */
#include "reward/sql_text.h"
#include "reward/word_ranges.h"

enum { QUOTES = 4, NO_MATCH = -1 };
#define NO_SLOT SIZE_MAX
static const uint32_t quote_code[QUOTES] = {'\'', '"', '`', 0xb4};

struct lvn_sql_lexer {
    lvn_arena *arena;
    lvn_sql_codes text;
    size_t position;
    ptrdiff_t *quote_end[QUOTES]; /* made at first need, see quoted_end() */
    bool has_no_comment_end;      /* a search for one failed: no later search can succeed */
};

static const char *const join_words[] = {"LEFT |RIGHT |FULL |", "INNER |OUTER |STRAIGHT |", "JOIN",
                                         NULL};
static const char *const cross_words[] = {"CROSS |NATURAL |", "JOIN", NULL};
static const char *const end_words[] = {"END", " IF| LOOP| WHILE| FOR| CASE|", NULL};
static const char *const if_words[] = {"IF ", "NOT |", "EXISTS", NULL};
static const char *const order_words[] = {"ASC|DESC", " NULLS FIRST| NULLS LAST|", NULL};
static const char *const create_words[] = {"CREATE", " OR REPLACE|", NULL};
static const char *const pair_words[] = {
    "NOT NULL|NULLS FIRST|NULLS LAST|UNION ALL|DOUBLE PRECISION|GROUP BY|"
    "ORDER BY|PRIMARY KEY|HANDLER FOR",
    NULL};
static const char *const lateral_words[] = {
    "LATERAL VIEW ", "EXPLODE|INLINE|PARSE_URL_TUPLE|POSEXPLODE|STACK", NULL};
static const char *const like_words[] = {"NOT |", "LIKE|ILIKE|RLIKE", NULL};
static const char *const regexp_words[] = {"NOT |", "REGEXP", " BINARY|", NULL};
static const char *const zone_words[] = {"AT |WITH' ", "TIME ", "ZONE ", NULL};
static const char *const plain_words[] = {"CASE|IN|VALUES|USING|FROM|AS", NULL};

/* Tokens of several words. Each string is a slot: alternatives in order, an empty one makes it
 * optional, a space stands for any white space. A word boundary must follow the last. */
static const struct {
    const char *const *slots;
    lvn_sql_kind kind;
} phrases[] = {
    {join_words, LVN_SQL_OTHER},   {cross_words, LVN_SQL_OTHER},   {end_words, LVN_SQL_KEYWORD},
    {if_words, LVN_SQL_OTHER},     {order_words, LVN_SQL_OTHER},   {create_words, LVN_SQL_CREATE},
    {pair_words, LVN_SQL_OTHER},   {lateral_words, LVN_SQL_OTHER}, {like_words, LVN_SQL_OTHER},
    {regexp_words, LVN_SQL_OTHER},
};

static bool in_ranges(const lvn_code_range *ranges, size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= code;
}

static bool is_digit(uint32_t code)
{
    return code < 0x80 ? code >= '0' && code <= '9'
                       : in_ranges(lvn_digit_ranges, lvn_digit_ranges_count, code);
}

static bool is_ascii_letter(uint32_t code)
{
    return (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
}

static bool is_word(uint32_t code)
{
    if (code < 0x80)
        return is_ascii_letter(code) || is_digit(code) || code == '_';
    return in_ranges(lvn_word_ranges, lvn_word_ranges_count, code);
}

/* Python's [A-ZÀ-Ü] without regard to case. */
static bool is_letter(uint32_t code)
{
    if (code < 0x80)
        return is_ascii_letter(code);
    return (code >= 0xc0 && code <= 0xdc) || (code >= 0xe0 && code <= 0xfc && code != 0xf7) ||
           code == 0x130 || code == 0x131 || code == 0x17f || code == 0x212a || code == 0x212b;
}

bool lvn_sql_is_space(uint32_t code)
{
    return (code >= 0x9 && code <= 0xd) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

uint32_t lvn_sql_upper(uint32_t code)
{
    if (code >= 'a' && code <= 'z')
        return code - ('a' - 'A');
    return code == 0x131 ? 'I' : code == 0x17f ? 'S' : code;
}

/* What a letter of a case-blind pattern is compared with: wider than upper case. */
static uint32_t fold(uint32_t code)
{
    return code == 0x130 ? 'I' : code == 0x212a ? 'K' : lvn_sql_upper(code);
}

size_t lvn_sql_utf8_length(const unsigned char *p, size_t left, uint32_t *out_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = p[0] < 0x80    ? 1
                          : p[0] >= 0xf0 ? 4
                          : p[0] >= 0xe0 ? 3
                          : p[0] >= 0xc2 ? 2
                                         : 0;
    uint32_t code = length == 1 ? p[0] : length ? p[0] & (0x7fu >> length) : 0;
    if (length == 0 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (length > 1 &&
        (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)))
        return 0;
    *out_code = code;
    return length;
}

lvn_sql_codes lvn_sql_codes_of(lvn_arena *arena, lvn_str text)
{
    uint32_t *code = lvn_arena_array(arena, text.len + 1, sizeof(*code));
    size_t *offset = lvn_arena_array(arena, text.len + 1, sizeof(*offset));
    size_t count = 0;
    for (size_t i = 0; i < text.len; count++) {
        size_t length =
            lvn_sql_utf8_length((const unsigned char *)text.ptr + i, text.len - i, &code[count]);
        if (length == 0) {
            code[count] = LVN_CODE_INVALID;
            length = 1;
        }
        offset[count] = i;
        i += length;
    }
    offset[count] = text.len;
    return (lvn_sql_codes){code, offset, count};
}

lvn_sql_lexer *lvn_sql_lexer_new(lvn_arena *arena, lvn_sql_codes codes)
{
    lvn_sql_lexer *lexer = lvn_arena_zalloc(arena, sizeof(*lexer));
    lexer->arena = arena;
    lexer->text = codes;
    return lexer;
}

/* Reading past the end gives 0, which no rule wants. */
static uint32_t at(const lvn_sql_lexer *lexer, size_t i)
{
    return i < lexer->text.count ? lexer->text.code[i] : 0;
}

static bool is_space_at(const lvn_sql_lexer *lexer, size_t i)
{
    return i < lexer->text.count && lvn_sql_is_space(lexer->text.code[i]);
}

static bool is_word_at(const lvn_sql_lexer *lexer, size_t i)
{
    return i < lexer->text.count && is_word(lexer->text.code[i]);
}

static bool is_digit_at(const lvn_sql_lexer *lexer, size_t i)
{
    return i < lexer->text.count && is_digit(lexer->text.code[i]);
}

static size_t skip_word(const lvn_sql_lexer *lexer, size_t i)
{
    while (is_word_at(lexer, i))
        i++;
    return i;
}

static size_t skip_digits(const lvn_sql_lexer *lexer, size_t i)
{
    while (is_digit_at(lexer, i))
        i++;
    return i;
}

/* Where the quoted text whose inside begins at `inside` ends, or NO_MATCH. The pattern is
 * (QQ|\Q|[^Q])*Q, first alternative first (no \Q for ` and ´). Backtracking is replaced by a table
 * filled from the right: end[i] is the match of the rest of the pattern at i. */
static ptrdiff_t quoted_end(lvn_sql_lexer *lexer, int quote, size_t inside)
{
    const size_t count = lexer->text.count;
    ptrdiff_t *end = lexer->quote_end[quote];
    if (end == NULL) {
        const uint32_t q = quote_code[quote];
        end = lexer->quote_end[quote] = lvn_arena_array(lexer->arena, count + 2, sizeof(*end));
        end[count] = end[count + 1] = NO_MATCH;
        for (size_t i = count; i-- > 0;) {
            const uint32_t c = at(lexer, i);
            const bool quote_follows = at(lexer, i + 1) == q;
            if (quote_follows && (c == q || (c == '\\' && quote < 2)) && end[i + 2] != NO_MATCH)
                end[i] = end[i + 2];
            else
                end[i] = c == q ? (ptrdiff_t)i + 1 : end[i + 1];
        }
    }
    return inside <= count ? end[inside] : NO_MATCH;
}

/* One slot: the end of the first alternative from `*alternative` on that matches at `i`, or NO_SLOT
 * when none does.
 * `*alternative` moves behind what was tried; NULL when nothing is left. */
static size_t match_alternative(const lvn_sql_lexer *lexer, const char **alternative, size_t i)
{
    while (*alternative != NULL) {
        const char *p = *alternative;
        size_t end = i;
        bool matches = true;
        for (; matches && *p != '\0' && *p != '|'; p++) {
            if (*p == ' ') {
                matches = is_space_at(lexer, end);
                while (is_space_at(lexer, end))
                    end++;
            } else {
                matches = fold(at(lexer, end)) == (uint32_t)(unsigned char)*p;
                end++;
            }
        }
        const char *bar = strchr(p, '|');
        *alternative = bar ? bar + 1 : NULL;
        if (matches)
            return end;
    }
    return NO_SLOT;
}

/* The end of a phrase at `i`; 0 when it does not match. */
static size_t match_slots(const lvn_sql_lexer *lexer, const char *const *slots, size_t i,
                          bool needs_boundary)
{
    if (*slots == NULL)
        return needs_boundary && is_word_at(lexer, i) ? 0 : i;
    const char *alternative = *slots;
    while (alternative != NULL) {
        const size_t end = match_alternative(lexer, &alternative, i);
        const size_t whole =
            end == NO_SLOT ? 0 : match_slots(lexer, slots + 1, end, needs_boundary);
        if (whole > 0)
            return whole;
    }
    return 0;
}

static bool is_keyword(const lvn_sql_lexer *lexer, size_t start, size_t end)
{
    static const char *const words[] = {
        "BEGIN", "DECLARE", "FOR",         "WHILE", "LOOP",     "DO",        "IF",       "CASE",
        "END",   "GO",      "TRANSACTION", "WORK",  "DEFERRED", "IMMEDIATE", "EXCLUSIVE"};
    for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
        size_t i = start;
        const char *p = words[w];
        while (i < end && *p != '\0' && lvn_sql_upper(at(lexer, i)) == (uint32_t)(unsigned char)*p)
            i++, p++;
        if (i == end && *p == '\0')
            return true;
    }
    return false;
}

/* The end of a $tag$ at `i`, or 0. */
static size_t dollar_delimiter(const lvn_sql_lexer *lexer, size_t i)
{
    if (at(lexer, i) != '$')
        return 0;
    size_t end = i + 1;
    if (at(lexer, end) == '_' || is_letter(at(lexer, end)))
        end = skip_word(lexer, end);
    return at(lexer, end) == '$' ? end + 1 : 0;
}

static size_t dollar_span(const lvn_sql_lexer *lexer, size_t i)
{
    const size_t open_end = dollar_delimiter(lexer, i);
    if (open_end == 0)
        return 0;
    if (i > 0 && (is_word_at(lexer, i - 1) || at(lexer, i - 1) == '"' || at(lexer, i - 1) == '$'))
        return 0;
    const size_t length = open_end - i;
    for (size_t k = open_end; k + length <= lexer->text.count; k++)
        if (memcmp(lexer->text.code + k, lexer->text.code + i, length * sizeof(uint32_t)) == 0)
            return k + length;
    return 0;
}

static size_t comment_span(lvn_sql_lexer *lexer, size_t i)
{
    if (at(lexer, i) != '/' || at(lexer, i + 1) != '*' || lexer->has_no_comment_end)
        return 0;
    for (size_t k = i + (at(lexer, i + 2) == '+' ? 3 : 2); k + 1 < lexer->text.count; k++)
        if (lexer->text.code[k] == '*' && lexer->text.code[k + 1] == '/')
            return k + 2;
    lexer->has_no_comment_end = true;
    return 0;
}

static size_t newline_end(const lvn_sql_lexer *lexer, size_t i)
{
    if (at(lexer, i) == '\r')
        return at(lexer, i + 1) == '\n' ? i + 2 : i + 1;
    return at(lexer, i) == '\n' ? i + 1 : 0;
}

static bool finish(lvn_sql_token *out, lvn_sql_kind kind, size_t end)
{
    if (end <= out->start)
        return false;
    out->kind = kind;
    out->end = end;
    return true;
}

static bool lex_blank(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    const size_t i = out->start;
    const uint32_t c = at(lexer, i), next = at(lexer, i + 1);
    if (finish(out, LVN_SQL_OTHER, dollar_span(lexer, i)))
        return true;
    if (finish(out, at(lexer, i + 2) == '+' ? LVN_SQL_COMMENT_HINT : LVN_SQL_COMMENT_MULTI,
               comment_span(lexer, i)))
        return true;
    if ((c == '-' && next == '-') || (c == '#' && next == ' ')) {
        size_t end = i + 2;
        while (end < lexer->text.count && at(lexer, end) != '\n' && at(lexer, end) != '\r')
            end++;
        if (end < lexer->text.count)
            end = newline_end(lexer, end);
        return finish(out, at(lexer, i + 2) == '+' ? LVN_SQL_COMMENT_HINT : LVN_SQL_COMMENT_SINGLE,
                      end);
    }
    if (finish(out, LVN_SQL_NEWLINE, newline_end(lexer, i)))
        return true;
    return lvn_sql_is_space(c) && finish(out, LVN_SQL_WHITESPACE, i + 1);
}

/* %s and %(name)s */
static size_t percent_end(const lvn_sql_lexer *lexer, size_t i)
{
    if (at(lexer, i + 1) == '(') {
        const size_t end = skip_word(lexer, i + 2);
        if (end > i + 2 && at(lexer, end) == ')' && fold(at(lexer, end + 1)) == 'S')
            return end + 2;
    }
    return fold(at(lexer, i + 1)) == 'S' ? i + 2 : 0;
}

static bool lex_mark(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    const size_t i = out->start;
    const uint32_t c = at(lexer, i), next = at(lexer, i + 1);
    const bool has_word_before = i > 0 && is_word_at(lexer, i - 1);
    if (c == ':' && (next == '=' || next == ':'))
        return finish(out, LVN_SQL_OTHER, i + 2);
    if (c == '*' || c == '?')
        return finish(out, LVN_SQL_OTHER, i + 1);
    if (c == '`' || c == 0xb4) {
        const ptrdiff_t end = quoted_end(lexer, c == '`' ? 2 : 3, i + 1);
        return end != NO_MATCH && finish(out, LVN_SQL_OTHER, (size_t)end);
    }
    if (c == '%')
        return finish(out, LVN_SQL_OTHER, percent_end(lexer, i));
    if ((((c == '$' || c == ':') && !has_word_before) || c == '\\') && is_word_at(lexer, i + 1))
        return finish(out, LVN_SQL_OTHER, skip_word(lexer, i + 1));
    if (c == '@' || c == '#') {
        const size_t letter = c == '#' && next == '#' ? i + 2 : i + 1;
        if (is_letter(at(lexer, letter)) && is_word_at(lexer, letter + 1))
            return finish(out, LVN_SQL_OTHER, skip_word(lexer, letter + 1));
    }
    return false;
}

/* Words that begin with a letter and are names because of what stands beside them. */
static bool lex_name(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    const size_t i = out->start;
    if (!is_letter(at(lexer, i)))
        return false;
    const size_t end = skip_word(lexer, i + 1);
    size_t dot = end;
    while (is_space_at(lexer, dot))
        dot++;
    const bool is_qualifier = at(lexer, dot) == '.' && !is_digit_at(lexer, dot + 1);
    const bool is_member = i > 0 && at(lexer, i - 1) == '.';
    return (is_qualifier || is_member || at(lexer, end) == '(') && finish(out, LVN_SQL_OTHER, end);
}

static bool is_hex(uint32_t code)
{
    return is_digit(code) || (fold(code) >= 'A' && fold(code) <= 'F');
}

static size_t float_with_exponent(const lvn_sql_lexer *lexer, size_t digits)
{
    size_t end = skip_digits(lexer, digits);
    if (end == digits)
        return 0;
    if (at(lexer, end) == '.' && is_digit_at(lexer, end + 1))
        end = skip_digits(lexer, end + 1);
    if (fold(at(lexer, end)) != 'E')
        return 0;
    const size_t exponent = at(lexer, end + 1) == '-' ? end + 2 : end + 1;
    end = skip_digits(lexer, exponent);
    return end > exponent ? end : 0;
}

/* Numbers without an exponent may not run into a letter or '_'; the patterns then give back their
 * last digit where they have one to spare, which a word made of digits and letters takes over. */
static size_t plain_number(const lvn_sql_lexer *lexer, size_t digits)
{
    const size_t whole = skip_digits(lexer, digits);
    size_t end = whole, spare = whole > digits ? whole - digits - 1 : 0;
    if (at(lexer, whole) == '.' && (whole > digits || is_digit_at(lexer, whole + 1))) {
        end = skip_digits(lexer, whole + 1);
        spare = end - whole - 1 - (whole > digits ? 0 : 1);
        if ((at(lexer, end) == '_' || is_letter(at(lexer, end))) && spare == 0) {
            /* "12.x": no fraction to give back, so only the whole part may match, as an integer. */
            return whole > digits ? whole : 0;
        }
    } else if (whole == digits) {
        return 0;
    }
    if (at(lexer, end) == '_' || is_letter(at(lexer, end)))
        return spare > 0 ? end - 1 : 0;
    return end;
}

static bool lex_number(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    const size_t i = out->start;
    const size_t digits = at(lexer, i) == '-' ? i + 1 : i;
    if (at(lexer, digits) == '0' && fold(at(lexer, digits + 1)) == 'X' &&
        is_hex(at(lexer, digits + 2))) {
        size_t end = digits + 2;
        while (end < lexer->text.count && is_hex(at(lexer, end)))
            end++;
        return finish(out, LVN_SQL_OTHER, end);
    }
    return finish(out, LVN_SQL_OTHER, float_with_exponent(lexer, digits)) ||
           finish(out, LVN_SQL_OTHER, plain_number(lexer, digits));
}

static bool lex_quoted(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    const size_t i = out->start;
    const uint32_t c = at(lexer, i);
    if (c == '\'' || c == '"') {
        const ptrdiff_t end = quoted_end(lexer, c == '\'' ? 0 : 1, i + 1);
        return end != NO_MATCH && finish(out, LVN_SQL_OTHER, (size_t)end);
    }
    if (c != '[' ||
        (i > 0 && (is_word_at(lexer, i - 1) || at(lexer, i - 1) == ']' || at(lexer, i - 1) == ')')))
        return false;
    size_t end = i + 1;
    while (end < lexer->text.count && at(lexer, end) != ']' && at(lexer, end) != '[')
        end++;
    return end > i + 1 && at(lexer, end) == ']' && finish(out, LVN_SQL_OTHER, end + 1);
}

/* GO and a number, which ends a statement. */
static size_t go_end(const lvn_sql_lexer *lexer, size_t i)
{
    if (fold(at(lexer, i)) != 'G' || fold(at(lexer, i + 1)) != 'O' || !is_space_at(lexer, i + 2))
        return 0;
    const size_t end = skip_digits(lexer, i + 3);
    return end > i + 3 && !is_word_at(lexer, end) ? end : 0;
}

/* AT TIME ZONE '...' */
static size_t zone_end(const lvn_sql_lexer *lexer, size_t i)
{
    const size_t quote = match_slots(lexer, zone_words, i, false);
    if (quote == 0 || at(lexer, quote) != '\'')
        return 0;
    size_t end = quote + 1;
    while (end < lexer->text.count && at(lexer, end) != '\'')
        end++;
    return end > quote + 1 && at(lexer, end) == '\'' ? end + 1 : 0;
}

static bool lex_word(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    const size_t i = out->start;
    if (!is_word_at(lexer, i))
        return false;
    for (size_t p = 0; p < sizeof(phrases) / sizeof(phrases[0]); p++)
        if (finish(out, phrases[p].kind, match_slots(lexer, phrases[p].slots, i, true)))
            return true;
    if (finish(out, LVN_SQL_KEYWORD, go_end(lexer, i)) ||
        finish(out, LVN_SQL_OTHER, zone_end(lexer, i)))
        return true;
    size_t end = i + 1;
    while (is_word_at(lexer, end) || at(lexer, end) == '$' || at(lexer, end) == '#')
        end++;
    return finish(out, is_keyword(lexer, i, end) ? LVN_SQL_KEYWORD : LVN_SQL_OTHER, end);
}

static bool is_one_of(uint32_t code, const char *set)
{
    return code != 0 && code < 0x80 && strchr(set, (int)code) != NULL;
}

static size_t skip_set(const lvn_sql_lexer *lexer, size_t i, const char *set)
{
    while (is_one_of(at(lexer, i), set))
        i++;
    return i;
}

static void lex_operator(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    const size_t i = out->start;
    const uint32_t c = at(lexer, i), next = at(lexer, i + 1);
    if (is_one_of(c, ";:()[],.")) {
        finish(out, LVN_SQL_PUNCTUATION, i + 1);
    } else if ((c == '-' || c == '#') && next == '>') {
        finish(out, LVN_SQL_OTHER, at(lexer, i + 2) == '>' ? i + 3 : i + 2);
    } else if ((c == '@' && next == '>') || (c == '<' && next == '@') ||
               (c == '#' && next == '-')) {
        finish(out, LVN_SQL_OTHER, i + 2);
    } else if (c == '-') {
        finish(out, LVN_SQL_OTHER, i + 1);
    } else if (!finish(out, LVN_SQL_OTHER, skip_set(lexer, i, "<>=~!")) &&
               !finish(out, LVN_SQL_OTHER, skip_set(lexer, i, "+/@#%^&|-"))) {
        finish(out, LVN_SQL_OTHER, i + 1);
    }
}

bool lvn_sql_lexer_next(lvn_sql_lexer *lexer, lvn_sql_token *out)
{
    if (lexer->position >= lexer->text.count)
        return false;
    out->start = lexer->position;
    if (!lex_blank(lexer, out) && !lex_mark(lexer, out)) {
        const size_t plain = match_slots(lexer, plain_words, out->start, true);
        const bool is_case = plain == out->start + 4 && fold(at(lexer, out->start)) == 'C';
        if (!finish(out, is_case ? LVN_SQL_KEYWORD : LVN_SQL_OTHER, plain) &&
            !lex_name(lexer, out) && !lex_number(lexer, out) && !lex_quoted(lexer, out) &&
            !lex_word(lexer, out))
            lex_operator(lexer, out);
    }
    lexer->position = out->end;
    return true;
}
