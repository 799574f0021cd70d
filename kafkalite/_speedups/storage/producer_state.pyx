"""The state of the idempotent and transactional producers of a partition, from batch headers and markers: the last five
batches of each producer, and the open transactions.

1. A repeated batch returns its first offset and is not appended again.
2. An unknown producer (new, expired, from before a crash) may begin at any sequence.
3. A producer expires by the time of its last append, never by the timestamps of its batches, which a client chooses.
   That time is the first check after the append: never too early, and late by at most one interval of checks. For
   batches that recovery finds, it is the time of recovery. A producer with an open transaction does not expire.
4. The changes of a failed write are undone (`keep` or `take_back` ends every loop iteration). If it had the first batch
   of a producer, with sequence 0, the producer stays known without a batch: the client has sent later batches, which
   must not be appended before the first one is repeated. Such a producer is in no snapshot.
5. A transaction begins with the first transactional batch of its producer and ends with a marker. It is unstable until
   the high watermark has passed the marker (`last_stable_offset`).
6. A transactional batch opens a transaction only after the coordinator has verified or added the partition. The attempt
   has a `Verification` of its producer; the first transactional batch of the producer and any of its markers remove it.
   So an answer of the coordinator never opens another transaction than that which it is about. Two attempts between
   such events share one: whichever is appended first opens the transaction.
7. While a verification exists, batches of its producer above its lowest sequence are rejected: the batch with that
   sequence may have failed with a retriable error. With TV2 an unknown producer begins at sequence 0.
8. A marker of an older coordinator, or of an older epoch of its producer, is rejected. A marker of TV2 needs a greater
   epoch, or repeats the last marker while no transaction is open (KIP-1228, KAFKA-19999).
9. An attempt whose producer or epoch the coordinator does not know can never succeed. A verification that has only such
   attempts is removed at once, so that unknown producers take no memory. After other errors it stays, for invariant 7.

Deviations: Kafka keeps every verification until it expires. A repeated batch is answered before anything is verified;
Kafka asks the coordinator first, and fails a batch whose response was lost, once its transaction has ended.
Sources: ProducerStateManager.java, ProducerAppendInfo.java, ProducerStateEntry.java, VerificationStateEntry.java,
UnifiedLog.java of Apache Kafka 4.3, KIP-98, KIP-890.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kafkalite._speedups.storage.last_stable_offset cimport last_stable_offset, unstable_spans
from kafkalite._speedups.wire.error_codes cimport (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from kafkalite._speedups.wire.wire cimport (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Span,
    store_u16,
    store_u32,
    store_u64,
    take,
    take_i8,
    take_i16,
    take_i32,
    take_varint,
    take_varlong,
)

cdef enum:
    NO_SEQUENCE = -1
    ABORT = 0
    COMMIT = 1
    ENTRY_BYTES = 46             # of a batch of a producer in a snapshot
    COUNT_BYTES = 4
    TV2 = 2
cdef int64_t INT32_MAX = 0x7fffffff


cdef inline int32_t sequence_after(int64_t sequence, int64_t steps) noexcept nogil:
    """Sequences run from 0 to 2**31 - 1 and wrap around."""
    return <int32_t> ((sequence + steps) & INT32_MAX)


cdef inline int32_t last_sequence_of(const BatchHeader *header) noexcept nogil:
    if header.base_sequence < 0:
        return NO_SEQUENCE
    return sequence_after(header.base_sequence, header.last_offset_delta)


cdef int read_marker(const uint8_t *batch, Py_ssize_t size, const BatchHeader *header, EndMarker *out) noexcept nogil:
    """Read the first record of a control batch (EndTransactionMarker.java); return 0, or -1 if it is malformed."""
    cdef Span span
    cdef int16_t kind
    cdef int32_t length
    out.ends = out.aborts = False
    out.coordinator_epoch = -1
    if header.records_count == 0:
        return 0
    if header.attributes & CODEC_MASK or size < HEADER_SIZE:
        return -1
    span.at = batch + HEADER_SIZE
    span.left = size - HEADER_SIZE
    take_varint(&span)                                   # the record's size
    take_i8(&span)
    take_varlong(&span)
    take_varint(&span)
    length = take_varint(&span)
    if span.left < 0 or length < 4 or take_i16(&span) < 0:
        return -1
    kind = take_i16(&span)
    take(&span, length - 4)
    length = take_varint(&span)
    if span.left < 0:
        return -1
    if kind not in (ABORT, COMMIT):
        return 0
    if length < 6 or take_i16(&span) < 0:
        return -1
    out.coordinator_epoch = take_i32(&span)
    out.ends = True
    out.aborts = kind == ABORT
    return -1 if span.left < 0 else 0


cdef inline uint8_t *pack_entry(uint8_t *p, Producer producer, SeenBatch batch, int64_t timestamp,
                                int64_t first_offset_of_transaction) noexcept nogil:
    store_u64(p, <uint64_t> producer.producer_id)
    store_u16(p + 8, <uint16_t> producer.epoch)
    store_u32(p + 10, <uint32_t> batch.last_sequence)
    store_u64(p + 14, <uint64_t> batch.last_offset)
    store_u32(p + 22, <uint32_t> batch.offset_delta)
    store_u64(p + 26, <uint64_t> timestamp)
    store_u32(p + 34, <uint32_t> producer.coordinator_epoch)
    store_u64(p + 38, <uint64_t> first_offset_of_transaction)
    return p + ENTRY_BYTES


cdef inline bint has_open(Producer entry, int16_t epoch) noexcept:
    """Whether a producer has an open transaction with this epoch (UnifiedLog.hasOngoingTransaction)."""
    return entry is not None and entry.first_offset_of_transaction >= 0 and entry.epoch == epoch


cdef int64_t check_marker(
    Producer entry, const BatchHeader *header, const EndMarker *marker, int version
) noexcept nogil:
    """NEW_BATCH where a marker may be appended, else -(Kafka error code); see invariant 8."""
    cdef bint repeats = header.producer_epoch == entry.epoch and entry.first_offset_of_transaction < 0
    if header.producer_epoch < entry.epoch or (version >= TV2 and header.producer_epoch == entry.epoch and not repeats):
        return -INVALID_PRODUCER_EPOCH
    if marker.coordinator_epoch < entry.coordinator_epoch:
        return -TRANSACTION_COORDINATOR_FENCED
    return NEW_BATCH


cdef class Producer:
    """One producer id: its epoch, up to five batches with the oldest first, and where its open transaction begins."""

    def __cinit__(self, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch=-1, int64_t last_timestamp=-1,
                  int64_t first_offset_of_transaction=-1):
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.first_offset_of_transaction = first_offset_of_transaction
        self.last_timestamp = last_timestamp
        self.appended_ms = -1

    cdef Producer copy(self):
        cdef Producer twin = Producer.__new__(Producer, self.producer_id, self.epoch)
        twin.coordinator_epoch = self.coordinator_epoch
        twin.first_offset_of_transaction = self.first_offset_of_transaction
        twin.last_timestamp = self.last_timestamp
        twin.count = self.count
        twin.appended_ms = self.appended_ms
        memcpy(twin.batches, self.batches, sizeof(self.batches))
        return twin

    cdef int64_t duplicate(self, const BatchHeader *header) noexcept nogil:
        """First offset of the remembered batch with these sequences, -1 where there is none."""
        cdef int i
        cdef SeenBatch *seen
        cdef int32_t last = last_sequence_of(header)
        if header.producer_epoch != self.epoch:
            return -1
        for i in range(self.count):
            seen = &self.batches[i]
            if seen.last_sequence == last and seen.offset_delta == header.last_offset_delta:
                return seen.last_offset - seen.offset_delta
        return -1

    cdef int note(self, const BatchHeader *header, int64_t base_offset) noexcept nogil:
        cdef SeenBatch *seen
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.count = 0
            self.begins = False
        self.last_timestamp = header.max_timestamp
        self.appended_ms = -1
        if header.attributes & CONTROL_BIT:
            return 0
        if self.count == BATCHES_KEPT:
            memmove(&self.batches[0], &self.batches[1], (BATCHES_KEPT - 1) * sizeof(SeenBatch))
            self.count -= 1
        seen = &self.batches[self.count]
        seen.last_sequence = last_sequence_of(header)
        seen.offset_delta = header.last_offset_delta
        seen.last_offset = base_offset + header.last_offset_delta
        seen.timestamp = header.max_timestamp
        self.count += 1
        return 0

    cdef uint8_t *pack(self, uint8_t *p) noexcept nogil:
        """Write the entries of a snapshot to `p`, the last batch last; return where they end.

        No earlier entry has a later timestamp than the last one, nor a transaction: Kafka drops entries whose
        timestamps are too old, and uses the last one of those that are left.
        """
        cdef int i
        for i in range(self.count - 1):
            p = pack_entry(p, self, self.batches[i], min(self.batches[i].timestamp, self.last_timestamp), -1)
        cdef SeenBatch last = SeenBatch(NO_SEQUENCE, 0, -1, -1)
        if self.count:
            last = self.batches[self.count - 1]
        return pack_entry(p, self, last, self.last_timestamp, self.first_offset_of_transaction)

    cdef int32_t sequence(self) noexcept nogil:
        return self.batches[self.count - 1].last_sequence if self.count else NO_SEQUENCE

    def restore(self, int32_t last_sequence, int64_t last_offset, int32_t offset_delta, int64_t timestamp):
        """Add a batch of this producer from a snapshot, the oldest first."""
        if not 0 <= self.count < BATCHES_KEPT:
            raise ValueError("a producer keeps five batches")
        self.batches[self.count] = SeenBatch(last_sequence, offset_delta, last_offset, timestamp)
        self.count += 1

    @property
    def last_sequence(self):
        """Sequence of the last record, -1 if only markers were appended."""
        return self.sequence()

    @property
    def last_offset(self):
        return self.batches[self.count - 1].last_offset if self.count else -1

    @property
    def last_offset_delta(self):
        return self.batches[self.count - 1].offset_delta if self.count else 0

    def seen(self):
        """(last sequence, last offset, offset delta, timestamp) of each remembered batch."""
        return [
            (self.batches[i].last_sequence, self.batches[i].last_offset, self.batches[i].offset_delta,
             self.batches[i].timestamp)
            for i in range(self.count)
        ]


cdef class Verification:
    """The attempts of one producer to open a transaction, from the first one to its end; see invariants 6 and 7.

    Arguments:
        epoch, lowest_sequence: of the batch.
        adds: whether the coordinator adds the partition (TV2), else it verifies it.
    """

    def __cinit__(self, int16_t epoch, int32_t lowest_sequence, bint adds):
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.adds = adds
        self.begun_ms = -1

    cdef int update(self, int16_t epoch, int32_t sequence) noexcept nogil:
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
        return 0

    cdef bint rejects(self, Producer entry, int32_t sequence) noexcept:
        if self.adds and sequence != 0 and (entry is None or entry.count == 0):
            return True
        return sequence > self.lowest_sequence


cdef class ProducerState:
    """All producers of one partition, by producer id, and its transactions."""

    def __cinit__(self):
        self.entries = {}
        self.verifications = {}
        self.undo = {}
        self.open = {}
        self.first_open = -1
        self.ended = []
        self.aborted = []

    def __len__(self):
        return len(self.entries)

    cdef int64_t check(
        self, const BatchHeader *header, const EndMarker *marker, bint client, Verification verification, int version
    ) except? -1000:
        """NEW_BATCH, the first offset of the batch this one repeats, UNVERIFIED, or -(Kafka error code).

        Arguments:
            marker: the content of a control batch; unused for others.
            client: whether it comes from a client, which may not open a transaction by itself.
            verification: of this attempt, once the coordinator has confirmed it; else None.
            version: the transaction version of a control batch.
        """
        cdef Producer entry = self.entries.get(header.producer_id)
        cdef bint transactional = header.attributes & TRANSACTIONAL_BIT
        cdef int64_t found
        if header.attributes & CONTROL_BIT:
            return NEW_BATCH if entry is None or not marker.ends else check_marker(entry, header, marker, version)
        if entry is not None and header.base_sequence >= 0:
            found = entry.duplicate(header)
            if found >= 0:
                self.duplicates += 1
                return found
        if transactional and (client or verification is not None) and not has_open(entry, header.producer_epoch):
            found = self.transaction_error(entry, header.producer_id, header.producer_epoch, verification)
            if found:
                return UNVERIFIED if verification is None and found == INVALID_TXN_STATE else -found
        if client and self.verifications and self.is_early(entry, header):
            return -OUT_OF_ORDER_SEQUENCE_NUMBER
        if entry is None:
            return NEW_BATCH
        found = self.check_sequence(entry, header)
        if found == NEW_BATCH and entry.first_offset_of_transaction >= 0 and not transactional:
            return -INVALID_TXN_STATE
        return found

    cdef bint is_early(self, Producer entry, const BatchHeader *header) except -1:
        """Whether a batch before this one has to be appended first; see invariant 7."""
        cdef Verification found = self.verifications.get(header.producer_id)
        return found is not None and found.rejects(entry, header.base_sequence)

    cdef Verification begin_verification(
        self, int64_t producer_id, int16_t epoch, int32_t sequence, bint adds, Verification before
    ):
        """The verification of a batch, `before` if its attempt still has that one; see invariants 6 and 7."""
        cdef Verification found = self.verifications.get(producer_id)
        if found is not None and found is before:
            return found
        if found is None:
            found = self.verifications[producer_id] = Verification.__new__(Verification, epoch, sequence, adds)
        else:
            found.update(epoch, sequence)
        found.attempts += 1
        return found

    cdef int end_verification(self, int64_t producer_id, Verification verification) except -1:
        """End an attempt that can never succeed; see invariant 9."""
        verification.attempts -= 1
        if verification.attempts <= 0 and self.verifications.get(producer_id) is verification:
            del self.verifications[producer_id]
        return 0

    cdef int transaction_error(
        self, Producer entry, int64_t producer_id, int16_t epoch, Verification verification
    ) except -1:
        """0 where records of a transaction may be appended, else a Kafka error code; see invariant 6."""
        if has_open(entry, epoch):
            return 0
        if entry is not None and epoch < entry.epoch:
            return INVALID_PRODUCER_EPOCH                # KAFKA-19690: the client can abort, and continue
        if verification is None:
            return INVALID_TXN_STATE
        if self.verifications.get(producer_id) is not verification:
            return INVALID_TXN_STATE                     # a marker has ended the transaction meanwhile
        return 0

    cdef int marker_error(self, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int version) except -1:
        """0 where a marker may be appended, else a Kafka error code; see invariant 8."""
        cdef Producer entry = self.entries.get(producer_id)
        cdef BatchHeader header
        cdef EndMarker marker
        cdef int64_t verdict
        if entry is None:
            return 0
        header.producer_epoch = epoch
        marker.coordinator_epoch = coordinator_epoch
        verdict = check_marker(entry, &header, &marker, version)
        return 0 if verdict == NEW_BATCH else <int> -verdict

    cdef int64_t check_sequence(self, Producer entry, const BatchHeader *header) noexcept nogil:
        if header.producer_epoch < entry.epoch:
            return -INVALID_PRODUCER_EPOCH
        if header.base_sequence < 0:                     # written by a coordinator
            return NEW_BATCH
        if header.producer_epoch > entry.epoch:
            return NEW_BATCH if header.base_sequence == 0 else -OUT_OF_ORDER_SEQUENCE_NUMBER
        if header.base_sequence != sequence_after(entry.sequence(), 1):
            return -OUT_OF_ORDER_SEQUENCE_NUMBER
        return NEW_BATCH

    cdef int note(self, const BatchHeader *header, int64_t base_offset, const EndMarker *marker) except -1:
        """Remember a batch at `base_offset`; until `keep` it can be undone."""
        cdef Producer entry
        cdef bint control = header.attributes & CONTROL_BIT
        if control and not marker.ends:
            return 0
        entry = self.entries.get(header.producer_id)
        if header.producer_id not in self.undo:
            self.undo[header.producer_id] = entry.copy() if entry is not None else None
        if entry is None:
            entry = Producer.__new__(Producer, header.producer_id, header.producer_epoch)
            entry.begins = header.base_sequence == 0 and not control
            self.entries[header.producer_id] = entry
        entry.note(header, base_offset)
        if self.verifications and header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            self.verifications.pop(header.producer_id, None)
        if control:
            entry.coordinator_epoch = marker.coordinator_epoch
            if entry.first_offset_of_transaction >= 0:
                self.note_end(entry, base_offset, marker.aborts)
        elif header.attributes & TRANSACTIONAL_BIT and entry.first_offset_of_transaction < 0:
            entry.first_offset_of_transaction = base_offset
            self.open[base_offset] = entry.producer_id
            if self.first_open < 0:
                self.first_open = base_offset
        return 0

    cdef int expect_first(self, const BatchHeader *header) except -1:
        """A batch was rejected which its producer repeats; see invariant 4."""
        cdef bint first = header.base_sequence == 0 and not header.attributes & CONTROL_BIT
        if first and header.producer_id >= 0 and header.producer_id not in self.entries:
            self.entries[header.producer_id] = Producer.__new__(Producer, header.producer_id, header.producer_epoch)
        return 0

    cdef int note_end(self, Producer entry, int64_t offset, bint aborts) except -1:
        """The open transaction of a producer ends with a marker at `offset`."""
        cdef int64_t first = entry.first_offset_of_transaction
        entry.first_offset_of_transaction = -1
        self.open.pop(first, None)
        self.ended.append((first, offset))
        if self.first_open == first:
            self.first_open = next(iter(self.open), -1)
        if aborts:
            self.aborted.append(
                (entry.producer_id, first, offset, self.first_open if self.first_open >= 0 else offset + 1)
            )
        return 0

    cdef int order(self) except -1:
        """Rebuild the open transactions from the producers."""
        cdef Producer entry
        found = []
        for entry in self.entries.values():
            if entry.first_offset_of_transaction >= 0:
                found.append((entry.first_offset_of_transaction, entry.producer_id))
        found.sort()
        self.open = dict(found)
        self.first_open = found[0][0] if found else -1
        return 0

    cdef int64_t stable_below(self, int64_t high_watermark) except -1:
        """The last stable offset."""
        if self.first_open < 0 and not self.ended:
            return high_watermark
        if self.ended:
            self.ended = unstable_spans(self.ended, high_watermark)
        return last_stable_offset(high_watermark, self.first_open, self.ended)

    def first_unstable_offset(self, int64_t high_watermark):
        """First offset of the first transaction that is open, or whose marker is not below the high watermark; else -1.
        """
        cdef int64_t stable
        if self.first_open < 0 and not self.ended:
            return -1
        stable = self.stable_below(high_watermark)
        return stable if self.ended or self.first_open >= 0 else -1

    def open_transactions(self):
        """(first offset, producer id) of each open transaction, the first first."""
        return list(self.open.items())

    def take_aborted(self):
        """(producer id, first offset, last offset, last stable offset) of each transaction aborted since the last call,
        by the order of their markers."""
        found, self.aborted = self.aborted, []
        return found

    def __iter__(self):
        return iter(list(self.entries.values()))

    def keep(self):
        """Keep all changes: their batches are in the file."""
        self.undo.clear()

    def take_back(self, int64_t end_offset):
        """Undo all changes since the last `keep`, which are at or above `end_offset`; see invariant 4."""
        cdef Producer begun
        for producer_id, entry in self.undo.items():
            if entry is None:
                begun = self.entries.pop(producer_id, None)
                if begun is not None and begun.begins:
                    self.entries[producer_id] = Producer.__new__(Producer, producer_id, begun.epoch)
            else:
                self.entries[producer_id] = entry
        self.undo.clear()
        self.aborted.clear()
        self.ended = [span for span in self.ended if span[1] < end_offset]
        self.order()

    cdef ProducerState as_kept(self):
        """Return a copy of the state at the last `keep`."""
        cdef ProducerState kept = ProducerState()
        kept.entries = dict(self.entries)
        for producer_id, entry in self.undo.items():
            if entry is None:
                kept.entries.pop(producer_id, None)
            else:
                kept.entries[producer_id] = (<Producer> entry).copy()
        return kept

    def load(self, producers):
        """Replace the state by the entries of a snapshot."""
        self.clear()
        for producer in producers:
            self.entries[producer.producer_id] = producer
        self.order()

    def clear(self):
        """Remove all producers and transactions."""
        self.entries.clear()
        self.verifications.clear()
        self.undo.clear()
        self.aborted.clear()
        self.ended.clear()
        self.order()

    cdef list stored(self):
        cdef Producer entry
        cdef list found = []
        for entry in self.entries.values():
            if (
                entry.count or entry.last_timestamp >= 0 or entry.coordinator_epoch >= 0
                or entry.first_offset_of_transaction >= 0
            ):
                found.append(entry)
        return found

    def pack(self):
        """The entries of a snapshot, with their count before them (ProducerSnapshot.json).

        A producer has one entry per remembered batch, the oldest first: see `storage.log.producer_snapshots`.
        """
        cdef Producer entry
        cdef list stored = self.stored()
        cdef int64_t count = 0
        for entry in stored:
            count += max(entry.count, 1)
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, COUNT_BYTES + ENTRY_BYTES * count)
        cdef uint8_t *p = <uint8_t *> <char *> packed
        store_u32(p, <uint32_t> count)
        p += COUNT_BYTES
        for entry in stored:
            p = entry.pack(p)
        return packed

    def expire(self, int64_t now_ms, int64_t silent_ms):
        """Forget producers that appended nothing for `silent_ms` and have no open transaction; see invariant 3.

        Verifications without an append end then, too.

        Arguments: the time of this check on a monotonic clock, from 0 on; both in milliseconds.
        """
        cdef Producer producer
        cdef Verification verification
        for producer_id, verification in list(self.verifications.items()):
            if verification.begun_ms < 0:
                verification.begun_ms = now_ms
            elif now_ms - verification.begun_ms >= silent_ms:
                del self.verifications[producer_id]
        for producer in list(self.entries.values()):
            if producer.appended_ms < 0:
                producer.appended_ms = now_ms
            elif now_ms - producer.appended_ms >= silent_ms and producer.first_offset_of_transaction < 0:
                del self.entries[producer.producer_id]
