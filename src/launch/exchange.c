/* Exchanges of all ranks, in which each of them may refuse. */
#include "launch/exchange.h"

#include "boot/rank_list.h"
#include "launch/launcher.h"

/* A peer's invalid argument is reported here as invalid usage; other errors keep their code. */
static ceclResult_t refusal_of(ceclComm_t comm, int rank, const struct cecl_verdict *verdict)
{
    const ceclResult_t status = (ceclResult_t)verdict->status;
    if (status == ceclSuccess)
        return ceclSuccess;
    if (verdict->has_failed) { /* `text` is the message of that rank's watchdog */
        const char *first = cecl_words_who_began(verdict->text);
        if (first)
            cecl_record("%s", first);
        else
            cecl_record("rank %d gave up: %s", rank, verdict->text);
        return cecl_comm_break(comm, status);
    }
    const bool refuses =
        status == ceclInvalidArgument || status == ceclInvalidUsage || status == ceclRemoteError;
    return cecl_fail(status == ceclInvalidArgument ? ceclInvalidUsage : status, "rank %d%s: %s",
                     rank, refuses ? " refused its call" : "", verdict->text);
}

ceclResult_t cecl_exchange(ceclComm_t comm, const char *name, const char *what,
                           struct cecl_verdict *mine, size_t bytes, ceclResult_t local)
{
    char *all = comm->launcher->exchange;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    mine->status = (int32_t)local;
    mine->has_failed = false;
    if (local != ceclSuccess) {
        cecl_shorten(mine->text, sizeof(mine->text), words);
        mine->has_failed = (local == ceclRemoteError ? cecl_comm_hear(comm)
                                                     : cecl_comm_async(comm)) != ceclSuccess;
    }
    cecl_mesh_activity(comm->mesh, name);
    ceclResult_t result =
        cecl_comm_exchanged(comm, cecl_mesh_allgather(comm->mesh, what, mine, all, bytes));
    if (local != ceclSuccess)
        return cecl_fail_with(local, words);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++)
        result = refusal_of(comm, r, (const void *)(all + (size_t)r * bytes));
    return result;
}
