/* Private to src/api: a validated span as the store keeps it. */
#ifndef LVN_API_SPAN_READ_H
#define LVN_API_SPAN_READ_H

#include "base/json.h"
#include "model/model.h"

/* `in` has been read with lvn_schema_span. All text of `out` is in `arena`. False: the sequence
 * number does not fit. */
bool lvn_api_span_of_json(lvn_arena *arena, const lvn_json *in, lvn_span *out);

#endif
