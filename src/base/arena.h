/* Memory with one lifetime. Everything allocated from an arena is released together by reset or free; nothing
 * is released singly. One thread at a time. Memory is aligned for any type and not cleared unless stated. */
#ifndef LVN_BASE_ARENA_H
#define LVN_BASE_ARENA_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

typedef struct lvn_arena lvn_arena;

/* Never fails: running out of memory for ordinary objects ends the process with a message. `block_size` is a hint
 * in bytes for the first block; 0 picks a default. */
lvn_arena *lvn_arena_new(size_t block_size);
/* Runs the cleanups, newest first, then releases all. NULL is fine. Returns NULL. */
lvn_arena *lvn_arena_free(lvn_arena *arena);
/* As free, but the arena stays usable and keeps its first block. */
void lvn_arena_reset(lvn_arena *arena);

/* Aborts when memory runs out. */
void *lvn_arena_alloc(lvn_arena *arena, size_t size) __attribute__((malloc, alloc_size(2)));
void *lvn_arena_zalloc(lvn_arena *arena, size_t size) __attribute__((malloc, alloc_size(2)));
/* `count * size` bytes, cleared; aborts on overflow of the product. */
void *lvn_arena_array(lvn_arena *arena, size_t count, size_t size) __attribute__((malloc, alloc_size(2, 3)));

/* A copy of `s` in the arena with a terminating zero behind it (not counted). Absent stays absent. */
lvn_str lvn_arena_dup(lvn_arena *arena, lvn_str s);
lvn_str lvn_arena_printf(lvn_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Calls `run(data)` when the arena is reset or freed. */
void lvn_arena_on_free(lvn_arena *arena, void (*run)(void *data), void *data);

/* Bytes handed out since creation or the last reset. */
size_t lvn_arena_used(const lvn_arena *arena);

/* malloc and friends that end the process with a message instead of returning NULL. */
void *lvn_alloc(size_t size) __attribute__((malloc));
void *lvn_zalloc(size_t size) __attribute__((malloc));
void *lvn_realloc(void *old, size_t size);
char *lvn_strdup(const char *text);

#define LVN_CLEANUP(fn) __attribute__((cleanup(fn)))
static inline void lvn_arena_cleanup(lvn_arena **arena)
{
    *arena = lvn_arena_free(*arena);
}
void lvn_free_cleanup(void *pointer_to_pointer);

#endif
