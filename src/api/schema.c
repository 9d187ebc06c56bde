#include "api/schema.h"

static const char *const modes[] = {"train", "val", "test", NULL};
static const char *const rollout_statuses[] = {"queuing",   "preparing", "running",   "failed",
                                               "succeeded", "cancelled", "requeuing", NULL};
static const char *const attempt_statuses[] = {"preparing",    "running", "failed", "succeeded",
                                               "unresponsive", "timeout", NULL};
static const char *const worker_statuses[] = {"idle", "busy", "unknown", NULL};
static const char *const span_statuses[] = {"UNSET", "OK", "ERROR", NULL};
static const char *const engines[] = {"jinja", "f-string", "poml", NULL};
static const char *const logics[] = {"and", "or", NULL};
static const char *const orders[] = {"asc", "desc", NULL};

/* One line a shape. */
/* clang-format off */
#define STR {.kind = LVN_SCHEMA_STR}
#define STR_OR_NULL {.kind = LVN_SCHEMA_STR, .is_nullable = true}
#define INT {.kind = LVN_SCHEMA_INT}
#define FLOAT_OR_NULL {.kind = LVN_SCHEMA_FLOAT, .is_nullable = true}
#define DICT_OR_NULL {.kind = LVN_SCHEMA_DICT, .is_nullable = true}
#define ANY {.kind = LVN_SCHEMA_ANY}
#define ONE_OF(list) {.kind = LVN_SCHEMA_LITERAL, .names = list}
#define ONE_OF_OR_NULL(list) {.kind = LVN_SCHEMA_LITERAL, .names = list, .is_nullable = true}
#define LIST_OF(schema) {.kind = LVN_SCHEMA_LIST, .item = &(schema)}
#define LIST_OR_NULL_OF(schema) {.kind = LVN_SCHEMA_LIST, .item = &(schema), .is_nullable = true}
#define MODEL(list) {.kind = LVN_SCHEMA_MODEL, .fields = list}
#define MODEL_OR_NULL(list) {.kind = LVN_SCHEMA_MODEL, .fields = list, .is_nullable = true}
#define OPEN_MODEL(list) {.kind = LVN_SCHEMA_MODEL, .fields = list, .keeps_unknown = true}
/* Fields: optional, required, and with a value for when they are absent. */
#define MAY(key, ...) {.name = key, .schema = __VA_ARGS__}
#define NEED(key, ...) {.name = key, .schema = __VA_ARGS__, .is_required = true}
#define ELSE(key, value, ...) {.name = key, .schema = __VA_ARGS__, .fallback = value}

/* clang-format on */

static const lvn_schema text = STR;
static const lvn_schema rollout_status = ONE_OF(rollout_statuses);
static const lvn_schema attempt_status = ONE_OF(attempt_statuses);
static const lvn_schema worker_status = ONE_OF(worker_statuses);

/* ---- rollouts and attempts ---- */

static const lvn_schema_field config_fields[] = {
    MAY("timeout_seconds", FLOAT_OR_NULL),
    MAY("unresponsive_seconds", FLOAT_OR_NULL),
    MAY("max_attempts", {.kind = LVN_SCHEMA_INT, .has_min = true, .min = 1}),
    MAY("retry_condition", LIST_OF(attempt_status)),
    {.name = NULL},
};

/* clang-format off */
#define ROLLOUT_FIELDS \
    NEED("input", ANY), MAY("mode", ONE_OF_OR_NULL(modes)), MAY("resources_id", STR_OR_NULL), \
        MAY("config", MODEL_OR_NULL(config_fields)), MAY("metadata", DICT_OR_NULL)
/* clang-format on */

static const lvn_schema_field new_rollout_fields[] = {ROLLOUT_FIELDS, {.name = NULL}};
static const lvn_schema new_rollout = MODEL(new_rollout_fields);

static const lvn_schema_field enqueue_fields[] = {NEED("rollouts", LIST_OF(new_rollout)),
                                                  {.name = NULL}};
const lvn_schema lvn_schema_enqueue = MODEL(enqueue_fields);

static const lvn_schema_field dequeue_fields[] = {
    MAY("limit", INT), MAY("worker_id", STR_OR_NULL), {.name = NULL}};
const lvn_schema lvn_schema_dequeue = MODEL(dequeue_fields);

static const lvn_schema_field start_rollout_fields[] = {
    ROLLOUT_FIELDS, MAY("worker_id", STR_OR_NULL), {.name = NULL}};
const lvn_schema lvn_schema_start_rollout = MODEL(start_rollout_fields);

static const lvn_schema_field update_rollout_fields[] = {
    MAY("input", ANY),
    MAY("mode", ONE_OF_OR_NULL(modes)),
    MAY("resources_id", STR_OR_NULL),
    MAY("status", ONE_OF_OR_NULL(rollout_statuses)),
    MAY("config", MODEL_OR_NULL(config_fields)),
    MAY("metadata", DICT_OR_NULL),
    {.name = NULL},
};
const lvn_schema lvn_schema_update_rollout = MODEL(update_rollout_fields);

static const lvn_schema_field start_attempt_fields[] = {MAY("worker_id", STR_OR_NULL),
                                                        {.name = NULL}};
const lvn_schema lvn_schema_start_attempt = MODEL(start_attempt_fields);

static const lvn_schema_field update_attempt_fields[] = {
    MAY("status", ONE_OF_OR_NULL(attempt_statuses)),
    MAY("worker_id", STR_OR_NULL),
    MAY("last_heartbeat_time", FLOAT_OR_NULL),
    MAY("metadata", DICT_OR_NULL),
    {.name = NULL},
};
const lvn_schema lvn_schema_update_attempt = MODEL(update_attempt_fields);

/* ---- queries ---- */

/* clang-format off */
#define PAGE_FIELDS \
    MAY("limit", INT), MAY("offset", INT), MAY("sort_by", STR_OR_NULL), MAY("sort_order", ONE_OF(orders)), {.name = NULL}
#define LOGIC_FIELD MAY("filter_logic", ONE_OF(logics))
/* clang-format on */

static const lvn_schema_field query_rollouts_fields[] = {
    MAY("status_in", LIST_OR_NULL_OF(rollout_status)),
    MAY("rollout_id_in", LIST_OR_NULL_OF(text)),
    MAY("rollout_id_contains", STR_OR_NULL),
    LOGIC_FIELD,
    PAGE_FIELDS,
};
const lvn_schema lvn_schema_query_rollouts = MODEL(query_rollouts_fields);

static const lvn_schema_field query_attempts_fields[] = {PAGE_FIELDS};
const lvn_schema lvn_schema_query_attempts = MODEL(query_attempts_fields);

#define TEXT_FILTER(name) MAY(name, STR_OR_NULL), MAY(name "_contains", STR_OR_NULL)
static const lvn_schema_field query_spans_fields[] = {
    NEED("rollout_id", STR),
    MAY("attempt_id", STR_OR_NULL),
    TEXT_FILTER("trace_id"),
    TEXT_FILTER("span_id"),
    TEXT_FILTER("parent_id"),
    TEXT_FILTER("name"),
    LOGIC_FIELD,
    PAGE_FIELDS,
};
const lvn_schema lvn_schema_query_spans = MODEL(query_spans_fields);

static const lvn_schema_field query_resources_fields[] = {TEXT_FILTER("resources_id"), PAGE_FIELDS};
const lvn_schema lvn_schema_query_resources = MODEL(query_resources_fields);

static const lvn_schema_field query_workers_fields[] = {
    MAY("status_in", LIST_OR_NULL_OF(worker_status)), MAY("worker_id_contains", STR_OR_NULL),
    LOGIC_FIELD, PAGE_FIELDS};
const lvn_schema lvn_schema_query_workers = MODEL(query_workers_fields);

/* ---- spans ---- */

const lvn_schema lvn_schema_attribute = {.kind = LVN_SCHEMA_ATTRIBUTE};
/* clang-format off */
#define ATTRIBUTES {.kind = LVN_SCHEMA_MAP, .item = &lvn_schema_attribute}
#define ATTRIBUTES_OR_NULL {.kind = LVN_SCHEMA_MAP, .item = &lvn_schema_attribute, .is_nullable = true}
/* clang-format on */

static const lvn_schema_field context_fields[] = {
    NEED("trace_id", STR),
    NEED("span_id", STR),
    NEED("is_remote", {.kind = LVN_SCHEMA_BOOL}),
    NEED("trace_state", {.kind = LVN_SCHEMA_MAP, .item = &text}),
    {.name = NULL},
};
/* clang-format off */
#define CONTEXT_OR_NULL {.kind = LVN_SCHEMA_MODEL, .fields = context_fields, .keeps_unknown = true, .is_nullable = true}
/* clang-format on */

static const lvn_schema_field status_fields[] = {
    NEED("status_code", ONE_OF(span_statuses)),
    ELSE("description", "null", STR_OR_NULL),
    {.name = NULL},
};

static const lvn_schema_field event_fields[] = {
    NEED("name", STR),
    NEED("attributes", ATTRIBUTES),
    ELSE("timestamp", "null", FLOAT_OR_NULL),
    {.name = NULL},
};
static const lvn_schema event = OPEN_MODEL(event_fields);

static const lvn_schema_field link_fields[] = {
    NEED("context", OPEN_MODEL(context_fields)),
    ELSE("attributes", "null", ATTRIBUTES_OR_NULL),
    {.name = NULL},
};
static const lvn_schema span_link = OPEN_MODEL(link_fields);

static const lvn_schema_field resource_fields[] = {
    NEED("attributes", ATTRIBUTES), NEED("schema_url", STR), {.name = NULL}};

static const lvn_schema_field span_fields[] = {
    NEED("rollout_id", STR),
    NEED("attempt_id", STR),
    NEED("sequence_id", INT),
    NEED("trace_id", STR),
    NEED("span_id", STR),
    NEED("parent_id", STR_OR_NULL),
    NEED("name", STR),
    NEED("status", OPEN_MODEL(status_fields)),
    NEED("attributes", ATTRIBUTES),
    NEED("events", LIST_OF(event)),
    NEED("links", LIST_OF(span_link)),
    NEED("start_time", FLOAT_OR_NULL),
    NEED("end_time", FLOAT_OR_NULL),
    NEED("context", CONTEXT_OR_NULL),
    NEED("parent", CONTEXT_OR_NULL),
    NEED("resource", MODEL(resource_fields)),
    {.name = NULL},
};
const lvn_schema lvn_schema_span = OPEN_MODEL(span_fields);

static const lvn_schema_field spans_fields[] = {
    NEED("spans", LIST_OF(lvn_schema_span)), {.name = NULL}};
const lvn_schema lvn_schema_spans = MODEL(spans_fields);

static const lvn_schema_field next_sequence_fields[] = {
    NEED("rollout_id", STR), NEED("attempt_id", STR), {.name = NULL}};
const lvn_schema lvn_schema_next_sequence = MODEL(next_sequence_fields);

/* ---- resources ---- */

static const lvn_schema_field llm_fields[] = {
    MAY("resource_type", STR),
    NEED("endpoint", STR),
    NEED("model", STR),
    ELSE("api_key", "null", STR_OR_NULL),
    ELSE("sampling_parameters", "{}", {.kind = LVN_SCHEMA_DICT}),
    {.name = NULL},
};
static const lvn_schema llm = MODEL(llm_fields);

static const lvn_schema_field template_fields[] = {MAY("resource_type", STR),
                                                   NEED("template", STR),
                                                   NEED("engine", ONE_OF(engines)),
                                                   {.name = NULL}};
static const lvn_schema prompt_template = MODEL(template_fields);

static const lvn_schema_variant resource_types[] = {
    {"llm", &llm}, {"proxy_llm", &llm}, {"prompt_template", &prompt_template}, {NULL, NULL}};
static const lvn_schema resource = {
    .kind = LVN_SCHEMA_TAGGED, .tag = "resource_type", .variants = resource_types};
const lvn_schema lvn_schema_resources = {.kind = LVN_SCHEMA_MAP, .item = &resource};

/* ---- workers and waits ---- */

static const lvn_schema_field heartbeat_fields[] = {MAY("heartbeat_stats", DICT_OR_NULL),
                                                    {.name = NULL}};
const lvn_schema lvn_schema_heartbeat = MODEL(heartbeat_fields);

static const lvn_schema_field wait_fields[] = {
    NEED("rollout_ids", LIST_OF(text)), MAY("timeout", FLOAT_OR_NULL), {.name = NULL}};
const lvn_schema lvn_schema_wait = MODEL(wait_fields);

static const lvn_schema_field wait_option_fields[] = {MAY("wait", {.kind = LVN_SCHEMA_FLOAT}),
                                                      {.name = NULL}};
const lvn_schema lvn_schema_wait_option = MODEL(wait_option_fields);
