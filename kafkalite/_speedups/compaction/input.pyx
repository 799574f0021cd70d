"""Reads the input of compaction: validated batches and transactions.

1. A batch is validated (framing, CRC, order) before any of its bytes is used.
2. Memory is bounded by the largest allowed batch, independent of damaged lengths.
3. Aborted transactions come from their index; their batches and markers are read in the order of the log.

Sources: LogCleaner.scala (CleanedTransactionMetadata), ProducerStateManager.java.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove
from posix.types cimport off_t

from kafkalite._speedups.wire.crc32c cimport crc32c
from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.records.record_walk cimport RecordFields, read_record
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Span,
    load_u16,
    read_batch_header,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void *buf, size_t count, off_t offset)

cdef enum:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1
    MARKER_NONE = -1           # no record in the batch
    MARKER_OTHER = -2
cdef int64_t BATCH_BYTES_MAX = 256 << 20

REASONS = {
    BAD_HEADER: "the header of a batch is malformed, or its format is older than version 2",
    BAD_ORDER: "a batch begins below the end of the one before",
    BAD_LENGTH: "the length of a batch reaches past the file",
    BAD_CRC: "the CRC of a batch is wrong",
    BAD_RECORD: "a record is malformed",
    BAD_OFFSET: "a record's offset is not above the one before, or not within its batch",
    BAD_MARKER: "a control batch is malformed",
}


class UncleanableSegmentError(ValueError):
    """A segment cannot be compacted; the message has the position and the reason."""


class CleaningAbortedError(Exception):
    """The cleaning was aborted."""


cdef class BatchReader:
    """The batches of one segment, each checked."""

    def __cinit__(self, int64_t capacity):
        self.capacity_first = max(capacity, <int64_t> BUFFER_MIN)

    def __dealloc__(self):
        free(self.buffer.data)

    cdef int begin(self, File file, int64_t position, int64_t size, int64_t next_offset) except -1:
        """Read a file from a batch start; no offset in it is below `next_offset`."""
        self.file = file
        self.start = position
        self.size = size
        self.next_offset = next_offset
        self.at = self.buffer.size = 0
        self.needs = HEADER_SIZE
        if self.buffer.capacity > 4 * self.capacity_first:       # free the memory of one large batch
            free(self.buffer.data)
            self.buffer.data = NULL
            self.buffer.capacity = 0
        return 0

    cdef int advance(self) noexcept nogil:
        """Move to the next batch and validate it: AT_BATCH, AT_MORE, AT_END or the code of a defect."""
        cdef int64_t left = self.buffer.size - self.at
        cdef int64_t in_file = self.size - self.start - self.at
        cdef int64_t size
        if in_file == 0:
            return AT_END
        if left < HEADER_SIZE:
            self.needs = HEADER_SIZE
            return AT_MORE if in_file >= HEADER_SIZE else BAD_LENGTH
        read_batch_header(self.buffer.data + self.at, left, &self.header)
        size = LENGTH_OVERHEAD + <int64_t> self.header.batch_length
        if self.header.magic != 2 or size < HEADER_SIZE or self.header.last_offset_delta < 0:
            return BAD_HEADER
        if self.header.base_offset < self.next_offset or self.header.base_offset > INT64_MAX - (<int64_t> 1 << 32):
            return BAD_ORDER
        if size > in_file or size > BATCH_BYTES_MAX:
            return BAD_LENGTH
        if size > left:
            self.needs = size
            return AT_MORE
        self.batch = self.buffer.data + self.at
        self.batch_size = size
        if crc32c(self.batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != self.header.crc:
            return BAD_CRC
        self.next_offset = self.header.base_offset + self.header.last_offset_delta + 1
        self.at += size
        return AT_BATCH

    cdef int64_t refill(self) except -1:
        """Read until the next batch fits; return the number of bytes read. Raises OSError, UncleanableSegmentError."""
        cdef int64_t left = self.buffer.size - self.at
        cdef int64_t wanted
        cdef ssize_t got
        cdef int64_t done = left
        if left:
            memmove(self.buffer.data, self.buffer.data + self.at, left)
        self.start += self.at
        self.at = 0
        if reserve(&self.buffer, max(self.needs, self.capacity_first)) < 0:
            raise MemoryError
        wanted = min(self.buffer.capacity, self.size - self.start)
        if self.file.watched:
            done += self.file.read_into(self.buffer.data + left, wanted - left, self.start + left)
        else:
            with nogil:
                while done < wanted:
                    got = c_pread(self.file.fd, self.buffer.data + done, wanted - done, self.start + done)
                    if got == 0 or (got < 0 and errno != EINTR):
                        break
                    done += max(got, <ssize_t> 0)
            if done < wanted and got < 0:
                raise OSError(errno, "cannot read", self.file.path)
        self.buffer.size = done
        if done < wanted:
            raise UncleanableSegmentError(f"{self.file.path}: ends at byte {self.start + done}, not at {self.size}")
        return done - left


cdef class Transactions:
    """Which batches belong to aborted transactions, and which markers may go, as the log is read from its start.

    Argument: (producer id, first offset, last offset, last stable offset) of every aborted transaction that touches
    the offsets to be read.
    """

    def __cinit__(self, aborted):
        cdef int count = len(aborted)
        cdef Aborted *one
        cdef int i
        self.waiting = <Aborted *> malloc((count + 1) * sizeof(Aborted))
        self.ongoing = <Aborted *> malloc((count + 1) * sizeof(Aborted))
        self.kept = <Aborted *> malloc((count + 1) * sizeof(Aborted))
        if self.waiting == NULL or self.ongoing == NULL or self.kept == NULL:
            raise MemoryError
        for i, each in enumerate(sorted(aborted, key=lambda entry: entry[1])):
            one = &self.waiting[i]
            one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset = each
            one.seen = False
        self.waiting_count = count

    def __dealloc__(self):
        free(self.waiting)
        free(self.ongoing)
        free(self.kept)
        free(self.committed)

    def take_kept(self):
        """The aborted transactions whose markers were read and of which batches are left, since the last call."""
        kept = [
            (self.kept[i].producer_id, self.kept[i].first_offset, self.kept[i].last_offset,
             self.kept[i].last_stable_offset)
            for i in range(self.kept_count)
        ]
        self.kept_count = 0
        return kept

    cdef void consume(self, int64_t offset) noexcept nogil:
        """Transactions that begin at or below `offset` have begun."""
        cdef Aborted *next
        cdef int i
        while self.waiting_at < self.waiting_count and self.waiting[self.waiting_at].first_offset <= offset:
            next = &self.waiting[self.waiting_at]
            i = self.find(next.producer_id)
            if i < 0:
                i = self.ongoing_count
                self.ongoing_count += 1
                self.ongoing[i] = next[0]
            elif self.ongoing[i].last_offset < next.first_offset:   # its marker is gone
                self.ongoing[i] = next[0]
            self.waiting_at += 1

    cdef int find(self, int64_t producer_id) noexcept nogil:
        cdef int i
        for i in range(self.ongoing_count):
            if self.ongoing[i].producer_id == producer_id:
                return i
        return -1

    cdef int on_batch(self, const BatchHeader *header) noexcept nogil:
        """Whether the records of a batch were aborted; -1 without memory."""
        cdef int64_t *committed
        cdef int i
        if not header.attributes & TRANSACTIONAL_BIT:
            return 0
        self.consume(header.base_offset + header.last_offset_delta)
        i = self.find(header.producer_id)
        if i >= 0 and header.base_offset <= self.ongoing[i].last_offset:
            self.ongoing[i].seen = True
            return 1
        for i in range(self.committed_count):
            if self.committed[i] == header.producer_id:
                return 0
        if self.committed_count == self.committed_room:
            committed = <int64_t *> realloc(self.committed, (2 * self.committed_room + 16) * sizeof(int64_t))
            if committed == NULL:
                return -1
            self.committed = committed
            self.committed_room = 2 * self.committed_room + 16
        self.committed[self.committed_count] = header.producer_id
        self.committed_count += 1
        return 0

    cdef int on_marker(self, const BatchHeader *header, int kind) noexcept nogil:
        """Whether the marker of a transaction may be removed, because none of its records is left."""
        cdef int i
        self.consume(header.base_offset + header.last_offset_delta)
        if kind == MARKER_ABORT:
            i = self.find(header.producer_id)
            if i < 0:
                return 1
            self.ongoing_count -= 1
            if self.ongoing[i].seen:
                self.kept[self.kept_count] = self.ongoing[i]
                self.kept_count += 1
                self.ongoing[i] = self.ongoing[self.ongoing_count]
                return 0
            self.ongoing[i] = self.ongoing[self.ongoing_count]
            return 1
        if kind == MARKER_COMMIT:
            for i in range(self.committed_count):
                if self.committed[i] == header.producer_id:
                    self.committed_count -= 1
                    self.committed[i] = self.committed[self.committed_count]
                    return 0
            return 1
        return 1 if kind == MARKER_NONE else 0


cdef int marker_kind(const BatchHeader *header, const uint8_t *records, int64_t size) noexcept nogil:
    """The type of a control batch's record, MARKER_NONE if it has none; -BAD_MARKER if its key is incomplete."""
    cdef RecordFields fields
    cdef Span span
    cdef int kind
    if header.records_count <= 0:
        return MARKER_NONE
    span.at = records
    span.left = size
    if read_record(&span, &fields) or fields.key_size < 4:
        return -BAD_MARKER
    kind = load_u16(fields.key + 2)
    return kind if kind == MARKER_ABORT or kind == MARKER_COMMIT else MARKER_OTHER
