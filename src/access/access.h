/* Who may ask the server what: bearer tokens with roles, and which web pages may call it (CORS). Installed as the server's guard, so that
 * routes know nothing of it. */
#ifndef LVN_ACCESS_ACCESS_H
#define LVN_ACCESS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "http/server.h"

typedef enum lvn_role {
    LVN_ROLE_READER,    /* read-only: every GET, searches and waits */
    LVN_ROLE_RUNNER,    /* and: claims work, runs it, reports attempts, spans and heartbeats, calls models */
    LVN_ROLE_ALGORITHM, /* what a reader may, and: enqueues and changes rollouts, writes resources, calls models */
    LVN_ROLE_ADMIN,     /* everything */
} lvn_role;

typedef struct lvn_access_config {
    const char *token_file;     /* NULL: none */
    const char *key;            /* an admin's token beside those of the file; NULL: none. Without either everybody may do everything */
    const char *const *origins; /* allowed for web pages; "*": all. Copied */
    size_t origin_count;
} lvn_access_config;

typedef struct lvn_access lvn_access;

/* The token file has a line a token, "ROLE TOKEN": admin, algorithm, runner or read-only, and at least 16 characters without blanks;
 * empty lines and lines that begin with # are skipped. Before the server starts. LVN_NOT_FOUND or LVN_IO: the file can't be read;
 * LVN_INVALID: a line is wrong, or there is no token in it (the message has the line's number and never the token). */
lvn_code lvn_access_open(const lvn_access_config *config, lvn_http_server *server, lvn_access **out, lvn_err *err) LVN_MUST_USE;
/* Reads the token file again; what is in flight is finished under the old ones. On failure the old tokens stay. Any thread but the
 * loop's; errors as above. */
lvn_code lvn_access_reload(lvn_access *access, lvn_err *err) LVN_MUST_USE;
/* After the server has been closed. NULL is fine. */
void lvn_access_close(lvn_access *access);

/* Whether a role may use a method on a path (without its query). */
bool lvn_role_may(lvn_role role, lvn_str method, lvn_str path);
/* "admin" and so on; false: no such role. */
bool lvn_role_parse(lvn_str name, lvn_role *out);
const char *lvn_role_name(lvn_role role);

#endif
