/* Each GPU must get the right image. Here kernel_images.inc replaces the library's list of images; the content of each
 * image is that file. */
#include "../with_cmocka.h"

#include "sm/images.c"

/* A GPU of compute capability `gpu` must get the image for `capability`. */
static void gets(int gpu, int capability, int is_ptx)
{
    const struct cecl_image *const image = cecl_image_for(CECL_KERNELS_small, gpu);
    assert_non_null(image);
    assert_int_equal(image->file, CECL_KERNELS_small);
    assert_int_equal(image->capability, capability);
    assert_int_equal(image->is_ptx, is_ptx);
}

TEST(a_gpu_gets_a_cubin_of_its_major_version_or_ptx)
{
    gets(80, 80, false);
    gets(86, 80, false);
    gets(89, 80, false);
    gets(90, 90, false);
    gets(100, 100, false);
    gets(103, 100, false);
    gets(110, 90, true);
    gets(120, 90, true);
}

TEST(a_gpu_that_no_image_is_for_gets_none)
{
    assert_null(cecl_image_for(CECL_KERNELS_small, 75));
    assert_null(cecl_image_for(CECL_KERNELS_reduce_bulk, 80));
}
