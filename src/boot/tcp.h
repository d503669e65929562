/* The messages of the TCP bootstrap between a rank and the root. Internal to src/boot.
 *
 *     rank -> root   joins (struct cecl_tcp_said)   proves the secret; says who the rank is; has its part
 *     root -> rank   proof                           once the root has read all of that message;
 *                    or "again", then closes         if the root cannot wait for the message's end
 *     root -> rank   reply + all parts               once all have joined; or an error message
 *
 * Then the root closes the connections if all ranks are on one host. Otherwise ranks keep them as lines (oob.h).
 *
 * The secret is never sent. Each side shows a SipHash tag, which only a holder of the secret can compute. An id serves
 * one job. The root closes the connection of a caller that repeats the message of a rank that has joined. */
#ifndef CECL_BOOT_TCP_H
#define CECL_BOOT_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "boot/oob.h"
#include "util/error.h"

#define CECL_TCP_MAGIC 0x6365636c74637061u /* "cecltcpa" */

union cecl_tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* The content of a ceclUniqueId. */
struct cecl_tcp_id {
    uint64_t magic;
    union cecl_tcp_address at; /* where the root listens */
    uint8_t secret[16];
};
_Static_assert(sizeof(struct cecl_tcp_id) <= CECL_UNIQUE_ID_BYTES, "the id must hold it");

/* What a rank says: first that it joins; later, over its line, messages of these kinds. */
enum { CECL_TCP_PART = 1, CECL_TCP_FAILURE, CECL_TCP_GOODBYE };
struct cecl_tcp_said {
    uint64_t kind; /* CECL_TCP_MAGIC: joins, and sets all fields; a kind above: sets only `part` */
    char part[CECL_OOB_PART_BYTES]; /* what this rank sends to the others, or a failure's message */
    uint8_t nonce[16];
    int32_t rank, nranks;
    int64_t patience_ms; /* how many ms this rank will still wait; 0: as long as the root waits */
    int64_t timeout_ms;  /* for how many ms this rank waits in all; for error messages */
    uint64_t process;    /* this rank's process: see util/fds.h */
    uint64_t host;       /* ranks with other numbers are on other hosts */
    uint64_t tag;        /* a SipHash tag of "rank" and all fields above */
};

struct cecl_tcp_proof {
    uint64_t tag; /* a SipHash tag of "root" and the rank's tag; or CECL_TCP_AGAIN */
};
/* Instead of a tag: the rank must connect again. This needs no proof: whoever can forge it can also cut the
 * connection. */
#define CECL_TCP_AGAIN UINT64_C(0x6167616967616961)

/* If status is ceclSuccess, the parts of all ranks follow (none if `bytes` is 0); otherwise a message. */
struct cecl_tcp_reply {
    int32_t status;
    uint32_t left; /* if bytes is 0: 1 + the rank that has left; 0: the root's process may end */
    uint64_t bytes;
};

/* The tags of a rank that joins, and of the root's answer. They differ, so an impostor cannot just echo the tag. */
uint64_t cecl_tcp_rank_tag(const uint8_t secret[16], const struct cecl_tcp_said *said);
uint64_t cecl_tcp_root_tag(const uint8_t secret[16], const struct cecl_tcp_said *said);

/* Whether the address in `id` is loopback, so that only this host's ranks reach it. */
bool cecl_tcp_is_loopback(const struct cecl_tcp_id *id);

/* The address in `id`, as this host connects to it. */
union cecl_tcp_address cecl_tcp_from_here(const struct cecl_tcp_id *id);

/* Bytes of an address of this family; 0: neither AF_INET nor AF_INET6. */
static inline socklen_t cecl_tcp_length(int family)
{
    return family == AF_INET    ? (socklen_t)sizeof(struct sockaddr_in)
           : family == AF_INET6 ? (socklen_t)sizeof(struct sockaddr_in6)
                                : 0;
}

/* Sets a connection to send small messages at once (Nagle's algorithm delays them by up to 40 ms), and to notice a host
 * that stops answering (keepalive). */
void cecl_tcp_set_up(int fd);

/* tcp_root.c: serves one job on `listener`, which it takes over. The thread that it starts ends by itself. */
ceclResult_t cecl_tcp_serve(int listener, const uint8_t secret[16], int64_t timeout_ms);

#endif
