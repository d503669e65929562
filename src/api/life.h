/* Making and ending communicators. Internal to src/api. */
#ifndef CECL_API_LIFE_H
#define CECL_API_LIFE_H

#include "boot/oob.h"
#include "comm/comm.h"
#include "launch/one_sided.h"

/* setup.c. Makes a communicator. Collective over `oob`, which the caller still owns. If `local`, this rank's result so
 * far, is an error, its message must be recorded; this rank still takes part, so that all ranks learn the error. Waits
 * end at oob->deadline. */
ceclResult_t cecl_comm_setup(struct cecl_oob *oob, const struct cecl_resolved *config,
                             ceclResult_t local, ceclComm_t *comm);

/* Opens the device: on all ranks a GPU, or on all ranks the host device. If `connected`, returns an error if the GPU
 * cannot reach the memory of all ranks' GPUs. */
struct cecl_hello;
ceclResult_t cecl_setup_device(ceclComm_t comm, const struct cecl_hello *all, bool connected);
/* The default number of bytes of a rank's pool. */
uint64_t cecl_setup_pool_bytes(ceclComm_t comm, const struct cecl_hello *hello);
/* Opens the registry, so that calls can use memory outside the pool. rank, nranks: as in the mesh. */
ceclResult_t cecl_setup_registry(ceclComm_t comm, int rank, int nranks);

/* init.c. Carries out the joins of a group at the same time. Collective over each of the new communicators. If one
 * communicator cannot be made, takes back all others. `refused`: ceclSuccess, or the error of a refused group (message:
 * `words`), which makes no communicator and tells the peers why. joins: a list or NULL */
struct cecl_join;
ceclResult_t cecl_joins_carry_out(struct cecl_join *joins, ceclResult_t refused, const char *words);

/* end.c. Zeroed memory for a communicator; NULL: the host has no memory. */
ceclComm_t cecl_comm_alloc(void);
/* Frees those parts of a communicator that exist. If work is pending (`drained` is false), or graphs hold calls of the
 * communicator, its memory stays mapped. Returns how many calls graphs hold. */
uint32_t cecl_comm_free(ceclComm_t comm, bool drained);

/* life.c */
#define CECL_RELEASED_MS 5000 /* most ms to wait for work whose waits were ended */
/* Ends the waits of a failed communicator's pending work. Returns whether all work has ended by the deadline. */
bool cecl_comm_end_pending(ceclComm_t comm, int64_t deadline);
/* Ends a new communicator that the program will not get, and tells its peers. */
void cecl_comm_take_back(ceclComm_t comm);

/* register.c. Like ceclCommRegister and ceclCommDeregister. But cecl_registration_end may be called while pending calls
 * use the memory; peers drop the memory once these calls are done. */
ceclResult_t cecl_registration_add(ceclComm_t comm, void *ptr, size_t bytes,
                                   ceclRegistration_t *handle);
ceclResult_t cecl_registration_end(ceclComm_t comm, ceclRegistration_t handle);
/* Registers memory with a new communicator if the program has registered it with the parent. */
void cecl_registrations_inherit(ceclComm_t child, ceclComm_t parent);
/* Frees the registrations that the program has not ended. */
void cecl_registrations_free(ceclComm_t comm);

/* living.c. The communicators of this process that have not ended. When the process ends normally (by exit, or a return
 * from main), it says goodbye to the peers of each communicator without a pending call, as ceclCommDestroy would. The
 * peers then go on until one of their calls needs this rank. */

void cecl_living_add(ceclComm_t comm);
/* Must be called before any part of `comm` is freed. No effect on a communicator that was not added. */
void cecl_living_remove(ceclComm_t comm);

/* memory.c. ceclMemAlloc and ceclMemFree for a caller that is already inside the communicator. */
ceclResult_t cecl_memory_allocate(ceclComm_t comm, void **ptr, size_t bytes);
ceclResult_t cecl_memory_free(ceclComm_t comm, void *ptr);

/* windows.c. Windows for one-sided calls. */

/* Returns an error if any rank shares a part of the pool's allocation at `offset` in a window. Equal on all ranks. */
ceclResult_t cecl_windows_check_free(ceclComm_t comm, uint64_t offset);
/* Frees the windows of a communicator that ends. If work is pending (`drained` is false), peers' memory stays open. */
void cecl_windows_end(ceclComm_t comm, bool drained);

#endif
