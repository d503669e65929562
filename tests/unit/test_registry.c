/* Registered memory with many regions, on a device that only records its calls: what a peer imports, what a call waits
 * for, and the state after an error. Messages go through a queue instead of the mesh. */
#include <limits.h>

#include "../with_cmocka.h"
#include <fcntl.h>
#include <pthread.h>

#include "alloc/registry_internal.h"
#include "util/clock.h"
#include "util/error.h"

#define HOME UINT64_C(0x700000000000)
#define OTHER UINT64_C(0x710000000000)
#define PIECE UINT64_C(0x100000)
#define PIECES 100 /* at HOME and at OTHER; announcing them takes more than two messages */
#define MIRROR ((char *)0x500000000000)
#define PATIENCE_MS 60000

static struct fake {
    uint64_t ids[PIECES];             /* ids of the memory at HOME */
    uint64_t merged_low, merged_high; /* pieces [low, high) are one region */
    bool apart;                       /* each piece is its own allocation; any number exist */
    uint64_t freed;                   /* with `apart`: the first `freed` pieces are freed */
    int nimported;
    uint64_t broken;       /* address of the region that cannot be imported */
    size_t opened[PIECES]; /* the bytes that each call of region_access opened */
    int nopened, nclosed, nreserved;
    bool handles;      /* allocations are shared by handles, each in its own window */
    uint32_t renewed;  /* with `apart`: added to each piece's id, as if all were new */
    uint32_t grown;    /* above 0: memory is private, and larger at each look-up */
    uint64_t unshared; /* if not 0: this piece is a private allocation of its own */
    int refusals;      /* imports to refuse, as CUDA does while memory of a former block is open */
    bool exclusive;    /* refuses an import while former memory at its address is open */
    bool shares;       /* such an import gets the former memory's mapping */
    struct opened {    /* by piece: the former memory that is open, and how often */
        uint64_t id;
        int count;
        void *addr;
    } places[PIECES];
    void (*at_refusal)(void);
    uint64_t process;              /* id of the exporting process */
    _Atomic bool busy;             /* the GPU has work, for which closing would wait */
    _Atomic int nasked, nbusy;     /* looks at `busy`; regions closed while it was set */
    ceclResult_t refused_posts[4]; /* error of a post, by peer */
} fake;

static uint64_t piece_of(uint64_t address)
{
    return (address & (HOME - 1) & 0xffffffffff) / PIECE;
}

static uint64_t id_of(uint64_t piece)
{
    return !fake.apart ? fake.ids[piece] : piece < fake.freed ? 0 : fake.renewed + piece + 1;
}

static ceclResult_t fake_check_pointer(struct cecl_device *dev, const void *ptr, size_t bytes,
                                       const char *name)
{
    return ceclSuccess;
}

static ceclResult_t fake_find(struct cecl_device *dev, const void *ptr, struct cecl_region *region)
{
    const uint64_t at = (uintptr_t)ptr, home = at < OTHER ? HOME : OTHER;
    *region = (struct cecl_region){.base = home + piece_of(at) * PIECE,
                                   .bytes = PIECE,
                                   .home = home,
                                   .home_bytes = PIECES * PIECE,
                                   .id = id_of(piece_of(at)),
                                   .kind = fake.handles ? CECL_REGION_HANDLE : CECL_REGION_FILE};
    if (fake.grown > 0) {
        region->kind = CECL_REGION_NONE;
        region->home_bytes += 4096 * fake.grown++;
    }
    const bool unshared = fake.unshared != 0 && piece_of(at) == fake.unshared;
    if (unshared)
        region->kind = CECL_REGION_NONE;
    if (fake.apart || unshared) {
        region->home = region->base;
        region->home_bytes = region->bytes;
    }
    if (piece_of(at) >= fake.merged_low && piece_of(at) < fake.merged_high) {
        region->base = home + fake.merged_low * PIECE;
        region->bytes = (fake.merged_high - fake.merged_low) * PIECE;
    }
    return ceclSuccess;
}

static ceclResult_t fake_id(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                            uint64_t *id)
{
    *id = id_of(piece_of((uintptr_t)ptr));
    return ceclSuccess;
}

static ceclResult_t fake_export(struct cecl_device *dev, const struct cecl_region *region,
                                struct cecl_region_export *exported)
{
    *exported = (struct cecl_region_export){
        .kind = region->kind,
        .process = fake.process,
        .base = region->base,
        .bytes = region->bytes,
        .id = region->id,
        .fd = fake.handles ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC)};
    return ceclSuccess;
}

static struct opened *place_of(const struct cecl_region_export *exported);

static ceclResult_t fake_import(struct cecl_device *dev, const struct cecl_region_export *exported,
                                void *at, void **addr)
{
    fake.nimported++;
    if (fake.refusals > 0) {
        fake.refusals--;
        if (fake.at_refusal)
            fake.at_refusal();
        return ceclInProgress;
    }
    if (exported->base == fake.broken)
        return cecl_fail(ceclOutOfMemory, "this region is broken");
    struct opened *place = place_of(exported);
    const bool former = place->count > 0 && place->id != exported->id;
    if (fake.exclusive && former)
        return ceclInProgress;
    *addr = !fake.handles           ? at
            : fake.shares && former ? place->addr
                                    : MIRROR + (uint64_t)fake.nimported * PIECE;
    if (!former)
        *place = (struct opened){exported->id, place->count + 1, *addr};
    return ceclSuccess;
}

static ceclResult_t fake_access(struct cecl_device *dev, void *addr, size_t bytes)
{
    fake.opened[fake.nopened++ % PIECES] = bytes;
    return ceclSuccess;
}

static struct opened *place_of(const struct cecl_region_export *exported)
{
    return &fake.places[piece_of(exported->base) % PIECES];
}

static void fake_close(struct cecl_device *dev, const struct cecl_region_export *exported,
                       void *addr)
{
    place_of(exported)->count -= place_of(exported)->id == exported->id;
    fake.nclosed++;
    fake.nbusy += fake.busy;
}

static ceclResult_t fake_quiet(struct cecl_device *dev, bool (*go_on)(void *context), void *context)
{
    fake.nasked++;
    while (fake.busy)
        if (usleep(500) != 0 || !go_on(context))
            return ceclInProgress;
    return ceclSuccess;
}

static ceclResult_t fake_reserve(struct cecl_device *dev, size_t bytes, void **base)
{
    *base = MIRROR + (size_t)fake.nreserved++ * 2 * bytes;
    return ceclSuccess;
}

static void fake_unreserve(struct cecl_device *dev, void *base, size_t bytes)
{
    fake.nreserved--;
}

static const struct cecl_device_ops fake_ops = {.check_pointer = fake_check_pointer,
                                                .region_find = fake_find,
                                                .region_id = fake_id,
                                                .region_export = fake_export,
                                                .region_import = fake_import,
                                                .region_access = fake_access,
                                                .region_close = fake_close,
                                                .quiet = fake_quiet,
                                                .reserve = fake_reserve,
                                                .unreserve = fake_unreserve};
static struct cecl_device device = {.ops = &fake_ops};

#define QUEUE 16

static struct {
    char bytes[CECL_INBOX_BYTES];
    size_t length;
    int fds[CECL_INBOX_FDS], nfds;
} queue[QUEUE];
static int nposted, ntaken;

WRAPPED(ceclResult_t, cecl_mesh_post,
        (struct cecl_mesh * mesh, int peer, const void *message, size_t bytes, const int *fds,
         int nfds, int64_t deadline))
{
    if (fake.refused_posts[peer] != ceclSuccess)
        return cecl_fail(fake.refused_posts[peer], "rank %d takes no message", peer);
    const int at = nposted++ % QUEUE;
    memcpy(queue[at].bytes, message, bytes);
    queue[at].length = bytes;
    queue[at].nfds = nfds;
    for (int i = 0; i < nfds; i++)
        queue[at].fds[i] = dup(fds[i]);
    return ceclSuccess;
}

WRAPPED(ceclResult_t, cecl_mesh_take,
        (struct cecl_mesh * mesh, void *message, size_t room, struct cecl_letter *letter))
{
    if (ntaken == nposted)
        return ceclInProgress;
    const int at = ntaken++ % QUEUE;
    *letter = (struct cecl_letter){.bytes = queue[at].length, .nfds = queue[at].nfds};
    memcpy(message, queue[at].bytes, letter->bytes);
    for (int i = 0; i < letter->nfds; i++)
        letter->fds[i] = queue[at].fds[i];
    return ceclSuccess;
}

/* ---- rank 0 (`owner`) has memory, rank 1 (`user`) imports it */

static struct cecl_registry owner, user;
static _Atomic uint32_t done; /* number of the user's last call that has ended */
static _Atomic int asks_left; /* how many more times a wait continues */
static bool captured;         /* the user's calls are captured */

static bool reached(const void *context, uint32_t target)
{
    return done >= target;
}

static bool goes_on(void *context)
{
    return asks_left-- > 0;
}

static bool captures(const void *context)
{
    return captured;
}

static const struct cecl_registry_asks asks = {reached, goes_on, captures, NULL};

static int set_up(void **state)
{
    fake = (struct fake){.broken = UINT64_MAX};
    for (uint64_t i = 0; i < PIECES; i++)
        fake.ids[i] = 1 + i;
    nposted = ntaken = 0;
    done = 0;
    captured = false;
    asks_left = PATIENCE_MS / 2;
    return cecl_registry_open(&owner, &device, NULL, 0, 2, PATIENCE_MS, &asks) != ceclSuccess ||
           cecl_registry_open(&user, &device, NULL, 1, 2, PATIENCE_MS, &asks) != ceclSuccess;
}

static int tear_down(void **state)
{
    cecl_registry_close(&owner);
    cecl_registry_close(&user);
    return 0;
}

/* The owner makes a call on `count` pieces from `first` on, which announces them. Returns the window's number. */
static uint64_t tell_of(uint64_t home, uint64_t first, uint64_t count)
{
    void *ptr = (void *)(uintptr_t)(home + first * PIECE);
    const struct cecl_use all = cecl_use_all(ptr, count * PIECE, "ptr");
    assert_int_equal(cecl_registry_settle(&owner, &all, true), ceclSuccess);
    cecl_registry_promised(&user, 0, owner.posted);
    return cecl_registry_find(&owner, ptr)->number;
}

static void take_all(void)
{
    bool any = true;
    while (any)
        assert_int_equal(cecl_registry_take(&user, &any), ceclSuccess);
}

/* Returns the import that a registry has of the owner's memory, or NULL. Tests that use this open one window. */
static struct cecl_import *import_in(const struct cecl_registry *registry)
{
    struct cecl_import *found = NULL;
    for (int i = 0; i < CECL_IMPORT_LISTS; i++)
        if (registry->peers[0].imports[i])
            found = registry->peers[0].imports[i];
    return found;
}

/* The imports that a plan keeps for a call whose recvbuff is in the owner's window. */
static struct cecl_imports kept_of(struct cecl_registry *registry, uint64_t number)
{
    struct cecl_imports kept = {0};
    assert_int_equal(cecl_imports_add(registry, 0, CECL_WINDOW_NONE, &kept), ceclSuccess);
    assert_int_equal(cecl_imports_add(registry, 0, number, &kept), ceclSuccess);
    assert_int_equal(cecl_imports_add(registry, 0, number, &kept), ceclSuccess);
    assert_true(kept.count <= 1);
    return kept;
}

static void drop(struct cecl_imports *kept)
{
    cecl_imports_drop(kept);
    free(kept->list);
}

static void name(struct cecl_registry *registry, uint64_t number)
{
    struct cecl_imports kept = kept_of(registry, number);
    assert_true(cecl_imports_name(registry, &kept));
    drop(&kept);
}

static void use(struct cecl_registry *registry, uint64_t number, uint32_t target)
{
    struct cecl_imports kept = kept_of(registry, number);
    cecl_imports_used(registry, &kept, target);
    drop(&kept);
}

static ceclResult_t reach_by(struct cecl_registry *registry, uint64_t number, uint64_t first,
                             uint64_t count)
{
    void *at = NULL;
    return cecl_registry_reach(registry, 0, number, first * PIECE, count * PIECE, &at);
}

static ceclResult_t reach(uint64_t number, uint64_t first, uint64_t count)
{
    return reach_by(&user, number, first, count);
}

/* A call uses the whole piece, and is done at once. */
static void open_piece(struct cecl_registry *registry, uint64_t number)
{
    assert_int_equal(reach_by(registry, number, 0, 1), ceclSuccess);
    cecl_registry_made(registry);
}

/* Only the first of several messages was carried out. */
TEST_BETWEEN(a_call_waits_only_for_the_regions_that_it_touches, set_up, tear_down)
{
    bool any;
    const uint64_t window = tell_of(HOME, 0, PIECES);
    assert_true(nposted > 1);
    assert_int_equal(cecl_registry_take(&user, &any), ceclSuccess);
    asks_left = 0; /* any wait would end with ceclTimeout */
    assert_int_equal(reach(window, 12, 3), ceclSuccess);
    assert_int_equal(reach(window, 0, PIECES), ceclTimeout);
    take_all();
    assert_int_equal(fake.nimported, PIECES);
    assert_int_equal(reach(window, 0, PIECES), ceclSuccess);
}

TEST_BETWEEN(regions_side_by_side_are_opened_at_once, set_up, tear_down)
{
    void *at = NULL;
    const uint64_t window = tell_of(HOME, 3, 20);
    take_all();
    assert_int_equal(fake.nopened, 1);
    assert_int_equal(fake.opened[0], 20 * PIECE);
    assert_int_equal(cecl_registry_reach(&user, 0, window, 5 * PIECE + 7, 9 * PIECE, &at),
                     ceclSuccess);
    assert_ptr_equal(at, MIRROR + 5 * PIECE + 7);
}

/* The owner may have freed memory that no call of the user needs. */
TEST_BETWEEN(an_import_that_fails_stays_with_its_window, set_up, tear_down)
{
    fake.broken = HOME + 7 * PIECE;
    const uint64_t before = tell_of(HOME, 0, 5);
    take_all();
    const uint64_t broken = tell_of(HOME, 5, 5), other = tell_of(OTHER, 0, 5);
    take_all();
    assert_int_equal(before, broken); /* one window, announced by two messages */
    assert_int_equal(reach(before, 0, 5), ceclSuccess);
    assert_int_equal(reach(broken, 5, 2), ceclSuccess); /* imported before the broken one */
    assert_int_equal(reach(broken, 5, 5), ceclOutOfMemory);
    assert_non_null(strstr(cecl_message(), "memory of rank 0: this region is broken"));
    assert_int_equal(reach(other, 0, 5), ceclSuccess);
}

TEST_BETWEEN(memory_that_no_message_told_of_is_an_error_at_once, set_up, tear_down)
{
    const uint64_t window = tell_of(HOME, 0, 5);
    take_all();
    asks_left = 0; /* any wait would end with ceclTimeout */
    assert_int_equal(reach(window, 3, 3), ceclInternalError);
    assert_int_equal(reach(window + 1, 0, 1), ceclInternalError);
    assert_int_equal(reach(window, PIECES - 1, 2), ceclInternalError);
}

TEST_BETWEEN(replaced_memory_is_a_new_window_and_the_old_one_is_closed_after_its_calls, set_up,
             tear_down)
{
    const uint64_t old = tell_of(HOME, 0, 5);
    take_all();
    use(&user, old, 9);
    fake.ids[2] = 1000;
    const uint64_t young = tell_of(HOME, 0, 5);
    assert_int_not_equal(old, young);
    take_all();
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 0);
    done = 9;
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 5);
    assert_int_equal(reach(young, 0, 5), ceclSuccess);
    assert_int_equal(reach(old, 0, 5), ceclInternalError);
}

/* The program frees its memory before each new allocation, and never uses it again. */
TEST_BETWEEN(windows_of_freed_memory_do_not_pile_up, set_up, tear_down)
{
    enum { ALIVE = 40, ROUNDS = 400 };
    fake.apart = true;
    for (uint64_t i = 0; i < ALIVE + ROUNDS; i++) {
        fake.freed = i < ALIVE ? 0 : i - ALIVE + 1;
        tell_of(HOME, i, 1);
        take_all();
    }
    assert_in_range(owner.nown, ALIVE, ALIVE + ALIVE / 4);
}

/* The owner makes a call, which opens a window; the test holds the window. */
static struct cecl_window *held_window(uint64_t home, uint64_t first, uint64_t count)
{
    tell_of(home, first, count);
    struct cecl_window *window = cecl_registry_find(&owner, (void *)(uintptr_t)home);
    cecl_window_hold(window);
    return window;
}

/* A buffer in the window keeps its address, but the memory there now belongs to another window. */
TEST_BETWEEN(a_window_that_is_named_outlives_its_memory, set_up, tear_down)
{
    struct cecl_window *window = held_window(HOME, 0, 5);
    const struct cecl_buffer buffer = {window, 3 * PIECE};
    fake.ids[3] = 1000;
    tell_of(HOME, 3, 1);
    assert_true(window->gone);
    assert_ptr_equal(cecl_buffer_address(buffer), (void *)(HOME + 3 * PIECE));
    const struct cecl_window *young = cecl_registry_find(&owner, (void *)(HOME + 3 * PIECE));
    assert_ptr_not_equal(young, window);
    assert_int_not_equal(young->number, window->number);
    assert_int_equal(cecl_registry_drop(&owner, window), ceclSuccess); /* no effect */
    assert_ptr_equal(cecl_registry_find(&owner, (void *)(HOME + 3 * PIECE)), young);
    cecl_window_release(window);
}

/* A cached look-up must not outlive its window. */
TEST_BETWEEN(a_pointer_is_found_again_until_its_window_goes, set_up, tear_down)
{
    tell_of(HOME, 0, 5);
    struct cecl_window *window = cecl_registry_find(&owner, (void *)(HOME + PIECE));
    assert_non_null(window);
    assert_ptr_equal(cecl_registry_find(&owner, (void *)(HOME + PIECE)), window);
    assert_int_equal(cecl_registry_drop(&owner, window), ceclSuccess);
    assert_null(cecl_registry_find(&owner, (void *)(HOME + PIECE)));
    tell_of(HOME, 1, 1);
    assert_non_null(cecl_registry_find(&owner, (void *)(HOME + PIECE)));
}

/* A kept plan does not look the window up by number: it holds the import, which says whether it was closed. */
TEST_BETWEEN(a_kept_plan_learns_that_memory_it_uses_was_closed, set_up, tear_down)
{
    struct cecl_window *window = held_window(HOME, 0, 5);
    take_all();
    struct cecl_imports kept = kept_of(&user, window->number);
    assert_int_equal(kept.count, 1);
    assert_true(cecl_imports_name(&user, &kept));
    cecl_imports_used(&user, &kept, 9);
    assert_int_equal(cecl_registry_drop(&owner, window), ceclSuccess);
    take_all();
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 0);
    assert_true(cecl_imports_name(&user, &kept)); /* still open, for the call that is being made */
    done = 9;
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 0);
    cecl_registry_made(&user);
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 5);
    assert_false(cecl_imports_name(&user, &kept));
    drop(&kept);
    cecl_window_release(window);
}

/* A call that is being made may use the regions that still exist. */
TEST_BETWEEN(a_window_with_a_live_region_stays, set_up, tear_down)
{
    tell_of(HOME, 0, 5);
    const struct cecl_window *window = cecl_registry_find(&owner, (void *)HOME);
    fake.ids[2] = 1000;
    tell_of(OTHER, 0, 1);
    assert_ptr_equal(cecl_registry_find(&owner, (void *)HOME), window);
    assert_false(window->gone);
}

/* Peers must close freed memory before they open new memory in the same block of addresses. */
TEST_BETWEEN(what_is_gone_makes_way_in_its_block, set_up, tear_down)
{
    fake.apart = true;
    struct cecl_window *window = held_window(HOME, 0, 1);
    for (uint64_t i = 10; i < 50; i++) {
        tell_of(HOME, i, 1);
        take_all();
    }
    fake.freed = 1;
    owner.looked = 20; /* the search must not find the freed window by chance */
    tell_of(HOME, 1, 1);
    assert_true(window->gone);
    cecl_window_release(window);
}

/* A call may touch none of the old regions, but use new memory that overlaps them. */
TEST_BETWEEN(memory_over_old_regions_is_a_new_window, set_up, tear_down)
{
    const uint64_t old = tell_of(HOME, 4, 2);
    fake.merged_low = 2;
    fake.merged_high = 8;
    const uint64_t young = tell_of(HOME, 2, 1);
    assert_int_not_equal(old, young);
    take_all();
    assert_int_equal(reach(young, 2, 6), ceclSuccess);
}

/* The owner announces a piece and drops it; the user learns of both. Between them a call needs the piece (is_opened), or
 * only has it in its plan. */
static void drop_one(uint64_t first, bool is_opened)
{
    const uint64_t number = tell_of(HOME, first, 1);
    take_all();
    if (is_opened)
        open_piece(&user, number);
    else
        use(&user, number, done + 1);
    assert_int_equal(cecl_registry_forget(&owner, (void *)(HOME + first * PIECE)), ceclSuccess);
    take_all();
}

TEST_BETWEEN(nobody_asks_for_the_gpus_work_if_nothing_was_dropped, set_up, tear_down)
{
    tell_of(HOME, 0, 5);
    take_all();
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nasked, 0);
    assert_int_equal(cecl_registry_forget(&owner, (void *)HOME), ceclSuccess);
    take_all();
    cecl_registry_close_dropped(&user);
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nasked, 1);
}

/* The program neither synchronizes nor frees, while its peers allocate and free: each window counts 3 MiB. */
TEST_BETWEEN(dropped_memory_is_bounded, set_up, tear_down)
{
    enum { ROUNDS = 500, BOUND = 256 / 3 + 1 };
    const uint64_t kept = tell_of(OTHER, 0, 1);
    int open = 0;
    fake.apart = fake.handles = true;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        drop_one(i, true);
        const int before = fake.nclosed;
        assert_int_equal(reach(kept, 0, 1), ceclSuccess);
        open += 1 - (fake.nclosed - before);
        assert_in_range(open, 0, BOUND);
    }
    assert_int_equal(fake.nbusy, 0);
}

/* Closing blocks other threads until the GPU's work ends: for ever, if a kernel waits for one of these threads. */
TEST_BETWEEN(dropped_memory_stops_no_program_whose_gpu_is_never_idle, set_up, tear_down)
{
    enum { ROUNDS = 300, WAITS = 2 }; /* once 256 and 516 of the 900 MiB are dropped */
    const uint64_t kept = tell_of(OTHER, 0, 1);
    fake.apart = fake.handles = true;
    fake.busy = true;
    asks_left = 10; /* ends all waits */
    for (uint64_t i = 0; i < ROUNDS; i++) {
        drop_one(i, true);
        assert_int_equal(reach(kept, 0, 1), ceclSuccess);
    }
    assert_int_equal(fake.nclosed, 0);
    assert_in_range(fake.nasked, 1, WAITS);
    fake.busy = false;
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, ROUNDS);
}

/* As with the outputs of most reductions. */
TEST_BETWEEN(a_handle_that_no_call_needs_is_neither_opened_nor_kept, set_up, tear_down)
{
    fake.apart = fake.handles = true;
    for (uint64_t i = 0; i < 500; i++)
        drop_one(i, false);
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nimported + fake.nclosed + fake.nasked, 0);
    assert_null(import_in(&user));
}

TEST_BETWEEN(memory_that_came_before_a_broken_message_is_opened, set_up, tear_down)
{
    bool any;
    fake.apart = fake.handles = true;
    const uint64_t number = tell_of(HOME, 3, 1);
    take_all();
    queue[nposted++ % QUEUE].length = 1;
    assert_int_equal(cecl_registry_take(&user, &any), ceclSuccess);
    assert_int_not_equal(user.peers[0].failed, ceclSuccess);
    assert_int_equal(reach(number, 0, 1), ceclSuccess);
}

/* Unless the device refuses: then the call that needs the memory opens it. */
TEST_BETWEEN(memory_that_is_registered_ahead_is_opened_before_a_call_needs_it, set_up, tear_down)
{
    fake.apart = fake.handles = true;
    for (uint64_t i = 0; i < 2; i++) {
        struct cecl_use all = cecl_use_all((void *)(HOME + i * PIECE), PIECE, "ptr");
        all.ahead = true;
        assert_int_equal(cecl_registry_settle(&owner, &all, true), ceclSuccess);
        fake.refusals = (int)i;
        take_all();
        assert_int_equal(fake.nimported, i + 1);
        assert_int_equal(import_in(&user)->unopened != NULL, i == 1);
        assert_int_equal(reach(import_in(&user)->number, 0, 1), ceclSuccess);
        assert_int_equal(fake.nimported, 2 * i + 1);
    }
}

/* The owner drops the window while the user opens it. */
TEST_BETWEEN(a_handle_that_the_call_being_made_opens_stays, set_up, tear_down)
{
    fake.apart = fake.handles = true;
    const uint64_t number = tell_of(HOME, 3, 1);
    take_all();
    assert_int_equal(cecl_registry_forget(&owner, (void *)(HOME + 3 * PIECE)), ceclSuccess);
    fake.refusals = 1;
    fake.at_refusal = take_all;
    assert_int_equal(reach(number, 0, 1), ceclSuccess);
    cecl_registry_made(&user);
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 1);
    assert_null(import_in(&user));
}

/* All peers that can be reached get the message, and the first error is returned. */
TEST_BETWEEN(the_first_peer_that_takes_no_message_is_named, set_up, tear_down)
{
    struct cecl_registry many;
    assert_int_equal(cecl_registry_open(&many, &device, NULL, 0, 4, 1000, &asks), ceclSuccess);
    fake.refused_posts[1] = ceclSystemError;
    fake.refused_posts[2] = ceclTimeout;
    const struct cecl_use piece = cecl_use_all((void *)HOME, PIECE, "ptr");
    assert_int_equal(cecl_registry_settle(&many, &piece, true), ceclSystemError);
    assert_non_null(strstr(cecl_message(), "rank 1 takes no message"));
    assert_true(nposted > 0); /* to rank 3 */
    cecl_registry_close(&many);
}

/* ---- two communicators of one process: `user` and `second` both open the owner's memory */

static struct cecl_registry second;

static int set_up_two(void **state)
{
    const int result = set_up(state);
    fake.apart = fake.handles = true;
    return result ||
           cecl_registry_open(&second, &device, NULL, 1, 2, PATIENCE_MS, &asks) != ceclSuccess;
}

static int tear_down_two(void **state)
{
    cecl_registry_close(&second);
    return tear_down(state);
}

/* The owner announces one piece to both, once by each communicator, and both open it. */
static void tell_both(uint64_t piece)
{
    const int before = ntaken;
    bool any;
    const uint64_t number = tell_of(HOME, piece, 1);
    take_all();
    ntaken = before;
    assert_int_equal(cecl_registry_take(&second, &any), ceclSuccess);
    open_piece(&user, number);
    open_piece(&second, number);
    assert_int_equal(fake.nimported, 2);
    assert_int_equal(fake.nclosed, 0);
}

/* The owner replaces all of its memory, and announces one piece to `user` only. */
static uint64_t replace_and_tell(uint64_t piece)
{
    fake.renewed += PIECES;
    const uint64_t young = tell_of(HOME, piece, 1);
    take_all();
    return young;
}

static ceclResult_t replace_and_reach(uint64_t piece)
{
    const int before = fake.nclosed;
    const uint64_t young = replace_and_tell(piece);
    assert_int_equal(fake.nclosed, before); /* the worker closes nothing */
    return reach(young, 0, 1);
}

/* Both communicators have opened piece `opened`. Then the owner replaces its memory, and the user needs piece 3. */
enum soon { NOTHING, GPU_ENDS, CALLS_END };

static void *end_soon(void *what)
{
    usleep(50000);
    if (*(enum soon *)what == GPU_ENDS)
        fake.busy = false;
    else
        done = 9;
    return NULL;
}

static const struct replacing {
    const char *what;
    uint64_t opened;
    bool exclusive, shares, busy, captured, in_use; /* in_use: by a call of `second` */
    bool asks_nothing;                              /* nobody asks whether the GPU has work */
    int refusals;
    enum soon soon;
    int asks_left, timeout_ms; /* 0: enough */
    ceclResult_t result;
    const char *words;
    int nclosed, nbusy;
} replacings[] = {
    {"beside former memory, whose closing would wait", 3, .busy = true, .asks_nothing = true},
    {"in the mapping of former memory, which CUDA may give again", 3, .shares = true},
    {"where former memory prevents that", 3, .exclusive = true, .nclosed = 2},
    {"once the GPU's work is done", 3, true, .busy = true, .soon = GPU_ENDS, .nclosed = 2},
    {"once calls are done", 3, true, .in_use = true, .soon = CALLS_END, .nclosed = 2},
    {"unless the caller waits no longer", 3, true, .busy = true, .asks_left = 3,
     .result = ceclTimeout, .words = "CUDA closes that only when the GPU has no work"},
    {"unless its time is over", 3, true, .busy = true, .asks_left = INT_MAX, .timeout_ms = 30,
     .result = ceclTimeout},
    {"unless former memory stays in use", 3, true, .in_use = true, .timeout_ms = 300,
     .result = ceclTimeout, .words = "earlier memory of its block is still open here",
     .nclosed = 1},
    /* Asking whether the GPU has work would invalidate the capture. */
    {"in a captured call", 3, true, .busy = true, .captured = true, .asks_nothing = true,
     .nclosed = 2, .nbusy = 2},
    /* The device refuses the call's first two tries. Only these refusals show that other memory in the same block was
     * freed; the call then closes that memory. */
    {"after a refusal", 2, .refusals = 2, .nclosed = 2},
    {"after a refusal that concerns another block", 7, .refusals = 3},
};

TEST(memory_that_replaces_other_memory_is_opened)
{
    for (size_t i = 0; i < sizeof(replacings) / sizeof(replacings[0]); i++) {
        const struct replacing *row = &replacings[i];
        enum soon soon = row->soon;
        pthread_t thread;
        print_message("%s\n", row->what);
        assert_int_equal(set_up_two(state), 0);
        fake.exclusive = row->exclusive;
        fake.shares = row->shares;
        tell_both(row->opened);
        fake.busy = row->busy;
        fake.refusals = row->refusals;
        captured = row->captured;
        asks_left = row->asks_left ? row->asks_left : asks_left;
        user.timeout_ms = row->timeout_ms ? row->timeout_ms : user.timeout_ms;
        if (row->in_use)
            use(&second, import_in(&second)->number, 9);
        if (soon != NOTHING)
            assert_int_equal(pthread_create(&thread, NULL, end_soon, &soon), 0);
        assert_int_equal(replace_and_reach(3), row->result);
        if (soon != NOTHING)
            pthread_join(thread, NULL);
        assert_true(!row->words || strstr(cecl_message(), row->words));
        assert_int_equal(fake.nclosed, row->nclosed);
        assert_int_equal(fake.nbusy, row->nbusy);
        assert_int_equal(fake.refusals, 0);
        assert_true(!row->asks_nothing || fake.nasked == 0);
        assert_int_equal(import_in(&second) == NULL, row->nclosed == 2);
        fake.busy = false;
        done = 9;
        assert_int_equal(tear_down_two(state), 0);
    }
}

TEST_BETWEEN(memory_that_was_replaced_is_dropped_on_all_communicators, set_up_two, tear_down_two)
{
    tell_both(3);
    assert_int_equal(replace_and_reach(3), ceclSuccess);
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 2);
    assert_null(import_in(&second));
}

TEST_BETWEEN(memory_that_no_longer_prevents_opening_needs_no_wait, set_up_two, tear_down_two)
{
    fake.exclusive = true;
    tell_both(3);
    const uint64_t young = replace_and_tell(3);
    cecl_registry_close_dropped(&user);
    assert_int_equal(fake.nclosed, 2);
    fake.busy = true;
    assert_int_equal(reach(young, 0, 1), ceclSuccess);
}

/* This call's plan uses none of the replaced memory, for example because peers pull from that memory. */
TEST_BETWEEN(a_call_that_needs_no_replaced_memory_waits_for_no_work, set_up_two, tear_down_two)
{
    fake.exclusive = true;
    tell_both(3);
    fake.busy = true;
    replace_and_tell(3);
    const uint64_t another = tell_of(HOME, 50, 1);
    take_all();
    assert_int_equal(reach(another, 0, 1), ceclSuccess);
    assert_int_equal(fake.nasked, 0);
    assert_int_equal(fake.nclosed, 0);
}

/* Messages of two communicators arrive in any order: `second` reads of the old memory after or before the user opens the
 * new memory at its addresses. */
TEST(a_handle_whose_memory_is_gone_is_not_opened)
{
    for (int after = 0; after < 2; after++) {
        bool any;
        assert_int_equal(set_up_two(state), 0);
        const uint64_t old = tell_of(HOME, 3, 1);
        fake.renewed += PIECES;
        const uint64_t young = tell_of(HOME, 3, 1);
        ntaken = nposted - 1;
        take_all();
        if (after)
            open_piece(&user, young);
        ntaken = 0;
        assert_int_equal(cecl_registry_take(&second, &any), ceclSuccess);
        open_piece(&user, young);
        assert_int_equal(reach_by(&second, old, 0, 1), ceclInvalidUsage);
        assert_non_null(strstr(cecl_message(), "was freed before it was opened here"));
        assert_int_equal(fake.nclosed, 0);
        assert_int_equal(tear_down_two(state), 0);
    }
}

static void take_beside(void)
{
    bool any;
    const int before = ntaken;
    fake.at_refusal = NULL;
    ntaken = 0;
    assert_int_equal(cecl_registry_take(&second, &any), ceclSuccess);
    ntaken = before;
    open_piece(&second, import_in(&second)->number);
}

/* `second` opens memory of the new block after the device's refusal, before the user acts on it. */
TEST_BETWEEN(a_refusal_closes_nothing_that_was_opened_after_it, set_up_two, tear_down_two)
{
    tell_of(HOME, 2, 1);
    const uint64_t beside = tell_of(HOME, 3, 1);
    ntaken = nposted - 1;
    fake.refusals = 1;
    fake.at_refusal = take_beside;
    take_all();
    assert_int_equal(reach(beside, 0, 1), ceclSuccess);
    assert_int_equal(fake.nclosed, 0);
    assert_non_null(import_in(&second)->regions);
}

TEST_BETWEEN(memory_of_another_process_at_the_same_addresses_stays, set_up_two, tear_down_two)
{
    tell_both(3);
    fake.process = 77;
    replace_and_tell(3);
    assert_non_null(import_in(&second));
}

TEST_BETWEEN(memory_that_another_gpu_has_open_stays, set_up_two, tear_down_two)
{
    struct cecl_device other = device;
    other.ordinal = 5;
    tell_both(3);
    second.dev = &other;
    replace_and_tell(3);
    assert_non_null(import_in(&second));
    second.dev = &device;
}

/* A call on `user` waits for new memory. Earlier calls on `user` and `second` used the old memory. */
TEST_BETWEEN(a_call_that_waits_for_new_memory_does_not_keep_the_old, set_up_two, tear_down_two)
{
    fake.exclusive = true;
    tell_both(3);
    name(&user, import_in(&user)->number);
    use(&user, import_in(&user)->number, 0);
    cecl_registry_made(&user);
    use(&second, import_in(&second)->number, 0);
    fake.renewed += PIECES;
    const uint64_t young = tell_of(HOME, 3, 1);
    name(&user, young); /* its message has not been read yet */
    const int64_t begin = cecl_now_ms();
    take_all();
    assert_int_equal(reach(young, 0, 1), ceclSuccess);
    assert_true(cecl_now_ms() - begin < PATIENCE_MS / 2);
    assert_int_equal(fake.nclosed, 2);
}

/* A call may name replaced memory if its communicator has failed, and the memory's owner no longer takes part. */
TEST_BETWEEN(memory_that_the_call_being_made_names_stays_open, set_up_two, tear_down_two)
{
    fake.exclusive = true;
    tell_both(3);
    user.timeout_ms = 300;
    name(&second, import_in(&second)->number);
    assert_int_equal(replace_and_reach(3), ceclTimeout);
    assert_non_null(import_in(&second));
    cecl_registry_made(&second);
    assert_int_equal(replace_and_reach(3), ceclSuccess);
    assert_null(import_in(&second));
}

/* A heap grows when other threads allocate. */
TEST_BETWEEN(private_memory_may_grow_between_two_looks, set_up, tear_down)
{
    fake.grown = 1;
    assert_int_equal(tell_of(HOME, 3, 1), 0);
    assert_int_equal(owner.nown, 1);
    assert_int_equal(nposted, 0);
}

/* Settles both buffers of a call until no window changes, as describing a call does. Returns the number of repetitions. */
static int rounds_of_a_call(uint64_t send, uint64_t recv)
{
    uint64_t before;
    int rounds = 0;
    do {
        before = owner.changes;
        tell_of(HOME, send, 1);
        tell_of(HOME, recv, 1);
        take_all();
    } while (owner.changes != before && ++rounds < 10);
    return rounds;
}

/* A range of addresses may have private and shared memory. If windows of the two kinds replaced each other, describing
 * a call with a buffer of each kind would never end. */
TEST_BETWEEN(a_range_with_private_memory_is_private, set_up, tear_down)
{
    fake.unshared = 3;
    assert_in_range(rounds_of_a_call(0, 3), 1, 3);
    const int posted = nposted;
    assert_int_equal(rounds_of_a_call(3, 0), 0);
    assert_int_equal(nposted, posted);
    assert_int_equal(tell_of(HOME, 0, 1), 0);
    assert_int_equal(tell_of(HOME, 9, 1), 0);
}

TEST_BETWEEN(a_buffer_of_both_kinds_is_private, set_up, tear_down)
{
    fake.unshared = 3;
    assert_int_equal(tell_of(HOME, 0, 5), 0);
    assert_int_equal(owner.nown, 1);
}

/* Private memory in a range that was freed makes no other memory there private. */
TEST_BETWEEN(private_memory_over_freed_memory_is_a_window_of_its_own, set_up, tear_down)
{
    tell_of(HOME, 0, 2);
    fake.ids[0] = fake.ids[1] = 1000;
    fake.unshared = 3;
    assert_int_equal(tell_of(HOME, 3, 1), 0);
    assert_int_equal(cecl_registry_find(&owner, (void *)(HOME + 3 * PIECE))->bytes, PIECE);
}
