/* The command line. */
#ifndef CECL_FSDP_OPTIONS_H
#define CECL_FSDP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* A number that was not given is 0, and gets its default from the device (options_default). */
struct options {
    int layers, width, heads, batch, sequence, steps, prefetch, sample, save_every;
    double rate;
    uint64_t seed;
    const char *comm, *data, *checkpoint, *json;
    bool no_overlap, resume, help;
};

/* Returns false if an option is wrong: `words` says which, its value, and what was expected. Every
 * rank gets the same options and finds the same fault. */
bool options_parse(struct options *o, int argc, char **argv, char *words, int size);
extern const char options_usage[];

/* Fills in defaults, then checks what depends on several options. */
bool options_default(struct options *o, bool gpu, char *words, int size);

#endif
