"""The batches of one partition on their way: their order, their sequences, and how they are sent again.

`sender` decides which errors are retried, and when.

Pure: no I/O, no clock. Invariants:
1. Batches are appended in the order of their records. Up to `max_in_flight` are open on one connection; the second one
   leaves only after the broker has accepted a batch of this partition. After a failure nothing leaves until all open
   batches have returned; then they leave again in order.
2. A batch in doubt, which the broker may have appended, is sent again with the same producer id, epoch and sequence
   only: the broker recognises the duplicate.
3. From the oldest batch without an outcome on, at most as many batches have sequences as the broker remembers, accepted
   ones included: it recognises a repeated batch only while it remembers it.
4. A gap in the sequences ends with a new epoch, which begins with sequence 0. Until then only batches in doubt leave.
5. The records of a batch fail at their deadline, also while its request is open; the batch then counts as open until
   the request ends, and is not sent again. Its sequence leaves a gap unless the broker has accepted it.
Sources: TransactionManager.java and Sender.java of Apache Kafka 4.3; KIP-360; sink.go of franz-go.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk._speedups.partition_sender_core import PartitionSenderCore
from kafkalite_sdk._speedups.producer_queues import PartitionQueue
from kafkalite_sdk.client.cluster_view import NO_LEADER

SEQUENCE_MASK = 0x7FFFFFFF
NO_GAP = -1


class ProducerId(NamedTuple):
    """The identity of an idempotent producer; -1 = none."""

    producer_id: int
    epoch: int


NO_PRODUCER_ID = ProducerId(-1, -1)


class PartitionSender(PartitionSenderCore):
    """One partition of a producer.

    Arguments:
        queue: its unsent batches.
        max_in_flight: number of batches that may be open.
        idempotent: batches carry sequences.

    Attributes: those of `PartitionSenderCore`, which has the steps of each request.
    """

    __slots__ = ("_gap_at",)

    def __init__(self, queue: PartitionQueue, max_in_flight: int, *, idempotent: bool) -> None:
        super().__init__(queue, max_in_flight, idempotent=idempotent, producer_id=NO_PRODUCER_ID)
        self._gap_at = NO_GAP  # the first sequence that can never be in the log, nor can any behind it

    def may_leave(self, batch: ProducerBatch, current: ProducerId) -> bool:
        """Whether a batch may leave while an epoch is needed, or no identity was used.

        Arguments:
            batch: the next one.
            current: the identity of the producer.
        """
        if batch.in_doubt:
            return True
        if (self.needs_epoch or self.producer_id == NO_PRODUCER_ID) and not self.in_flight:
            self._begin_epoch(current)
        return not self.needs_epoch and self.producer_id != NO_PRODUCER_ID

    def _begin_epoch(self, current: ProducerId) -> None:
        if current in (self.producer_id, NO_PRODUCER_ID) or any(batch.in_doubt for batch in self.full):
            return
        self.producer_id = current
        self.needs_epoch = False
        self._gap_at = NO_GAP
        self.sequence = 0
        self.window.clear()
        for batch in self.full:
            batch.base_sequence = -1

    def rejected(self, batch: ProducerBatch) -> None:
        """The broker has rejected a batch, which is given up: later sequences have a gap."""
        self.in_flight.remove(batch)
        if self.idempotent:
            self._begin_gap(batch)
        self.requeue()

    def sequence_lost(self, batch: ProducerBatch) -> None:
        """The broker does not expect the sequence of an open batch, so the batch is not in the log. The caller returns
        it. If no earlier batch explains the error, the broker has lost the sequence. An earlier batch may still be
        open at the former leader.
        """
        batch.in_doubt = False
        age = self._age(batch)
        if all(self._age(each) >= age for each in chain(self.returned_batches, self.in_flight)):
            self._begin_gap(batch)

    def _age(self, batch: ProducerBatch) -> int:
        """Orders the batches of an epoch: the oldest one has the lowest number, also where sequences wrap."""
        return (batch.base_sequence - self.sequence) & SEQUENCE_MASK

    def _begin_gap(self, batch: ProducerBatch) -> None:
        """Begin a new epoch as soon as possible: this batch is not sent again. Unless it is in doubt, the broker cannot
        have appended any batch behind it.
        """
        self.needs_epoch = True
        if not batch.in_doubt and (self._gap_at == NO_GAP or self._age(batch) < self._age_of_gap()):
            self._gap_at = batch.base_sequence
        for each in chain(self.returned_batches, self.full):
            self._resolve_doubt(each)

    def _age_of_gap(self) -> int:
        return (self._gap_at - self.sequence) & SEQUENCE_MASK

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
        self.returned_batches += batches
        if len(batches) > 1 and self.idempotent:
            at = self.window.index(instead_of)
            self.window.remove(instead_of)
            for batch in reversed(batches):
                self.window.insert(at, batch)
        for batch in batches:
            self._resolve_doubt(batch)
        self.retry_at = max(self.retry_at, retry_at)
        self.requeue()

    def requeue(self) -> None:
        """Put returned batches back to the front once none is open, in the order of their records: requests to a former
        and to a new leader end in any order. Those that have expired meanwhile are given up.
        """
        if not self.in_flight and self.returned_batches:
            if self.idempotent:
                self.returned_batches.sort(key=self._age)
            self.full.extendleft(each for each in reversed(self.returned_batches) if not each.done)
            self.returned_batches = []
            self.proven = NO_LEADER

    def take_expired(self, now: float, timeout_s: float) -> list[ProducerBatch]:
        """Return the batches that have waited for `timeout_s` seconds, the oldest first; the caller fails them.

        Unsent ones are taken; an open one stays open until its request ends. A batch in doubt leaves a gap only if the
        broker has not appended it; a new epoch follows in either case.
        """
        expired = [each for each in self._sent() if each.created_s + timeout_s <= now]
        if self.idempotent:
            expired.sort(key=self._age)
            for batch in [each for each in self.returned_batches if each in expired]:
                self._begin_gap(batch)
        for batch in [each for each in self.full if each.created_s + timeout_s <= now]:
            self.full.remove(batch)
            if self.idempotent and batch.base_sequence >= 0:
                self._begin_gap(batch)
            expired.append(batch)
        return expired

    def _sent(self) -> Iterator[ProducerBatch]:
        """The batches without an outcome that are open or have returned."""
        return (each for each in chain(self.in_flight, self.returned_batches) if not each.done)
