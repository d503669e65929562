/* Holds every SM of a GPU, so that a test or a benchmark can see what runs without one. */
#ifndef CECL_HOLD_SMS_H
#define CECL_HOLD_SMS_H

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct hold_sms;

/* Launches 2 blocks on each SM of GPU `ordinal`, and waits up to 10 s until all of them run. Each has half of the
 * SM's threads, which leaves no room for another block.
 *
 * stream  a non-blocking stream of that GPU with no long work enqueued; NULL: one of its own. (While
 *         the kernel ran on a blocking stream, work of the legacy default stream would wait.)
 *
 * Returns NULL on failure, and prints the reason on stderr. The kernel ends by itself 20 s after its start, so a
 * failed test does not leave the GPU occupied. Do not free CUDA memory while SMs are held: that waits for the
 * kernel. The thread's current device stays the same. Only one thread may call these functions at a time. */
struct hold_sms *hold_sms_start_on(int ordinal, struct CUstream_st *stream);

/* Like hold_sms_start_on, on the current device and with a stream of its own. */
struct hold_sms *hold_sms_start(void);

/* 1 while every block spins, else 0. */
int hold_sms_held(const struct hold_sms *hold);

/* Releases the SMs, and waits for the kernel's end. Returns 1 if the kernel held them until now. Returns 0 if it
 * had given up before: then what was seen meanwhile proves nothing. For NULL does nothing, and returns 0. */
int hold_sms_stop(struct hold_sms *hold);

#ifdef __cplusplus
}
#endif
#endif
