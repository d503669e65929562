/* What all fuzzers share: values drawn from an input, and the end of a run that has found an error. */
#ifndef CECL_TESTS_FUZZ_INPUT_H
#define CECL_TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes that are left. After the last one, all bytes are 0. */
struct input {
    const uint8_t *at;
    size_t left;
};

static inline uint8_t take_byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

/* A number below `end`, which is at most 65536. */
static inline unsigned take_below(struct input *in, unsigned end)
{
    const unsigned byte = take_byte(in);
    return end <= 256 ? byte % end : (byte << 8 | take_byte(in)) % end;
}

static inline uint64_t take_word(struct input *in)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | take_byte(in);
    return word;
}

static inline void take_bytes(struct input *in, void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] = take_byte(in);
}

/* Ends the run with an error unless `holds`; the message says what was found. */
#define REQUIRE(holds, ...) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            abort(); \
        } \
    } while (0)

/* libFuzzer calls these functions; a fuzzer may lack the second. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The driver calls this function, if the fuzzer has it, after it ran `inputs` random inputs. */
__attribute__((weak)) void fuzz_done(int inputs);

#endif
