/* Finds the CUDA driver's functions; sets a thread's current GPU. */
#include "util/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static struct cecl_driver driver;
static bool usable;
static char reason[160];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static PFN_cuGetProcAddress_v12000 find_function;

/* Always finds the variant in which NULL means the legacy stream, whatever the compiler's options for the
 * default stream are. */
void *cecl_driver_find(const char *name, int version)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result =
        find_function(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
    return result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? function : NULL;
}

static void say_missing(const char *name)
{
    snprintf(reason, sizeof(reason), "the CUDA driver has no %s", name);
}

/* Finds a function that has two signatures. A driver older than 13.0 must not be asked for the 13.0 signature: it would
 * return its own older function, which reads the arguments differently. */
static bool find_either(const char *name, int version, void *of_13000, void *of_12080)
{
    void *function = version >= 13000 ? cecl_driver_find(name, 13000) : NULL;
    if (function) {
        memcpy(of_13000, &function, sizeof(function));
        return true;
    }
    function = cecl_driver_find(name, 12080);
    if (function)
        memcpy(of_12080, &function, sizeof(function));
    else
        say_missing(name);
    return function != NULL;
}

/* When a process ends, the driver shuts down before other code has ended, and from then on returns no error texts. */
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

/* Opens the driver and asks for its CUDA version; 0: there is no driver. The library stays open, because
 * its functions are used until the process ends. */
static int open_driver(void)
{
    PFN_cuDriverGetVersion_v2020 get_version = NULL;
    int version = 0;
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *function = library ? dlsym(library, "cuDriverGetVersion") : NULL;
    if (!function)
        return 0;
    memcpy(&get_version, &function, sizeof(function));
    function = dlsym(library, "cuGetProcAddress_v2"); /* drivers before CUDA 12.0 lack it */
    memcpy(&find_function, &function, sizeof(function));
    return get_version(&version) == CUDA_SUCCESS ? version : 0;
}

static void load(void)
{
    const int version = open_driver();
    if (version == 0) {
        snprintf(reason, sizeof(reason), "no CUDA driver is installed on this machine");
        return;
    }
    if (version < 12080 || !find_function) {
        snprintf(reason, sizeof(reason), "the driver supports CUDA %d.%d; 12.8 or later is needed",
                 version / 1000, version % 1000 / 10);
        return;
    }

    driver.version = version;

    /* The data pointer is copied bytewise into the function pointer: ISO C has no cast between them. */
    void *function;
#define CECL_DRIVER_FIND(name, since) \
    if (!(function = cecl_driver_find(#name, since))) { \
        say_missing(#name); \
        return; \
    } \
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

ceclResult_t cecl_driver_set_device(const struct cecl_driver *cu, CUdevice device)
{
    static CUcontext retained[CECL_GPUS_MAX];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;
    if (device < 0 || device >= CECL_GPUS_MAX)
        return cecl_fail(ceclInvalidUsage, "GPU %d: 0 to %d expected", device, CECL_GPUS_MAX - 1);
    pthread_mutex_lock(&lock);
    if (!retained[device])
        result = cu->cuDevicePrimaryCtxRetain(&retained[device], device);
    const CUcontext context = retained[device];
    pthread_mutex_unlock(&lock);
    CECL_TRY(cecl_driver_check(cu, result, "cuDevicePrimaryCtxRetain"));
    return cecl_driver_check(cu, cu->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}
