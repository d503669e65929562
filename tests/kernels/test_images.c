/* The embedded kernels: every image has every kernel that the library asks for. No GPU is needed. */
#include <elf.h>

#include "../with_cmocka.h"

#include "sm/images.h"
#include "sm/kernel_names.h"
#include "sm/sums.h"

/* Whether a cubin has this kernel. A cubin is an ELF file, whose symbols have the kernels' names. */
static bool cubin_has(const void *data, const char *name)
{
    const unsigned char *const cubin = data;
    Elf64_Ehdr head;
    memcpy(&head, cubin, sizeof(head));
    assert_memory_equal(head.e_ident, ELFMAG, SELFMAG);
    for (unsigned i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr table, names;
        memcpy(&table, cubin + head.e_shoff + i * sizeof(table), sizeof(table));
        if (table.sh_type != SHT_SYMTAB)
            continue;
        memcpy(&names, cubin + head.e_shoff + table.sh_link * sizeof(names), sizeof(names));
        for (uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol;
            memcpy(&symbol, cubin + table.sh_offset + at, sizeof(symbol));
            if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size > 0 &&
                strcmp((const char *)cubin + names.sh_offset + symbol.st_name, name) == 0)
                return true;
        }
    }
    return false;
}

static bool ptx_has(const char *ptx, const char *name)
{
    char entry[128];
    snprintf(entry, sizeof(entry), ".entry %s(", name);
    return strstr(ptx, entry) != NULL;
}

static bool has(const struct cecl_image *image, const char *name)
{
    return image->is_ptx ? ptx_has(image->data, name) : cubin_has(image->data, name);
}

static void all_have(enum cecl_kernel_file file, const char *name)
{
    int images = 0;
    for (size_t i = 0; i < cecl_images_count; i++) {
        const struct cecl_image *const image = &cecl_images[i];
        if (image->file != file)
            continue;
        images++;
        if (!has(image, name))
            fail_msg("no %s for compute capability %d (%s)", name, image->capability,
                     image->is_ptx ? "PTX" : "cubin");
    }
    assert_true(images >= 1);
}

TEST(every_image_has_every_kernel)
{
#define PAIR(type_name, type, op_name, op) \
    all_have(CECL_KERNELS_reduce_wide, "cecl_reduce_any_" #type_name "_" #op_name); \
    all_have(CECL_KERNELS_reduce_bulk, "cecl_reduce_bulk_" #type_name "_" #op_name); \
    all_have(CECL_KERNELS_small, "cecl_small_" #type_name "_" #op_name);
    CECL_REDUCE_PAIRS(PAIR)
#define SUM(type_name, type, nsrc) \
    all_have(CECL_KERNELS_reduce_wide, "cecl_reduce_sum_" #type_name "_of_" #nsrc);
    CECL_REDUCE_SUMS(SUM)
#define COUNTED(type_name, type) \
    all_have(CECL_KERNELS_reduce_wide, "cecl_reduce_any_counted_" #type_name); \
    all_have(CECL_KERNELS_reduce_bulk, "cecl_reduce_bulk_counted_" #type_name); \
    all_have(CECL_KERNELS_small, "cecl_small_counted_" #type_name);
    CECL_REDUCE_COUNTED(COUNTED)
    all_have(CECL_KERNELS_small, "cecl_small_move");
    all_have(CECL_KERNELS_small, "cecl_small_move_counted");
    all_have(CECL_KERNELS_splits, "cecl_splits_tell");
    all_have(CECL_KERNELS_splits, "cecl_splits_move");
#define ROWS(name, type) all_have(CECL_KERNELS_sums, "cecl_row_sums_" #name);
    CECL_ROW_SUMS_TYPES(ROWS)
}

TEST(a_kernel_that_is_not_there_is_not_found)
{
    for (size_t i = 0; i < cecl_images_count; i++)
        assert_false(has(&cecl_images[i], "cecl_small_mov"));
}
