/* Packets: messages over a Unix socket that keeps their boundaries (SOCK_SEQPACKET). A packet goes
 * whole, with its descriptors, or not at all. Nothing here waits. */
#ifndef CECL_BOOT_PACKET_H
#define CECL_BOOT_PACKET_H

#include <stdbool.h>
#include <sys/types.h>

struct iovec;

#define CECL_PACKET_PARTS 2   /* a packet is two parts behind each other, as a head and a body */
#define CECL_PACKET_FDS 64    /* most descriptors of a packet */
#define CECL_PACKET_BODY 4096 /* most bytes of a body: every socket's buffer holds such a packet */

/* Sends a packet, whose descriptors stay the caller's. Returns as sendmsg does.
 * parts  [CECL_PACKET_PARTS] */
ssize_t cecl_packet_send(int socket, struct iovec *parts, const int *fds, int nfds);

/* Takes a packet. Returns as recvmsg does; the received descriptors are the caller's, whatever the
 * packet is.
 *
 * fds    [CECL_PACKET_FDS]; *nfds of them came
 * flags  [out] MSG_TRUNC: it was longer than the parts; MSG_CTRUNC: descriptors were lost */
ssize_t cecl_packet_take(int socket, struct iovec *parts, int *fds, int *nfds, int *flags);

/* Whether to receive once more after a call that returned `got`. ECONNRESET is reported once,
 * possibly before packets that can still be received: the other end has closed without reading all
 * that was sent to it. */
bool cecl_packet_again(ssize_t got);

#endif
