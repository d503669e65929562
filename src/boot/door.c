/* Receives the first bytes of callers at a listener, without knowing what the bytes mean. */
#include "boot/door.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "boot/net.h"
#include "util/clock.h"
#include "util/fds.h"

/* ms in which a caller must send all its bytes. A process may stand still for some seconds, but it can connect
 * again. */
#define PATIENCE_MS 5000
#define HEARD_MS 100 /* ms that a caller has before a newer one may replace it */
#define TICK_MS 50   /* ms between two checks of deadlines */
#define STILL_MS 500 /* if this process has not looked for longer, it stood still */
#define REST_MS 20   /* ms of rest after an accept that failed for lack of descriptors or memory */
/* ms of such failures before they are reported, because resources may become free meanwhile */
#define BEAR_MS 1000

/* Leaves half of the descriptors to the program. */
static int room_for_callers(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 2 >= CECL_DOOR_CALLERS)
        return CECL_DOOR_CALLERS;
    return limit.rlim_cur >= 4 ? (int)(limit.rlim_cur / 2) : 1;
}

ceclResult_t cecl_door_open(struct cecl_door *door, int listener, size_t bytes,
                            bool (*greet)(struct cecl_caller *caller),
                            void (*put_off)(const struct cecl_caller *caller))
{
    const int room = room_for_callers();
    *door = (struct cecl_door){.listener = listener,
                               .bytes = (uint32_t)bytes,
                               .greet = greet,
                               .put_off = put_off,
                               .room = room};
    door->callers = malloc((size_t)room * sizeof(*door->callers));
    door->polls = malloc(((size_t)room + 1) * sizeof(*door->polls));
    door->said = malloc((size_t)room * bytes);
    if (!door->callers || !door->polls || !door->said) {
        cecl_door_close(door);
        return cecl_fail(ceclOutOfMemory, "no host memory for %d connections", room);
    }
    for (int i = 0; i < room; i++)
        door->callers[i].said = door->said + (size_t)i * bytes;
    return ceclSuccess;
}

void cecl_door_close(struct cecl_door *door)
{
    if (door->bytes == 0)
        return;
    if (door->listener >= 0)
        cecl_net_close(door->listener);
    for (int i = 0; i < door->count; i++)
        cecl_net_close(door->callers[i].fd);
    free(door->callers);
    free(door->polls);
    free(door->said);
    *door = (struct cecl_door){0};
}

/* Takes a caller off the list. The other callers stay in their order of arrival. (Times of arrival could not
 * restore this order, because two callers may arrive in the same millisecond.) */
static void take_off(struct cecl_door *door, int which)
{
    struct cecl_caller *one = &door->callers[which];
    unsigned char *said = one->said;
    door->count--;
    memmove(one, one + 1, (size_t)(door->count - which) * sizeof(*one));
    door->callers[door->count].said = said;
}

/* Asks a caller to connect again, and drops it. */
static void send_away(const struct cecl_door *door, const struct cecl_caller *one)
{
    door->put_off(one);
    cecl_net_close(one->fd);
}

/* Drops the oldest caller, if its time is over. A caller that has sent all its bytes stays, because it is
 * about to be taken. */
static bool push_out(struct cecl_door *door)
{
    int oldest = 0;
    while (oldest < door->count && door->callers[oldest].got == door->bytes)
        oldest++;
    struct cecl_caller *one = &door->callers[oldest];
    if (oldest == door->count || cecl_now_ms() - one->since < HEARD_MS)
        return false;
    send_away(door, one);
    take_off(door, oldest);
    return true;
}

static bool somebody_waits(const struct cecl_door *door)
{
    struct pollfd listener = {.fd = door->listener, .events = POLLIN};
    return poll(&listener, 1, 0) > 0;
}

/* Accepts a bounded number of callers, so that a flood of callers cannot keep others from being read. */
static void let_in(struct cecl_door *door)
{
    for (int tries = 0; tries < door->room; tries++) {
        if (door->count == door->room && !(somebody_waits(door) && push_out(door)))
            return;
        const int fd = CECL_FD(accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd >= 0) {
            door->trouble = 0;
            struct cecl_caller *one = &door->callers[door->count];
            *one = (struct cecl_caller){.fd = fd, .since = cecl_now_ms(), .said = one->said};
            if (door->greet(one))
                door->count++;
            else
                cecl_net_close(fd);
        } else if (cecl_net_is_scarce(errno)) {
            /* The listener stays readable, so without a pause this would spin. */
            if (!door->trouble)
                door->trouble_since = cecl_now_ms();
            door->trouble = errno;
            if (push_out(door))
                continue;
            door->rest_until = cecl_now_ms() + REST_MS;
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* no connection is waiting */
        }
    }
}

/* Reads more of a caller's bytes. Returns false if the caller has closed. */
static bool hear(const struct cecl_door *door, struct cecl_caller *one)
{
    while (one->got < door->bytes) {
        const ssize_t got =
            recv(one->fd, one->said + one->got, door->bytes - one->got, MSG_DONTWAIT);
        if (got > 0)
            one->got += (uint32_t)got;
        else if (got == 0 || cecl_net_is_closed(errno))
            return false;
        else
            break;
    }
    return true;
}

/* Whether a caller stays. `ready`: poll() says that it has sent something, or has closed. */
static bool stays(const struct cecl_door *door, struct cecl_caller *one, bool ready, int64_t now)
{
    if (ready && !hear(door, one))
        cecl_net_close(one->fd);
    else if (one->got == door->bytes || now - one->since < PATIENCE_MS)
        return true;
    else
        send_away(door, one);
    return false;
}

/* Callers could not be heard while this process stood still, so that time does not count. */
static void skip_time(struct cecl_door *door)
{
    const int64_t now = cecl_now_ms(), away = now - door->looked;
    for (int i = 0; i < door->count && away > STILL_MS; i++)
        door->callers[i].since += away;
    door->looked = now;
}

/* Reads from the callers that poll() has found ready, or from all callers if poll() failed. */
static void hear_all(struct cecl_door *door, bool has_polled)
{
    const int64_t now = cecl_now_ms();
    int kept = 0;
    for (int i = 0; i < door->count; i++) {
        struct cecl_caller one = door->callers[i];
        if (!stays(door, &one, !has_polled || door->polls[i + 1].revents, now))
            continue;
        door->callers[i] = door->callers[kept]; /* each entry keeps its place in `said` */
        door->callers[kept++] = one;
    }
    door->count = kept;
}

void cecl_door_attend(struct cecl_door *door, int wait_ms)
{
    const int64_t now = cecl_now_ms();
    const bool open = now >= door->rest_until &&
                      (door->count < door->room || now - door->callers[0].since >= HEARD_MS);
    door->polls[0] = (struct pollfd){.fd = open ? door->listener : -1, .events = POLLIN};
    for (int i = 0; i < door->count; i++)
        door->polls[i + 1] = (struct pollfd){.fd = door->callers[i].fd, .events = POLLIN};

    const int tick = open ? TICK_MS : REST_MS;
    if ((door->count > 0 || !open) && (wait_ms < 0 || wait_ms > tick))
        wait_ms = tick;
    const bool has_polled = poll(door->polls, (nfds_t)door->count + 1, wait_ms) >= 0;
    skip_time(door);
    hear_all(door, has_polled);
    if (open)
        let_in(door);
}

int cecl_door_trouble(const struct cecl_door *door)
{
    return door->trouble && cecl_now_ms() - door->trouble_since >= BEAR_MS ? door->trouble : 0;
}

bool cecl_door_next(struct cecl_door *door, struct cecl_caller *caller)
{
    for (int i = 0; i < door->count; i++)
        if (door->callers[i].got == door->bytes) {
            *caller = door->callers[i];
            take_off(door, i);
            return true;
        }
    return false;
}
