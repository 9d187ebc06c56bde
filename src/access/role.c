#include "access/access.h"

#include <string.h>

static const char *const names[] = {
    [LVN_ROLE_READER] = "read-only", [LVN_ROLE_RUNNER] = "runner", [LVN_ROLE_ALGORITHM] = "algorithm", [LVN_ROLE_ADMIN] = "admin"};

bool lvn_role_parse(lvn_str name, lvn_role *out)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (lvn_str_is(name, names[i])) {
            *out = (lvn_role)i;
            return true;
        }
    return false;
}

const char *lvn_role_name(lvn_role role)
{
    return names[role];
}

static bool begins(lvn_str path, const char *with)
{
    return lvn_str_starts_with(path, lvn_str_of(with));
}

static bool ends(lvn_str path, const char *with)
{
    size_t len = strlen(with);
    return path.len >= len && !memcmp(path.ptr + path.len - len, with, len);
}

static bool is_read(lvn_str method, lvn_str path)
{
    return lvn_str_is(method, "GET") || lvn_str_is(method, "HEAD") || lvn_str_is(method, "OPTIONS") ||
           (begins(path, "/v1/agl/") && (ends(path, "/search") || begins(path, "/v1/agl/waits/")) && !begins(path, "/v1/agl/resources/"));
}

/* Calls of models: below /v1, or below a rollout's own prefix. The store's routes are below /v1/agl. */
static bool is_call(lvn_str path)
{
    return begins(path, "/rollout/") || (begins(path, "/v1/") && !begins(path, "/v1/agl/") && !begins(path, "/v1/traces"));
}

static bool is_attempt(lvn_str path)
{
    return begins(path, "/v1/agl/rollouts/") && lvn_str_contains(path, LVN_STR("/attempts"));
}

static bool is_runners(lvn_str path)
{
    return lvn_str_is(path, "/v1/agl/queues/rollouts/dequeue") || lvn_str_is(path, "/v1/agl/rollouts") || is_attempt(path) ||
           begins(path, "/v1/agl/spans") || lvn_str_is(path, "/v1/traces") || begins(path, "/v1/agl/workers/");
}

static bool is_algorithms(lvn_str path)
{
    return lvn_str_is(path, "/v1/agl/queues/rollouts/enqueue") || begins(path, "/v1/agl/rollouts") || begins(path, "/v1/agl/resources") ||
           begins(path, "/v1/agl/spans") || lvn_str_is(path, "/v1/traces");
}

bool lvn_role_may(lvn_role role, lvn_str method, lvn_str path)
{
    if (role == LVN_ROLE_ADMIN || is_read(method, path))
        return true;
    if (!lvn_str_is(method, "POST"))
        return false;
    if (role == LVN_ROLE_RUNNER)
        return is_runners(path) || is_call(path);
    return role == LVN_ROLE_ALGORITHM && (is_algorithms(path) || is_call(path));
}
