/* Holds every SM of a GPU, so that a test sees what runs without one. */
#ifndef CECL_TEST_HOLD_SMS_H
#define CECL_TEST_HOLD_SMS_H

#ifdef __cplusplus
extern "C" {
#endif

struct hold_sms;

/* Launches 2 blocks of 1024 threads for each SM of the current device, which leaves room for no other block, and waits until all run.
 * NULL on failure. The kernel ends by itself after some 20 s: a failed test cannot take the GPU with it. */
struct hold_sms *hold_sms_start(void);
/* Whether it still holds: every block spins. */
int hold_sms_held(const struct hold_sms *hold);
/* Lets go and waits for the kernel's end. */
void hold_sms_stop(struct hold_sms *hold);

#ifdef __cplusplus
}
#endif
#endif
