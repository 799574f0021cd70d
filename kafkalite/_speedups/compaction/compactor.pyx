"""Compaction in C: finds the last offset of each key, and copies a segment without the superseded records.

1. Records are never Python objects. The GIL is taken per buffer, to write and to index; per batch only for its codec.
2. Malformed bytes raise `UncleanableSegmentError`. The lengths of every record are validated before it is copied.
3. Offsets never change. A batch that keeps all its records is copied byte for byte. A batch that loses records keeps
   its header except count, sizes, maximum timestamp and CRC; its records are the same bytes, unless a delete horizon is
   set.
4. Between two batches the thread checks whether it must stop: `CleaningAbortedError`.

Sources: LogCleaner.scala (Cleaner), MemoryRecords.filterTo, KIP-534.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kafkalite._speedups.compaction.input cimport (
    AT_BATCH,
    AT_END,
    AT_FLUSH,
    AT_FULL,
    AT_MORE,
    AT_NO_MEMORY,
    AT_PACKED,
    AT_STOPPED,
    AT_UNPACKED,
    BAD_MARKER,
    BAD_OFFSET,
    BAD_RECORD,
    Buffer,
    BatchReader,
    Transactions,
    added,
    marker_kind,
    reserve,
)
from kafkalite._speedups.compaction.output cimport Kept, Output
from kafkalite._speedups.compaction.tombstone_retention cimport RetentionRules
from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.storage.segment_core cimport SegmentCore
from kafkalite._speedups.compaction.offset_map cimport Digest, OffsetMap
from kafkalite._speedups.records.record_walk cimport RecordFields, read_record
from kafkalite._speedups.wire.wire cimport CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, HEADER_SIZE, BatchHeader, Span

from kafkalite._speedups.compaction.input import REASONS, CleaningAbortedError, UncleanableSegmentError
from kafkalite._speedups.records.validator import BatchError, codecs_in_use

cdef extern from "Python.h":
    int PyBUF_READ

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *p) noexcept nogil

cdef enum:
    GROUP = 16                 # records looked up together, so that their memory is fetched at the same time
cdef int64_t DECOMPRESSED_MAX = 1 << 30


cdef class Worker:
    """The memory and the counters of one cleaner thread.

    Arguments:
        offsets: the map.
        buffer_bytes: size of one read and of one write.
        throttle: called with bytes read or written, to wait as long as the limit asks; None: no limit.
    `stop` may be set by another thread.
    """

    cdef readonly OffsetMap offsets
    cdef public bint stop
    cdef readonly int64_t bytes_mapped
    cdef readonly int64_t bytes_read
    cdef readonly int64_t bytes_written
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef readonly int64_t keyless
    cdef object throttle
    cdef BatchReader reader
    cdef Transactions transactions
    cdef RetentionRules rules
    cdef Output output
    cdef Buffer plain          # retained records of the current batch
    cdef Kept kept             # a description of these records
    cdef Buffer *to_pack       # the records to compress
    cdef bint last_segment     # the batch at the end of this file is the last of the new segment

    def __cinit__(self, OffsetMap offsets not None, int64_t buffer_bytes, throttle=None):
        self.offsets = offsets
        self.throttle = throttle
        self.reader = BatchReader(buffer_bytes)
        self.output = Output(buffer_bytes)

    def __dealloc__(self):
        free(self.plain.data)

    def reset(self):
        """Reset the counters for the next log."""
        self.stop = False
        self.bytes_mapped = self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = self.keyless = 0

    cdef int throttled(self, int64_t size) except -1:
        if self.throttle is not None:
            self.throttle(size)
        if self.stop:
            raise CleaningAbortedError
        return 0

    cdef int fault(self, int why) except -1:
        """Raise the error of a loop."""
        if why == AT_STOPPED:
            raise CleaningAbortedError
        if why == AT_NO_MEMORY:
            raise MemoryError
        raise UncleanableSegmentError(
            f"{self.reader.file.path}: {REASONS[why]}, near byte {self.reader.start + self.reader.at}"
            f" (offset {self.reader.header.base_offset})"
        )

    cdef bytes opened(self):
        """The decompressed records of the current batch."""
        cdef int codec = self.reader.header.attributes & CODEC_MASK
        view = PyMemoryView_FromMemory(
            <char *> self.reader.batch + HEADER_SIZE, self.reader.batch_size - HEADER_SIZE, PyBUF_READ
        )
        try:
            return codecs_in_use()[1](codec, view, DECOMPRESSED_MAX)
        except BatchError as error:
            raise UncleanableSegmentError(
                f"{self.reader.file.path}: the batch at offset {self.reader.header.base_offset}: {error}"
            ) from error

    # First pass: fill the offset map.

    def map_segment(self, File file not None, int64_t position, int64_t size, int64_t base_offset,
                    int64_t start_offset, Transactions transactions not None):
        """Add the last offset of every key in a segment to the map.

        Arguments:
            position: of a batch start at or before `start_offset`.
            size: bytes of the file.
            base_offset: of the segment.
            start_offset: records below are clean.

        Result: False where the map became full; the map is then complete up to `offsets.latest_offset`.
        Raises OSError, UncleanableSegmentError, CleaningAbortedError, MemoryError.
        """
        cdef const uint8_t *records
        cdef bytes plain
        cdef int why
        self.transactions = transactions
        self.reader.begin(file, position, size, base_offset)
        self.fill(True)
        while True:
            with nogil:
                why = self.map_batches(start_offset)
            if why == AT_PACKED:
                plain = self.opened()
                records = <const uint8_t *> PyBytes_AS_STRING(plain)
                size = PyBytes_GET_SIZE(plain)
                with nogil:
                    why = self.map_batch(records, size, start_offset)
                if why == AT_BATCH:
                    continue
            if why == AT_MORE:
                self.fill(True)
            elif why == AT_END or why == AT_FULL:
                return why == AT_END
            else:
                self.fault(why)

    cdef int fill(self, bint mapping) except -1:
        cdef int64_t got = self.reader.refill()
        if mapping:
            self.bytes_mapped += got
        else:
            self.bytes_read += got
        self.throttled(got)
        return 0

    cdef int next_batch(self) noexcept nogil:
        """Read the next batch, unless the cleaning is aborted: AT_BATCH if its records need no decompression."""
        cdef BatchHeader *header = &self.reader.header
        cdef int why = self.reader.advance()
        if why == AT_BATCH and self.stop:
            return AT_STOPPED
        if why == AT_BATCH and header.attributes & CODEC_MASK and header.records_count > 0:
            return AT_PACKED
        return why

    cdef int map_batches(self, int64_t start_offset) noexcept nogil:
        cdef int why
        while True:
            why = self.next_batch()
            if why != AT_BATCH:
                return why
            why = self.map_batch(self.reader.batch + HEADER_SIZE, self.reader.batch_size - HEADER_SIZE, start_offset)
            if why != AT_BATCH:
                return why

    cdef int map_batch(self, const uint8_t *records, int64_t size, int64_t start_offset) noexcept nogil:
        cdef BatchHeader *header = &self.reader.header
        cdef int64_t last_offset = header.base_offset + header.last_offset_delta
        cdef int kind, aborted, why
        if header.attributes & CONTROL_BIT:
            kind = marker_kind(header, records, size)
            if kind == -BAD_MARKER:
                return BAD_MARKER
            self.transactions.on_marker(header, kind)
        else:
            aborted = self.transactions.on_batch(header)
            if aborted < 0:
                return AT_NO_MEMORY
            if not aborted and last_offset >= start_offset:
                why = self.map_records(records, size, start_offset)
                if why != AT_BATCH:
                    return why
        if last_offset >= start_offset:
            self.offsets.latest_offset = last_offset
        return AT_BATCH

    cdef int map_records(self, const uint8_t *records, int64_t size, int64_t start_offset) noexcept nogil:
        cdef BatchHeader *header = &self.reader.header
        cdef RecordFields fields
        cdef Digest digests[GROUP]
        cdef int64_t offsets[GROUP]
        cdef Span span
        cdef int32_t _i, before = -1
        cdef int waiting = 0
        span.at = records
        span.left = size
        for _i in range(header.records_count):
            if read_record(&span, &fields):
                return BAD_RECORD
            if fields.offset_delta <= before or fields.offset_delta > header.last_offset_delta:
                return BAD_OFFSET
            before = fields.offset_delta
            if fields.key_size < 0 or header.base_offset + fields.offset_delta < start_offset:
                continue
            digests[waiting] = self.offsets.digest(fields.key, fields.key_size)
            offsets[waiting] = header.base_offset + fields.offset_delta
            prefetch(self.offsets.home(&digests[waiting]))
            waiting += 1
            if waiting == GROUP:
                if not self.note_all(digests, offsets, waiting):
                    return AT_FULL
                waiting = 0
        if not self.note_all(digests, offsets, waiting):
            return AT_FULL
        return AT_BATCH if span.left == 0 else BAD_RECORD

    cdef bint note_all(self, const Digest *digests, const int64_t *offsets, int count) noexcept nogil:
        cdef int i
        for i in range(count):
            if not self.offsets.note(&digests[i], offsets[i]):
                return False
        return True

    # Second pass: write the new segment.

    def clean_segment(self, File file not None, int64_t size, int64_t base_offset, SegmentCore target not None,
                      RetentionRules rules not None, Transactions transactions not None, int64_t interval, bint last):
        """Append the retained batches of a segment to the new segment, and index them as an append does.

        Arguments:
            size: bytes of the file.
            base_offset: of the segment.
            interval: index.interval.bytes.
            last: no more segments go into `target`; the batch at its end stays, perhaps empty.

        Raises OSError, UncleanableSegmentError, CleaningAbortedError, MemoryError, OverflowError.
        """
        cdef const uint8_t *records
        cdef bytes plain
        cdef int why
        self.transactions = transactions
        self.rules = rules
        self.last_segment = last
        self.output.begin()
        self.reader.begin(file, 0, size, base_offset)
        self.fill(False)
        while True:
            with nogil:
                why = self.clean_batches()
            if why == AT_PACKED:
                plain = self.opened()
                records = <const uint8_t *> PyBytes_AS_STRING(plain)
                size = PyBytes_GET_SIZE(plain)
                with nogil:
                    why = self.clean_batch(records, size)
            if why == AT_UNPACKED:
                self.pack()
                why = AT_BATCH
            if why == AT_MORE:
                self.fill(False)
            elif why == AT_FLUSH:
                self.write_pending(target, interval)
            elif why == AT_END:
                self.write_pending(target, interval)
                return
            elif why != AT_BATCH:
                self.fault(why)

    cdef int clean_batches(self) noexcept nogil:
        cdef int why
        while not self.output.full():
            why = self.next_batch()
            if why != AT_BATCH:
                return why
            why = self.clean_batch(self.reader.batch + HEADER_SIZE, self.reader.batch_size - HEADER_SIZE)
            if why != AT_BATCH:
                return why
        return AT_FLUSH

    cdef int clean_batch(self, const uint8_t *records, int64_t size) noexcept nogil:
        """Select the retained records of the current batch and append them to the output."""
        cdef BatchHeader *header = &self.reader.header
        cdef bint control = header.attributes & CONTROL_BIT
        cdef bint at_horizon = self.rules.at_horizon(header)
        cdef bint stays = self.batch_stays()
        cdef int gone, kind, why
        self.records_read += header.records_count
        if control:
            kind = marker_kind(header, records, size)
            if kind == -BAD_MARKER:
                return BAD_MARKER
            gone = self.transactions.on_marker(header, kind)
        else:
            gone = self.transactions.on_batch(header)
        if gone < 0:
            return AT_NO_MEMORY
        self.kept.count = 0
        if not gone or (control and not at_horizon):
            why = self.filter(records, size, at_horizon)
            if why != AT_BATCH:
                return why
        if self.kept.count == 0:
            return self.output.put_empty(self.reader.batch, header) if stays else AT_BATCH
        self.records_kept += self.kept.count
        self.kept.to_horizon = False
        if not header.attributes & DELETE_HORIZON_BIT:
            self.kept.to_horizon = self.kept.tombstones or (control and gone)
        return self.put_kept()

    cdef bint batch_stays(self) noexcept nogil:
        """Whether the batch is kept even without records."""
        cdef BatchHeader *header = &self.reader.header
        if self.rules.is_last(header) or self.reader.next_offset == self.rules.upper_offset:
            return True
        return self.last_segment and self.reader.start + self.reader.at == self.reader.size

    cdef int filter(self, const uint8_t *records, int64_t size, bint at_horizon) noexcept nogil:
        """Copy the retained records into `kept`, and describe them in `state`."""
        cdef BatchHeader *header = &self.reader.header
        cdef RecordFields fields[GROUP]
        cdef Digest digests[GROUP]
        cdef const uint8_t *ends[GROUP]
        cdef const uint8_t *begin = records
        cdef Span span
        cdef int32_t left = header.records_count
        cdef int32_t before = -1
        cdef int i, count
        if reserve(&self.plain, size) < 0:
            return AT_NO_MEMORY
        self.plain.size = 0
        self.kept.max_timestamp = -1
        self.kept.tombstones = False
        self.kept.all = True
        span.at = records
        span.left = size
        while left > 0:
            count = min(left, <int32_t> GROUP)
            for i in range(count):
                if read_record(&span, &fields[i]):
                    return BAD_RECORD
                if fields[i].offset_delta <= before or fields[i].offset_delta > header.last_offset_delta:
                    return BAD_OFFSET
                before = fields[i].offset_delta
                ends[i] = span.at
                if fields[i].key_size >= 0 and not header.attributes & CONTROL_BIT and self.offsets.slots:
                    digests[i] = self.offsets.digest(fields[i].key, fields[i].key_size)
                    prefetch(self.offsets.home(&digests[i]))
            for i in range(count):
                if self.record_stays(&fields[i], &digests[i], at_horizon):
                    self.keep(&fields[i], begin, ends[i] - begin)
                else:
                    self.kept.all = False
                begin = ends[i]
            left -= count
        return AT_BATCH if span.left == 0 else BAD_RECORD

    cdef bint record_stays(self, const RecordFields *fields, const Digest *digest, bint at_horizon) noexcept nogil:
        cdef BatchHeader *header = &self.reader.header
        cdef int64_t offset = header.base_offset + fields.offset_delta
        if header.attributes & CONTROL_BIT or offset > self.offsets.latest_offset:
            return True
        if fields.key_size < 0:
            self.keyless += 1
            return False
        if fields.value_size < 0 and at_horizon:
            return False
        return offset >= self.offsets.offset_of(digest)

    cdef void keep(self, const RecordFields *fields, const uint8_t *begin, int64_t size) noexcept nogil:
        cdef BatchHeader *header = &self.reader.header
        memcpy(self.plain.data + self.plain.size, begin, size)
        self.plain.size += size
        self.kept.count += 1
        self.kept.max_timestamp = max(self.kept.max_timestamp, added(header.base_timestamp, fields.timestamp_delta))
        if fields.value_size < 0:
            self.kept.tombstones = True

    # Output of a batch.

    cdef int put_kept(self) noexcept nogil:
        """Append the current batch, whole or with its retained records; AT_UNPACKED: compress them first."""
        cdef BatchHeader *header = &self.reader.header
        cdef Buffer *records = &self.plain
        if self.kept.all and not self.kept.to_horizon:
            return self.output.put_whole(self.reader.batch, self.reader.batch_size)
        if self.kept.to_horizon:
            self.kept.horizon_ms = self.rules.horizon_ms
            records = self.output.move_timestamps(header, &self.plain, &self.kept)
            if records == NULL:
                return AT_NO_MEMORY
        if header.attributes & CODEC_MASK:
            self.to_pack = records
            return AT_UNPACKED
        return self.output.put_part(self.reader.batch, header, records.data, records.size, &self.kept)

    cdef int pack(self) except -1:
        """Compress the retained records of the current batch with its own codec."""
        cdef int codec = self.reader.header.attributes & CODEC_MASK
        view = PyMemoryView_FromMemory(<char *> self.to_pack.data, self.to_pack.size, PyBUF_READ)
        cdef bytes packed = codecs_in_use()[0](codec, view, None)
        if self.output.put_part(
            self.reader.batch, &self.reader.header, <const uint8_t *> PyBytes_AS_STRING(packed),
            PyBytes_GET_SIZE(packed), &self.kept,
        ) != AT_BATCH:
            raise MemoryError
        return 0

    cdef int write_pending(self, SegmentCore target, int64_t interval) except -1:
        cdef int64_t size = self.output.write_pending(target, interval)
        self.bytes_written += size
        self.throttled(size)
        return 0
