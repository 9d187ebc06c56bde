/* Health, statistics and waits. */
#include <unistd.h>

#include "api/call.h"

static void prepare_nothing(lvn_api_call *call)
{
    call->is_finished = true;
}

static void answer_health(lvn_api_call *call)
{
    lvn_http_respond(call->request, 200, "application/json", LVN_STR("{\"status\":\"ok\"}"));
}

static void prepare_statistics(lvn_api_call *call)
{
    call->op.kind = LVN_OP_STATISTICS;
}

/* Clients of the protocol expect the name and the keys of its in-memory store. The thresholds are
 * those at which that store begins to forget spans; ours does not. */
static void answer_statistics(lvn_api_call *call)
{
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    int64_t eviction = memory / 10 * 7;
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {
        {"total_rollouts", call->op.out.statistics.rollouts},
        {"total_attempts", call->op.out.statistics.attempts},
        {"total_spans", call->op.out.statistics.spans},
        {"total_resources", call->op.out.statistics.resources},
        {"total_workers", call->op.out.statistics.workers},
        {"total_span_bytes", call->op.out.statistics.span_bytes},
        {"eviction_threshold_bytes", eviction},
        {"safe_threshold_bytes", eviction / 10 * 8},
        {"memory_capacity_bytes", memory},
    };
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_buf_lit(&buf, "{\"name\":\"InMemoryLightningStore\"");
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        lvn_json_write_key(&buf, counts[i].key);
        lvn_json_write_int(&buf, counts[i].value);
    }
    lvn_json_write_key(&buf, "uptime");
    lvn_json_write_double(&buf, call->op.out.statistics.uptime_s);
    lvn_buf_append_char(&buf, '}');
    lvn_api_answer_json(call, 200, &buf);
}

static void prepare_wait(lvn_api_call *call)
{
    lvn_str_list ids;
    lvn_api_read_texts(call->arena, lvn_json_get(&call->input, "rollout_ids"), &ids);
    call->op.kind = LVN_OP_WAIT;
    call->op.in.wait.rollout_ids = ids.items;
    call->op.in.wait.count = ids.count;
    call->op.in.wait.timeout_s = lvn_api_time(&call->input, "timeout");
}

static void answer_wait(lvn_api_call *call)
{
    lvn_buf buf;
    lvn_buf_init(&buf, LVN_BUF_NO_LIMIT);
    lvn_buf_append_char(&buf, '[');
    lvn_api_write_rollouts(&buf, &call->op);
    lvn_buf_append_char(&buf, ']');
    lvn_api_answer_json(call, 200, &buf);
}

#define API "/v1/agl"

const lvn_api_route lvn_api_other_routes[] = {
    {"GET", API "/health", LVN_INPUT_NONE, NULL, prepare_nothing, answer_health, NULL},
    {"GET", API "/statistics", LVN_INPUT_NONE, NULL, prepare_statistics, answer_statistics, NULL},
    {"POST", API "/waits/rollouts", LVN_INPUT_BODY, &lvn_schema_wait, prepare_wait, answer_wait,
     NULL},
    {.method = NULL},
};
