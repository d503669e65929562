/* A peer frees memory that it has published, while work of this rank waits for the host. With CUDA, closing the memory
 * here would wait for that work, and delay this rank's calls; so it must be closed later. The test makes the host device,
 * which closes at once, behave as CUDA. Both ranks are one thread, on one simulated GPU. */
#include "../with_cmocka.h"
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "comm/comm.h"
#include "util/clock.h"

#define RANKS 2
#define CALLS 50
#define BYTES ((size_t)1 << 20)
#define PROMPT_MS 45000

#include "comms.h"

static ceclStream_t streams[RANKS], held[RANKS];
static unsigned char *buffers[RANKS];
static uint32_t gates[RANKS];

static struct cecl_device_ops ops;
static const struct cecl_device_ops *real;
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool busy; /* work waits for the host */
static _Atomic int nclosed, nbusy;

static void closes(struct cecl_device *dev, const struct cecl_region_export *exported, void *addr)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const int64_t deadline = cecl_deadline(PROMPT_MS);
    pthread_mutex_lock(&driver);
    nclosed++;
    nbusy += busy;
    while (busy && cecl_ms_left(deadline) != 0)
        nanosleep(&pause, NULL);
    pthread_mutex_unlock(&driver);
    real->region_close(dev, exported, addr);
}

static ceclResult_t copies(struct cecl_device *dev, ceclStream_t work,
                           const struct cecl_batch *batch)
{
    pthread_mutex_lock(&driver);
    const ceclResult_t result = real->copies(dev, work, batch);
    pthread_mutex_unlock(&driver);
    return result;
}

static ceclResult_t quiet(struct cecl_device *dev, bool (*go_on)(void *context), void *context)
{
    const struct timespec pause = {.tv_nsec = 100000};
    while (busy && go_on(context))
        nanosleep(&pause, NULL);
    return busy ? ceclInProgress : ceclSuccess;
}

static int set_up(void **state)
{
    open_all(state);
    real = comms[0]->dev->ops;
    ops = *real;
    ops.region_close = closes;
    ops.copies = copies;
    ops.quiet = quiet;
    nclosed = nbusy = 0;
    for (int r = 0; r < RANKS; r++) {
        comms[r]->dev->ops = &ops;
        gates[r] = 0;
        OK(ceclStreamCreate(comms[r], &streams[r]));
        OK(ceclStreamCreate(comms[r], &held[r]));
    }
    allocate_all(buffers, RANKS * BYTES);
    return 0;
}

/* Enqueues work that waits for the host, on a stream of its own. */
static void hold_all(void)
{
    for (int r = 0; r < RANKS; r++) {
        const struct cecl_memop wait = {&gates[r], 1, CECL_MEMOP_WAIT};
        OK(real->memops(comms[r]->dev, held[r], &wait, 1));
    }
    busy = true;
}

static void let_go(void)
{
    busy = false;
    OK_EACH(real->words_release(comms[r]->dev, &gates[r], 1, 1));
}

static unsigned char *map_new(ceclRegistration_t *handle, int *fd)
{
    *fd = memfd_create("program", MFD_CLOEXEC);
    assert_true(*fd >= 0);
    assert_int_equal(ftruncate(*fd, BYTES), 0);
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    OK(ceclCommRegister(comms[1], at, BYTES, handle));
    return at;
}

/* Waits until rank 0 has carried out all messages of rank 1. */
static void await_messages(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const int64_t deadline = cecl_deadline(PROMPT_MS);
    uint64_t taken = 0;
    while (taken < comms[1]->registry.posted && cecl_ms_left(deadline) != 0) {
        pthread_mutex_lock(&comms[0]->registry.lock);
        taken = comms[0]->registry.peers[1].taken;
        pthread_mutex_unlock(&comms[0]->registry.lock);
        nanosleep(&pause, NULL);
    }
    assert_int_equal(taken, comms[1]->registry.posted);
}

static void publish_and_free(void)
{
    ceclRegistration_t handle;
    int fd;
    unsigned char *at = map_new(&handle, &fd);
    await_messages();
    hold_all();
    OK(ceclCommDeregister(comms[1], handle));
    munmap(at, BYTES);
    close(fd);
    await_messages();
}

static void call_all(void)
{
    OK_EACH(ceclAllGather(buffers[r] + (size_t)r * BYTES, buffers[r], BYTES, ceclUint8, comms[r],
                          streams[r]));
}

TEST_BETWEEN(calls_go_on_while_work_waits_for_the_host, set_up, close_all)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    publish_and_free();
    const int64_t begin = cecl_now_ms();
    for (int i = 0; i < CALLS; i++) {
        call_all();
        finish_all(streams);
        nanosleep(&pause, NULL);
    }
    assert_int_equal(nbusy, 0);
    assert_true(cecl_now_ms() - begin < PROMPT_MS);
    let_go();
}

TEST_BETWEEN(freed_memory_is_closed_where_the_program_waits, set_up, close_all)
{
    publish_and_free();
    call_all();
    finish_all(streams);
    assert_int_equal(nclosed, 0);
    let_go();
    finish_all(held);
    assert_int_equal(nclosed, 1);
    assert_int_equal(nbusy, 0);
}
