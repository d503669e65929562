/* ceclWaitChunk and ceclGetDeviceChunks: a stream or a kernel waits for a chunk of a gather that was started.
 *
 * Each peer signals after each chunk, in words of its own (ce/lower_all_gather.c). So a second stream can
 * wait for any chunk of any peer, while the gather's own stream waits for all chunks. If the gather's
 * program has no such signals, the second stream waits for the end of the gather. Like a one-sided call,
 * the wait is counted on a line (flags/lines.h). So the wait counts as pending until it has ended, and a
 * failure of the communicator ends it.
 *
 * Peers' words have only 16 bits of their epochs. If a stream reached the wait half a cycle of these words
 * later, it would wait for the next cycle. So the wait is enqueued only while the gather is pending or soon
 * begins. */
#include <inttypes.h>

#include "flags/lines.h"
#include "flags/pads.h"
#include "launch/launcher.h"
#include "launch/request.h"

static int chunks_of(ceclRequest_t request)
{
    const struct cecl_call *call = &request->collectives->calls[0];
    return call->chunks > 1 ? (int)call->chunks : 1;
}

static ceclResult_t check_request(ceclRequest_t request, const char *name)
{
    const struct cecl_launch *launch = request->collectives;
    if (!launch || launch->nfull > 1 || request->messages || !cecl_early_gathers(launch))
        return cecl_fail(ceclInvalidUsage, "request %p: %s takes only a request of one all-gather",
                         (void *)request, name);
    return request->is_started
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage, "request %p: not started yet", (void *)request);
}

static ceclResult_t check(ceclRequest_t request, int peer, int chunk, ceclStream_t stream)
{
    ceclComm_t comm = request->comm;
    CECL_TRY(check_request(request, "ceclWaitChunk"));
    const int chunks = chunks_of(request);
    if (peer < -1 || peer >= comm->nranks)
        return cecl_fail(ceclInvalidArgument, "peer %d: -1 (all) to %d expected", peer,
                         comm->nranks - 1);
    if (chunk < 0 || chunk >= chunks)
        return cecl_fail(ceclInvalidArgument, "chunk %d: 0 to %d expected", chunk, chunks - 1);
    return comm->dev->ops->stream_check(comm->dev, stream, NULL);
}

/* How far `done` is behind its value at the end of the last start; 0: that start has ended. `done` counts
 * modulo 2^32, and far fewer calls than that are pending. */
static uint32_t left(ceclRequest_t request)
{
    const struct cecl_flags *flags = &request->comm->engine.flags;
    const uint32_t target = cecl_flags_done_target(flags), later = target - request->end,
                   pending = target - cecl_flags_done(flags);
    return later < pending ? pending - later : 0;
}

/* Whether signals of peers show that the chunk has arrived. They do not show it in four cases. The chunk is
 * of this rank's own block and the call is out of place: that block may arrive last. Bytes are carried: the
 * carried bytes arrive last. The rank is on another node: it sends no such signals. The words are far behind:
 * they would count as ahead. peer -1: all peers. */
static bool is_announced(ceclRequest_t request, int peer)
{
    const struct cecl_launch *launch = request->collectives;
    ceclComm_t comm = request->comm;
    const bool is_own = peer < 0 || peer == comm->rank,
               is_away = peer < 0 ? comm->nodes != NULL : cecl_comm_is_away(comm, peer);
    return !is_away && request->ran && request->ran->chunks > 0 &&
           launch->leases.after.count == 0 && (!is_own || launch->calls[0].in_place) &&
           left(request) < CECL_FLAG_VALUES / 4;
}

/* The value of a peer's word once a chunk is there. */
static uint32_t value_of(ceclRequest_t request, int chunk)
{
    return cecl_flag_value(request->begun + request->ran->chunk_phase + (uint32_t)chunk);
}

static struct cecl_memop wait_for(ceclRequest_t request, int peer, int chunk)
{
    const struct cecl_flags *flags = &request->comm->engine.flags;
    return (struct cecl_memop){cecl_flags_word(flags, flags->rank, peer, CECL_LANE_MAIN),
                               value_of(request, chunk), CECL_MEMOP_WAIT};
}

/* Lists the words for which the stream waits. */
static size_t list(ceclRequest_t request, int peer, int chunk, struct cecl_memop *ops)
{
    const struct cecl_flags *flags = &request->comm->engine.flags;
    size_t count = 0;
    if (!is_announced(request, peer)) {
        ops[count++] = (struct cecl_memop){flags->done, request->end, CECL_MEMOP_WAIT};
        return count;
    }
    for (int r = 0; r < flags->nranks; r++)
        if (r != flags->rank && (peer < 0 || peer == r))
            ops[count++] = wait_for(request, r, chunk);
    return count;
}

static ceclResult_t issue(ceclRequest_t request, int peer, int chunk, ceclStream_t work)
{
    ceclComm_t comm = request->comm;
    struct cecl_flags *flags = &comm->engine.flags;
    struct cecl_memop ops[CECL_MAX_RANKS + 2];
    struct cecl_line_at after,
        at = cecl_line_begin(flags, comm->dev->ops->stream_id(comm->dev, work), &after);
    size_t count = 0;
    if (after.call)
        ops[count++] = (struct cecl_memop){&flags->lines.done[after.line], cecl_line_value(after),
                                           CECL_MEMOP_WAIT};
    count += list(request, peer, chunk, ops + count);
    ops[count++] =
        (struct cecl_memop){&flags->lines.done[at.line], cecl_line_value(at), CECL_MEMOP_WRITE};
    const ceclResult_t result = comm->dev->ops->memops(comm->dev, work, ops, count);
    if (result != ceclSuccess)
        cecl_line_roll_back(flags, at);
    return result;
}

ceclResult_t cecl_request_wait_chunk(ceclRequest_t request, int peer, int chunk,
                                     ceclStream_t stream)
{
    const struct cecl_device_ops *ops = request->comm->dev->ops;
    ceclStream_t work;
    CECL_TRY(check(request, peer, chunk, stream));
    if (!request->collectives->runs || left(request) == 0)
        return ceclSuccess;
    CECL_TRY(ops->stream_fork(request->comm->dev, stream, &work));
    const ceclResult_t result = issue(request, peer, chunk, work),
                       joined = ops->stream_join(request->comm->dev, stream, work);
    return result != ceclSuccess ? result : joined;
}

/* The ranks [*from, *to) of this node; none if their numbers have a gap. */
static void find_near(ceclComm_t comm, int *from, int *to)
{
    const struct cecl_nodes *nodes = comm->nodes;
    const int node = nodes ? nodes->node[comm->rank] : 0,
              size = nodes ? cecl_node_size(nodes, node) : comm->nranks,
              last = nodes ? cecl_node_rank(nodes, node, size - 1) : size - 1;
    *from = nodes ? cecl_node_rank(nodes, node, 0) : 0;
    *to = last - *from + 1 == size ? last + 1 : *from;
}

/* A kernel reads the same words. It may run so late that peers' words have come around, so it also looks
 * whether the gather has ended. */
ceclResult_t cecl_request_describe_chunks(ceclRequest_t request, ceclDeviceChunks_t *chunks)
{
    ceclComm_t comm = request->comm;
    const struct cecl_flags *flags = &comm->engine.flags;
    CECL_TRY(check_request(request, "ceclGetDeviceChunks"));
    ceclDeviceChunks_t told = {.rank = comm->rank,
                               .nranks = comm->nranks,
                               .chunks = chunks_of(request),
                               .ended = cecl_pads_ended(flags),
                               .timeoutNs = (uint64_t)comm->config.timeout_ms * 1000000u};
    find_near(comm, &told.from, &told.to);
    const int near = comm->rank + 1 < told.to ? comm->rank + 1 : told.from;
    if (request->collectives->runs && left(request) > 0) {
        told.done = flags->done;
        told.end = request->end;
        told.inPlace = is_announced(request, comm->rank);
        if (is_announced(request, near)) {
            told.words = cecl_flags_word(flags, comm->rank, 0, CECL_LANE_MAIN);
            told.first = value_of(request, 0);
            told.step = cecl_flag_value(1);
        }
    }
    *chunks = told;
    return ceclSuccess;
}
