"""Appends to and reads from the log of a partition: queues batches, writes them with one system call, finds batches.

1. `append` makes no system call; `write` makes one per segment.
2. After a failed write, log end, indexes and producers are unchanged. If the file cannot be truncated, the log fails.
   The same holds after any other exception of `write`; after one of `append`, the caller calls `abandon`.
3. Only batch headers are read, no records.
4. A read uses the tuple of segments that it began with.
5. The batches of a leader are appended as they are. A segment begins at the end of the one before it, also where the
   leader's compaction has left a gap: a gap between segments is a lost file.

Sources: LogSegment.java, UnifiedLog.java, LocalLog.java.
"""

import errno

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kafkalite._speedups.storage.file cimport FileRegion, iovec
from kafkalite._speedups.storage.producer_state cimport (
    NEW_BATCH,
    UNVERIFIED,
    EndMarker,
    ProducerState,
    Verification,
    read_marker,
)
from kafkalite._speedups.storage.page_cache cimport (
    FOUND,
    ReadAttempt,
    Window,
    header_at,
    last_offset_of,
    open_window,
)
from kafkalite._speedups.storage.replicated_append cimport ReplicatedAppend
from kafkalite._speedups.storage.segment_core cimport Queued, SegmentCore
from kafkalite._speedups.storage.segment_roll cimport RollLimits, base_of_next_segment, batches_before_roll
from kafkalite._speedups.wire.error_codes cimport INVALID_RECORD, KAFKA_STORAGE_ERROR, RECORD_LIST_TOO_LARGE
from kafkalite._speedups.wire.wire cimport (
    BASE_OFFSET_AT,
    CONTROL_BIT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    BatchHeader,
    read_batch_header,
    store_u32,
    store_u64,
)

from kafkalite.errors import KafkaErrorCode

cdef enum:
    QUEUE_FIRST = 16
cdef int64_t INT64_MAX = 0x7fffffffffffffff

UNVERIFIED_BATCH = UNVERIFIED  # the result of `LogCore.append`: the coordinator must verify or add the partition before


cdef class LogCore:
    """The part of a log that handles batches; the subclass `Log` rolls, deletes and manages the files."""

    def __cinit__(self, *args, **kwargs):
        self.segments = ()
        self.producers = ProducerState()
        self.epoch = -1
        self.high_watermark = -1
        self.segment_bytes = 1 << 30
        self.segment_ms = INT64_MAX
        self.index_interval_bytes = 4096

    def __dealloc__(self):
        self.release()
        free(self.queue)
        free(self.parts)

    # Implemented by the subclass.

    def roll(self, int64_t base_offset):
        """Close the active segment and create the next one at `base_offset`. Raises OSError."""
        raise NotImplementedError

    def begin_epoch(self, int32_t leader_epoch, int64_t start_offset):
        """Add a leader epoch, before its first batch is written. Raises OSError."""
        raise NotImplementedError

    def truncate_segments(self, int64_t offset):
        """After a failed write: remove every byte and index entry at or above `offset`. Raises OSError."""
        raise NotImplementedError

    def index_aborted(self, aborted):
        """Add transactions (`ProducerState.take_aborted`) whose abort markers were just written to the index.

        Raises OSError; then the write is undone.
        """
        raise NotImplementedError

    def write_failed(self, error):
        """Report that a write failed with this OSError."""
        raise NotImplementedError

    def replace_producers(self, ProducerState producers not None):
        """Use the producers that a job has read from the batches, after a truncation."""
        producers.duplicates = self.producers.duplicates
        self.producers = producers

    # Appends.

    def start(self, int64_t next_offset, int32_t leader_epoch):
        """Begin to append at `next_offset`; `leader_epoch` is that of the last batch, -1 for none."""
        assert self.count == 0
        self.next_offset = self.log_end_offset = next_offset
        self.epoch = leader_epoch
        self.active.written_from = self.active.size

    def fail(self):
        """Reject all further appends: the log directory is offline."""
        self.failed = self.blocked = True

    def hold_appends(self):
        """From now on a job changes the files: the caller appends nothing before `release_appends`."""
        if self.queued:
            raise RuntimeError("a log whose files are changed has no queued appends")
        self.held = self.blocked = True

    def release_appends(self):
        """The job has ended: appends are accepted again, unless the log has failed."""
        self.held = False
        self.blocked = self.failed

    @property
    def holds_appends(self):
        """Whether a job changes the files of the log."""
        return self.held

    cdef int64_t refusal(self) except? -1000:
        if self.held:
            raise RuntimeError("appends wait while a job changes the files of the log")
        return -KAFKA_STORAGE_ERROR

    def set_epoch(self, int32_t leader_epoch):
        """Set the leader epoch of the last batch, after a truncation."""
        self.epoch = leader_epoch

    def append(
        self, batch, validation, int32_t leader_epoch, Verification verification=None, int marker_version=0
    ):
        """Queue one validated v2 batch, patching its base offset and leader epoch in place.

        Arguments:
            batch: writable buffer of exactly one batch; valid and untouched until `write`.
            validation: result of `records.validate_batch`; None for batches that the broker builds, such as markers.
            leader_epoch: of this broker's leadership.
            verification: of a transactional batch, once the coordinator has confirmed it (`begin_verification`). A
                batch that the broker builds is only compared with the verifications where it has one.
            marker_version: the transaction version of a marker: 2 needs a greater epoch.

        Result: the base offset; for a repeated batch of an idempotent producer the first offset it had the first time
        (nothing is queued then); UNVERIFIED_BATCH for a transactional batch of a client whose producer has no open
        transaction with its epoch; or -(Kafka error code). After an exception, `abandon` is called.
        """
        cdef Queued *slot
        cdef BatchHeader header
        cdef EndMarker marker
        cdef uint8_t *p
        cdef int64_t verdict
        if self.blocked:
            return self.refusal()
        if validation is not None and validation.error:
            return -validation.error
        slot = self.slot()
        PyObject_GetBuffer(batch, &slot.view, PyBUF_WRITABLE)
        self.in_append = True
        p = <uint8_t *> slot.view.buf
        verdict = check_frame(p, slot.view.len, self.segment_bytes, &header)
        if verdict == NEW_BATCH and header.producer_id >= 0:
            verdict = self.check_producer(
                p, slot.view.len, &header, &marker, validation is not None, verification, marker_version
            )
        if verdict != NEW_BATCH:
            self.in_append = False
            PyBuffer_Release(&slot.view)
            return verdict
        if header.producer_id >= 0:
            self.producers.note(&header, self.next_offset, &marker)
        store_u64(p + BASE_OFFSET_AT, self.next_offset)
        store_u32(p + LEADER_EPOCH_AT, leader_epoch)
        slot.base_offset = self.next_offset
        slot.last_offset = self.next_offset + header.last_offset_delta
        slot.max_timestamp = header.max_timestamp
        slot.leader_epoch = leader_epoch
        self.count += 1
        self.pending_bytes += slot.view.len
        self.next_offset = slot.last_offset + 1
        self.in_append = False
        return slot.base_offset

    def append_replicated(self, batches):
        """Queue the v2 batches that a leader has sent, with the offsets and leader epochs that they have.

        Every CRC is checked. Offsets grow from the log end on, and may have gaps, which compaction leaves. Leader
        epochs do not decrease. Producers and transactions are recorded without the checks of `append`, which the leader
        has made. A batch above segment.bytes gets a segment of its own (KIP-74). An incomplete last batch is ignored.
        The first rejected batch and all behind it are not queued; those before it are. After an exception, `abandon` is
        called.

        Arguments:
            batches: any buffer, also a read-only one; valid and untouched until `write`.

        Result: a ReplicatedAppend.

        Source: UnifiedLog.appendAsFollower. Unlike there, a decreasing leader epoch is rejected, and old message
        formats, which no log here has.
        """
        cdef int32_t epoch = self.queue[self.count - 1].leader_epoch if self.count else self.epoch
        cdef ReplicatedAppend result = ReplicatedAppend.__new__(ReplicatedAppend, self.next_offset, epoch)
        cdef Queued *slot
        cdef BatchHeader header
        cdef const uint8_t *p
        cdef int64_t left, size
        if self.blocked:
            return result.rejected(<int> -self.refusal(), -1, "the log is offline")
        if not self.count and not self.active.size and len(self.segments) == 1:
            result.lowest = self.active.base_offset
        slot = self.slot()
        PyObject_GetBuffer(batches, &slot.view, PyBUF_SIMPLE)
        self.in_append = True     # the first slot owns the buffer
        p = <const uint8_t *> slot.view.buf
        left = slot.view.len
        size = result.next_batch(p, left, &header)
        while size:
            slot.view.buf = <void *> p
            slot.view.len = size
            self.queue_replicated(slot, &header)
            p += size
            left -= size
            slot = self.slot()
            memset(&slot.view, 0, sizeof(Py_buffer))     # released without effect
            self.in_append = True
            size = result.next_batch(p, left, &header)
        self.in_append = False
        PyBuffer_Release(&slot.view)
        return result

    cdef int queue_replicated(self, Queued *slot, const BatchHeader *header) except -1:
        cdef EndMarker marker
        cdef const uint8_t *p = <const uint8_t *> slot.view.buf
        cdef bint control = header.attributes & CONTROL_BIT
        if header.producer_id >= 0 and not (control and read_marker(p, slot.view.len, header, &marker) < 0):
            self.producers.note(header, header.base_offset, &marker)
        slot.base_offset = header.base_offset
        slot.last_offset = last_offset_of(header)
        slot.max_timestamp = header.max_timestamp
        slot.leader_epoch = header.leader_epoch
        self.count += 1
        self.in_append = False
        self.pending_bytes += slot.view.len
        self.next_offset = slot.last_offset + 1
        return 0

    @property
    def queued(self):
        """Number of queued batches, with one whose append has raised."""
        return self.count + self.in_append

    def expect_first(self, batch):
        """Note that a batch was rejected which its producer sends again, before it was appended.

        If it is the first one of its producer, a later one must not be appended before it: an unknown producer could
        begin at any sequence.
        """
        cdef Py_buffer view
        cdef BatchHeader header
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            if read_batch_header(<uint8_t *> view.buf, view.len, &header) == 0 and header.magic == 2:
                self.producers.expect_first(&header)
        finally:
            PyBuffer_Release(&view)

    cdef int64_t check_producer(
        self,
        const uint8_t *p,
        int64_t size,
        const BatchHeader *header,
        EndMarker *marker,
        bint client,
        Verification verification,
        int marker_version,
    ) except? -1000:
        if header.attributes & CONTROL_BIT and read_marker(p, size, header, marker) < 0:
            return -INVALID_RECORD
        return self.producers.check(header, marker, client, verification, marker_version)

    def transaction_error(self, int64_t producer_id, int16_t epoch, Verification verification=None):
        """Return the Kafka error code with which `append` would reject records of a transaction, 0 = none.

        Arguments:
            producer_id, epoch: of the producer.
            verification: as for `append`; without it only an open transaction is continued.

        Errors: INVALID_PRODUCER_EPOCH for an older epoch; INVALID_TXN_STATE while the transaction is not open here, and
        the verification has ended.
        """
        return self.producers.transaction_error(
            self.producers.entries.get(producer_id), producer_id, epoch, verification
        )

    def marker_error(self, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int version):
        """Return the Kafka error code with which `append` would reject a marker, 0 = none.

        Arguments:
            producer_id, epoch, coordinator_epoch: of the marker.
            version: of the transaction; 2 needs a greater epoch.

        Errors: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        return self.producers.marker_error(producer_id, epoch, coordinator_epoch, version)

    def begin_verification(
        self, int64_t producer_id, int16_t epoch, int32_t sequence, bint adds, Verification before=None
    ):
        """Return the `Verification` with which a batch may open a transaction after the coordinator's answer.

        Arguments:
            producer_id, epoch, sequence: of the batch; a batch of the broker has sequence -1.
            adds: whether the coordinator adds the partition to the transaction (TV2), else it verifies it.
            before: of the same attempt, whose question is repeated; it is returned unless a marker has removed it.

        Source: UnifiedLog.maybeStartTransactionVerification.
        """
        return self.producers.begin_verification(producer_id, epoch, sequence, adds, before)

    def end_verification(self, int64_t producer_id, Verification verification not None):
        """End an attempt that the coordinator has rejected for ever: it does not know the producer or its epoch.

        Arguments:
            producer_id: of the batch.
            verification: from `begin_verification`.
        """
        self.producers.end_verification(producer_id, verification)

    cdef Queued *slot(self) except NULL:
        cdef int capacity
        cdef Queued *queue
        cdef iovec *parts
        if self.count == self.capacity:
            capacity = max(<int> QUEUE_FIRST, self.capacity * 2)
            queue = <Queued *> realloc(self.queue, capacity * sizeof(Queued))
            if queue == NULL:
                raise MemoryError
            self.queue = queue
            parts = <iovec *> realloc(self.parts, capacity * sizeof(iovec))
            if parts == NULL:
                raise MemoryError
            self.parts = parts
            self.capacity = capacity
        return &self.queue[self.count]

    cdef int release(self) except -1:
        cdef int i
        cdef int count = self.count + self.in_append
        self.count = self.written = 0
        self.in_append = False
        self.pending_bytes = 0
        for i in range(count):
            PyBuffer_Release(&self.queue[i].view)
        return 0

    def write(self):
        """Write the queued batches: 0 or a Kafka error code; then none of them stays."""
        if self.count == 0:
            return 0
        try:
            if self.failed:      # meanwhile, because of an error in another log of the directory
                self.next_offset = self.log_end_offset
                self.producers.take_back(self.log_end_offset)
                return KAFKA_STORAGE_ERROR
            self.write_queued()
            if self.producers.aborted:
                self.index_aborted(self.producers.take_aborted())
            self.log_end_offset = self.next_offset
            self.producers.keep()
            return 0
        except OSError as error:
            self.take_back(error)
            return KAFKA_STORAGE_ERROR
        except BaseException:   # a bug: rejected batches must not be read later or leave a gap of offsets
            self.take_back(None)
            raise
        finally:
            self.release()

    def take_back(self, error):
        """Undo the queued appends and their write; a log whose file cannot be truncated has failed.

        Arguments:
            error: the OSError to report, or None. If the truncation fails, its error is reported instead.
        """
        try:
            self.next_offset = self.log_end_offset
            self.producers.take_back(self.log_end_offset)
            self.truncate_segments(self.log_end_offset)
        except OSError as failure:
            self.fail()
            error = failure
        except BaseException as failure:
            self.give_up(failure)
            raise
        if error is not None:
            self.write_failed(error)

    def abandon(self):
        """Undo the queued appends after an exception; nothing of them was written."""
        if self.count == 0 and not self.in_append:
            return
        try:
            self.next_offset = self.log_end_offset
            self.producers.take_back(self.log_end_offset)
        except BaseException as failure:
            self.give_up(failure)
            raise
        finally:
            self.release()

    cdef int give_up(self, error) except -1:
        """Reject all further appends and report it, because an exception has left the log in an unknown state."""
        self.fail()
        self.write_failed(OSError(errno.EIO, f"the append could not be undone: {error!r}"))
        return 0

    cdef int write_queued(self) except -1:
        cdef RollLimits limits
        cdef int64_t end = self.log_end_offset
        cdef int first = 0
        cdef int fit
        limits.segment_bytes = self.segment_bytes
        limits.segment_ms = self.segment_ms
        limits.index_interval_bytes = self.index_interval_bytes
        while first < self.count:
            if self.queue[first].leader_epoch != self.epoch:
                self.begin_epoch(self.queue[first].leader_epoch, self.queue[first].base_offset)
                self.epoch = self.queue[first].leader_epoch
            fit = batches_before_roll(self.active, &self.queue[first], self.count - first, &limits)
            if fit == 0:
                self.written = first
                self.roll(base_of_next_segment(&self.queue[first], end))
                fit = batches_before_roll(self.active, &self.queue[first], self.count - first, &limits)
                assert fit > 0, "an empty segment has space for any batch"
            self.active.write_run(&self.queue[first], fit, self.parts, self.index_interval_bytes)
            first += fit
            end = self.queue[first - 1].last_offset + 1
        return 0

    def pack_producers(self):
        """The producers at the end of the written batches, as in a snapshot; also during `write`."""
        cdef ProducerState state
        cdef BatchHeader header
        cdef EndMarker marker
        cdef Queued *queued
        cdef int i
        if self.count == 0:
            return self.producers.pack()
        state = self.producers.as_kept()
        for i in range(self.written):
            queued = &self.queue[i]
            read_batch_header(<uint8_t *> queued.view.buf, queued.view.len, &header)
            if header.producer_id < 0:
                continue
            if header.attributes & CONTROL_BIT:
                read_marker(<uint8_t *> queued.view.buf, queued.view.len, &header, &marker)
            state.note(&header, queued.base_offset, &marker)
        return state.pack()

    # Reads.

    @property
    def has_unstable_records(self):
        """Whether the last stable offset may be below the high watermark that `last_stable_offset` was given last."""
        return self.producers.first_open >= 0 or len(self.producers.ended) > 0

    def last_stable_offset(self, int64_t high_watermark):
        """The end of read_committed reads, never above the high watermark."""
        cdef int64_t stable = self.producers.stable_below(high_watermark)
        return min(max(stable, self.log_start_offset), high_watermark)

    cdef Py_ssize_t index_of(self, int64_t offset):
        """Index of the last segment that begins at or below `offset`; -1 below the first."""
        cdef tuple segments = self.segments
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(segments)
        cdef Py_ssize_t middle
        while low < high:
            middle = low + (high - low) // 2
            if (<SegmentCore> segments[middle]).base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def segment_at(self, int64_t offset):
        """The segment with the offset `offset`; None below the first."""
        cdef Py_ssize_t index = self.index_of(offset)
        return None if index < 0 else self.segments[index]

    def read(self, ReadAttempt attempt not None):
        """Read whole batches from the one with the wanted offset on, as regions of files.

        Arguments:
            attempt: what is wanted. If it does not wait for the disk, bytes that were not written lately are returned
                in pieces of at most READ_AHEAD_BYTES.

        Result: a list of regions (empty: no batch there yet); OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE if the header of the
        batch with this offset is damaged (the batches after it can be read); PageCacheMiss. Raises OSError.
        """
        cdef tuple segments = self.segments
        cdef Py_ssize_t index
        cdef SegmentCore segment
        cdef object result
        if not self.log_start_offset <= attempt.offset <= self.log_end_offset:
            return KafkaErrorCode.OFFSET_OUT_OF_RANGE
        if attempt.end_offset > self.log_end_offset:
            attempt = attempt.until(self.log_end_offset)
        if attempt.offset >= attempt.end_offset:
            return []
        index = self.index_of(attempt.offset)
        while 0 <= index < len(segments):
            segment = <SegmentCore> segments[index]
            index += 1
            self.reads += 1
            segment.used = self.reads
            result = segment.read(
                attempt, (<SegmentCore> segments[index]).base_offset if index < len(segments) else self.log_end_offset
            )
            if result is not None:     # otherwise compaction removed the rest of this segment
                return result
        return []

    def continues(self, ReadAttempt attempt not None, FileRegion region not None):
        """Whether batches that this attempt may read follow the region that it has read in this loop iteration.

        A batch whose header is not in the page cache, or is damaged, counts: the next read reports it.
        """
        cdef Window window
        cdef BatchHeader header
        cdef int found
        cdef int64_t position = region.offset + region.length
        cdef SegmentCore segment = self.segment_at(attempt.offset)
        while segment is not None and segment.file is not region.file:
            segment = self.segment_after(segment)
        if segment is None:
            return False
        if position >= segment.size:
            return self.end_of_segment(segment) < attempt.end_offset
        open_window(&window, attempt, segment, position, segment.is_recent(position))
        window.wait = attempt.wait     # the last attempt of a reader waits for its batches, not for what follows them
        found = header_at(segment.file, &window, position, segment.size, &header)
        return found != FOUND or last_offset_of(&header) < attempt.end_offset

    cpdef int64_t end_of_segment(self, SegmentCore segment) except -1:
        """No batch of a segment reaches this offset."""
        cdef SegmentCore following = self.segment_after(segment)
        return self.log_end_offset if following is None else following.base_offset

    def segment_after(self, SegmentCore segment not None):
        """The segment that follows this one, or None."""
        cdef SegmentCore candidate
        for candidate in self.segments:
            if candidate.base_offset > segment.base_offset:
                return candidate
        return None


cdef int64_t check_frame(const uint8_t *p, int64_t size, int64_t segment_bytes, BatchHeader *header) noexcept nogil:
    """NEW_BATCH where `size` bytes are one v2 batch by its header, else -(Kafka error code)."""
    if read_batch_header(p, size, header) < 0 or header.magic != 2 or header.last_offset_delta < 0:
        return -INVALID_RECORD
    if header.batch_length != size - LENGTH_OVERHEAD:
        return -INVALID_RECORD
    if size > segment_bytes:
        return -RECORD_LIST_TOO_LARGE
    return NEW_BATCH
