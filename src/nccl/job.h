/* What the processes of a command that cecl-run starts tell each other: whether one of them printed a
 * table of calls. If none did, the command's own process says so, in one line, when it ends.
 *
 * cecl-run becomes the command, so it cannot say anything afterwards. With --stats it leaves CECL_RUN_NOTE
 * in the environment: the command's process id, a space, and the name of a file that is not there. Who
 * prints a table makes the file. At its end the command's process removes it, or finds none. If it ends
 * without its exit handlers (by a signal, or as dash does), nothing is said, and the empty file stays. */
#ifndef CECL_NCCL_JOB_H
#define CECL_NCCL_JOB_H

/* A table was printed. */
void cecl_nccl_job_has_table(void);

#endif
