"""How a reader finds its way where headers are damaged: those bytes of a batch that no CRC covers.

Laws:
1. A batch counts whose length its CRC confirms; its offsets count when they fit to those of its neighbours.
2. Behind damage the walk goes on with the next batch that counts, at the latest where the offset index names one. What
   the index says of offsets is not believed here.
3. Nothing here runs while every header met is in line with the one before.

One damaged place between two entries of the index is what this is made for. Where there are several, the good batches
between them are taken for damaged, too.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from kafkalite._speedups.wire.crc32c cimport crc32c_more
from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.storage.index cimport OffsetIndex
from kafkalite._speedups.storage.header_window cimport COLD, WINDOW_BYTES, Window, fill, header_at
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    BatchHeader,
    load_u64,
)


cdef enum:
    CHAIN_BYTES = 64 << 10    # behind a batch that was found byte by byte


cdef inline int64_t last_of(const BatchHeader *header) noexcept:
    return header.base_offset + header.last_offset_delta


cdef inline int64_t end_of(int64_t position, const BatchHeader *header) noexcept:
    return position + LENGTH_OVERHEAD + header.batch_length


cdef DamagedHeaderSearch resync(File file, OffsetIndex index, Window *window,
                                int64_t base_offset, int64_t bound, int64_t size):
    """A way through the batches of a file of `size` bytes, with offsets from `base_offset` to below `bound`."""
    cdef DamagedHeaderSearch way = DamagedHeaderSearch.__new__(DamagedHeaderSearch)
    way.file = file
    way.index = index
    way.window = window
    way.base_offset = base_offset
    way.bound = bound
    way.size = size
    way.cold = 0
    return way


cdef class DamagedHeaderSearch:

    cdef int find(self, int64_t offset, int64_t *position, BatchHeader *out) except -1:
        """Find the first batch that ends at or beyond `offset`, from one entry of the index before it.

        Result: 1, 0 where there is none, COLD (`position`: what is to be brought in), or DAMAGED where the batch with
        this offset is (`position`: where; in `out` the base offset it should have).
        """
        cdef int64_t at = self.index.position_at(self.index.entry_of(offset) - 1)
        cdef int64_t expected = self.base_offset
        cdef int64_t broken = -1
        cdef int found
        while at < self.size:
            found = self.whole_at(at, out)
            if found == 1:
                found = self.accept(at, out, expected)
                if found == 1 and last_of(out) >= offset:
                    if broken < 0 or out.base_offset <= offset:
                        position[0] = at
                        return 1
                    break
                if found == 1:
                    expected = last_of(out) + 1
                    broken = -1
                elif found == 0 and broken < 0:
                    broken = at
                at = end_of(at, out)
            elif found == 0:
                if broken < 0:
                    broken = at
                found = self.walk_on(&at, out)
            if found == COLD:
                position[0] = self.cold
                return COLD
        position[0] = broken
        out.base_offset = expected
        return DAMAGED if broken >= 0 else 0

    cdef int walk_on(self, int64_t *position, BatchHeader *out) except -1:
        """Go from a damaged batch to the next whole one, or to the end; 1, or COLD."""
        cdef int64_t named
        cdef int found
        while True:
            named = self.index.position_after(position[0])
            found = self.next_header(position, named if 0 <= named < self.size else self.size, out)
            if found == 0 and position[0] < self.size:
                found = self.whole_at(position[0], out)
            if found or position[0] >= self.size:
                return COLD if found == COLD else 1

    cdef int accept(self, int64_t position, const BatchHeader *header, int64_t expected) except -1:
        """Whether the offsets of a whole batch fit to those before it, which end below `expected`, and to what follows.

        Between two that overlap the one is believed that touches a neighbour; 1, 0 or COLD.
        """
        cdef BatchHeader next, second
        cdef int64_t at = end_of(position, header)
        cdef int found
        if header.base_offset < expected or last_of(header) >= self.bound:
            return 0
        if header.base_offset == expected:
            return 1
        found = self.whole_at(at, &next)
        if found != 1:
            return COLD if found == COLD else 1
        if next.base_offset > last_of(header) or next.base_offset < expected:
            return 1
        found = self.whole_at(end_of(at, &next), &second)
        if found == COLD:
            return COLD
        return last_of(&next) + 1 != (second.base_offset if found == 1 else self.bound)

    cdef int whole_at(self, int64_t position, BatchHeader *out) except -1:
        """Whether a batch lies at `position` as its header says; 1, 0 or COLD."""
        cdef BatchHeader named
        cdef int64_t entry
        cdef int found = header_at(self.file, self.window, position, self.size, out)
        if found == COLD:
            self.cold = position
        if found != 1:
            return found
        entry = self.index.position_after(position)
        if 0 <= entry < end_of(position, out):       # either the length or the index is wrong: who is the cheaper look
            found = header_at(self.file, self.window, entry, self.size, &named)
            if found == COLD:
                self.cold = entry
            elif found == 1:
                found = self.checked(entry, &named)
            if found:
                return COLD if found == COLD else 0
        return self.checked(position, out)

    cdef int checked(self, int64_t position, const BatchHeader *header) except -1:
        """Whether the CRC of a batch is right; 1, 0 or COLD."""
        cdef int64_t end = end_of(position, header)
        cdef int64_t begin
        cdef uint32_t crc = 0
        position += ATTRIBUTES_AT
        while position < end:
            begin = position - self.window.start
            if not 0 <= begin < self.window.size:
                if fill(self.file, self.window, position, min(<int64_t> WINDOW_BYTES, end - position)) == COLD:
                    self.cold = position
                    return COLD
                begin = 0
                if self.window.size <= 0:
                    return 0                         # the file ends here
            crc = crc32c_more(crc, self.window.data + begin, min(self.window.size - begin, end - position))
            position += min(self.window.size - begin, end - position)
        return crc == header.crc

    cdef int next_header(self, int64_t *position, int64_t limit, BatchHeader *out) except -1:
        """Look for a whole batch behind `position` byte by byte; 1 and where, COLD, or 0 and the position `limit`.

        Only one is taken from which batch after batch leads on to the limit: a record may hold whole batches, too.
        """
        cdef const uint8_t *p
        cdef int64_t at = position[0] + 1
        cdef int64_t begin, base_offset
        cdef int found
        while at + HEADER_SIZE <= limit:
            begin = at - self.window.start
            if begin < 0 or begin + HEADER_SIZE > self.window.size:
                if fill(self.file, self.window, at, min(<int64_t> WINDOW_BYTES, limit - at)) == COLD:
                    self.cold = at
                    return COLD
                begin = 0
                if self.window.size < HEADER_SIZE:
                    break
            p = self.window.data + begin
            if p[MAGIC_AT] == 2:
                base_offset = <int64_t> load_u64(p + BASE_OFFSET_AT)
                if self.base_offset <= base_offset < self.bound:
                    found = self.whole_at(at, out)
                    if found == 1:
                        found = self.leads_on(end_of(at, out), limit)
                    if found:
                        position[0] = at
                        return found
            at += 1
        position[0] = limit
        return 0

    cdef int leads_on(self, int64_t position, int64_t limit) except -1:
        """Whether whole batches follow one another from `position` to the limit, or for a good while; 1, 0 or COLD."""
        cdef BatchHeader header
        cdef int64_t enough = min(limit, position + CHAIN_BYTES)
        cdef int found
        while position < enough:
            found = self.whole_at(position, &header)
            if found != 1:
                return found
            position = end_of(position, &header)
        return 1
