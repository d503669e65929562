/* Packets: messages over a Unix socket that keeps their boundaries (SOCK_SEQPACKET). A packet is sent
 * whole, with its descriptors, or not at all. No function here waits. */
#ifndef CECL_BOOT_PACKET_H
#define CECL_BOOT_PACKET_H

#include <sys/types.h>

struct iovec;

#define CECL_PACKET_PARTS 2   /* a packet is a head and a body */
#define CECL_PACKET_FDS 64    /* most descriptors of a packet */
#define CECL_PACKET_BODY 4096 /* most bytes of a body: every socket's buffer holds such a packet */

/* Sends a packet. The caller keeps the descriptors. Returns what sendmsg returns.
 * parts  [CECL_PACKET_PARTS] */
ssize_t cecl_packet_send(int socket, struct iovec *parts, const int *fds, int nfds);

/* Takes a packet. Returns what recvmsg returns. The caller owns the received descriptors, even if the packet
 * is invalid.
 *
 * fds    [CECL_PACKET_FDS] the received descriptors; *nfds: how many
 * flags  [out] MSG_TRUNC: the packet was longer than the parts; MSG_CTRUNC: descriptors were lost */
ssize_t cecl_packet_take(int socket, struct iovec *parts, int *fds, int *nfds, int *flags);

/* Takes at most `room` bytes of a packet without descriptors, or of a stream. Returns what recv returns; 0: the
 * other end has closed, and nothing is left to receive.
 *
 * flags  MSG_PEEK, or 0 */
ssize_t cecl_packet_read(int socket, void *bytes, size_t room, int flags);

#endif
