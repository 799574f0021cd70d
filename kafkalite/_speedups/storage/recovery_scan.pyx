"""Validates and indexes every batch of a segment for recovery, up to the first bad one.

1. Batches are validated without the GIL, one chunk at a time; per chunk the GIL is taken to index them.
2. Bytes after the first bad batch are not used.
3. Memory is bounded by the largest allowed batch, independent of damaged lengths.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from posix.types cimport off_t

from kafkalite._speedups.wire.crc32c cimport crc32c
from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.storage.page_cache cimport FOUND, Window, header_at, open_window
from kafkalite._speedups.storage.producer_state cimport MARKER_BYTES, EndMarker, ProducerState, read_marker
from kafkalite._speedups.storage.segment_core cimport SegmentCore
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    read_batch_header,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void *buf, size_t count, off_t offset)

cdef enum:
    CHUNK_BYTES = 1 << 20
    CHUNK_BATCHES = 4096
    SCAN_MORE = 0
    SCAN_FULL = 1
    SCAN_BAD = 2
cdef int64_t BATCH_BYTES_MAX = 256 << 20

cdef struct Chunk:
    uint8_t *data
    int64_t capacity
    int64_t size              # bytes read
    int64_t used              # bytes of whole good batches
    int64_t next_offset       # no batch may begin below
    int64_t offset_max        # nor end above: the largest offset in an index of the segment
    int64_t before_last       # no offset of the last good batch is below
    int64_t back              # where a whole batch begins that is below; -1 for none
    int64_t missing           # bytes the batch behind `used` has in all, when only that is lacking
    int count
    BatchHeader headers[CHUNK_BATCHES]


cdef int check(Chunk *chunk) noexcept nogil:
    """Walk the batches in the chunk; return why the walk stopped."""
    cdef const uint8_t *p
    cdef BatchHeader *header
    cdef int64_t left, size
    chunk.used = 0
    chunk.count = 0
    while chunk.count < CHUNK_BATCHES:
        p = chunk.data + chunk.used
        left = chunk.size - chunk.used
        header = &chunk.headers[chunk.count]
        chunk.missing = HEADER_SIZE
        if read_batch_header(p, left, header) < 0:
            return SCAN_MORE
        size = LENGTH_OVERHEAD + <int64_t> header.batch_length
        if size < HEADER_SIZE or header.magic != 2 or header.last_offset_delta < 0:
            return SCAN_BAD
        if size > left:
            chunk.missing = size
            return SCAN_MORE
        if crc32c(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != header.crc:
            return SCAN_BAD
        if header.base_offset > chunk.offset_max - header.last_offset_delta:
            return SCAN_BAD
        if header.base_offset < chunk.next_offset:
            if header.base_offset > chunk.before_last:     # else this batch is the damaged one, not the one before
                chunk.back = header.base_offset
            return SCAN_BAD
        chunk.before_last = chunk.next_offset
        chunk.next_offset = header.base_offset + header.last_offset_delta + 1
        chunk.used += size
        chunk.count += 1
    return SCAN_FULL


cdef int64_t read_outside(File file, uint8_t *target, int64_t size, int64_t offset) except -1:
    """As `File.read_into`, without the GIL for the plain file."""
    cdef ssize_t got
    cdef int64_t done = 0
    if file.watched:
        return file.read_into(target, size, offset)
    while done < size:
        with nogil:
            got = c_pread(file.fd, target + done, size - done, offset + done)
        if got < 0 and errno != EINTR:
            raise OSError(errno, "cannot read", file.path)
        if got == 0:
            break
        done += max(got, <ssize_t> 0)
    return done


cdef class SegmentScan:
    """Result of a scan: `end` (position behind the last good batch), `whole` (nothing lies behind it), `next_offset`,
    `batches`, `epochs`: (epoch, first offset) wherever the leader epoch changed, and `aborted`: the transactions whose
    abort marker was noted, as `ProducerState.take_aborted` has them. `back`: the base offset of a whole batch that lies
    behind `end`, but begins below the end of the last good one, though not below its begin: either of the two has
    another base offset than it was given; -1 where it ended for another reason."""

    cdef readonly int64_t end
    cdef readonly int64_t next_offset
    cdef readonly int64_t back
    cdef readonly int64_t batches
    cdef readonly bint whole
    cdef readonly list epochs
    cdef readonly list aborted
    cdef int32_t last_epoch


cdef int take_over(Chunk *chunk, SegmentCore segment, ProducerState producers, int64_t producers_from,
                   int64_t interval, SegmentScan found) except -1:
    """Index and note the batches of a chunk."""
    cdef BatchHeader *header
    cdef int64_t position = 0
    cdef int64_t size
    cdef int i
    for i in range(chunk.count):
        header = &chunk.headers[i]
        size = LENGTH_OVERHEAD + <int64_t> header.batch_length
        segment.note(header, header.base_offset + header.last_offset_delta, size, interval)
        if producers is not None and header.producer_id >= 0 and header.base_offset >= producers_from:
            note_producer(producers, header, chunk.data + position, size)
        position += size
        if not found.epochs or found.last_epoch != header.leader_epoch:
            found.epochs.append((header.leader_epoch, header.base_offset))
            found.last_epoch = header.leader_epoch
    found.batches += chunk.count
    return 0


cdef int note_producer(ProducerState producers, const BatchHeader *header, const uint8_t *p, int64_t size) except -1:
    """Note a batch of which at least the first record of a marker is at `p`; a malformed marker is ignored."""
    cdef EndMarker marker
    if header.attributes & CONTROL_BIT and read_marker(p, size, header, &marker) < 0:
        return 0
    return producers.note(header, header.base_offset, &marker)


def note_producers(SegmentCore segment not None, int64_t from_offset, ProducerState producers not None):
    """Apply the batches of a segment from the offset `from_offset` on, by their headers alone.

    Result: the transactions aborted there, as `ProducerState.take_aborted` has them. Raises OSError.
    """
    cdef Window window
    cdef BatchHeader header
    cdef uint8_t marker[MARKER_BYTES]
    cdef int64_t position = 0
    cdef int64_t size
    cdef int found
    segment.load()
    open_window(&window, None, segment, 0, False)
    found = header_at(segment.file, &window, position, segment.size, &header)
    while found == FOUND or segment.skip_damage(&position, &header, &window) == FOUND:
        size = LENGTH_OVERHEAD + <int64_t> header.batch_length
        if header.producer_id >= 0 and header.base_offset >= from_offset:
            if header.attributes & CONTROL_BIT:
                size = segment.file.read_into(marker, min(size, <int64_t> MARKER_BYTES), position)
            note_producer(producers, &header, marker, size)
        position += LENGTH_OVERHEAD + <int64_t> header.batch_length
        found = header_at(segment.file, &window, position, segment.size, &header)
    producers.keep()
    return producers.take_aborted()


def scan(SegmentCore segment not None, int64_t position, int64_t size, int64_t interval,
         ProducerState producers=None, int64_t producers_from=0, int64_t next_offset=-1):
    """Validate the batches of a segment from `position` (up to which its counters are valid) and index them.

    Arguments:
        size: bytes of the file.
        interval: index.interval.bytes.
        producers: also note the batches of idempotent producers from the offset `producers_from` on.
        next_offset: no batch may begin below; -1: of the segment.

    Result: a SegmentScan. The segment's `size` ends at the first bad batch; the file is unchanged. Raises OSError,
    MemoryError.
    """
    cdef Chunk *chunk = <Chunk *> malloc(sizeof(Chunk))
    cdef SegmentScan found = SegmentScan.__new__(SegmentScan)
    cdef int stop
    if chunk == NULL:
        raise MemoryError
    found.epochs = []
    found.aborted = []
    chunk.data = NULL
    chunk.capacity = 0
    chunk.back = -1
    chunk.next_offset = chunk.before_last = max(segment.base_offset, next_offset)
    chunk.offset_max = segment.base_offset + <int64_t> 0x7fffffff
    try:
        grow(chunk, CHUNK_BYTES)
        while True:
            chunk.size = read_outside(segment.file, chunk.data, min(chunk.capacity, size - position), position)
            with nogil:
                stop = check(chunk)
            take_over(chunk, segment, producers, producers_from, interval, found)
            position += chunk.used
            if stop == SCAN_BAD or position + chunk.missing > size or chunk.missing > BATCH_BYTES_MAX:
                break
            if stop == SCAN_MORE and chunk.used == 0:
                if chunk.missing <= chunk.size:
                    break                          # the file ended before `size`
                if chunk.missing <= chunk.capacity:
                    break
                grow(chunk, chunk.missing)
        if producers is not None:
            producers.keep()
            found.aborted = producers.take_aborted()
        found.end = position
        found.whole = position == size
        found.next_offset = chunk.next_offset
        found.back = chunk.back
        return found
    finally:
        free(chunk.data)
        free(chunk)


cdef int grow(Chunk *chunk, int64_t capacity) except -1:
    cdef uint8_t *data = <uint8_t *> realloc(chunk.data, capacity)
    if data == NULL:
        raise MemoryError
    chunk.data = data
    chunk.capacity = capacity
    return 0
