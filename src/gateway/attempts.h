/* Private to gateway: what is known of attempts, so that a call does not ask the store again, and the ids of the answers that each was
 * given, so that a later prompt continues them exactly. Bounded; the least used go first. Loop thread only. */
#ifndef LVN_GATEWAY_ATTEMPTS_H
#define LVN_GATEWAY_ATTEMPTS_H

#include "base/map.h"
#include "model/model.h"

typedef struct lvn_known_answer {
    lvn_str text;
    int32_t *ids;
    size_t count;
} lvn_known_answer;

typedef struct lvn_known_attempt {
    lvn_str key; /* "rollout/attempt" */
    lvn_mode mode;
    lvn_known_answer *answers; /* newest last */
    size_t answer_count, answer_capacity;
    struct lvn_known_attempt *older, *newer;
} lvn_known_attempt;

typedef struct lvn_attempts {
    lvn_map by_key;
    lvn_known_attempt *oldest, *newest;
    size_t max;
} lvn_attempts;

void lvn_attempts_init(lvn_attempts *attempts, size_t max);
void lvn_attempts_done(lvn_attempts *attempts);
/* NULL when not known. Makes it the newest. */
lvn_known_attempt *lvn_attempts_find(lvn_attempts *attempts, lvn_str rollout_id, lvn_str attempt_id);
lvn_known_attempt *lvn_attempts_add(lvn_attempts *attempts, lvn_str rollout_id, lvn_str attempt_id, lvn_mode mode);
/* Copies. At most 32 answers an attempt are remembered. */
void lvn_attempts_remember(lvn_known_attempt *attempt, lvn_str text, const int32_t *ids, size_t count);
/* The ids of the newest answer with exactly that text; NULL when there is none. */
const lvn_known_answer *lvn_attempts_answer(const lvn_known_attempt *attempt, lvn_str text);

#endif
