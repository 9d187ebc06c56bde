#include "base/err.h"

#include <stdio.h>
#include <string.h>

lvn_code lvn_fail(lvn_err *err, lvn_code code, const char *format, ...)
{
    if (!err)
        return code;
    va_list args;
    va_start(args, format);
    /* Through a second buffer, because an argument may be err->message itself. */
    char text[sizeof(err->message)];
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(err->message, text, sizeof(text));
    err->code = code;
    return code;
}

lvn_code lvn_fail_context(lvn_err *err, const char *format, ...)
{
    if (!err)
        return LVN_INTERNAL;
    char text[sizeof(err->message)];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof(text)) {
        int room = (int)(sizeof(text) - (size_t)used) - 3;
        snprintf(text + used, sizeof(text) - (size_t)used, ": %.*s", room > 0 ? room : 0, err->message);
    }
    memcpy(err->message, text, sizeof(text));
    return err->code;
}

const char *lvn_code_name(lvn_code code)
{
    switch (code) {
    case LVN_OK: return "ok";
    case LVN_EMPTY: return "empty";
    case LVN_NOT_FOUND: return "not_found";
    case LVN_CONFLICT: return "conflict";
    case LVN_AGAIN: return "again";
    case LVN_TIMEOUT: return "timeout";
    case LVN_CANCELLED: return "cancelled";
    case LVN_INVALID: return "invalid";
    case LVN_TOO_LARGE: return "too_large";
    case LVN_FULL: return "full";
    case LVN_NO_MEMORY: return "no_memory";
    case LVN_IO: return "io";
    case LVN_UNAVAILABLE: return "unavailable";
    case LVN_INTERNAL: return "internal";
    }
    return "unknown";
}
