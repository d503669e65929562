/* Ends a small example if a call fails. */
#ifndef CECL_EXAMPLES_CHECK_H
#define CECL_EXAMPLES_CHECK_H

#include <cecl/cecl_mpi.h>
#include <stdio.h>

/* Ends all ranks with cecl's message unless the call succeeded. */
static inline void check(ceclResult_t result)
{
    if (result == ceclSuccess)
        return;
    fprintf(stderr, "%s\n", ceclGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#endif
