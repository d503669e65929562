/* See job.h. */
#include "nccl/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Splits CECL_RUN_NOTE. Returns the file's name, or NULL if cecl-run left no note. */
static const char *read_note(long *process)
{
    const char *note = getenv("CECL_RUN_NOTE");
    char *end;
    if (!note)
        return NULL;
    *process = strtol(note, &end, 10);
    return *end == ' ' ? end + 1 : NULL;
}

void cecl_nccl_job_has_table(void)
{
    long process;
    const char *file = read_note(&process);
    const int fd = file ? open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        close(fd);
}

/* Runs at the end of every process that has the library preloaded, also of shells and helpers of the job.
 * Does nothing unless this is the command's own process. */
__attribute__((destructor)) static void tell_if_there_is_no_table(void)
{
    static const char words[] =
        "cecl: no call of NCCL was counted: the command made none, or NCCL is linked into its "
        "program statically, or LD_PRELOAD did not reach it (sudo, ssh, a container)\n";
    const int error = errno;
    long process;
    const char *file = read_note(&process);
    if (file && process == (long)getpid() && unlink(file) != 0 && errno == ENOENT)
        (void)!write(STDERR_FILENO, words, sizeof(words) - 1);
    errno = error;
}
