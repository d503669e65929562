/* Finds the CUDA driver's functions through the statically linked CUDA runtime. */
#include "device/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static struct cecl_driver driver;
static bool usable;
static char reason[160];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t refusal; /* the runtime's error at the last look-up */

/* Finds the function `name` with the signature of CUDA `version`; NULL if there is none. Always
 * takes the variant in which NULL means the legacy stream, however this file is compiled. */
static void *find(const char *name, unsigned version)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    refusal =
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableLegacyStream, &status);
    if (refusal != cudaSuccess)
        cudaGetLastError(); /* clears our error, so that the caller's next check does not see it */
    return refusal == cudaSuccess && status == cudaDriverEntryPointSuccess ? function : NULL;
}

static void say_missing(const char *name)
{
    if (refusal == cudaSuccess)
        snprintf(reason, sizeof(reason), "the CUDA driver has no %s", name);
    else
        snprintf(reason, sizeof(reason), "looking for %s in the CUDA driver: %s", name,
                 cudaGetErrorString(refusal));
}

/* Finds a function that has two signatures. A driver older than 13.0 must not be asked for the 13.0
 * one: it would return its own function, which reads the arguments differently. */
static bool find_either(const char *name, int version, void *of_13000, void *of_12080)
{
    void *function = version >= 13000 ? find(name, 13000) : NULL;
    if (function) {
        memcpy(of_13000, &function, sizeof(function));
        return true;
    }
    function = find(name, 12080);
    if (function)
        memcpy(of_12080, &function, sizeof(function));
    else
        say_missing(name);
    return function != NULL;
}

/* The driver ends before the process does, and then describes no error. */
static void describe(const struct cecl_driver *cu, CUresult result, const char *call, char *words,
                     size_t bytes)
{
    const char *name = NULL, *text = NULL;
    cu->cuGetErrorName(result, &name);
    cu->cuGetErrorString(result, &text);
    if (name && text)
        snprintf(words, bytes, "%s: %s (%s)", call, name, text);
    else
        snprintf(words, bytes, "%s: CUDA error %d%s", call, (int)result,
                 result == CUDA_ERROR_DEINITIALIZED ? ": this process is ending" : "");
}

static void load(void)
{
    int version = 0;
    const cudaError_t error = cudaDriverGetVersion(&version);
    if (error != cudaSuccess)
        cudaGetLastError();
    if (version == 0) {
        snprintf(reason, sizeof(reason), "no CUDA driver is installed here");
        return;
    }
    if (version < 12080) {
        snprintf(reason, sizeof(reason), "the driver is of CUDA %d.%d; 12.8 or later is needed",
                 version / 1000, version % 1000 / 10);
        return;
    }

    driver.version = version;

    /* The data pointer is copied bytewise into the function pointer: ISO C
     * has no cast between them. */
    void *function;
#define CECL_DRIVER_FIND(name, since)                                                              \
    if (!(function = find(#name, since))) {                                                        \
        say_missing(#name);                                                                        \
        return;                                                                                    \
    }                                                                                              \
    memcpy(&driver.name, &function, sizeof(function));
    CECL_DRIVER_FUNCTIONS(CECL_DRIVER_FIND)
#undef CECL_DRIVER_FIND

    if (!find_either("cuMemcpyBatchAsync", version, &driver.batch_13000, &driver.batch_12080) ||
        !find_either("cuMemcpy3DBatchAsync", version, &driver.batch_3d_13000,
                     &driver.batch_3d_12080))
        return;

    const CUresult result = driver.cuInit(0);
    if (result != CUDA_SUCCESS) {
        describe(&driver, result, "cuInit", reason, sizeof(reason));
        return;
    }
    usable = true;
}

const struct cecl_driver *cecl_driver_get(const char **why)
{
    pthread_once(&once, load);
    if (!usable && why)
        *why = reason;
    return usable ? &driver : NULL;
}

ceclResult_t cecl_driver_check(const struct cecl_driver *cu, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return ceclSuccess;
    char words[256];
    describe(cu, result, call, words, sizeof(words));
    return cecl_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? ceclOutOfMemory : ceclUnhandledCudaError,
                     "%s", words);
}
