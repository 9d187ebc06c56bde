/* Tells a service manager how we are (systemd's sd_notify protocol: a datagram to the socket named by NOTIFY_SOCKET). */
#ifndef LVN_CLI_NOTIFY_H
#define LVN_CLI_NOTIFY_H

/* `state` is such as "READY=1". Does nothing when nobody asked; never fails. */
void lvn_notify(const char *state);

#endif
