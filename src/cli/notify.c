#include "cli/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void lvn_notify(const char *state)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = name ? strlen(name) : 0;
    if (!len || len >= sizeof(address.sun_path) || (name[0] != '/' && name[0] != '@'))
        return;
    memcpy(address.sun_path, name, len);
    if (name[0] == '@') /* Linux's abstract names begin with a zero byte */
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}
