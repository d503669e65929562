/* The bound that tells "soon" from "hung". */
#ifndef CECL_TESTS_PROMPT_H
#define CECL_TESTS_PROMPT_H

/* Seconds in which a rank must learn of something: more than it takes while the machine stands still for some
 * seconds, and less than the time limit of 60 s that must not pass. */
#define PROMPT 45

#endif
