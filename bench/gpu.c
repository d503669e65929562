#include "gpu.h"

#include <pthread.h>
#include <string.h>

static struct gpu gpu;

static void load(void)
{
    void *function;
    gpu.cu = cecl_driver_get(&gpu.why);
/* ISO C has no cast from an object's address to a function's, so the bytes are copied. */
#define GPU_FIND(name, version) \
    function = gpu.cu ? cecl_driver_find(#name, version) : NULL; \
    memcpy(&gpu.name, &function, sizeof(function)); \
    if (gpu.cu && !function) { \
        gpu.why = "the CUDA driver has no " #name; \
        gpu.cu = NULL; \
    }
    GPU_FUNCTIONS(GPU_FIND)
#undef GPU_FIND
}

const struct gpu *gpu_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return &gpu;
}

const char *gpu_words(CUresult result)
{
    const char *words = NULL;
    if (gpu.cu)
        gpu.cu->cuGetErrorString(result, &words);
    return words ? words : "unknown error";
}
