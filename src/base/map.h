/* A hash map from text to pointer. Keys are borrowed: the bytes must outlive their entry. One thread at a time.
 * Values are not owned. Iteration order is unspecified. */
#ifndef LVN_BASE_MAP_H
#define LVN_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef struct lvn_map_slot {
    lvn_str key; /* ptr NULL: never used; len SIZE_MAX: removed */
    uint64_t hash;
    void *value;
} lvn_map_slot;

typedef struct lvn_map {
    lvn_map_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
    size_t filled; /* with removed ones */
} lvn_map;

void lvn_map_init(lvn_map *map);
void lvn_map_done(lvn_map *map);
/* NULL when absent. */
void *lvn_map_get(const lvn_map *map, lvn_str key);
/* Replaces the value (the old key stays) or adds; returns the old value or NULL. `value` must not be NULL. */
void *lvn_map_put(lvn_map *map, lvn_str key, void *value);
/* Returns what was there, or NULL. */
void *lvn_map_remove(lvn_map *map, lvn_str key);
/* for (size_t i = 0; lvn_map_next(map, &i, &key, &value);) ... No put or remove meanwhile. */
bool lvn_map_next(const lvn_map *map, size_t *position, lvn_str *out_key, void **out_value);

uint64_t lvn_hash_bytes(const void *bytes, size_t len);

#endif
