"""Reads batches around damaged headers: the bytes of a batch that no CRC covers (base offset, length, epoch, magic).

1. A batch is accepted if its CRC confirms its length, and its offsets if they fit those of the neighbouring batches.
2. After a damaged batch the search continues with the next accepted batch, at the latest at the next position in the
   offset index. The offsets in the index are not used here.
3. Nothing here runs while every header agrees with the one before it.

This handles one damaged batch between two index entries. If there are several, the intact batches between them count as
damaged, too.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from kafkalite._speedups.wire.crc32c cimport crc32c_more
from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.storage.index cimport OffsetIndex
from kafkalite._speedups.storage.page_cache cimport (
    CACHE_MISS,
    DAMAGED,
    FOUND,
    NO_BATCH,
    WINDOW_BYTES,
    Window,
    end_position,
    fill,
    header_at,
    last_offset_of,
)
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    HEADER_SIZE,
    MAGIC_AT,
    BatchHeader,
    load_u64,
)


cdef enum:
    CHAIN_BYTES = 64 << 10    # of batches that must follow a batch which was found byte by byte


cdef DamagedHeaderSearch damaged_header_search(
    File file, OffsetIndex index, Window *window, int64_t base_offset, int64_t bound, int64_t size
):
    """A search in a file of `size` bytes, whose batches have offsets from `base_offset` to below `bound`."""
    cdef DamagedHeaderSearch search = DamagedHeaderSearch.__new__(DamagedHeaderSearch)
    search.file = file
    search.index = index
    search.window = window
    search.base_offset = base_offset
    search.bound = bound
    search.size = size
    search.missed = 0
    return search


cdef class DamagedHeaderSearch:

    cdef int find(self, int64_t offset, int64_t *position, BatchHeader *out) except -1:
        """Find the first batch that ends at or above `offset`, beginning one index entry before it.

        Result: FOUND; NO_BATCH if there is none; CACHE_MISS (`position`: of the bytes to read ahead); DAMAGED if the
        batch with this offset is (`position`: where it begins; `out`: the base offset that it should have).
        """
        cdef int64_t at = self.index.position_at(self.index.entry_of(offset) - 1)
        cdef int64_t expected = self.base_offset
        cdef int64_t broken = -1
        cdef int found
        while at < self.size:
            found = self.valid_batch_at(at, out)
            if found == 1:
                found = self.offsets_fit(at, out, expected)
                if found == 1 and last_offset_of(out) >= offset:
                    if broken < 0 or out.base_offset <= offset:
                        position[0] = at
                        return FOUND
                    break
                if found == 1:
                    expected = last_offset_of(out) + 1
                    broken = -1
                elif found == 0 and broken < 0:
                    broken = at
                at = end_position(at, out)
            elif found == 0:
                if broken < 0:
                    broken = at
                found = self.next_batch(&at, out)
            if found == CACHE_MISS:
                position[0] = self.missed
                return CACHE_MISS
        position[0] = broken
        out.base_offset = expected
        return DAMAGED if broken >= 0 else NO_BATCH

    cdef int next_batch(self, int64_t *position, BatchHeader *out) except -1:
        """Move from a damaged batch to the next valid one, or to the end of the file: FOUND or CACHE_MISS."""
        cdef int64_t named
        cdef int found
        while True:
            named = self.index.position_after(position[0])
            found = self.scan_for_batch(position, named if 0 <= named < self.size else self.size, out)
            if found == 0 and position[0] < self.size:
                found = self.valid_batch_at(position[0], out)
            if found or position[0] >= self.size:
                return CACHE_MISS if found == CACHE_MISS else FOUND

    cdef int offsets_fit(self, int64_t position, const BatchHeader *header, int64_t expected) except -1:
        """Whether the offsets of a valid batch fit those before it, which end below `expected`, and those after it.

        Of two batches with overlapping offsets the one that is adjacent to a neighbour is accepted. Result: 1, 0 or
        CACHE_MISS.
        """
        cdef BatchHeader next, second
        cdef int64_t at = end_position(position, header)
        cdef int found
        if header.base_offset < expected or last_offset_of(header) >= self.bound:
            return 0
        if header.base_offset == expected:
            return 1
        found = self.valid_batch_at(at, &next)
        if found != 1:
            return CACHE_MISS if found == CACHE_MISS else 1
        if next.base_offset > last_offset_of(header) or next.base_offset < expected:
            return 1
        found = self.valid_batch_at(end_position(at, &next), &second)
        if found == CACHE_MISS:
            return CACHE_MISS
        return last_offset_of(&next) + 1 != (second.base_offset if found == 1 else self.bound)

    cdef int valid_batch_at(self, int64_t position, BatchHeader *out) except -1:
        """Whether a valid batch of the length in its header begins at `position`: FOUND, NO_BATCH or CACHE_MISS."""
        cdef BatchHeader named
        cdef int64_t entry
        cdef int found = header_at(self.file, self.window, position, self.size, out)
        if found == CACHE_MISS:
            self.missed = position
        if found != 1:
            return found
        entry = self.index.position_after(position)
        if 0 <= entry < end_position(position, out):   # the length or the index is wrong; the index is cheaper to check
            found = header_at(self.file, self.window, entry, self.size, &named)
            if found == CACHE_MISS:
                self.missed = entry
            elif found == 1:
                found = self.crc_matches(entry, &named)
            if found:
                return CACHE_MISS if found == CACHE_MISS else 0
        return self.crc_matches(position, out)

    cdef int crc_matches(self, int64_t position, const BatchHeader *header) except -1:
        """Whether the CRC of a batch matches its bytes: 1, 0 or CACHE_MISS."""
        cdef int64_t end = end_position(position, header)
        cdef int64_t begin
        cdef uint32_t crc = 0
        position += ATTRIBUTES_AT
        while position < end:
            begin = position - self.window.start
            if not 0 <= begin < self.window.size:
                if fill(self.file, self.window, position, min(<int64_t> WINDOW_BYTES, end - position)) == CACHE_MISS:
                    self.missed = position
                    return CACHE_MISS
                begin = 0
                if self.window.size <= 0:
                    return 0                         # the file ends here
            crc = crc32c_more(crc, self.window.data + begin, min(self.window.size - begin, end - position))
            position += min(self.window.size - begin, end - position)
        return crc == header.crc

    cdef int scan_for_batch(self, int64_t *position, int64_t limit, BatchHeader *out) except -1:
        """Search for a valid batch after `position`, byte by byte: FOUND, CACHE_MISS, or NO_BATCH at `limit`.

        A batch is accepted only if other batches follow it up to the limit, because a record may contain batches.
        """
        cdef const uint8_t *p
        cdef int64_t at = position[0] + 1
        cdef int64_t begin, base_offset
        cdef int found
        while at + HEADER_SIZE <= limit:
            begin = at - self.window.start
            if begin < 0 or begin + HEADER_SIZE > self.window.size:
                if fill(self.file, self.window, at, min(<int64_t> WINDOW_BYTES, limit - at)) == CACHE_MISS:
                    self.missed = at
                    return CACHE_MISS
                begin = 0
                if self.window.size < HEADER_SIZE:
                    break
            p = self.window.data + begin
            if p[MAGIC_AT] == 2:
                base_offset = <int64_t> load_u64(p + BASE_OFFSET_AT)
                if self.base_offset <= base_offset < self.bound:
                    found = self.valid_batch_at(at, out)
                    if found == 1:
                        found = self.batches_follow(end_position(at, out), limit)
                    if found:
                        position[0] = at
                        return found
            at += 1
        position[0] = limit
        return NO_BATCH

    cdef int batches_follow(self, int64_t position, int64_t limit) except -1:
        """Whether valid batches fill the file from `position` to the limit, or for CHAIN_BYTES: 1, 0 or CACHE_MISS."""
        cdef BatchHeader header
        cdef int64_t enough = min(limit, position + CHAIN_BYTES)
        cdef int found
        while position < enough:
            found = self.valid_batch_at(position, &header)
            if found != 1:
                return found
            position = end_position(position, &header)
        return 1
