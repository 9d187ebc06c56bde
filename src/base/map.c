#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/ids.h"

static const size_t REMOVED = SIZE_MAX;

/* FNV-1a, seeded once a process so that a peer who chooses ids cannot choose collisions, then mixed. */
uint64_t lvn_hash_bytes(const void *bytes, size_t len)
{
    static uint64_t seed; /* touched with atomic operations only */
    uint64_t h = __atomic_load_n(&seed, __ATOMIC_SEQ_CST);
    if (!h) {
        uint64_t fresh = lvn_id_u64() | 1;
        uint64_t expected = 0;
        h = __atomic_compare_exchange_n(&seed, &expected, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ? fresh
                                                                                                      : expected;
    }
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    return h ^ (h >> 32);
}

void lvn_map_init(lvn_map *map)
{
    memset(map, 0, sizeof(*map));
}

void lvn_map_done(lvn_map *map)
{
    free(map->slots);
    lvn_map_init(map);
}

static bool is_free(const lvn_map_slot *s)
{
    return s->key.ptr == NULL;
}

static lvn_map_slot *find(const lvn_map *map, lvn_str key, uint64_t hash)
{
    if (!map->capacity)
        return NULL;
    for (size_t i = hash & (map->capacity - 1);; i = (i + 1) & (map->capacity - 1)) {
        lvn_map_slot *s = &map->slots[i];
        if (is_free(s))
            return NULL;
        if (s->key.len == key.len && s->hash == hash && memcmp(s->key.ptr, key.ptr, key.len) == 0)
            return s;
    }
}

static void insert_new(lvn_map *map, lvn_str key, uint64_t hash, void *value)
{
    size_t i = hash & (map->capacity - 1);
    while (!is_free(&map->slots[i]))
        i = (i + 1) & (map->capacity - 1);
    map->slots[i] = (lvn_map_slot){key, hash, value};
    map->count++;
    map->filled++;
}

static void grow(lvn_map *map)
{
    lvn_map old = *map;
    size_t capacity = 16;
    while (capacity < (old.count + 1) * 2)
        capacity *= 2;
    map->slots = lvn_zalloc(capacity * sizeof(*map->slots));
    map->capacity = capacity;
    map->count = map->filled = 0;
    for (size_t i = 0; i < old.capacity; i++)
        if (!is_free(&old.slots[i]) && old.slots[i].key.len != REMOVED)
            insert_new(map, old.slots[i].key, old.slots[i].hash, old.slots[i].value);
    free(old.slots);
}

void *lvn_map_get(const lvn_map *map, lvn_str key)
{
    lvn_map_slot *s = find(map, key, lvn_hash_bytes(key.ptr, key.len));
    return s ? s->value : NULL;
}

void *lvn_map_put(lvn_map *map, lvn_str key, void *value)
{
    if (!key.ptr)
        key = LVN_STR("");
    uint64_t hash = lvn_hash_bytes(key.ptr, key.len);
    lvn_map_slot *s = find(map, key, hash);
    if (s) {
        void *old = s->value;
        s->value = value;
        return old;
    }
    if ((map->filled + 1) * 4 > map->capacity * 3)
        grow(map);
    insert_new(map, key, hash, value);
    return NULL;
}

void *lvn_map_remove(lvn_map *map, lvn_str key)
{
    lvn_map_slot *s = find(map, key, lvn_hash_bytes(key.ptr, key.len));
    if (!s)
        return NULL;
    void *old = s->value;
    *s = (lvn_map_slot){{"", REMOVED}, 0, NULL};
    map->count--;
    return old;
}

bool lvn_map_next(const lvn_map *map, size_t *position, lvn_str *out_key, void **out_value)
{
    for (; *position < map->capacity; (*position)++) {
        const lvn_map_slot *s = &map->slots[*position];
        if (is_free(s) || s->key.len == REMOVED)
            continue;
        if (out_key)
            *out_key = s->key;
        if (out_value)
            *out_value = s->value;
        (*position)++;
        return true;
    }
    return false;
}
