/* Values, and whether two results are the same under some order of the columns.
 *
 * Every distinct value of the gold gets a number, so a cell is one integer and most predictions
 * fail at the first value that the gold does not have. When order matters, columns are independent
 * of each other and are paired off one by one. When it does not, columns are assigned by
 * backtracking: after each step the multisets of row prefixes must agree, which is checked by a sum
 * of hashes and, at the end, exactly. */
#include "reward/sql_result.h"

#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/map.h"

/* How a number was written: str() of it decides the official scorer's early rejection. */
enum { FORM_PLAIN = 0, FORM_FLOAT = 1, FORM_MINUS_ZERO = 2, FORM_BITS = 2 };

typedef struct interned {
    lvn_sql_value value; /* a float that equals an integer is stored as that integer */
    uint64_t hash;
    uint8_t forms; /* bit mask of the forms seen in the gold */
} interned;

struct lvn_sql_gold {
    lvn_arena *arena; /* bytes of values */
    size_t columns;
    size_t rows;
    uint32_t *cells;
    size_t cell_capacity;
    interned *values;
    size_t value_count;
    size_t value_capacity;
    uint32_t *slots; /* hash table: index into values + 1 */
    size_t slot_count;
};

struct lvn_sql_answer {
    const lvn_sql_gold *gold;
    size_t rows;
    uint32_t *cells;
    bool has_mixed_forms; /* some value is written in two forms between gold and answer */
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Brings `value` to the form under which equal values are identical; returns how it was written. */
static uint32_t normalise(lvn_sql_value *value)
{
    if (value->type != LVN_SQL_FLOAT)
        return FORM_PLAIN;
    const double number = value->number;
    if (!(number >= -0x1p63 && number < 0x1p63) || number != trunc(number))
        return FORM_PLAIN;
    value->type = LVN_SQL_INT;
    value->integer = (int64_t)number;
    return number == 0 && signbit(number) ? FORM_MINUS_ZERO : FORM_FLOAT;
}

static uint64_t hash_value(const lvn_sql_value *value)
{
    uint64_t bits = 0;
    switch (value->type) {
    case LVN_SQL_NULL:
        break;
    case LVN_SQL_INT:
        bits = (uint64_t)value->integer;
        break;
    case LVN_SQL_FLOAT:
        memcpy(&bits, &value->number, sizeof(bits));
        break;
    case LVN_SQL_TEXT:
    case LVN_SQL_BLOB:
        bits = lvn_hash_bytes(value->bytes.ptr, value->bytes.len);
        break;
    }
    return mix(bits + (uint64_t)value->type * UINT64_C(0x9e3779b97f4a7c15));
}

static bool is_same(const lvn_sql_value *a, const lvn_sql_value *b)
{
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case LVN_SQL_NULL:
        return true;
    case LVN_SQL_INT:
        return a->integer == b->integer;
    case LVN_SQL_FLOAT:
        return memcmp(&a->number, &b->number, sizeof(a->number)) == 0;
    case LVN_SQL_TEXT:
    case LVN_SQL_BLOB:
        return a->bytes.len == b->bytes.len &&
               (a->bytes.len == 0 || memcmp(a->bytes.ptr, b->bytes.ptr, a->bytes.len) == 0);
    }
    return false;
}

/* The slot of a value: it holds the value, or 0 where it would go. */
static uint32_t *find_slot(const lvn_sql_gold *gold, const lvn_sql_value *value, uint64_t hash)
{
    for (size_t i = hash & (gold->slot_count - 1);; i = (i + 1) & (gold->slot_count - 1)) {
        uint32_t *slot = &gold->slots[i];
        if (*slot == 0)
            return slot;
        const interned *known = &gold->values[*slot - 1];
        if (known->hash == hash && is_same(&known->value, value))
            return slot;
    }
}

lvn_sql_gold *lvn_sql_gold_new(size_t columns)
{
    lvn_sql_gold *gold = lvn_zalloc(sizeof(*gold));
    gold->arena = lvn_arena_new(0);
    gold->columns = columns;
    gold->slot_count = 64;
    gold->slots = lvn_zalloc(gold->slot_count * sizeof(*gold->slots));
    return gold;
}

lvn_sql_gold *lvn_sql_gold_free(lvn_sql_gold *gold)
{
    if (gold == NULL)
        return NULL;
    lvn_arena_free(gold->arena);
    free(gold->cells);
    free(gold->values);
    free(gold->slots);
    free(gold);
    return NULL;
}

static void grow_table(lvn_sql_gold *gold)
{
    free(gold->slots);
    gold->slot_count *= 2;
    gold->slots = lvn_zalloc(gold->slot_count * sizeof(*gold->slots));
    for (size_t i = 0; i < gold->value_count; i++)
        *find_slot(gold, &gold->values[i].value, gold->values[i].hash) = (uint32_t)i + 1;
}

static uint32_t intern(lvn_sql_gold *gold, lvn_sql_value value)
{
    const uint32_t form = normalise(&value);
    const uint64_t hash = hash_value(&value);
    uint32_t *slot = find_slot(gold, &value, hash);
    if (*slot == 0) {
        if (gold->value_count == gold->value_capacity) {
            gold->value_capacity = gold->value_capacity ? gold->value_capacity * 2 : 32;
            gold->values = lvn_realloc(gold->values, gold->value_capacity * sizeof(*gold->values));
        }
        value.bytes = lvn_arena_dup(gold->arena, value.bytes);
        gold->values[gold->value_count++] = (interned){.value = value, .hash = hash};
        *slot = (uint32_t)gold->value_count;
    }
    const uint32_t index = *slot - 1;
    gold->values[index].forms |= (uint8_t)(1u << form);
    if (gold->value_count * 2 > gold->slot_count)
        grow_table(gold);
    return index << FORM_BITS | form;
}

void lvn_sql_gold_add_row(lvn_sql_gold *gold, const lvn_sql_value *row)
{
    const size_t needed = (gold->rows + 1) * gold->columns;
    if (needed > gold->cell_capacity) {
        gold->cell_capacity = needed * 2;
        gold->cells = lvn_realloc(gold->cells, gold->cell_capacity * sizeof(*gold->cells));
    }
    for (size_t c = 0; c < gold->columns; c++)
        gold->cells[gold->rows * gold->columns + c] = intern(gold, row[c]);
    gold->rows++;
}

size_t lvn_sql_gold_rows(const lvn_sql_gold *gold)
{
    return gold->rows;
}

size_t lvn_sql_gold_columns(const lvn_sql_gold *gold)
{
    return gold->columns;
}

size_t lvn_sql_gold_bytes(const lvn_sql_gold *gold)
{
    return lvn_arena_used(gold->arena) + gold->cell_capacity * sizeof(*gold->cells) +
           gold->value_capacity * sizeof(*gold->values) + gold->slot_count * sizeof(*gold->slots);
}

lvn_sql_answer *lvn_sql_answer_new(const lvn_sql_gold *gold)
{
    lvn_sql_answer *answer = lvn_zalloc(sizeof(*answer));
    answer->gold = gold;
    answer->cells = lvn_zalloc((gold->rows * gold->columns + 1) * sizeof(*answer->cells));
    return answer;
}

lvn_sql_answer *lvn_sql_answer_free(lvn_sql_answer *answer)
{
    if (answer != NULL)
        free(answer->cells);
    free(answer);
    return NULL;
}

bool lvn_sql_answer_add_row(lvn_sql_answer *answer, const lvn_sql_value *row, size_t columns)
{
    const lvn_sql_gold *gold = answer->gold;
    if (answer->rows == gold->rows || columns != gold->columns)
        return false;
    uint32_t *cells = answer->cells + answer->rows * columns;
    for (size_t c = 0; c < columns; c++) {
        lvn_sql_value value = row[c];
        const uint32_t form = normalise(&value);
        const uint32_t index = *find_slot(gold, &value, hash_value(&value));
        if (index == 0)
            return false;
        cells[c] = (index - 1) << FORM_BITS | form;
        if (gold->values[index - 1].forms != 1u << form)
            answer->has_mixed_forms = true;
    }
    answer->rows++;
    return true;
}

/* The official scorer first sorts each row by str(value) + str(type(value)) and compares the sorted
 * rows. Where 10 and 10.0 meet, they may sort to different places, and results that are equal
 * otherwise are rejected: (10, 100) is not (10.0, 100.0). Without such a pair the step rejects
 * nothing that the full comparison would accept. */
typedef struct sort_key {
    uint32_t cell;
    lvn_str text;
} sort_key;

static void append_blob_repr(lvn_buf *buf, lvn_str bytes)
{
    const bool uses_double =
        memchr(bytes.ptr, '\'', bytes.len) && !memchr(bytes.ptr, '"', bytes.len);
    const char quote = uses_double ? '"' : '\'';
    lvn_buf_printf(buf, "b%c", quote);
    for (size_t i = 0; i < bytes.len; i++) {
        const unsigned char c = (unsigned char)bytes.ptr[i];
        if (c == '\\' || c == (unsigned char)quote)
            lvn_buf_printf(buf, "\\%c", c);
        else if (c == '\t' || c == '\n' || c == '\r')
            lvn_buf_printf(buf, "\\%c", c == '\t' ? 't' : c == '\n' ? 'n' : 'r');
        else if (c < 0x20 || c >= 0x7f)
            lvn_buf_printf(buf, "\\x%02x", c);
        else
            lvn_buf_append_char(buf, (char)c);
    }
    lvn_buf_append_char(buf, quote);
}

static void append_number(lvn_buf *buf, double number)
{
    if (isinf(number))
        lvn_buf_append_str(buf, number < 0 ? LVN_STR("-inf") : LVN_STR("inf"));
    else
        lvn_json_write_double(buf, number);
}

static lvn_str key_text(lvn_arena *arena, const lvn_sql_gold *gold, uint32_t cell)
{
    const lvn_sql_value *value = &gold->values[cell >> FORM_BITS].value;
    const uint32_t form = cell & ((1u << FORM_BITS) - 1);
    const char *type = "float";
    lvn_buf buf;
    lvn_buf_init(&buf, SIZE_MAX);
    if (form != FORM_PLAIN) {
        append_number(&buf, form == FORM_MINUS_ZERO ? -0.0 : (double)value->integer);
    } else {
        switch (value->type) {
        case LVN_SQL_NULL:
            lvn_buf_lit(&buf, "None"), type = "NoneType";
            break;
        case LVN_SQL_INT:
            lvn_buf_printf(&buf, "%lld", (long long)value->integer), type = "int";
            break;
        case LVN_SQL_FLOAT:
            append_number(&buf, value->number);
            break;
        case LVN_SQL_TEXT:
            lvn_buf_append_str(&buf, value->bytes), type = "str";
            break;
        case LVN_SQL_BLOB:
            append_blob_repr(&buf, value->bytes), type = "bytes";
            break;
        }
    }
    lvn_buf_printf(&buf, "<class '%s'>", type);
    const lvn_str text = lvn_arena_dup(arena, lvn_buf_str(&buf));
    lvn_buf_done(&buf);
    return text;
}

static int compare_cells(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int compare_keys(const void *a, const void *b)
{
    return lvn_str_cmp(((const sort_key *)a)->text, ((const sort_key *)b)->text);
}

/* Every row sorted by key, its cells replaced by value numbers. `rank[cell]` is the cell's place
 * among the keys. */
static uint32_t *sorted_rows(lvn_arena *arena, const uint32_t *cells, size_t rows, size_t columns,
                             const uint32_t *rank, const sort_key *keys)
{
    uint32_t *out = lvn_arena_array(arena, rows * columns + 1, sizeof(*out));
    for (size_t r = 0; r < rows; r++) {
        uint32_t *row = out + r * columns;
        for (size_t c = 0; c < columns; c++)
            row[c] = rank[cells[r * columns + c]];
        qsort(row, columns, sizeof(*row), compare_cells);
        for (size_t c = 0; c < columns; c++)
            row[c] = keys[row[c]].cell >> FORM_BITS;
    }
    return out;
}

static int compare_rows(const void *a, const void *b, void *columns)
{
    const uint32_t *x = a, *y = b;
    for (size_t c = 0; c < *(const size_t *)columns; c++)
        if (x[c] != y[c])
            return x[c] < y[c] ? -1 : 1;
    return 0;
}

/* Sorts rows and drops repeated ones; returns how many are left. */
static size_t unique_rows(uint32_t *rows, size_t count, size_t columns)
{
    size_t kept = 0;
    qsort_r(rows, count, columns * sizeof(*rows), compare_rows, &columns);
    for (size_t r = 0; r < count; r++) {
        if (kept == 0 ||
            compare_rows(rows + r * columns, rows + (kept - 1) * columns, &columns) != 0)
            memmove(rows + kept++ * columns, rows + r * columns, columns * sizeof(*rows));
    }
    return kept;
}

static bool passes_official_rejection(const lvn_sql_answer *answer, bool order_matters)
{
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    const lvn_sql_gold *gold = answer->gold;
    const size_t columns = gold->columns, cells = gold->rows * columns;
    const size_t forms = gold->value_count << FORM_BITS;
    uint32_t *rank = lvn_arena_array(arena, forms, sizeof(*rank));
    sort_key *keys = lvn_arena_array(arena, forms, sizeof(*keys));
    size_t count = 0;
    for (size_t i = 0; i < 2 * cells; i++)
        rank[i < cells ? gold->cells[i] : answer->cells[i - cells]] = 1;
    for (uint32_t cell = 0; cell < forms; cell++)
        if (rank[cell])
            keys[count++] = (sort_key){cell, key_text(arena, gold, cell)};
    qsort(keys, count, sizeof(*keys), compare_keys);
    for (size_t k = 0; k < count; k++)
        rank[keys[k].cell] = (uint32_t)k;
    uint32_t *a = sorted_rows(arena, gold->cells, gold->rows, columns, rank, keys);
    uint32_t *b = sorted_rows(arena, answer->cells, gold->rows, columns, rank, keys);
    size_t a_rows = gold->rows, b_rows = gold->rows;
    if (!order_matters) {
        a_rows = unique_rows(a, a_rows, columns);
        b_rows = unique_rows(b, b_rows, columns);
    }
    return a_rows == b_rows && memcmp(a, b, a_rows * columns * sizeof(*a)) == 0;
}

typedef struct search {
    size_t rows;
    size_t columns;
    const uint32_t *gold; /* value numbers, column after column */
    const uint32_t *answer;
    const size_t *order;        /* gold columns, the one with the fewest candidates first */
    const uint64_t *gold_sums;  /* after each step: the sum of hashes of gold row prefixes */
    uint64_t *labels;           /* of the answer's row prefixes, one set of rows a step */
    const uint64_t *gold_marks; /* a column as a multiset, hashed */
    const uint64_t *answer_marks;
    size_t *choice; /* the answer's column taken at each step */
    bool *is_used;
    int64_t deadline_ns;
    lvn_arena *arena;
} search;

static const uint32_t *by_column(lvn_arena *arena, const uint32_t *cells, size_t rows,
                                 size_t columns)
{
    uint32_t *out = lvn_arena_array(arena, rows * columns + 1, sizeof(*out));
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            out[c * rows + r] = cells[r * columns + c] >> FORM_BITS;
    return out;
}

static bool is_same_column(const search *s, const uint32_t *a, const uint32_t *b)
{
    return memcmp(a, b, s->rows * sizeof(*a)) == 0;
}

/* The order of rows is given, so columns can be paired off one by one. */
static bool match_ordered(search *s)
{
    for (size_t g = 0; g < s->columns; g++) {
        size_t a = 0;
        while (a < s->columns &&
               (s->is_used[a] || s->gold_marks[g] != s->answer_marks[a] ||
                !is_same_column(s, s->gold + g * s->rows, s->answer + a * s->rows)))
            a++;
        if (a == s->columns)
            return false;
        s->is_used[a] = true;
    }
    return true;
}

static uint64_t extend(uint64_t *labels, const uint64_t *before, const uint32_t *column,
                       size_t rows)
{
    uint64_t sum = 0;
    for (size_t r = 0; r < rows; r++) {
        labels[r] = mix(before[r] * UINT64_C(0x9e3779b97f4a7c15) + column[r] + 1);
        sum += mix(labels[r]);
    }
    return sum;
}

/* Hashes agree at every step; now the rows themselves. */
static bool is_exact(const search *s)
{
    const size_t columns = s->columns;
    uint32_t *a = lvn_arena_array(s->arena, s->rows * columns, sizeof(*a));
    uint32_t *b = lvn_arena_array(s->arena, s->rows * columns, sizeof(*b));
    for (size_t step = 0; step < columns; step++) {
        for (size_t r = 0; r < s->rows; r++) {
            a[r * columns + step] = s->gold[s->order[step] * s->rows + r];
            b[r * columns + step] = s->answer[s->choice[step] * s->rows + r];
        }
    }
    size_t width = columns;
    qsort_r(a, s->rows, columns * sizeof(*a), compare_rows, &width);
    qsort_r(b, s->rows, columns * sizeof(*b), compare_rows, &width);
    return memcmp(a, b, s->rows * columns * sizeof(*a)) == 0;
}

/* Whether an earlier candidate of this step was the same column, row for row: it failed, so this
 * one would. */
static bool was_tried(const search *s, size_t candidate)
{
    for (size_t a = 0; a < candidate; a++)
        if (!s->is_used[a] && s->answer_marks[a] == s->answer_marks[candidate] &&
            is_same_column(s, s->answer + a * s->rows, s->answer + candidate * s->rows))
            return true;
    return false;
}

static lvn_sql_verdict assign_from(search *s, size_t step)
{
    if (step == s->columns)
        return is_exact(s) ? LVN_SQL_EQUAL : LVN_SQL_DIFFERENT;
    const uint64_t *before = s->labels + step * s->rows;
    uint64_t *labels = s->labels + (step + 1) * s->rows;
    for (size_t a = 0; a < s->columns; a++) {
        if (s->is_used[a] || s->answer_marks[a] != s->gold_marks[s->order[step]] || was_tried(s, a))
            continue;
        if (lvn_clock_monotonic_ns() > s->deadline_ns)
            return LVN_SQL_TOO_HARD;
        if (extend(labels, before, s->answer + a * s->rows, s->rows) != s->gold_sums[step])
            continue;
        s->is_used[a] = true;
        s->choice[step] = a;
        const lvn_sql_verdict verdict = assign_from(s, step + 1);
        s->is_used[a] = false;
        if (verdict != LVN_SQL_DIFFERENT)
            return verdict;
    }
    return LVN_SQL_DIFFERENT;
}

/* Gold columns by how many columns of the answer they might be. */
static const size_t *plan_order(const search *s)
{
    size_t *order = lvn_arena_array(s->arena, s->columns, sizeof(*order));
    size_t *candidates = lvn_arena_array(s->arena, s->columns, sizeof(*candidates));
    for (size_t g = 0; g < s->columns; g++) {
        for (size_t a = 0; a < s->columns; a++)
            candidates[g] += s->gold_marks[g] == s->answer_marks[a];
        size_t k = g;
        for (; k > 0 && candidates[order[k - 1]] > candidates[g]; k--)
            order[k] = order[k - 1];
        order[k] = g;
    }
    return order;
}

static lvn_sql_verdict match_unordered(search *s)
{
    uint64_t *sums = lvn_arena_array(s->arena, s->columns, sizeof(*sums));
    uint64_t *labels = lvn_arena_array(s->arena, s->rows, sizeof(*labels));
    s->order = plan_order(s);
    for (size_t step = 0; step < s->columns; step++)
        sums[step] = extend(labels, labels, s->gold + s->order[step] * s->rows, s->rows);
    s->gold_sums = sums;
    s->labels = lvn_arena_array(s->arena, (s->columns + 1) * s->rows, sizeof(*s->labels));
    s->choice = lvn_arena_array(s->arena, s->columns, sizeof(*s->choice));
    return assign_from(s, 0);
}

static const uint64_t *column_marks(lvn_arena *arena, const uint32_t *columns_first, size_t rows,
                                    size_t columns)
{
    uint64_t *marks = lvn_arena_array(arena, columns, sizeof(*marks));
    for (size_t c = 0; c < columns; c++)
        for (size_t r = 0; r < rows; r++)
            marks[c] += mix(columns_first[c * rows + r] + UINT64_C(0x632be59bd9b4e019));
    return marks;
}

lvn_sql_verdict lvn_sql_answer_match(const lvn_sql_answer *answer, bool order_matters,
                                     int64_t deadline_ns)
{
    const lvn_sql_gold *gold = answer->gold;
    if (answer->rows != gold->rows)
        return LVN_SQL_DIFFERENT;
    if (gold->rows == 0)
        return LVN_SQL_EQUAL;
    if (answer->has_mixed_forms && !passes_official_rejection(answer, order_matters))
        return LVN_SQL_DIFFERENT;
    LVN_CLEANUP(lvn_arena_cleanup) lvn_arena *arena = lvn_arena_new(0);
    search s = {
        .rows = gold->rows, .columns = gold->columns, .deadline_ns = deadline_ns, .arena = arena};
    s.gold = by_column(arena, gold->cells, s.rows, s.columns);
    s.answer = by_column(arena, answer->cells, s.rows, s.columns);
    s.gold_marks = column_marks(arena, s.gold, s.rows, s.columns);
    s.answer_marks = column_marks(arena, s.answer, s.rows, s.columns);
    s.is_used = lvn_arena_array(arena, s.columns, sizeof(*s.is_used));
    if (order_matters)
        return match_ordered(&s) ? LVN_SQL_EQUAL : LVN_SQL_DIFFERENT;
    return match_unordered(&s);
}
