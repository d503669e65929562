/* The program's own allocator, which replaces libc's in the whole process. */
#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void __libc_free(void *memory);

#define EXPORT __attribute__((visibility("default")))
EXPORT void *malloc(size_t bytes);
EXPORT void *calloc(size_t count, size_t bytes);
EXPORT void *realloc(void *memory, size_t bytes);
EXPORT void free(void *memory);

void *malloc(size_t bytes)
{
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
    __libc_free(memory);
}
