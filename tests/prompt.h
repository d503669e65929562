/* The time limit that tells "soon" from "hung". */
#ifndef CECL_TESTS_PROMPT_H
#define CECL_TESTS_PROMPT_H

/* Seconds within which a rank must learn of something: enough if the machine stalls for some seconds, and less than the
 * time limit of 60 s, which must not pass. */
#define PROMPT 45

#endif
