/* A world for code that waits on sockets: a script plays the other ends of its connections, and time passes only while
 * the code waits. So every run is deterministic, and takes no time. The world replaces system calls (linked with
 * --wrap) until world_end, in one thread. A thread that the code starts runs at once, to its end. A wait without a time
 * limit is an error, and so is code that never waits. */
#ifndef CECL_TESTS_FUZZ_WORLD_H
#define CECL_TESTS_FUZZ_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct world_script {
    /* Makes the script's next step, when the code waits and no descriptor is ready. False: the script is over. */
    bool (*act)(void);
    /* Replaces connect for `fd`; world_connect makes the connection. */
    int (*reach)(int fd, const struct sockaddr *to, socklen_t length);
};

void world_begin(const struct world_script *script);
/* Closes what is left. As many descriptors must be open as at world_begin. */
void world_end(void);

void world_pass(int64_t ms);

/* Returns a descriptor of the world's listener; the code closes it. */
int world_listener(void);
/* Connects to the listener. Returns the caller's end. */
int world_call(void);
/* Makes `fd` one end of a connection, and returns the other end. */
int world_connect(int fd);

/* Receives the bytes that have come, without waiting. Returns their number. */
size_t world_drain(int fd, uint8_t *to, size_t room);
/* Sends as many bytes as the socket accepts. Returns their number. */
size_t world_send(int fd, const void *data, size_t bytes);

#endif
