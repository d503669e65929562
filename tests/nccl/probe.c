/* Opens a library as programs open NCCL, calls its functions, and prints their results.
 * nccl_probe [load=FILE] [again] LIBRARY [NAME ...]
 *   load=FILE  loads FILE first, as a program has other libraries
 *   again      closes LIBRARY after its first call, and opens it again
 *   NAME       a function that is called without arguments */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "nccl_probe: %s\n", dlerror());
        exit(3);
    }
    return library;
}

static void tell_version(void *library)
{
    int version = 0;
    int (*get_version)(int *);
    *(void **)&get_version = dlsym(library, "ncclGetVersion");
    const int result = get_version(&version);
    printf("result %d version %d\n", result, version);
}

static void tell_words(void *library)
{
    const char *(*error_string)(int), *(*last_error)(void *);
    *(void **)&error_string = dlsym(library, "ncclGetErrorString");
    *(void **)&last_error = dlsym(library, "ncclGetLastError");
    printf("error string: %s\n", error_string(0));
    printf("last error: %s\n", last_error(NULL));
}

static void call(void *library, const char *name)
{
    int (*function)(void *, void *);
    *(void **)&function = dlsym(library, name);
    if (function)
        printf("%s %d\n", name, function(NULL, NULL));
    else
        printf("%s is not there\n", name);
}

int main(int argc, char **argv)
{
    int at = 1, again = 0;
    for (; at < argc && strncmp(argv[at], "load=", 5) == 0; at++)
        open_library(argv[at] + 5);
    if (at < argc && strcmp(argv[at], "again") == 0)
        again = at++;
    if (at == argc)
        return 2;
    void *library = open_library(argv[at]);
    tell_version(library);
    if (again) {
        dlclose(library);
        library = open_library(argv[at]);
        tell_version(library);
    }
    tell_words(library);
    for (int i = at + 1; i < argc; i++)
        call(library, argv[i]);
    return 0;
}
