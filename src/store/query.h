/* Private to store: filters, stable sorting and paging of rows (spec/store-api.md section 4). */
#ifndef LVN_STORE_QUERY_H
#define LVN_STORE_QUERY_H

#include "store/state.h"

typedef enum lvn_noun { LVN_NOUN_ROLLOUT, LVN_NOUN_ATTEMPT, LVN_NOUN_WORKER, LVN_NOUN_RESOURCES, LVN_NOUN_SPAN } lvn_noun;

/* Sorts `items` (pointers to the noun's struct) by the page's field and cuts the page out: items[0..*count) afterwards. LVN_INVALID:
 * bad limit, offset or field; LVN_INTERNAL: values that cannot be compared. `default_sort` NULL: insertion order. */
lvn_code lvn_query_page(lvn_arena *arena, lvn_noun noun, const lvn_page *page, const char *default_sort, const void **items,
                        size_t *count, int64_t *out_total, lvn_err *err) LVN_MUST_USE;

/* The page's part of `count` items: [*out_first, *out_first + *out_left). LVN_INVALID as above. */
lvn_code lvn_query_window(const lvn_page *page, size_t count, size_t *out_first, size_t *out_left, lvn_err *err) LVN_MUST_USE;

/* How filters combine: feed each one that was given, then ask. Without any, everything is selected. */
typedef struct lvn_match {
    bool is_or, has_any, any_true, all_true;
} lvn_match;
static inline lvn_match lvn_match_begin(bool is_or)
{
    return (lvn_match){.is_or = is_or, .all_true = true};
}
static inline void lvn_match_add(lvn_match *m, bool is_given, bool is_true)
{
    if (!is_given)
        return;
    m->has_any = true;
    m->any_true = m->any_true || is_true;
    m->all_true = m->all_true && is_true;
}
static inline bool lvn_match_is(const lvn_match *m)
{
    return !m->has_any || (m->is_or ? m->any_true : m->all_true);
}

bool lvn_list_has(const lvn_str_list *list, lvn_str value);
/* Adds both filters of a text field; a null field matches neither. */
void lvn_match_text(lvn_match *m, const lvn_text_filter *filter, lvn_str value);

#endif
