"""The batches of one partition on their way: order, sequences, retries.

Pure: no I/O, no clock. Invariants:
1. Batches are appended in the order of their records. Up to `max_in_flight` are open on one connection; the second one
   leaves only after the broker has accepted a batch of this partition. After a failure nothing leaves until all open
   batches have returned; then they leave again in order.
2. A batch in doubt, which the broker may have appended, is sent again with the same producer id, epoch and sequence
   only: the broker recognises the duplicate.
3. From the oldest batch without an outcome on, at most as many batches have sequences as the broker remembers, accepted
   ones included: it recognises a repeated batch only while it remembers it.
4. A gap in the sequences ends with a new epoch, which begins with sequence 0. Until then only batches in doubt leave.
Sources: TransactionManager.java and Sender.java of Apache Kafka 4.3; KIP-360; sink.go of franz-go.
"""

from collections import deque
from itertools import chain
from typing import NamedTuple

from kafkalite_sdk._speedups.accumulator import PartitionQueue
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.settings import MAX_IN_FLIGHT_IDEMPOTENT

SEQUENCE_MASK = 0x7FFFFFFF
NO_GAP = -1


class ProducerId(NamedTuple):
    """The identity of an idempotent producer; -1 = none."""

    producer_id: int
    epoch: int


NO_PRODUCER_ID = ProducerId(-1, -1)


class PartitionSender:
    """One partition of a producer.

    Arguments:
        queue: its unsent batches.
        max_in_flight: number of batches that may be open.
        idempotent: batches carry sequences.

    Attributes:
        leader: the broker id to which batches go; NO_LEADER = none is known.
        retry_at: nothing leaves before, in seconds of the loop's clock.
        failures: failed attempts since the last success.
        needs_epoch: the sequences have a gap; a newer epoch than `producer_id` must be set.
        waits_in: the partitions of a leader among which this one waits; kept by the sender.
    """

    __slots__ = (
        "_gap_at",
        "_idempotent",
        "_max_in_flight",
        "_proven",
        "_returned",
        "_sequence",
        "_window",
        "failures",
        "in_flight",
        "leader",
        "needs_epoch",
        "producer_id",
        "queue",
        "retry_at",
        "waits_in",
    )

    def __init__(self, queue: PartitionQueue, max_in_flight: int, *, idempotent: bool) -> None:
        self.queue = queue
        self.leader = NO_LEADER
        self.retry_at = 0.0
        self.failures = 0
        self.needs_epoch = False
        self.producer_id = NO_PRODUCER_ID
        self.in_flight: deque[ProducerBatch] = deque()
        self.waits_in: dict[PartitionSender, None] | None = None
        self._max_in_flight = max_in_flight if idempotent else 1
        self._idempotent = idempotent
        self._sequence = 0
        self._gap_at = NO_GAP  # the first sequence that can never be in the log, nor can any behind it
        self._window: deque[ProducerBatch] = deque()  # those with a sequence, from the oldest without an outcome on
        self._returned: list[ProducerBatch] = []
        self._proven = NO_LEADER

    def take(self, current: ProducerId, now: float) -> ProducerBatch | None:
        """Return the batch that leaves next, None = none may leave now. Its sequence is assigned.

        Arguments:
            current: the identity of the producer.
            now: in seconds of the loop's clock.
        """
        full = self.queue.full
        if not full or self._returned or now < self.retry_at or full[0].compressing:
            return None
        if len(self.in_flight) >= (self._max_in_flight if self._proven == self.leader else 1):
            return None
        if (
            self._idempotent
            and (self.needs_epoch or self.producer_id.producer_id < 0)
            and not self._may_leave(full[0], current)
        ):
            return None
        if self._idempotent and full[0].base_sequence < 0 and not self._assign_sequence(full[0]):
            return None
        batch = full.popleft()
        self.in_flight.append(batch)
        return batch

    def _assign_sequence(self, batch: ProducerBatch) -> bool:
        """Give a batch the next sequence. False = the broker would forget the oldest batch without an outcome, which
        could then not be sent again: it counts accepted batches behind it, too.
        """
        window = self._window
        while window and window[0].done:
            window.popleft()
        if len(window) >= MAX_IN_FLIGHT_IDEMPOTENT:
            return False
        window.append(batch)
        batch.base_sequence = self._sequence
        self._sequence = (self._sequence + batch.records_count) & SEQUENCE_MASK
        return True

    def _may_leave(self, batch: ProducerBatch, current: ProducerId) -> bool:
        if batch.in_doubt:
            return True
        if (self.needs_epoch or self.producer_id == NO_PRODUCER_ID) and not self.in_flight:
            self._begin_epoch(current)
        return not self.needs_epoch and self.producer_id != NO_PRODUCER_ID

    def _begin_epoch(self, current: ProducerId) -> None:
        if current in (self.producer_id, NO_PRODUCER_ID) or any(batch.in_doubt for batch in self.queue.full):
            return
        self.producer_id = current
        self.needs_epoch = False
        self._gap_at = NO_GAP
        self._sequence = 0
        self._window.clear()
        for batch in self.queue.full:
            batch.base_sequence = -1

    def accepted(self, batch: ProducerBatch) -> None:
        """The broker has appended a batch, now or at an earlier attempt."""
        self.in_flight.remove(batch)
        self.failures = 0
        self._proven = self.leader
        self._requeue()

    def rejected(self, batch: ProducerBatch) -> None:
        """The broker has rejected a batch, which is given up: later sequences have a gap."""
        self.in_flight.remove(batch)
        if self._idempotent:
            self._begin_gap(batch)
        self._requeue()

    def sequence_lost(self, batch: ProducerBatch) -> None:
        """The broker does not expect the sequence of an open batch, so the batch is not in the log. The caller returns
        it. If no earlier batch explains the error, the broker has lost the sequence. An earlier batch may still be
        open at the former leader.
        """
        batch.in_doubt = False
        age = self._age(batch)
        if all(self._age(each) >= age for each in chain(self._returned, self.in_flight)):
            self._begin_gap(batch)

    def _age(self, batch: ProducerBatch) -> int:
        """Orders the batches of an epoch: the oldest one has the lowest number, also where sequences wrap."""
        return (batch.base_sequence - self._sequence) & SEQUENCE_MASK

    def _begin_gap(self, batch: ProducerBatch) -> None:
        """Begin a new epoch as soon as possible: this batch is not sent again. Unless it is in doubt, the broker cannot
        have appended any batch behind it.
        """
        self.needs_epoch = True
        if not batch.in_doubt and (self._gap_at == NO_GAP or self._age(batch) < self._age_of_gap()):
            self._gap_at = batch.base_sequence
        for each in chain(self._returned, self.queue.full):
            self._resolve_doubt(each)

    def _age_of_gap(self) -> int:
        return (self._gap_at - self._sequence) & SEQUENCE_MASK

    def _resolve_doubt(self, batch: ProducerBatch) -> None:
        """A batch behind a gap is not in the log."""
        if batch.in_doubt and self._gap_at != NO_GAP and self._age(batch) >= self._age_of_gap():
            batch.in_doubt = False

    def returned(self, *batches: ProducerBatch, instead_of: ProducerBatch, retry_at: float) -> None:
        """A batch must be sent again; `in_doubt` of the batch shows whether the broker may have appended it.

        Arguments:
            batches: the batch, or its parts.
            instead_of: the batch that was open.
            retry_at: not before, in seconds of the loop's clock.
        """
        self.in_flight.remove(instead_of)
        self._returned += batches
        if len(batches) > 1 and self._idempotent:
            at = self._window.index(instead_of)
            self._window.remove(instead_of)
            for batch in reversed(batches):
                self._window.insert(at, batch)
        for batch in batches:
            self._resolve_doubt(batch)
        self.retry_at = max(self.retry_at, retry_at)
        self._requeue()

    def _requeue(self) -> None:
        """Put returned batches back to the front once none is open, in the order of their records: requests to a former
        and to a new leader end in any order.
        """
        if not self.in_flight and self._returned:
            if self._idempotent:
                self._returned.sort(key=self._age)
            self.queue.full.extendleft(reversed(self._returned))
            self._returned = []
            self._proven = NO_LEADER

    def expired(self, now: float, timeout_s: float) -> list[ProducerBatch]:
        """Take the unsent batches that have waited for `timeout_s` seconds; the caller fails them.

        A batch in doubt leaves a gap only if the broker has not appended it; a new epoch follows in either case.
        """
        expired = []
        full = self.queue.full
        while not self.in_flight and full and full[0].created_s + timeout_s <= now:
            batch = full.popleft()
            if self._idempotent and batch.base_sequence >= 0:
                self._begin_gap(batch)
            expired.append(batch)
        return expired
