/* How different two words are, for messages that suggest a name for a misspelt one. */
#ifndef CECL_UTIL_DISTANCE_H
#define CECL_UTIL_DISTANCE_H

#include <stddef.h>

#define CECL_DISTANCE_LETTERS 64 /* only this many letters of a word are compared */

/* The number of letters to insert, delete or replace to turn one word into the other (Levenshtein),
 * upper and lower case alike. */
size_t cecl_distance(const char *a, size_t na, const char *b, size_t nb);

#endif
