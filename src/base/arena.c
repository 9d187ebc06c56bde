#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BLOCK = 4096, MAX_BLOCK = 1 << 20, ALIGNMENT = 16 };

typedef struct block {
    struct block *next;
    size_t size;
    size_t used;
    size_t pad; /* keeps `data` aligned to 16 */
    unsigned char data[];
} block;

typedef struct cleanup {
    struct cleanup *next;
    void (*run)(void *data);
    void *data;
} cleanup;

struct lvn_arena {
    block *head; /* the block that is being filled */
    cleanup *cleanups;
    size_t next_size;
    size_t handed_out;
};

static void out_of_memory(size_t size)
{
    fprintf(stderr, "levin: out of memory (%zu bytes)\n", size);
    abort();
}

void *lvn_alloc(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p)
        out_of_memory(size);
    return p;
}

void *lvn_zalloc(size_t size)
{
    void *p = calloc(1, size ? size : 1);
    if (!p)
        out_of_memory(size);
    return p;
}

void *lvn_realloc(void *old, size_t size)
{
    void *p = realloc(old, size ? size : 1);
    if (!p)
        out_of_memory(size);
    return p;
}

char *lvn_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(lvn_alloc(size), text, size);
}

void lvn_free_cleanup(void *pointer_to_pointer)
{
    free(*(void **)pointer_to_pointer);
}

static block *block_new(size_t size, block *next)
{
    block *b = lvn_alloc(sizeof(block) + size);
    b->next = next;
    b->size = size;
    b->used = 0;
    return b;
}

lvn_arena *lvn_arena_new(size_t block_size)
{
    lvn_arena *arena = lvn_zalloc(sizeof(*arena));
    arena->next_size = block_size ? block_size : DEFAULT_BLOCK;
    arena->head = block_new(arena->next_size, NULL);
    return arena;
}

static void run_cleanups(lvn_arena *arena)
{
    while (arena->cleanups) {
        cleanup *c = arena->cleanups;
        arena->cleanups = c->next; /* lives in a block: read before it goes */
        c->run(c->data);
    }
}

lvn_arena *lvn_arena_free(lvn_arena *arena)
{
    if (!arena)
        return NULL;
    run_cleanups(arena);
    for (block *b = arena->head; b;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(arena);
    return NULL;
}

void lvn_arena_reset(lvn_arena *arena)
{
    run_cleanups(arena);
    block *b = arena->head;
    while (b->next) {
        block *next = b->next;
        free(b);
        b = next;
    }
    b->used = 0;
    arena->head = b;
    arena->next_size = b->size;
    arena->handed_out = 0;
}

void *lvn_arena_alloc(lvn_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        out_of_memory(size);
    size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    block *b = arena->head;
    if (b->size - b->used < size) {
        if (arena->next_size < MAX_BLOCK)
            arena->next_size *= 2;
        b = block_new(size > arena->next_size ? size : arena->next_size, arena->head);
        arena->head = b;
    }
    void *p = b->data + b->used;
    b->used += size;
    arena->handed_out += size;
    return p;
}

void *lvn_arena_zalloc(lvn_arena *arena, size_t size)
{
    return memset(lvn_arena_alloc(arena, size), 0, size);
}

void *lvn_arena_array(lvn_arena *arena, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        out_of_memory(SIZE_MAX);
    return lvn_arena_zalloc(arena, total);
}

lvn_str lvn_arena_dup(lvn_arena *arena, lvn_str s)
{
    if (!s.ptr)
        return s;
    char *copy = lvn_arena_alloc(arena, s.len + 1);
    memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    return (lvn_str){copy, s.len};
}

lvn_str lvn_arena_printf(lvn_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0)
        abort(); /* a bad format is our own bug */
    char *text = lvn_arena_alloc(arena, (size_t)len + 1);
    vsnprintf(text, (size_t)len + 1, format, again);
    va_end(again);
    return (lvn_str){text, (size_t)len};
}

void lvn_arena_on_free(lvn_arena *arena, void (*run)(void *data), void *data)
{
    cleanup *c = lvn_arena_alloc(arena, sizeof(*c));
    *c = (cleanup){.next = arena->cleanups, .run = run, .data = data};
    arena->cleanups = c;
}

size_t lvn_arena_used(const lvn_arena *arena)
{
    return arena->handed_out;
}
