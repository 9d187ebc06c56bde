/* Routes as a tree of path segments. A node has literal children and at most one {name} child. */
#include <stdio.h>
#include <stdlib.h>

#include "http/internal.h"

typedef struct route {
    struct route *next;
    char *method;
    lvn_http_handler handler;
    void *user;
} route;

struct lvn_http_node {
    lvn_http_node *sibling;
    char *segment; /* NULL: a {name} segment */
    lvn_http_node *literals, *any;
    route *routes;
};

lvn_http_node *lvn_http_node_new(void)
{
    return lvn_zalloc(sizeof(lvn_http_node));
}

void lvn_http_node_free(lvn_http_node *node)
{
    if (!node)
        return;
    for (lvn_http_node *child = node->literals, *next; child; child = next) {
        next = child->sibling;
        lvn_http_node_free(child);
    }
    lvn_http_node_free(node->any);
    for (route *r = node->routes, *next; r; r = next) {
        next = r->next;
        free(r->method);
        free(r);
    }
    free(node->segment);
    free(node);
}

static lvn_http_node *literal_child(const lvn_http_node *node, lvn_str segment)
{
    for (lvn_http_node *child = node->literals; child; child = child->sibling)
        if (lvn_str_is(segment, child->segment))
            return child;
    return NULL;
}

/* Cuts the next segment off `rest`; false at the end of the path. */
static bool next_segment(lvn_str *rest, lvn_str *out)
{
    if (!rest->len || rest->ptr[0] != '/')
        return false;
    *rest = lvn_str_from(*rest, 1);
    const char *slash = rest->len ? memchr(rest->ptr, '/', rest->len) : NULL;
    *out = (lvn_str){rest->ptr, slash ? (size_t)(slash - rest->ptr) : rest->len};
    *rest = lvn_str_from(*rest, out->len);
    return true;
}

static lvn_http_node *child_for(lvn_http_node *node, lvn_str segment)
{
    if (segment.len && segment.ptr[0] == '{') {
        if (!node->any)
            node->any = lvn_http_node_new();
        return node->any;
    }
    lvn_http_node *child = literal_child(node, segment);
    if (child)
        return child;
    child = lvn_http_node_new();
    child->segment = lvn_alloc(segment.len + 1);
    memcpy(child->segment, segment.ptr, segment.len);
    child->segment[segment.len] = '\0';
    child->sibling = node->literals;
    node->literals = child;
    return child;
}

void lvn_http_node_add(lvn_http_node *root, const char *method, const char *pattern,
                       lvn_http_handler handler, void *user)
{
    lvn_http_node *node = root;
    lvn_str rest = lvn_str_of(pattern), segment;
    while (next_segment(&rest, &segment))
        node = child_for(node, segment);
    route *added = lvn_zalloc(sizeof(*added));
    *added = (route){.method = lvn_strdup(method), .handler = handler, .user = user};
    route **end = &node->routes;
    while (*end)
        end = &(*end)->next;
    *end = added;
}

static void allow(lvn_http_match *out, const char *method)
{
    size_t used = strlen(out->allow);
    const char *at = strstr(out->allow, method);
    size_t len = strlen(method);
    if (at && (at[len] == ',' || at[len] == '\0') && (at == out->allow || at[-1] == ' '))
        return;
    snprintf(out->allow + used, sizeof(out->allow) - used, "%s%s", used ? ", " : "", method);
}

/* A literal child is tried first; when it leads to no route for the method, the {name} child is. */
static bool find(const lvn_http_node *node, lvn_str method, lvn_str rest, lvn_http_match *out)
{
    lvn_str segment;
    if (!next_segment(&rest, &segment)) {
        for (const route *r = node->routes; r; r = r->next) {
            allow(out, r->method);
            if (lvn_str_is(method, r->method)) {
                out->handler = r->handler;
                out->user = r->user;
                return true;
            }
        }
        return false;
    }
    const lvn_http_node *literal = literal_child(node, segment);
    if (literal && find(literal, method, rest, out))
        return true;
    if (!node->any || !segment.len || out->param_count == LVN_HTTP_MAX_PARAMS)
        return false;
    out->params[out->param_count++] = segment;
    if (find(node->any, method, rest, out))
        return true;
    out->param_count--;
    return false;
}

/* The path is decoded before it is split, as the reference server does it: %2F separates segments
 * like a slash. */
void lvn_http_node_find(const lvn_http_node *root, lvn_arena *arena, lvn_str method, lvn_str path,
                        lvn_http_match *out)
{
    *out = (lvn_http_match){0};
    lvn_str decoded = lvn_http_percent_decode(arena, path, false);
    if (find(root, method, decoded, out) || !lvn_str_is(method, "HEAD"))
        return;
    find(root, LVN_STR("GET"), decoded, out); /* HEAD is answered like GET, without the body */
}
