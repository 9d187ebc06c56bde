/* Names of statuses and the JSON form of the nouns (spec/store-api.md section 3): all keys, null included, in a fixed order. */
#include <string.h>

#include "base/json.h"
#include "model/model.h"

static const char *const rollout_names[] = {"queuing", "preparing", "running", "failed", "succeeded", "cancelled", "requeuing"};
static const char *const attempt_names[] = {"preparing", "running", "failed", "succeeded", "unresponsive", "timeout"};
static const char *const worker_names[] = {"unknown", "idle", "busy"};
static const char *const mode_names[] = {NULL, "train", "val", "test"};

#define COUNT(names) (sizeof(names) / sizeof(*(names)))

static bool find(const char *const *names, size_t count, lvn_str name, int *out)
{
    for (size_t i = 0; i < count; i++)
        if (names[i] && lvn_str_is(name, names[i])) {
            *out = (int)i;
            return true;
        }
    return false;
}

const char *lvn_rollout_status_name(lvn_rollout_status status)
{
    return rollout_names[status];
}

const char *lvn_attempt_status_name(lvn_attempt_status status)
{
    return attempt_names[status];
}

const char *lvn_worker_status_name(lvn_worker_status status)
{
    return worker_names[status];
}

const char *lvn_mode_name(lvn_mode mode)
{
    return mode_names[mode];
}

bool lvn_rollout_status_parse(lvn_str name, lvn_rollout_status *out)
{
    int i;
    bool is_known = find(rollout_names, COUNT(rollout_names), name, &i);
    if (is_known)
        *out = (lvn_rollout_status)i;
    return is_known;
}

bool lvn_attempt_status_parse(lvn_str name, lvn_attempt_status *out)
{
    int i;
    bool is_known = find(attempt_names, COUNT(attempt_names), name, &i);
    if (is_known)
        *out = (lvn_attempt_status)i;
    return is_known;
}

bool lvn_worker_status_parse(lvn_str name, lvn_worker_status *out)
{
    int i;
    bool is_known = find(worker_names, COUNT(worker_names), name, &i);
    if (is_known)
        *out = (lvn_worker_status)i;
    return is_known;
}

bool lvn_mode_parse(lvn_str name, lvn_mode *out)
{
    int i;
    bool is_known = find(mode_names, COUNT(mode_names), name, &i);
    if (is_known)
        *out = (lvn_mode)i;
    return is_known;
}

void lvn_rollout_config_default(lvn_rollout_config *config)
{
    *config = (lvn_rollout_config){.timeout_seconds = LVN_TIME_NULL, .unresponsive_seconds = LVN_TIME_NULL, .max_attempts = 1};
}

/* ---- writing ---- */

static void put_str(lvn_buf *buf, const char *key, lvn_str value)
{
    lvn_json_write_key(buf, key);
    lvn_json_write_str(buf, value);
}

static void put_time(lvn_buf *buf, const char *key, double value)
{
    lvn_json_write_key(buf, key);
    lvn_json_write_double(buf, value); /* NaN is written as null */
}

static void put_int(lvn_buf *buf, const char *key, int64_t value)
{
    lvn_json_write_key(buf, key);
    lvn_json_write_int(buf, value);
}

static void put_json(lvn_buf *buf, const char *key, lvn_str json)
{
    lvn_json_write_key(buf, key);
    lvn_buf_append_str(buf, lvn_str_is_absent(json) ? LVN_STR("null") : json);
}

static void put_config(lvn_buf *buf, const lvn_rollout_config *config)
{
    lvn_json_write_key(buf, "config");
    lvn_buf_append_char(buf, '{');
    put_time(buf, "timeout_seconds", config->timeout_seconds);
    put_time(buf, "unresponsive_seconds", config->unresponsive_seconds);
    put_int(buf, "max_attempts", config->max_attempts);
    lvn_json_write_key(buf, "retry_condition");
    lvn_buf_append_char(buf, '[');
    for (size_t i = 0; i < config->retry_count; i++) {
        if (i)
            lvn_buf_append_char(buf, ',');
        lvn_json_write_str(buf, lvn_str_of(attempt_names[config->retry_condition[i]]));
    }
    lvn_buf_lit(buf, "]}");
}

void lvn_rollout_write(lvn_buf *buf, const lvn_rollout *rollout, const lvn_attempt *attempt)
{
    lvn_buf_append_char(buf, '{');
    put_str(buf, "rollout_id", rollout->rollout_id);
    put_json(buf, "input", rollout->input);
    put_time(buf, "start_time", rollout->start_time);
    put_time(buf, "end_time", rollout->end_time);
    put_str(buf, "mode", lvn_str_of(mode_names[rollout->mode]));
    put_str(buf, "resources_id", rollout->resources_id);
    put_str(buf, "status", lvn_str_of(rollout_names[rollout->status]));
    put_config(buf, &rollout->config);
    put_json(buf, "metadata", rollout->metadata);
    if (attempt) {
        lvn_json_write_key(buf, "attempt");
        lvn_attempt_write(buf, attempt);
    }
    lvn_buf_append_char(buf, '}');
}

void lvn_attempt_write(lvn_buf *buf, const lvn_attempt *attempt)
{
    lvn_buf_append_char(buf, '{');
    put_str(buf, "rollout_id", attempt->rollout_id);
    put_str(buf, "attempt_id", attempt->attempt_id);
    put_int(buf, "sequence_id", attempt->sequence_id);
    put_time(buf, "start_time", attempt->start_time);
    put_time(buf, "end_time", attempt->end_time);
    put_str(buf, "status", lvn_str_of(attempt_names[attempt->status]));
    put_str(buf, "worker_id", attempt->worker_id);
    put_time(buf, "last_heartbeat_time", attempt->last_heartbeat_time);
    put_json(buf, "metadata", attempt->metadata);
    lvn_buf_append_char(buf, '}');
}

void lvn_worker_write(lvn_buf *buf, const lvn_worker *worker)
{
    lvn_buf_append_char(buf, '{');
    put_str(buf, "worker_id", worker->worker_id);
    put_str(buf, "status", lvn_str_of(worker_names[worker->status]));
    put_json(buf, "heartbeat_stats", worker->heartbeat_stats);
    put_time(buf, "last_heartbeat_time", worker->last_heartbeat_time);
    put_time(buf, "last_dequeue_time", worker->last_dequeue_time);
    put_time(buf, "last_busy_time", worker->last_busy_time);
    put_time(buf, "last_idle_time", worker->last_idle_time);
    put_str(buf, "current_rollout_id", worker->current_rollout_id);
    put_str(buf, "current_attempt_id", worker->current_attempt_id);
    lvn_buf_append_char(buf, '}');
}

void lvn_resources_write(lvn_buf *buf, const lvn_resources *resources)
{
    lvn_buf_append_char(buf, '{');
    put_str(buf, "resources_id", resources->resources_id);
    put_time(buf, "create_time", resources->create_time);
    put_time(buf, "update_time", resources->update_time);
    put_int(buf, "version", resources->version);
    put_json(buf, "resources", resources->resources);
    lvn_buf_append_char(buf, '}');
}

void lvn_span_write(lvn_buf *buf, const lvn_span *span)
{
    lvn_buf_append_char(buf, '{');
    put_str(buf, "rollout_id", span->rollout_id);
    put_str(buf, "attempt_id", span->attempt_id);
    put_int(buf, "sequence_id", span->sequence_id);
    lvn_buf_append_str(buf, span->rest);
    lvn_buf_append_char(buf, '}');
}
