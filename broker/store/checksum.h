/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), with the processor's instruction where it has one. */

#ifndef SLUICE_CHECKSUM_H
#define SLUICE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t sluice_crc_table[8][256];

/* Eight bytes a step (slicing by eight); fills its table when it is first called. */
static uint32_t sluice_crc32c_table(uint32_t crc, const unsigned char *data, size_t size) {
    if (sluice_crc_table[0][1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0);
            sluice_crc_table[0][i] = value;
        }
        for (int slice = 1; slice < 8; slice++)
            for (int i = 0; i < 256; i++) {
                uint32_t before = sluice_crc_table[slice - 1][i];
                sluice_crc_table[slice][i] = (before >> 8) ^ sluice_crc_table[0][before & 0xFF];
            }
    }
    crc = ~crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = sluice_crc_table[7][low & 0xFF] ^ sluice_crc_table[6][(low >> 8) & 0xFF] ^
              sluice_crc_table[5][(low >> 16) & 0xFF] ^ sluice_crc_table[4][low >> 24] ^
              sluice_crc_table[3][high & 0xFF] ^ sluice_crc_table[2][(high >> 8) & 0xFF] ^
              sluice_crc_table[1][(high >> 16) & 0xFF] ^ sluice_crc_table[0][high >> 24];
    }
    for (; size > 0; data++, size--) crc = (crc >> 8) ^ sluice_crc_table[0][(crc ^ *data) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t sluice_crc32c_sse(uint32_t crc, const unsigned char *data,
                                                                    size_t size) {
    uint64_t value = (uint32_t)~crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        value = __builtin_ia32_crc32di(value, word);
    }
    for (; size > 0; data++, size--) value = __builtin_ia32_crc32qi((uint32_t)value, *data);
    return ~(uint32_t)value;
}
#endif

static inline uint32_t sluice_crc32c(uint32_t crc, const void *data, size_t size) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return sluice_crc32c_sse(crc, (const unsigned char *)data, size);
#endif
    return sluice_crc32c_table(crc, (const unsigned char *)data, size);
}

#endif
