/* Scores what it reads, for tests/integration/test_sql_exec.py, which knows what each score must
 * be.
 *
 * A record is fields, each ended by a zero byte; text is hexadecimal, so that it may hold anything.
 *   prepare KEEP QUERY            -> "ok HEX" or "raises HEX"    (KEEP: 0 or 1)
 *   score KEEP DATABASE PRED GOLD -> "SCORE GOLD_FAILED TIMED_OUT HEX"
 * Options: --fresh (nothing cached), --time-limit MS. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "reward/reward.h"
#include "reward/sql_text.h"

static char *field;
static size_t field_capacity;

static lvn_str next_field(void)
{
    const ssize_t length = getdelim(&field, &field_capacity, '\0', stdin);
    return length <= 0 ? LVN_STR_ABSENT : (lvn_str){field, (size_t)length - 1};
}

static lvn_str next_hex(lvn_arena *arena)
{
    const lvn_str hex = next_field();
    char *out = lvn_arena_alloc(arena, hex.len / 2 + 1);
    for (size_t i = 0; i < hex.len / 2; i++) {
        const char digits[3] = {hex.ptr[2 * i], hex.ptr[2 * i + 1], '\0'};
        out[i] = (char)strtol(digits, NULL, 16);
    }
    out[hex.len / 2] = '\0';
    return (lvn_str){out, hex.len / 2};
}

static void print_hex(const char *before, lvn_str bytes)
{
    fputs(before, stdout);
    for (size_t i = 0; i < bytes.len; i++)
        printf("%02x", (unsigned char)bytes.ptr[i]);
    putchar('\n');
}

static void prepare(lvn_arena *arena)
{
    const bool keep = lvn_str_is(next_field(), "1");
    lvn_err err = {0};
    lvn_str out;
    const lvn_code code = lvn_sql_text_prepare(arena, next_hex(arena), keep, &out, &err);
    print_hex(code == LVN_OK ? "ok " : "raises ", code == LVN_OK ? out : lvn_str_of(err.message));
}

static void score(lvn_arena *arena, lvn_sql_scorer *const *scorers,
                  const lvn_sql_exec_config *fresh)
{
    const bool keep = lvn_str_is(next_field(), "1");
    const char *path = next_hex(arena).ptr;
    const lvn_str pred = next_hex(arena), gold = next_hex(arena);
    lvn_sql_exec_result out;
    lvn_err err = {0};
    const lvn_code code = fresh ? lvn_reward_sql_exec(&fresh[keep], path, pred, gold, &out, &err)
                                : lvn_sql_scorer_score(scorers[keep], path, pred, gold, &out, &err);
    if (code != LVN_OK) {
        print_hex("fails ", lvn_str_of(err.message));
        return;
    }
    printf("%g %d %d ", out.score, out.gold_failed, out.timed_out);
    print_hex("", lvn_str_of(out.error));
}

int main(int argc, char **argv)
{
    lvn_sql_exec_config configs[2] = {{.keep_distinct = false}, {.keep_distinct = true}};
    bool is_fresh = false;
    for (int i = 1; i < argc; i++) {
        is_fresh = is_fresh || strcmp(argv[i], "--fresh") == 0;
        if (strcmp(argv[i], "--time-limit") == 0 && i + 1 < argc)
            configs[0].time_limit_ms = configs[1].time_limit_ms = strtol(argv[i + 1], NULL, 10);
    }
    lvn_sql_scorer *scorers[2] = {lvn_sql_scorer_new(&configs[0]), lvn_sql_scorer_new(&configs[1])};
    lvn_arena *arena = lvn_arena_new(0);
    for (lvn_str op; (op = next_field()).ptr != NULL; lvn_arena_reset(arena)) {
        if (lvn_str_is(op, "prepare"))
            prepare(arena);
        else
            score(arena, scorers, is_fresh ? configs : NULL);
    }
    lvn_arena_free(arena);
    lvn_sql_scorer_free(scorers[0]);
    lvn_sql_scorer_free(scorers[1]);
    free(field);
    return 0;
}
