/* Finding the CUDA driver's functions through the (statically linked) runtime. */
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
static cudaError_t refusal; /* of the last look-up, where it was the runtime's */

/* The function of that name with the signature of that CUDA version, or NULL. Always the one that
 * takes NULL for the legacy stream, however this file is compiled. */
static void *find(const char *name, unsigned version)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    refusal =
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableLegacyStream, &status);
    if (refusal != cudaSuccess)
        cudaGetLastError(); /* ours; the caller's next check must not find it */
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

/* Finds a function that has two signatures. Asked for 13.0, an older driver must not hand out its
 * own: arguments would be read askew. */
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

    /* A data pointer becomes a function pointer by its bytes: ISO C has no cast for it. */
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
        const char *name = "unknown error", *text = "";
        driver.cuGetErrorName(result, &name);
        driver.cuGetErrorString(result, &text);
        snprintf(reason, sizeof(reason), "cuInit: %s (%s)", name, text);
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
    const char *name = "unknown error", *text = "";
    cu->cuGetErrorName(result, &name);
    cu->cuGetErrorString(result, &text);
    return cecl_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? ceclOutOfMemory : ceclUnhandledCudaError,
                     "%s: %s (%s)", call, name, text);
}
