"""Computes CRC-32C in C without the GIL, for jobs that check batches on the disk.

Batches of clients are checked by the `crc32c` package, see docs/decisions.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static uint32_t kl_crc_table[8][256];
    static void kl_crc_init(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & -(crc & 1));
            kl_crc_table[0][i] = crc;
        }
        for (int row = 1; row < 8; row++)
            for (int i = 0; i < 256; i++) {
                uint32_t before = kl_crc_table[row - 1][i];
                kl_crc_table[row][i] = (before >> 8) ^ kl_crc_table[0][before & 0xff];
            }
    }
    /* CRC-32C, eight bytes a step. */
    static uint32_t kl_crc_plain(uint32_t crc, const uint8_t *p, size_t n) {
        for (; n >= 8; p += 8, n -= 8) {
            uint32_t low = (p[0] | p[1] << 8 | p[2] << 16 | (uint32_t) p[3] << 24) ^ crc;
            crc = kl_crc_table[7][low & 0xff] ^ kl_crc_table[6][low >> 8 & 0xff]
                ^ kl_crc_table[5][low >> 16 & 0xff] ^ kl_crc_table[4][low >> 24]
                ^ kl_crc_table[3][p[4]] ^ kl_crc_table[2][p[5]] ^ kl_crc_table[1][p[6]] ^ kl_crc_table[0][p[7]];
        }
        for (; n; p++, n--) crc = (crc >> 8) ^ kl_crc_table[0][(crc ^ *p) & 0xff];
        return crc;
    }
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static uint32_t kl_crc_fast(uint32_t crc, const uint8_t *p, size_t n) {
        uint64_t wide = crc, word;
        for (; n >= 8; p += 8, n -= 8) { memcpy(&word, p, 8); wide = __builtin_ia32_crc32di(wide, word); }
        crc = (uint32_t) wide;
        for (; n; p++, n--) crc = __builtin_ia32_crc32qi(crc, *p);
        return crc;
    }
    static int kl_crc_has_fast(void) { return __builtin_cpu_supports("sse4.2"); }
    #else
    #define kl_crc_fast kl_crc_plain
    static int kl_crc_has_fast(void) { return 0; }
    #endif
    """
    void kl_crc_init() noexcept nogil
    uint32_t kl_crc_plain(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
    uint32_t kl_crc_fast(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
    int kl_crc_has_fast() noexcept nogil

cdef uint32_t START = 0xffffffff

kl_crc_init()
cdef bint has_fast = kl_crc_has_fast()


cdef uint32_t crc32c(const uint8_t *p, size_t n) noexcept nogil:
    return crc32c_more(0, p, n)


cdef uint32_t crc32c_more(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil:
    return (kl_crc_fast(crc ^ START, p, n) if has_fast else kl_crc_plain(crc ^ START, p, n)) ^ START


def checksum(bytes data not None, bint plain=False):
    """Return the CRC-32C of `data`; `plain` = by tables, without the instruction of the processor."""
    cdef const uint8_t *p = data
    return kl_crc_plain(START, p, len(data)) ^ START if plain else crc32c(p, len(data))
