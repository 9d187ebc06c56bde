/* Private to src/api: GET /v1/agl/events, a stream of server-sent events with every change of a status, an addition of ours.
 *
 * The last few thousand events are kept, so that a client that comes back with Last-Event-ID misses none; one that was away for
 * longer is told with an event `reset`, and asks for what it wants to know. Each stream has a place among the events kept: a slow reader
 * costs no memory beyond that. */
#ifndef LVN_API_EVENTS_H
#define LVN_API_EVENTS_H

#include "http/server.h"
#include "store/store.h"

typedef struct lvn_events lvn_events;

/* Adds the route. Before the server starts. */
lvn_events *lvn_events_open(lvn_http_server *server, lvn_store *store);
/* Ends all streams; no event is taken from the store afterwards. Loop only; idempotent. */
void lvn_events_stop(lvn_events *events);
/* After `stop`, and after the server has been closed. NULL is fine. */
void lvn_events_free(lvn_events *events);

#endif
