"""The offset index and the time index of one segment, in memory as in their files.

1. Entries only increase: offset, position and timestamp of an entry are above those of the previous one.
2. Offsets are stored relative to the base offset in 32 bits; larger ones are rejected.
3. An index only shows where a search begins: a missing entry costs time, and a corrupt file is rejected.

Sources: OffsetIndex.java, TimeIndex.java.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kafkalite._speedups.wire.wire cimport load_u32, load_u64, store_u32, store_u64

cdef enum:
    OFFSET_ENTRY = 8             # int32 relative offset, int32 position
    TIME_ENTRY = 12              # int64 timestamp, int32 relative offset
    CAPACITY_FIRST = 16
cdef int64_t INT32_MAX = 0x7fffffff


class CorruptIndexError(ValueError):
    """The bytes are not an index of this segment; the message has the reason. The index must be rebuilt."""


cdef class Index:
    """The base of both indexes.

    Arguments:
        base_offset: of the segment.
        bytes_max: segment.index.bytes; the index is full when its entries reach it.
    """

    def __cinit__(self, int64_t base_offset, int64_t bytes_max=10485760):
        self.base_offset = base_offset
        self.entry_size = OFFSET_ENTRY if isinstance(self, OffsetIndex) else TIME_ENTRY
        self.entries_max = <int> max(1, min(bytes_max, INT32_MAX) // self.entry_size)

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.count

    @property
    def memory(self):
        """Bytes held."""
        return self.capacity * self.entry_size

    cdef uint8_t *grow(self) except NULL:
        """Return the memory of the next entry; the caller fills it and counts it."""
        cdef int capacity
        cdef uint8_t *data
        if self.count == self.capacity:
            capacity = max(<int> CAPACITY_FIRST, self.capacity * 2)
            data = <uint8_t *> realloc(self.data, <size_t> capacity * self.entry_size)
            if data == NULL:
                raise MemoryError
            self.data = data
            self.capacity = capacity
        return self.data + <size_t> self.count * self.entry_size

    cdef bint full(self, int spare) noexcept nogil:
        return self.count >= self.entries_max - spare

    def tobytes(self, int first=0):
        """The entries from number `first` on, as in the file."""
        first = min(max(first, 0), self.count)
        return PyBytes_FromStringAndSize(
            <char *> self.data + <size_t> first * self.entry_size, <Py_ssize_t> (self.count - first) * self.entry_size
        )

    def mark_written(self):
        """Every entry is in the file now."""
        self.written = self.count

    cdef int fill(self, bytes data) except -1:
        # Takes over the bytes of a file; the subclasses check them.
        cdef Py_ssize_t size = len(data)
        cdef uint8_t *memory
        if size % self.entry_size or size // self.entry_size > INT32_MAX:
            raise CorruptIndexError(f"{size} bytes are not whole entries of {self.entry_size}")
        self.count = 0
        if size:
            memory = <uint8_t *> realloc(self.data, size)
            if memory == NULL:
                raise MemoryError
            memcpy(memory, <const uint8_t *> data, size)
            self.data = memory
            self.count = self.capacity = <int> (size // self.entry_size)
        self.written = self.count
        return 0

    cdef int keep_first(self, int count) except -1:
        self.count = count
        self.written = min(self.written, count)
        return 0


cdef int count_to(Index index, int field_at, bint wide, int64_t key, bint equal) noexcept nogil:
    """How many entries have a field below `key`, or with `equal` at it; `wide`: of 8 bytes, else of 4. They grow."""
    cdef int low = 0
    cdef int high = index.count
    cdef int middle
    cdef int64_t value
    cdef const uint8_t *field
    while low < high:
        middle = low + (high - low) // 2
        field = index.data + <size_t> middle * index.entry_size + field_at
        value = <int64_t> load_u64(field) if wide else <int32_t> load_u32(field)
        if value < key or (equal and value == key):
            low = middle + 1
        else:
            high = middle
    return low


cdef class OffsetIndex(Index):
    """Maps an offset to a file position at or before its batch."""

    cdef int add(self, int64_t offset, int64_t position) except -1:
        cdef uint8_t *entry
        cdef int64_t relative = offset - self.base_offset
        if relative < 0 or relative > INT32_MAX or position < 0 or position > INT32_MAX:
            raise OverflowError(f"offset {offset} at {position} does not fit an index based on {self.base_offset}")
        if self.count and relative <= self.relative(self.count - 1):
            raise ValueError(f"offset {offset} is not above the last entry of the index")
        entry = self.grow()
        store_u32(entry, <int32_t> relative)
        store_u32(entry + 4, <int32_t> position)
        self.count += 1
        return 0

    cdef int64_t relative(self, int i) noexcept nogil:
        return <int32_t> load_u32(self.data + <size_t> i * OFFSET_ENTRY)

    cdef int64_t position(self, int i) noexcept nogil:
        return <int32_t> load_u32(self.data + <size_t> i * OFFSET_ENTRY + 4)

    cdef int entry_of(self, int64_t offset) noexcept nogil:
        """Number of the last entry at or below `offset`, -1 where there is none."""
        return count_to(self, 0, False, offset - self.base_offset, True) - 1

    cdef int64_t position_at(self, int i) noexcept nogil:
        """Position of an entry, 0 for those before the first."""
        return self.position(i) if i >= 0 else 0

    cdef int64_t position_of(self, int64_t offset) noexcept nogil:
        """Position of the last entry at or below `offset`, 0 where there is none."""
        return self.position_at(self.entry_of(offset))

    cdef int64_t position_before(self, int64_t position) noexcept nogil:
        """The last indexed position at or below `position`, 0 where there is none."""
        return self.position_at(count_to(self, 4, False, position, True) - 1)

    cdef int64_t position_after(self, int64_t position) noexcept nogil:
        """The first indexed position above `position`, -1 where there is none."""
        cdef int i = count_to(self, 4, False, position, True)
        return self.position(i) if i < self.count else -1

    def append(self, int64_t offset, int64_t position):
        """Add an entry: the batch that ends with `offset` begins at `position`. Raises OverflowError, ValueError."""
        self.add(offset, position)

    def look_up(self, int64_t offset):
        """Return the position where the scan for `offset` begins."""
        return self.position_of(offset)

    def offset_from(self, int64_t position):
        """Last offset of the first indexed batch that begins at `position` or behind it, None where there is none."""
        cdef int i = count_to(self, 4, False, position, False)
        return self.base_offset + self.relative(i) if i < self.count else None

    def entries(self):
        """(offset, position) of every entry."""
        return [(self.base_offset + self.relative(i), self.position(i)) for i in range(self.count)]

    def load(self, bytes data not None, int64_t size):
        """Load the bytes of an index file of a segment of `size` bytes. Raises CorruptIndexError."""
        cdef int i
        self.fill(data)
        for i in range(self.count):
            if self.relative(i) < 0 or self.position(i) < 0 or self.position(i) >= size:
                raise CorruptIndexError(f"the position of entry {i} is outside the segment")
            if i and (self.relative(i) <= self.relative(i - 1) or self.position(i) <= self.position(i - 1)):
                raise CorruptIndexError(f"entry {i} is not above the one before")

    def truncate(self, int64_t offset):
        """Remove the entries at or above `offset`."""
        self.keep_first(count_to(self, 0, False, offset - self.base_offset, False))


cdef class TimeIndex(Index):
    """Maps a timestamp to an offset below which all records are older."""

    cdef int64_t timestamp(self, int i) noexcept nogil:
        return <int64_t> load_u64(self.data + <size_t> i * TIME_ENTRY)

    cdef int64_t relative(self, int i) noexcept nogil:
        return <int32_t> load_u32(self.data + <size_t> i * TIME_ENTRY + 8)

    cdef int64_t last_timestamp(self) noexcept nogil:
        return self.timestamp(self.count - 1) if self.count else -1

    cdef int add(self, int64_t timestamp, int64_t offset) except -1:
        """Add the highest timestamp so far, if it and its offset are above the last entry."""
        cdef uint8_t *entry
        cdef int64_t relative = offset - self.base_offset
        if timestamp <= self.last_timestamp() or (self.count and relative <= self.relative(self.count - 1)):
            return 0
        if relative < 0 or relative > INT32_MAX:
            raise OverflowError(f"offset {offset} does not fit an index based on {self.base_offset}")
        entry = self.grow()
        store_u64(entry, timestamp)
        store_u32(entry + 8, <int32_t> relative)
        self.count += 1
        return 0

    cdef int older_than(self, int64_t timestamp) noexcept nogil:
        """Number of the last entry below `timestamp`, -1 where there is none."""
        return count_to(self, 0, True, timestamp, False) - 1

    def append(self, int64_t timestamp, int64_t offset):
        """Add the highest timestamp so far and the last offset of its batch. Raises OverflowError."""
        self.add(timestamp, offset)

    def look_up(self, int64_t timestamp):
        """The offset from which a scan for a record at or after `timestamp` may begin."""
        cdef int i = self.older_than(timestamp)
        return self.base_offset + (self.relative(i) if i >= 0 else 0)

    def entries(self):
        """(timestamp, offset) of every entry."""
        return [(self.timestamp(i), self.base_offset + self.relative(i)) for i in range(self.count)]

    def last(self):
        """(timestamp, offset) of the last entry, None in an empty index."""
        if not self.count:
            return None
        return self.timestamp(self.count - 1), self.base_offset + self.relative(self.count - 1)

    def load(self, bytes data not None, int64_t next_offset):
        """Load the bytes of an index file of a segment that ends before `next_offset`. Raises CorruptIndexError."""
        cdef int i
        self.fill(data)
        for i in range(self.count):
            if self.relative(i) < 0 or self.base_offset + self.relative(i) >= next_offset:
                raise CorruptIndexError(f"the position of entry {i} is outside the segment")
            if i and (self.timestamp(i) <= self.timestamp(i - 1) or self.relative(i) < self.relative(i - 1)):
                raise CorruptIndexError(f"entry {i} is not above the one before")

    def truncate(self, int64_t offset):
        """Remove the entries at or above `offset`."""
        self.keep_first(count_to(self, 8, False, offset - self.base_offset, False))
