/* Private to store: rows in one allocation each, so that replacing a row is making a new one and freeing the old one with free(). */
#ifndef LVN_STORE_ROWS_H
#define LVN_STORE_ROWS_H

#include "base/arena.h"
#include "model/model.h"

lvn_rollout *lvn_rollout_copy(const lvn_rollout *row);
lvn_attempt *lvn_attempt_copy(const lvn_attempt *row);
lvn_worker *lvn_worker_copy(const lvn_worker *row);
lvn_resources *lvn_resources_copy(const lvn_resources *row);
lvn_span *lvn_span_copy(const lvn_span *row);

/* The same into an arena, for answers. */
void lvn_rollout_to_arena(lvn_arena *arena, const lvn_rollout *row, lvn_rollout *out);
void lvn_attempt_to_arena(lvn_arena *arena, const lvn_attempt *row, lvn_attempt *out);
void lvn_worker_to_arena(lvn_arena *arena, const lvn_worker *row, lvn_worker *out);
void lvn_resources_to_arena(lvn_arena *arena, const lvn_resources *row, lvn_resources *out);
void lvn_span_to_arena(lvn_arena *arena, const lvn_span *row, lvn_span *out);

#endif
