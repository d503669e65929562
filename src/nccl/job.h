/* The processes of a command that cecl-run starts tell each other whether one of them has printed a table of
 * calls. If none has, the command's own process says so, in one line, when it ends.
 *
 * cecl-run becomes the command (exec), so it cannot print anything afterwards. With --stats it sets
 * CECL_RUN_NOTE in the environment: the command's process id, a space, and the name of a file that does
 * not exist. A process that prints a table creates the file. When the command's process ends, it removes
 * the file, or prints the line if there is no file. If that process ends without its exit handlers (by a
 * signal, or as dash does), no line is printed and the file stays. */
#ifndef CECL_NCCL_JOB_H
#define CECL_NCCL_JOB_H

/* Notes that this process has printed a table. */
void cecl_nccl_job_has_table(void);

#endif
