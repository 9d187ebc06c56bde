#include "gateway/attempts.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { MAX_ANSWERS = 32 };

void lvn_attempts_init(lvn_attempts *a, size_t max)
{
    *a = (lvn_attempts){.max = max};
    lvn_map_init(&a->by_key);
}

static void free_answer(lvn_known_answer *answer)
{
    free((char *)answer->text.ptr);
    free(answer->ids);
}

static void free_attempt(lvn_known_attempt *k)
{
    for (size_t i = 0; i < k->answer_count; i++)
        free_answer(&k->answers[i]);
    free(k->answers);
    free((char *)k->key.ptr);
    free(k);
}

void lvn_attempts_done(lvn_attempts *a)
{
    for (lvn_known_attempt *k = a->oldest; k;) {
        lvn_known_attempt *next = k->newer;
        free_attempt(k);
        k = next;
    }
    lvn_map_done(&a->by_key);
}

static lvn_str copy_text(lvn_str s)
{
    char *text = lvn_alloc(s.len + 1);
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    return (lvn_str){text, s.len};
}

static lvn_str make_key(lvn_str rollout_id, lvn_str attempt_id)
{
    size_t len = rollout_id.len + 1 + attempt_id.len;
    char *text = lvn_alloc(len + 1);
    memcpy(text, rollout_id.ptr, rollout_id.len);
    text[rollout_id.len] = '/';
    memcpy(text + rollout_id.len + 1, attempt_id.ptr, attempt_id.len);
    text[len] = '\0';
    return (lvn_str){text, len};
}

static void unlink_attempt(lvn_attempts *a, lvn_known_attempt *k)
{
    *(k->older ? &k->older->newer : &a->oldest) = k->newer;
    *(k->newer ? &k->newer->older : &a->newest) = k->older;
}

static void make_newest(lvn_attempts *a, lvn_known_attempt *k)
{
    k->older = a->newest;
    k->newer = NULL;
    *(a->newest ? &a->newest->newer : &a->oldest) = k;
    a->newest = k;
}

lvn_known_attempt *lvn_attempts_find(lvn_attempts *a, lvn_str rollout_id, lvn_str attempt_id)
{
    lvn_str key = make_key(rollout_id, attempt_id);
    lvn_known_attempt *k = lvn_map_get(&a->by_key, key);
    free((char *)key.ptr);
    if (k) {
        unlink_attempt(a, k);
        make_newest(a, k);
    }
    return k;
}

lvn_known_attempt *lvn_attempts_add(lvn_attempts *a, lvn_str rollout_id, lvn_str attempt_id, lvn_mode mode)
{
    lvn_known_attempt *known = lvn_attempts_find(a, rollout_id, attempt_id);
    if (known)
        return known;
    if (a->by_key.count >= a->max) {
        lvn_known_attempt *k = a->oldest;
        unlink_attempt(a, k);
        lvn_map_remove(&a->by_key, k->key);
        free_attempt(k);
    }
    lvn_known_attempt *k = lvn_zalloc(sizeof(*k));
    k->key = make_key(rollout_id, attempt_id);
    k->mode = mode;
    lvn_map_put(&a->by_key, k->key, k);
    make_newest(a, k);
    return k;
}

void lvn_attempts_remember(lvn_known_attempt *k, lvn_str text, const int32_t *ids, size_t count)
{
    if (k->answer_count == MAX_ANSWERS) {
        free_answer(&k->answers[0]);
        memmove(k->answers, k->answers + 1, (--k->answer_count) * sizeof(*k->answers));
    }
    if (k->answer_count == k->answer_capacity) {
        k->answer_capacity = k->answer_capacity ? k->answer_capacity * 2 : 4;
        k->answers = lvn_realloc(k->answers, k->answer_capacity * sizeof(*k->answers));
    }
    lvn_known_answer *answer = &k->answers[k->answer_count++];
    *answer = (lvn_known_answer){.text = copy_text(text), .ids = lvn_alloc(count * sizeof(*ids)), .count = count};
    memcpy(answer->ids, ids, count * sizeof(*ids));
}

const lvn_known_answer *lvn_attempts_answer(const lvn_known_attempt *k, lvn_str text)
{
    for (size_t i = k->answer_count; i-- > 0;)
        if (lvn_str_eq(k->answers[i].text, text))
            return &k->answers[i];
    return NULL;
}
