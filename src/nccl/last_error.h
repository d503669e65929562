/* What cecl says of the calling thread's last failure. ncclGetLastError tells it beside NCCL's own words,
 * because nobody can know which of the two came last. */
#ifndef CECL_NCCL_LAST_ERROR_H
#define CECL_NCCL_LAST_ERROR_H

void cecl_nccl_last_error_set(const char *words);
void cecl_nccl_last_error_clear(void);

/* NCCL's words, and those of cecl before them if it has any. Valid until the thread's next call of it. */
const char *cecl_nccl_last_error(const char *of_nccl);

#endif
