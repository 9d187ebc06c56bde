/* Text that agents write: any bytes. Private to the runner. */
#ifndef LVN_RUNNER_TEXT_H
#define LVN_RUNNER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"

/* The last line that is not blank, without line end and outer blanks; empty when there is none. */
lvn_str lvn_text_last_line(lvn_str text);

/* Copies to `out`, terminated and cut to fit at a character: bytes that are not UTF-8, and control characters,
 * become '?'. */
void lvn_text_clean(lvn_str text, char *out, size_t out_size);

/* Whether all of it is UTF-8 without surrogates. */
bool lvn_text_is_utf8(lvn_str text);

#endif
