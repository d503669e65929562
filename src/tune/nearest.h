/* Finds the threshold whose name is nearest to a misspelt one. */
#ifndef CECL_TUNE_NEAREST_H
#define CECL_TUNE_NEAREST_H

#include "tune/table.h"

enum cecl_threshold cecl_tuning_nearest(const char *word, size_t length);

#endif
