"""What a partition remembers of its idempotent producers: the last five batches of each, seen in batch headers only.

Laws:
1. A batch seen before is answered with its first offset, never appended twice.
2. A producer that is not known (new, expired, from before a crash) may begin at any sequence.
3. A producer is forgotten by the time at which it was appended, never by the timestamps of its batches, which a client
   chooses. That time is the first check after the append: never too early, and late by an interval of checks at most.
   What recovery finds counts as appended then.
4. What a failed write had noted is taken back (`keep` or `take_back` ends every pass).

Sources: ProducerStateManager.java, ProducerAppendInfo.java, ProducerStateEntry.java, KIP-98.
"""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy, memmove

from kafkalite._speedups.wire cimport CONTROL_BIT, BatchHeader

cdef enum:
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    NO_SEQUENCE = -1
cdef int64_t INT32_MAX = 0x7fffffff


cdef inline int32_t sequence_after(int64_t sequence, int64_t steps) noexcept nogil:
    """Sequences run from 0 to 2**31 - 1 and begin again."""
    return <int32_t> ((sequence + steps) & INT32_MAX)


cdef class Producer:
    """One producer id: its epoch and up to five batches, the oldest first."""

    def __cinit__(self, int64_t producer_id, int16_t epoch):
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.first_offset_of_transaction = -1
        self.last_timestamp = -1
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
        cdef int32_t last = sequence_after(header.base_sequence, header.last_offset_delta)
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
        self.last_timestamp = header.max_timestamp
        self.appended_ms = -1
        if header.attributes & CONTROL_BIT:
            return 0
        if self.count == BATCHES_KEPT:
            memmove(&self.batches[0], &self.batches[1], (BATCHES_KEPT - 1) * sizeof(SeenBatch))
            self.count -= 1
        seen = &self.batches[self.count]
        seen.last_sequence = sequence_after(header.base_sequence, header.last_offset_delta)
        seen.offset_delta = header.last_offset_delta
        seen.last_offset = base_offset + header.last_offset_delta
        seen.timestamp = header.max_timestamp
        self.count += 1
        return 0

    def restore(self, int32_t last_sequence, int64_t last_offset, int32_t offset_delta, int64_t timestamp):
        """Note a batch as a snapshot tells it."""
        if not 0 <= self.count < BATCHES_KEPT:
            raise ValueError("a producer keeps five batches")
        self.batches[self.count] = SeenBatch(last_sequence, offset_delta, last_offset, timestamp)
        self.count += 1
        self.last_timestamp = timestamp

    @property
    def last_sequence(self):
        """Sequence of the last record, -1 where nothing but markers came."""
        return self.batches[self.count - 1].last_sequence if self.count else NO_SEQUENCE

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

    def truncate(self, int64_t offset):
        """Forget the batches that reach `offset` or beyond; answer whether any is left."""
        while self.count and self.batches[self.count - 1].last_offset >= offset:
            self.count -= 1
        return self.count > 0


cdef class ProducerState:
    """All producers of one partition, by producer id."""

    def __cinit__(self):
        self.entries = {}
        self.undo = {}

    def __len__(self):
        return len(self.entries)

    cdef int64_t judge(self, const BatchHeader *header) except? -1000:
        """NEW_BATCH, the first offset of the batch this one repeats, or -(Kafka error code)."""
        cdef Producer entry = self.entries.get(header.producer_id)
        cdef int64_t found
        if entry is None or header.attributes & CONTROL_BIT:
            return NEW_BATCH
        found = entry.duplicate(header)
        if found >= 0:
            self.duplicates += 1
            return found
        if header.producer_epoch < entry.epoch:
            return -INVALID_PRODUCER_EPOCH
        if header.producer_epoch > entry.epoch:
            return NEW_BATCH if header.base_sequence == 0 else -OUT_OF_ORDER_SEQUENCE_NUMBER
        if entry.count == 0:
            return NEW_BATCH
        if header.base_sequence != sequence_after(entry.batches[entry.count - 1].last_sequence, 1):
            return -OUT_OF_ORDER_SEQUENCE_NUMBER
        return NEW_BATCH

    cdef int note(self, const BatchHeader *header, int64_t base_offset) except -1:
        """Remember a batch that goes to `base_offset`; until `keep` it can be taken back."""
        cdef Producer entry = self.entries.get(header.producer_id)
        if header.producer_id not in self.undo:
            self.undo[header.producer_id] = entry.copy() if entry is not None else None
        if entry is None:
            entry = Producer.__new__(Producer, header.producer_id, header.producer_epoch)
            self.entries[header.producer_id] = entry
        entry.note(header, base_offset)
        return 0

    def __iter__(self):
        return iter(list(self.entries.values()))

    def keep(self):
        """What was noted is in the file."""
        self.undo.clear()

    def take_back(self):
        """What was noted since the last `keep` never happened."""
        for producer_id, entry in self.undo.items():
            if entry is None:
                self.entries.pop(producer_id, None)
            else:
                self.entries[producer_id] = entry
        self.undo.clear()

    def put(self, Producer producer not None):
        """Take over an entry of a snapshot."""
        self.entries[producer.producer_id] = producer

    def clear(self):
        self.entries.clear()
        self.undo.clear()

    def truncate(self, int64_t offset):
        """Forget what reaches `offset` or beyond; a producer with nothing left becomes unknown."""
        for producer in list(self.entries.values()):
            if not producer.truncate(offset):
                del self.entries[producer.producer_id]

    def expire(self, int64_t now_ms, int64_t silent_ms):
        """Forget producers that appended nothing for `silent_ms` and have no open transaction; see law 3.

        Arguments: the time of this check on a clock that never goes back, from 0 on; both in milliseconds.
        """
        cdef Producer producer
        for producer in list(self.entries.values()):
            if producer.appended_ms < 0:
                producer.appended_ms = now_ms
            elif now_ms - producer.appended_ms >= silent_ms and producer.first_offset_of_transaction < 0:
                del self.entries[producer.producer_id]
