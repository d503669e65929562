/* The messages of the TCP bootstrap between a rank and the root. Internal to src/boot.
 *
 *     root -> rank   challenge                       as soon as the rank has connected
 *     rank -> root   answer (with a challenge back)  proves the secret; says who it is; has its part
 *     root -> rank   proof                           once it has read the answer;
 *                    or "again", and it closes       if newer callers have replaced this one
 *     root -> rank   reply + all parts               once all have joined; or an error message
 *
 * Then the rank closes the connection, or keeps it as its line to the root (lifeline.h).
 *
 * The secret is never sent. Each side shows a SipHash tag over both nonces, which only a holder of
 * the secret can compute. */
#ifndef CECL_BOOT_TCP_H
#define CECL_BOOT_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "boot/door.h"
#include "boot/oob.h"
#include "util/error.h"

#define CECL_TCP_MAGIC 0x6365636c74637038u /* "cecltcp8" */

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

struct cecl_tcp_challenge {
    uint64_t magic;
    uint8_t nonce[16];
};

struct cecl_tcp_answer {
    uint64_t magic;
    uint8_t nonce[16];
    int32_t rank, nranks;
    int64_t patience_ms; /* ms that this rank will still wait; 0: as long as the root does */
    int64_t timeout_ms;  /* ms that this rank waits in all; for error messages */
    uint64_t process;    /* this rank's: see util/fork.h */
    char part[CECL_OOB_PART_BYTES]; /* what this rank tells the other ranks; the rest is 0 */
    uint64_t tag;                   /* over "rank", both nonces and all fields above */
};

struct cecl_tcp_proof {
    uint64_t tag; /* over "root" and both nonces; or CECL_TCP_AGAIN */
};
/* Needs no tag: an attacker who could forge it could also cut the connection. */
#define CECL_TCP_AGAIN UINT64_C(0x6167616967616961)

/* If status is ceclSuccess, the parts of all ranks follow (bytes 0: none); otherwise an error message of `bytes`
 * bytes. lifeline.h says what follows on the connection. */
struct cecl_tcp_reply {
    int32_t status;
    uint32_t
        left; /* bytes 0: 1 + the rank that has left; 0: the root's process has no rank any more */
    uint64_t bytes;
};

/* The tags that prove the secret. The two sides' tags differ, so a caller cannot send the other side's tag
 * back as its own. */
uint64_t cecl_tcp_rank_tag(const uint8_t secret[16], const uint8_t root_nonce[16],
                           const struct cecl_tcp_answer *answer);
uint64_t cecl_tcp_root_tag(const uint8_t secret[16], const uint8_t root_nonce[16],
                           const uint8_t rank_nonce[16]);

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

/* Sends small messages at once (TCP_NODELAY). Otherwise the kernel holds each back until the previous one
 * is acknowledged, up to 40 ms. */
void cecl_tcp_send_at_once(int fd);

#define CECL_TCP_ROOT "the rank that made the unique id"
/* Adds the time limit to the message, if a wait for the root ended with ceclTimeout. */
ceclResult_t cecl_tcp_in_time(ceclResult_t result, int64_t timeout_ms);

/* tcp_root.c: serves one job on `listener`, which it takes over. The thread that it starts ends by itself. */
ceclResult_t cecl_tcp_serve(int listener, const uint8_t secret[16], int64_t timeout_ms);

#endif
