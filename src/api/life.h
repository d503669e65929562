/* How communicators are made and ended. Internal to src/api. */
#ifndef CECL_API_LIFE_H
#define CECL_API_LIFE_H

#include "boot/oob.h"
#include "comm/comm.h"
#include "launch/one_sided.h"

/* setup.c. Makes a communicator. Collective over `oob`, which the caller still owns. `local` is an earlier failure of
 * this rank, whose message is recorded. The rank still takes part, so that all ranks learn of the failure. Waits end at
 * oob->deadline. */
ceclResult_t cecl_comm_setup(struct cecl_oob *oob, const struct cecl_resolved *config,
                             ceclResult_t local, ceclComm_t *comm);

/* Opens the device that all ranks use. `connected`: the device's copies must reach the memory of all ranks. */
struct cecl_hello;
ceclResult_t cecl_setup_device(ceclComm_t comm, const struct cecl_hello *all, bool connected);
/* The default size of the address range of a rank's pool. */
uint64_t cecl_setup_pool_bytes(ceclComm_t comm, const struct cecl_hello *hello);
/* Opens the registry, so that calls can use memory outside the pool. rank, nranks: as in the mesh. */
ceclResult_t cecl_setup_registry(ceclComm_t comm, int rank, int nranks);

/* init.c. Carries out the joins of a group at the same time. Collective over each of the new communicators. If one
 * communicator cannot be made, this process keeps none. If the group was already refused (`refused`, with message
 * `words`), no communicator is made, and the peers learn why. joins: a list, or NULL */
struct cecl_join;
ceclResult_t cecl_joins_carry_out(struct cecl_join *joins, ceclResult_t refused, const char *words);

/* end.c. Zeroed memory for a communicator; NULL: the host has no memory. */
ceclComm_t cecl_comm_alloc(void);
/* Frees all parts of a communicator that exist. `drained`: no work is pending on its memory. If work is pending, or
 * graphs hold calls of the communicator, its memory stays mapped. Returns how many captured calls graphs hold. */
uint32_t cecl_comm_free(ceclComm_t comm, bool drained);

/* life.c */
#define CECL_RELEASED_MS 5000 /* how long released work may take to end, in ms */
/* Ends the waits of work that is pending on a failed communicator. Returns whether all work has ended by the
 * deadline. */
bool cecl_comm_end_pending(ceclComm_t comm, int64_t deadline);
/* Ends a new communicator that the program will not get. The communicator's peers are notified. */
void cecl_comm_take_back(ceclComm_t comm);

/* register.c. Like ceclCommRegister and ceclCommDeregister, except that cecl_registration_end may be called while
 * pending calls use the memory. The peers are notified once these calls are done. */
ceclResult_t cecl_registration_add(ceclComm_t comm, void *ptr, size_t bytes,
                                   ceclRegistration_t *handle);
ceclResult_t cecl_registration_end(ceclComm_t comm, ceclRegistration_t handle);
/* Registers with a new communicator the memory that is registered with its parent. */
void cecl_registrations_inherit(ceclComm_t child, ceclComm_t parent);
/* Frees the registrations that the caller has not ended. */
void cecl_registrations_free(ceclComm_t comm);

/* living.c. The communicators of this process that have not ended. When the process ends normally (by exit, or a return
 * from main), communicators without a pending call say goodbye to their peers, as ceclCommDestroy would. The peers then
 * go on until one of their calls needs this rank. */

void cecl_living_add(ceclComm_t comm);
/* Must be called before any part of `comm` is freed. No effect on a communicator that was not added. */
void cecl_living_remove(ceclComm_t comm);

/* memory.c. Symmetric memory: what lies between the public functions and the pool. */

/* What ceclMemAlloc and ceclMemFree do outside a group. */
ceclResult_t cecl_memory_allocate(ceclComm_t comm, void **ptr, size_t bytes);
ceclResult_t cecl_memory_free(ceclComm_t comm, void *ptr);

/* windows.c. Windows that ranks share for one-sided calls. */

/* Returns an error if a window of any rank has a part of the pool's allocation at `offset`. The result is equal on all
 * ranks. */
ceclResult_t cecl_windows_check_free(ceclComm_t comm, uint64_t offset);
/* Frees the windows of a communicator that ends. `drained`: no work is pending. Otherwise the memory that pending work
 * may use stays open. */
void cecl_windows_end(ceclComm_t comm, bool drained);

#endif
