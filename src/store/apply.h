/* Private to store: what each operation does to the state. Executor thread, inside a transaction. */
#ifndef LVN_STORE_APPLY_H
#define LVN_STORE_APPLY_H

#include "store/state.h"

/* Fills op->code, err and out. A code from the backend (LVN_IO, LVN_FULL) must roll the transaction back; all others leave the state
 * whole. Waits and dequeues answer with what there is now: whether to park them is the executor's business. */
void lvn_apply(lvn_state *s, lvn_op *op, double now);

/* Whether a wait has nothing left to wait for. */
bool lvn_wait_is_over(const lvn_state *s, const lvn_op *op);

/* Marks what is overdue by `now`. */
lvn_code lvn_apply_watchdog(lvn_state *s, double now, lvn_err *err) LVN_MUST_USE;

#endif
