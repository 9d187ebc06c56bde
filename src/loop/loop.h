/* An event loop on a thread of its own (libuv). Objects that live on a loop are touched on its
 * thread only; everybody else posts a message. Nothing that runs on a loop may block. */
#ifndef LVN_LOOP_LOOP_H
#define LVN_LOOP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct lvn_loop lvn_loop;
struct uv_loop_s;

/* Starts the thread. */
lvn_code lvn_loop_start(const char *name, lvn_loop **out, lvn_err *err) LVN_MUST_USE;
/* Runs what was posted before, closes timers, ends and joins the thread; blocks. Not from the loop
 * itself. Whatever else lives on the loop must have been closed. NULL is fine. */
void lvn_loop_stop(lvn_loop *loop);

/* Runs fn(arg) on the loop's thread, in the order posted from one thread. Any thread; never blocks,
 * never fails. After stop has begun posting is a bug. */
void lvn_loop_post(lvn_loop *loop, void (*fn)(void *arg), void *arg);
/* Posts and waits until fn has run. Not from a loop. */
void lvn_loop_call(lvn_loop *loop, void (*fn)(void *arg), void *arg);
bool lvn_loop_is_current(const lvn_loop *loop);

/* A one-shot timer on the loop; both on the loop's thread only. fn runs once unless cancelled
 * before. */
typedef struct lvn_timer lvn_timer;
lvn_timer *lvn_loop_after(lvn_loop *loop, int64_t delay_ms, void (*fn)(void *arg), void *arg);
void lvn_timer_cancel(lvn_timer *timer); /* NULL is fine; not after fn has begun */

struct uv_loop_s *lvn_loop_uv(lvn_loop *loop);

#endif
