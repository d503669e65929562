/* Embeds what the build compiled from the kernels' sources. cmake/kernels.cmake makes
 * kernel_images.inc, which has a line IMAGE(file, capability, kind, path) for each image. */
#include "sm/images.h"

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#define SYMBOL(file, capability, kind) cecl_image_##file##_##capability##_##kind

/* An image may be PTX, which is text: the 4 zero bytes after it end the string. */
#define IMAGE(file, capability, kind, path) \
    extern const unsigned char SYMBOL(file, capability, kind)[] \
        __attribute__((visibility("hidden"))); \
    __asm__(".pushsection .rodata\n" \
            ".balign 64\n" \
            ".globl " STRING( \
                SYMBOL(file, capability, \
                       kind)) "\n" \
                              ".hidden " STRING(SYMBOL(file, capability, kind)) "\n" STRING( \
                                  SYMBOL(file, capability, kind)) ":\n" \
                                                                  ".incbin \"" path "\"\n" \
                                                                  ".balign 4\n" \
                                                                  ".4byte 0\n" \
                                                                  ".popsection\n");
#include "kernel_images.inc"
#undef IMAGE

enum { cubin = 0, ptx = 1 };
#define IMAGE(file, capability, kind, path) \
    {CECL_KERNELS_##file, capability, kind, SYMBOL(file, capability, kind)},
const struct cecl_image cecl_images[] = {
#include "kernel_images.inc"
};
const size_t cecl_images_count = sizeof(cecl_images) / sizeof(cecl_images[0]);

/* Whether image `a` is better than `b` on a GPU that can run both. */
static int is_better(const struct cecl_image *a, const struct cecl_image *b)
{
    if (!b || a->is_ptx != b->is_ptx)
        return !b || !a->is_ptx;
    return a->capability > b->capability;
}

const struct cecl_image *cecl_image_for(enum cecl_kernel_file file, int capability)
{
    const struct cecl_image *best = NULL;
    for (size_t i = 0; i < cecl_images_count; i++) {
        const struct cecl_image *image = &cecl_images[i];
        const int runs = image->capability <= capability &&
                         (image->is_ptx || image->capability / 10 == capability / 10);
        if (image->file == file && runs && is_better(image, best))
            best = image;
    }
    return best;
}
