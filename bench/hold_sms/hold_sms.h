/* Holds every SM of a GPU, so that a test or a benchmark sees what runs without one. */
#ifndef CECL_HOLD_SMS_H
#define CECL_HOLD_SMS_H

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct hold_sms;

/* Launches 2 blocks on each SM of GPU `ordinal`, each with half of the SM's threads, which leaves
 * no room for another block, and waits up to 10 s until all of them run.
 *
 * stream  a non-blocking stream of that GPU with nothing long enqueued (work of the legacy default
 *         stream would wait for a blocking one). NULL: one of its own.
 *
 * Returns NULL on failure, and says why on stderr. The kernel ends by itself 20 s after its start:
 * a failed test cannot take the GPU with it. While SMs are held, free no CUDA memory: that waits
 * for the kernel. What is current for the thread stays so. From one thread at a time. */
struct hold_sms *hold_sms_start_on(int ordinal, struct CUstream_st *stream);

/* The same on the current device, with a stream of its own. */
struct hold_sms *hold_sms_start(void);

/* Whether it still holds: 1 while every block spins. */
int hold_sms_held(const struct hold_sms *hold);

/* Lets go and waits for the kernel's end. 1 if it held until now, 0 if it had given up: then what
 * was seen meanwhile proves nothing. NULL has no effect, and is 0. */
int hold_sms_stop(struct hold_sms *hold);

#ifdef __cplusplus
}
#endif
#endif
