"""The cleaner's map from a key to its last offset: 24 bytes per key in one flat buffer.

1. A key is identified by its keyed SipHash-2-4-128 alone. The secret is random per map and never leaves it, so that no
   client can create colliding keys, with which the cleaner would remove a live record.
2. The memory is allocated when work begins and freed after it (`clear`); it does not grow in between.
3. A full map rejects new keys; known keys are still updated.

Sources: SkimpyOffsetMap.java; SipHash by Aumasson and Bernstein.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>
    #define KL_ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define KL_ROUND do { \\
        v0 += v1; v2 += v3; v1 = KL_ROTATE(v1, 13); v3 = KL_ROTATE(v3, 16); \\
        v1 ^= v0; v3 ^= v2; v0 = KL_ROTATE(v0, 32); \\
        v2 += v1; v0 += v3; v1 = KL_ROTATE(v1, 17); v3 = KL_ROTATE(v3, 21); \\
        v1 ^= v2; v3 ^= v0; v2 = KL_ROTATE(v2, 32); } while (0)
    static inline uint64_t kl_little64(const uint8_t *p) {
        uint64_t word;
        memcpy(&word, p, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }
    /* SipHash-2-4 with 128 bits of output. */
    static void kl_siphash(const uint64_t secret[2], const uint8_t *p, size_t n, uint64_t out[2]) {
        uint64_t v0 = secret[0] ^ 0x736f6d6570736575ULL, v1 = secret[1] ^ 0x646f72616e646f6dULL ^ 0xee;
        uint64_t v2 = secret[0] ^ 0x6c7967656e657261ULL, v3 = secret[1] ^ 0x7465646279746573ULL;
        uint64_t word, last = (uint64_t) n << 56;
        for (; n >= 8; p += 8, n -= 8) {
            word = kl_little64(p);
            v3 ^= word; KL_ROUND; KL_ROUND; v0 ^= word;
        }
        for (size_t i = 0; i < n; i++) last |= (uint64_t) p[i] << (8 * i);
        v3 ^= last; KL_ROUND; KL_ROUND; v0 ^= last;
        v2 ^= 0xee; KL_ROUND; KL_ROUND; KL_ROUND; KL_ROUND;
        out[0] = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd; KL_ROUND; KL_ROUND; KL_ROUND; KL_ROUND;
        out[1] = v0 ^ v1 ^ v2 ^ v3;
    }
    static inline uint64_t kl_scale(uint64_t x, uint64_t n) { return (uint64_t) (((unsigned __int128) x * n) >> 64); }
    """
    uint64_t kl_little64(const uint8_t *p) noexcept nogil
    void kl_siphash(const uint64_t *secret, const uint8_t *p, size_t n, uint64_t *out) noexcept nogil
    uint64_t kl_scale(uint64_t x, uint64_t n) noexcept nogil

cdef enum:
    ENTRY_BYTES = 24
    SECRET_BYTES = 16
    SLOTS_MIN = 64


cdef int take_secret(bytes secret, uint64_t *out) except -1:
    cdef const uint8_t *p = secret
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret has {SECRET_BYTES} bytes, not {len(secret)}")
    out[0] = kl_little64(p)
    out[1] = kl_little64(p + 8)
    return 0


def siphash(bytes secret not None, bytes data not None):
    """Return the SipHash-2-4-128 of `data` under a secret of 16 bytes, as the 16 bytes of the reference."""
    cdef uint64_t words[2]
    cdef uint64_t out[2]
    take_secret(secret, words)
    kl_siphash(words, data, len(data), out)
    return out[0].to_bytes(8, "little") + out[1].to_bytes(8, "little")


cdef class OffsetMap:
    """Keys and their last offsets.

    Arguments:
        secret: 16 random bytes.
        bytes_max: memory at most.
        load_factor: largest share of used slots, above 0 and at most 1.
    """

    def __cinit__(self, bytes secret not None, int64_t bytes_max, double load_factor=0.9):
        if bytes_max < ENTRY_BYTES * SLOTS_MIN or not 0 < load_factor <= 1:
            raise ValueError(f"no map fits into {bytes_max} bytes filled to {load_factor}")
        take_secret(secret, self.secret)
        self.slots_max = bytes_max // ENTRY_BYTES
        self.load_factor = load_factor
        self.latest_offset = -1

    def __dealloc__(self):
        free(self.entries)

    def __len__(self):
        return self.count

    def clear(self, int64_t keys=0):
        """Remove all keys, and allocate memory for `keys` keys up to the bound; 0 frees it. Raises MemoryError.
        """
        with nogil:                                      # the system needs long for many pages
            free(self.entries)
        self.entries = NULL
        self.slots = self.capacity = self.count = 0
        self.latest_offset = -1
        if keys > 0:
            # At most half full if the bound allows it: chains stay short, and few keys need little memory.
            self.slots = min(self.slots_max, max(<int64_t> SLOTS_MIN, 2 * min(keys, self.slots_max)))
            with nogil:
                self.entries = <Entry *> calloc(self.slots, sizeof(Entry))
            if self.entries == NULL:
                self.slots = 0
                raise MemoryError
            self.capacity = max(<int64_t> 1, min(<int64_t> (self.slots * self.load_factor), self.slots - 1))

    def put(self, bytes key not None, int64_t offset):
        """Set the offset of a key; False if the map is full and does not contain the key."""
        cdef Digest digest = self.digest(key, len(key))
        return self.note(&digest, offset)

    def get(self, bytes key not None):
        """The last offset of a key, -1 if the map does not contain it."""
        cdef Digest digest = self.digest(key, len(key))
        return self.offset_of(&digest)

    cdef Digest digest(self, const uint8_t *key, Py_ssize_t size) noexcept nogil:
        cdef Digest found
        kl_siphash(self.secret, key, size, <uint64_t *> &found)
        return found

    cdef Entry *home(self, const Digest *digest) noexcept nogil:
        """The index at which the search for a digest begins."""
        return &self.entries[kl_scale(digest.low, self.slots)]

    cdef Entry *seek(self, const Digest *digest) noexcept nogil:
        """The entry of a digest, or the free entry for it. There is always a free entry."""
        cdef Entry *entry = self.home(digest)
        cdef Entry *end = self.entries + self.slots
        while entry.after and (entry.digest.high != digest.high or entry.digest.low != digest.low):
            entry += 1
            if entry == end:
                entry = self.entries
        return entry

    cdef bint note(self, const Digest *digest, int64_t offset) noexcept nogil:
        cdef Entry *entry
        if not self.slots:
            return False
        entry = self.seek(digest)
        if not entry.after:
            if self.count >= self.capacity:
                return False
            entry.digest = digest[0]
            self.count += 1
        if offset + 1 > entry.after:
            entry.after = offset + 1
        return True

    cdef int64_t offset_of(self, const Digest *digest) noexcept nogil:
        return self.seek(digest).after - 1 if self.slots else -1
