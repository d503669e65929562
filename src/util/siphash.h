/* SipHash-2-4, a keyed 64-bit hash (Aumasson and Bernstein, 2012). A rank uses it to prove that it
 * knows a secret without sending it. */
#ifndef CECL_UTIL_SIPHASH_H
#define CECL_UTIL_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t cecl_siphash(const uint8_t key[16], const void *data, size_t bytes);

#endif
