/* The command line. */
#ifndef CECL_FSDP_OPTIONS_H
#define CECL_FSDP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* A number is 0 where it was not given and takes its default from the device (options_default). */
struct options {
    int layers, width, heads, batch, sequence, steps, prefetch, sample, save_every;
    double rate;
    uint64_t seed;
    const char *comm, *data, *checkpoint, *json;
    bool no_overlap, resume, help;
};

/* False: an option is wrong, and `words` says which, its value, and what was expected. Every rank is
 * given the same and finds the same. */
bool options_parse(struct options *o, int argc, char **argv, char *words, int size);
extern const char options_usage[];

/* Fills in defaults, then checks what depends on several. */
bool options_default(struct options *o, bool gpu, char *words, int size);

#endif
