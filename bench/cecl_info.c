/* Prints what this build of cecl is, which settings it knows, and which thresholds are in force. --markdown prints
 * docs/env.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "info_tuning.h"
#include "sm/images.h"
#include "util/settings.h"

/* This program launches no kernel, so it has none of the library's large images. */
const struct cecl_image cecl_images[] = {{0}};
const struct cecl_image *cecl_image_for(enum cecl_kernel_file file, int capability)
{
    (void)file;
    (void)capability;
    return NULL;
}

static const char *ranks_word(const struct cecl_setting *s)
{
    return s->ranks == CECL_SETTING_EQUAL ? "equal" : "own";
}

static void print_markdown(void)
{
    puts(
        "# Environment variables\n\n"
        "Read when a communicator is made, unless a line says otherwise. A set variable overrides\n"
        "the field of `ceclConfig_t`; an empty one counts as not set. Words are\n"
        "case-insensitive, except names of interfaces and files. Byte sizes take K, M, G and T "
        "(binary).\n"
        "A variable that begins with CECL_ and is not in this table gets a warning.\n"
        "Ranks: `equal`: ranks must have equal values, or no communicator is made; `own`: each\n"
        "rank may have its own value. This page is written by `cecl_info --markdown`.\n\n"
        "| variable | values | default | ranks | what it does |\n"
        "| --- | --- | --- | --- | --- |");
    for (int i = 0; i < CECL_SETTING_COUNT; i++) {
        const struct cecl_setting *s = &cecl_settings[i];
        printf("| `%s` | ", s->name);
        for (const char *c = s->range; *c; c++)
            printf(*c == '|' ? ", " : "%c", *c);
        printf(" | %s | %s | %s |\n", cecl_setting_default((enum cecl_setting_id)i), ranks_word(s),
               s->doc);
    }
}

static void print_plain(void)
{
    struct cecl_gpu_id gpu;
    char why[200] = "";
    printf("cecl %d.%d.%d\n", CECL_MAJOR, CECL_MINOR, CECL_PATCH);
    if (cecl_cuda_probe(CECL_CUDA_DEVICE_CURRENT, 0, &gpu, why, sizeof(why)) == ceclSuccess &&
        gpu.usable)
        printf("GPU %d is usable\n\n", (int)gpu.ordinal);
    else
        printf("no usable GPU: %s\n\n", why);
    for (int i = 0; i < CECL_SETTING_COUNT; i++) {
        const struct cecl_setting *s = &cecl_settings[i];
        const char *now = getenv(s->name);
        printf("%-22s %s%s\n    %s\n    values: %s; default: %s; ranks: %s\n", s->name,
               now ? "= " : "(not set)", now ? now : "", s->doc, s->range,
               cecl_setting_default((enum cecl_setting_id)i), ranks_word(s));
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (argc == 2 && strcmp(what, "--markdown") == 0)
        print_markdown();
    else if (argc == 1)
        print_plain();
    else if (strcmp(what, "--tuning") == 0)
        return info_tuning(argc - 1, argv + 1);
    else if (strcmp(what, "--tuning-file") == 0)
        return info_tuning_file(argc - 1, argv + 1);
    else {
        const bool asked = argc == 2 && strcmp(what, "--help") == 0;
        fprintf(asked ? stdout : stderr,
                "Usage: cecl_info [--markdown | --tuning ... | --tuning-file ...]\n"
                "  without an option  this build and its settings\n"
                "  --markdown         docs/env.md\n"
                "%s",
                info_tuning_usage);
        return asked ? 0 : 2;
    }
    return 0;
}
