/* CRC-32 as zlib's: the checksum of messages before record batches. */

#ifndef STREAMGROUP_CRC32_H
#define STREAMGROUP_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Fill the tables and see what this processor can do: once, before any other of these. */
void crc32_start(void);

/* The checksum, by the fastest way that this processor has. */
extern uint32_t (*crc32_of)(const uint8_t *data, size_t size);

/* The same by tables, which every processor can do. */
uint32_t crc32_portable(const uint8_t *data, size_t size);

#endif
