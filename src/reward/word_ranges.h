/* Private to reward: the code points above ASCII that count as word characters and as decimal
 * digits. Ascending. */
#ifndef LVN_REWARD_WORD_RANGES_H
#define LVN_REWARD_WORD_RANGES_H

#include <stddef.h>
#include <stdint.h>

typedef struct lvn_code_range {
    uint32_t first;
    uint32_t last;
} lvn_code_range;

extern const lvn_code_range lvn_word_ranges[];
extern const size_t lvn_word_ranges_count;
extern const lvn_code_range lvn_digit_ranges[];
extern const size_t lvn_digit_ranges_count;

#endif
