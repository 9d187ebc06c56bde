/* UTF-8 by the book: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef LVN_BASE_UTF8_H
#define LVN_BASE_UTF8_H

#include "base/str.h"

/* The length (1 to 4) of the sequence that starts at `at`, which is below `end`; 0 when there is
 * none. */
size_t lvn_utf8_sequence(const char *at, const char *end);
bool lvn_utf8_is_valid(lvn_str s);

#endif
