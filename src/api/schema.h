/* The protocol's request models (spec/store-api.md sections 3 and 5) as tables for validate.h. */
#ifndef LVN_API_SCHEMA_H
#define LVN_API_SCHEMA_H

#include "api/validate.h"

extern const lvn_schema lvn_schema_enqueue, lvn_schema_dequeue, lvn_schema_start_rollout,
    lvn_schema_update_rollout, lvn_schema_query_rollouts, lvn_schema_start_attempt,
    lvn_schema_update_attempt, lvn_schema_query_attempts, lvn_schema_span, lvn_schema_spans, lvn_schema_query_spans,
    lvn_schema_next_sequence, lvn_schema_resources, lvn_schema_query_resources,
    lvn_schema_heartbeat, lvn_schema_query_workers, lvn_schema_wait, lvn_schema_wait_option,
    lvn_schema_attribute;

#endif
