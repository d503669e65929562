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

/* The function of that name with the signature of that CUDA version, or NULL. */
static void *find(const char *name, unsigned version)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &status);
    if (error != cudaSuccess)
        cudaGetLastError(); /* ours; the caller's next check must not find it */
    return error == cudaSuccess && status == cudaDriverEntryPointSuccess ? function : NULL;
}

static void load(void)
{
    void *function = find("cuInit", 2000);
    if (!function) {
        snprintf(reason, sizeof(reason), "no CUDA driver is installed here");
        return;
    }
    /* A data pointer becomes a function pointer by its bytes: ISO C has no cast for it. */
#define CECL_DRIVER_FIND(name, version)                                                            \
    if (!(function = find(#name, version))) {                                                      \
        snprintf(reason, sizeof(reason), "the CUDA driver has no " #name "; CUDA 12.8 is needed"); \
        return;                                                                                    \
    }                                                                                              \
    memcpy(&driver.name, &function, sizeof(function));
    CECL_DRIVER_FUNCTIONS(CECL_DRIVER_FIND)
#undef CECL_DRIVER_FIND
    if ((function = find("cuMemcpyBatchAsync", 13000)) != NULL)
        memcpy(&driver.batch_13000, &function, sizeof(function));
    else if ((function = find("cuMemcpyBatchAsync", 12080)) != NULL)
        memcpy(&driver.batch_12080, &function, sizeof(function));
    else {
        snprintf(reason, sizeof(reason), "the CUDA driver has no cuMemcpyBatchAsync; CUDA 12.8 is needed");
        return;
    }
    const CUresult result = driver.cuInit(0);
    if (result != CUDA_SUCCESS) {
        const char *name = "?";
        driver.cuGetErrorName(result, &name);
        snprintf(reason, sizeof(reason), "cuInit: %s", name);
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
