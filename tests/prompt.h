/* The time limit that tells "soon" from "hung". */
#ifndef CECL_TESTS_PROMPT_H
#define CECL_TESTS_PROMPT_H

/* Seconds within which a rank must learn of something: longer than that takes on a machine that stalls for some
 * seconds, and shorter than the time limit of 60 s, which must not pass. */
#define PROMPT 45

#endif
