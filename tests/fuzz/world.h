/* A world for code that waits on sockets: time passes only when the code waits, and a script plays
 * whoever is at the other ends of its connections. So every run takes the same course, and takes no
 * time. It stands before calls of the system (linked with --wrap), until world_end. One thread.
 *
 * A thread that the code starts runs at once, to its end. A wait without an end is a finding, and so is
 * code that never waits. */
#ifndef CECL_TESTS_FUZZ_WORLD_H
#define CECL_TESTS_FUZZ_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct world_script {
    /* Does the next thing. It is called when the code waits and nothing is ready. False: the script is
     * over. */
    bool (*act)(void);
    /* Connects `fd`, as connect does: world_connect makes the connection. */
    int (*reach)(int fd, const struct sockaddr *to, socklen_t length);
    int type; /* of connections: SOCK_STREAM, SOCK_SEQPACKET */
};

void world_begin(const struct world_script *script);
/* Closes what is left of the world. The number of descriptors must be as at world_begin. */
void world_end(void);

/* Lets time pass. */
void world_pass(int64_t ms);

/* A descriptor of the world's listener; the code closes it. */
int world_listener(void);
/* Connects to the listener. Returns the caller's end. */
int world_call(void);
/* How many callers the code has not accepted yet. */
int world_waiting(void);
/* Whether the code waits for a single connection, and hears nobody else meanwhile. */
bool world_hears_one(void);
/* Makes `fd` one end of a connection, and returns the other end. */
int world_connect(int fd);

/* Receives what is there, without waiting. Returns the number of bytes. */
size_t world_drain(int fd, uint8_t *to, size_t room);
/* Sends what the socket takes. Returns the number of bytes. */
size_t world_send(int fd, const void *data, size_t bytes);

#endif
