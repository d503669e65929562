/* Without CUDA there is no GPU memory of any kind. */
#include "memory.h"

const struct memory_kind memory_on_gpus[MEMORY_KINDS];
