/* Keeps the leak sanitizer from reporting Open MPI's own leaks. What Open MPI allocates in these calls is no leak.
 * MPI_Finalize unloads modules, whose functions lsan.supp cannot name after that. So leaks are searched before it; what
 * a program leaks later is not found. These functions replace MPI's, which MPI also has as PMPI_*. */
#include <mpi.h>
#include <sanitizer/lsan_interface.h>

static int enable_after(int result)
{
    __lsan_enable();
    return result;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    __lsan_disable();
    return enable_after(PMPI_Init_thread(argc, argv, wanted, provided));
}

int MPI_Init(int *argc, char ***argv)
{
    int provided;
    return MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &provided);
}

int MPI_Intercomm_create(MPI_Comm local, int leader, MPI_Comm both, int other, int tag,
                         MPI_Comm *out)
{
    __lsan_disable();
    return enable_after(PMPI_Intercomm_create(local, leader, both, other, tag, out));
}

int MPI_Finalize(void)
{
    __lsan_do_leak_check(); /* ends the process if it finds any; no later search follows */
    return PMPI_Finalize();
}
