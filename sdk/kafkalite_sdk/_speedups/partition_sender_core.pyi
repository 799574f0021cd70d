from collections import deque
from typing import Any

from kafkalite.errors import KafkaError
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk._speedups.producer_queues import PartitionQueue

__all__ = ["PartitionSenderCore"]

class PartitionSenderCore:
    """The base of `kafkalite_sdk.producer.partition_sender.PartitionSender`: the order of batches without errors.

    The subclass defines `may_leave` and `requeue`.

    Arguments:
        queue: its unsent batches.
        max_in_flight: number of batches that may be open.
        idempotent: batches carry sequences.
        producer_id: the identity before the first one.

    Attributes:
        queue, idempotent: the arguments.
        full: the unsent batches of the queue that are full.
        leader: the broker id to which batches go; NO_LEADER = none is known.
        retry_at: nothing leaves before, in seconds of the loop's clock.
        failures: failed attempts since the last success.
        last_error: of the last attempt; None = it has succeeded, or there was none.
        needs_epoch: the sequences have a gap; a newer epoch than `producer_id` must be set.
        producer_id: the identity whose sequences the batches have.
        in_flight: the open batches.
        window: the batches with a sequence, from the oldest without an outcome on.
        returned_batches: the batches that leave again once none is open.
        sequence: of the next batch.
        proven: the leader that has accepted a batch since the last failure.
        waits_in: the partitions of a leader among which this one waits; kept by the sender.
        closed_by: all unsent batches fail with this error, as the partition no longer exists; None = it does.
    """

    leader: int
    retry_at: float
    failures: int
    last_error: KafkaError | None
    needs_epoch: bool
    producer_id: Any
    in_flight: deque[ProducerBatch]
    window: deque[ProducerBatch]
    returned_batches: list[ProducerBatch]
    sequence: int
    proven: int
    waits_in: dict[Any, None] | None
    closed_by: BaseException | None

    def __init__(self, queue: PartitionQueue, max_in_flight: int, *, idempotent: bool, producer_id: Any) -> None: ...
    @property
    def queue(self) -> PartitionQueue: ...
    @property
    def full(self) -> deque[ProducerBatch]: ...
    @property
    def idempotent(self) -> bool: ...
    def take(self, current: Any, now: float) -> ProducerBatch | None:
        """Return the batch that leaves next, None = none may leave now. Its sequence is assigned.

        Arguments:
            current: the identity of the producer.
            now: in seconds of the loop's clock.
        """

    def may_leave(self, batch: ProducerBatch, current: Any) -> bool:
        """Whether a batch may leave while an epoch is needed, or no identity was used; `current` as in `take`."""

    def accepted(self, batch: ProducerBatch) -> None:
        """The broker has appended a batch, now or at an earlier attempt."""

    def requeue(self) -> None:
        """Put `returned_batches` back to the queue once no batch is open."""
