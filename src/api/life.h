/* How communicators are made and ended. Internal to src/api. */
#ifndef CECL_API_LIFE_H
#define CECL_API_LIFE_H

#include "boot/oob.h"
#include "comm/comm.h"

/* setup.c. Collective over `oob`, which the caller keeps. `local` is a fault that this rank already
 * knows of, with its message recorded. A rank with a fault takes part all the same, so that all
 * ranks learn of it. Waits end at oob->deadline. */
ceclResult_t cecl_comm_setup(struct cecl_oob *oob, const struct cecl_resolved *config,
                             ceclResult_t local, ceclComm_t *comm);

/* end.c. Frees all parts of a communicator that exist. `drained` says that no work is pending on
 * its memory. If work is pending, or graphs hold calls of it, mappings are left alone. Returns how
 * many captured calls graphs hold. */
uint32_t cecl_comm_free(ceclComm_t comm, bool drained);

/* life.c */
#define CECL_RELEASED_MS 5000 /* limit for released work to end, in ms */
/* Ends the waits of work that is pending on a failed communicator. Returns whether all of it has
 * ended by the deadline. */
bool cecl_comm_end_pending(ceclComm_t comm, int64_t deadline);
/* Ends a communicator that the program does not get after all. Peers that have it are told. */
void cecl_comm_take_back(ceclComm_t comm);

/* register.c. As ceclCommRegister does, and ceclCommDeregister, but the latter also while pending calls use the
 * memory: peers are told once these are done. */
ceclResult_t cecl_registration_add(ceclComm_t comm, void *ptr, size_t bytes,
                                   ceclRegistration_t *handle);
ceclResult_t cecl_registration_end(ceclComm_t comm, ceclRegistration_t handle);
/* Registers with a new communicator the memory that is registered with its parent. */
void cecl_registrations_inherit(ceclComm_t child, ceclComm_t parent);
/* Frees what the caller has not deregistered. */
void cecl_registrations_free(ceclComm_t comm);

#endif
