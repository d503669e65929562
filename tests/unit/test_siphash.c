/* Compares SipHash-2-4 with its authors' test vectors (key 00..0f, message 00, 01, ...). */
#include "../with_cmocka.h"

#include "util/siphash.h"

TEST(known_vectors_are_met)
{
    uint8_t key[16], message[16];
    for (uint8_t i = 0; i < 16; i++)
        key[i] = message[i] = i;
    assert_true(cecl_siphash(key, message, 0) == 0x726fdb47dd0e0e31u);
    assert_true(cecl_siphash(key, message, 1) == 0x74f839c593dc67fdu);
    assert_true(cecl_siphash(key, message, 15) == 0xa129ca6149be45e5u);
}
