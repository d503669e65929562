/* Without CUDA there is no GPU memory of any kind. */
#include "kinds.h"

const struct memory_kind memory_on_gpus[MEMORY_KINDS];
