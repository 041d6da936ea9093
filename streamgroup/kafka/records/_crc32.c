/*
 * CRC-32 (polynomial 0x04C11DB7, reflected) of short pieces: a message of 100 bytes is what it is called for.
 *
 * Everywhere: eight table look-ups for eight bytes (slicing-by-8). On x86-64, where the processor multiplies without
 * carry: 16 bytes at a time are folded forward by multiplication with x^n mod P, as in Intel's paper "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ Instruction" (2009). Bytes beyond a multiple of 16 are taken first
 * here: zeros before a message change nothing, so its first block is filled up with them from the left, and no loop over
 * single bytes remains.
 */

#include "_crc32.h"

#include <string.h>

#define POLYNOMIAL 0xEDB88320u

static uint32_t tables[8][256];

uint32_t (*crc32_of)(const uint8_t *data, size_t size) = crc32_portable;

static inline uint32_t little_endian(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t crc32_portable(const uint8_t *data, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, data += 8) {
        const uint32_t low = crc ^ little_endian(data), high = little_endian(data + 4);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24] ^
              tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^ tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
    }
    for (; size; size--) {
        crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 0xFF];
    }
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* x^(distance + 32) and x^(distance - 32) mod P, bits reversed and shifted by one: what carries a block of 128 bits
 * `distance` bits forward. */
#define FOLD_512 0x1c6e41596, 0x154442bd4
#define FOLD_384 0x174359406, 0x03db1ecdc
#define FOLD_256 0x15a546366, 0x0f1da05aa
#define FOLD_128 0x0ccaa009e, 0x1751997d0
#define X_64 0x163cd6124         /* x^64 mod P */
#define POLYNOMIAL_33 0x1db710641 /* P with its leading bit */
#define QUOTIENT 0x1f7011641     /* x^64 / P */

/* The 16 bytes at n move the first n bytes of a block to its end and clear the others. */
static const uint8_t shifts[32] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                   0x80, 0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,
                                   6,    7,    8,    9,    10,   11,   12,   13,   14,   15};

FOLDING static inline __m128i load(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

FOLDING static inline __m128i fold(__m128i block, __m128i distance) {
    return _mm_xor_si128(_mm_clmulepi64_si128(block, distance, 0x00), _mm_clmulepi64_si128(block, distance, 0x11));
}

/* 128 bits to the 32 of the checksum: two folds, then a division (Barrett's). */
FOLDING static inline uint32_t reduced(__m128i block) {
    const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i division = _mm_set_epi64x(QUOTIENT, POLYNOMIAL_33);
    __m128i folded = _mm_clmulepi64_si128(block, _mm_set_epi64x(FOLD_128), 0x10);
    folded = _mm_xor_si128(_mm_srli_si128(block, 8), folded);
    __m128i rest = _mm_clmulepi64_si128(_mm_and_si128(folded, low), _mm_set_epi64x(0, X_64), 0x00);
    rest = _mm_xor_si128(rest, _mm_srli_si128(folded, 4));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(rest, low), division, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), division, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(rest, quotient), 1);
}

FOLDING static uint32_t folding(const uint8_t *data, size_t size) {
    if (size < 16) {
        return crc32_portable(data, size);
    }
    const __m128i step = _mm_set_epi64x(FOLD_128);
    const size_t odd = size % 16;
    /* The first four bytes are inverted; some of them may come to lie in the second block. */
    __m128i first = _mm_xor_si128(load(data), _mm_cvtsi32_si128(-1));
    __m128i carried = _mm_setzero_si128();
    if (odd) {
        first = _mm_shuffle_epi8(first, load(shifts + odd));
        carried = odd < 4 ? _mm_cvtsi32_si128((int)(0xFFFFFFFFu >> 8 * odd)) : carried;
    }
    data += odd ? odd : 16;
    size_t left = (size + 15) / 16 - 1;
    if (left >= 3) {
        const __m128i leap = _mm_set_epi64x(FOLD_512);
        __m128i second = _mm_xor_si128(load(data), carried), third = load(data + 16), fourth = load(data + 32);
        for (data += 48, left -= 3; left >= 4; data += 64, left -= 4) {
            first = _mm_xor_si128(fold(first, leap), load(data));
            second = _mm_xor_si128(fold(second, leap), load(data + 16));
            third = _mm_xor_si128(fold(third, leap), load(data + 32));
            fourth = _mm_xor_si128(fold(fourth, leap), load(data + 48));
        }
        first = _mm_xor_si128(fold(first, _mm_set_epi64x(FOLD_384)), fold(second, _mm_set_epi64x(FOLD_256)));
        first = _mm_xor_si128(first, _mm_xor_si128(fold(third, step), fourth));
    } else if (left) {
        first = _mm_xor_si128(fold(first, step), _mm_xor_si128(load(data), carried));
        data += 16, left--;
    }
    for (; left; data += 16, left--) {
        first = _mm_xor_si128(fold(first, step), load(data));
    }
    return ~reduced(first);
}
#endif

void crc32_start(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        }
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++) {
        for (int byte = 0; byte < 256; byte++) {
            const uint32_t before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        crc32_of = folding;
    }
#endif
}
