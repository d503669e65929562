/* The time limit that tells "soon" from "hung". */
#ifndef CECL_TESTS_PROMPT_H
#define CECL_TESTS_PROMPT_H

/* Seconds within which a rank must learn of something: enough if the machine stalls for some seconds, but fewer than
 * the 60 s after which calls time out, so a rank that learns only by the timeout fails the test. */
#define PROMPT 45

#endif
