from collections.abc import Iterator
from typing import Any, final

from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk._speedups.partition_sender_core import PartitionSenderCore
from kafkalite_sdk._speedups.producer_queues import PartitionQueue

__all__ = ["ProduceCall", "SenderCore"]

@final
class ProduceCall:
    """A request to one broker, and its batches.

    Attributes:
        node: broker id.
        created_s: when the request was created, in seconds of the loop's clock.
        topics: data of the partitions by topic.
        batches: partition and batch, in the order of the request.
        size: bytes of the batches.
    """

    def __new__(cls, node: int, created_s: float) -> ProduceCall: ...
    @property
    def node(self) -> int: ...
    @property
    def created_s(self) -> float: ...
    @property
    def topics(self) -> dict[str, list[ProduceRequest.TopicProduceData.PartitionProduceData]]: ...
    @property
    def batches(self) -> list[tuple[Any, ProducerBatch]]: ...
    @property
    def size(self) -> int: ...
    def request(self, acks: int, timeout_ms: int, transactional_id: str | None = None) -> ProduceRequest:
        """Return the message.

        Arguments:
            acks: 0, 1 or -1 (all).
            timeout_ms: how long the broker may wait for replicas, in milliseconds.
            transactional_id: of the producer; None = it has none.
        """

class SenderCore:
    """The base of `kafkalite_sdk.producer.sender.Sender`: requests, and batches that brokers accept.

    The subclass defines `new_partition`, `find_leader` and `earliest_wake`, and what follows errors: `fail_unsent`,
    `fail_rejected` and `not_accepted`.

    Arguments:
        accumulator: the unsent records.
        settings: of the producer.
        producer_id: the identity before the first one.
        stages: called with each batch that leaves or ends; None = the application has none.

    Attributes:
        accumulator, settings, stages: the arguments.
        producer_id: the identity.
        needs_producer_id: the driver must get an identity, or a newer epoch of `producer_id`.
        acknowledged, records_acknowledged: number of batches and of records.
        waiting: the partitions with batches to send by leader, in the order in which they are served.
        open_calls: the requests without a response.
        open_requests: their number.
        closed_by: all batches fail with this error; None = the sender is not closed.
        confirmed: the partitions that the coordinator has added to the open transaction; None = all may send.
        version_max: the highest version of Produce.
        unconfirmed: the partitions whose batches wait until they are in `confirmed`.
        next_wake: never later than the first deadline or end of a back-off.
    """

    producer_id: Any
    needs_producer_id: bool
    acknowledged: int
    records_acknowledged: int
    waiting: dict[int, dict[Any, None]]
    closed_by: BaseException | None
    unconfirmed: dict[Any, None]
    confirmed: set[Any] | None
    version_max: int
    next_wake: float

    def __init__(self, accumulator: RecordAccumulator, settings: Any, producer_id: Any, stages: Any = None) -> None: ...
    @property
    def accumulator(self) -> RecordAccumulator: ...
    @property
    def settings(self) -> Any: ...
    @property
    def stages(self) -> Any: ...
    @property
    def open_calls(self) -> dict[ProduceCall, None]: ...
    @property
    def open_requests(self) -> int: ...
    def requests(self, now: float) -> Iterator[ProduceCall]:
        """Yield the requests that leave now.

        Arguments:
            now: in seconds of the loop's clock.
        """

    def admit(self, partition: Any) -> None:
        """Let a partition wait for its leader if it has batches to send."""

    def answered(self, call: ProduceCall, response: ProduceResponse, now: float) -> None:
        """The response to a request has arrived.

        Arguments:
            call: the request.
            response: its response.
            now: in seconds of the loop's clock.
        """

    def close_call(self, call: ProduceCall) -> None:
        """A request has ended."""

    def acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """Complete a batch, unless its records have failed at their deadline."""

    def new_partition(self, queue: PartitionQueue) -> PartitionSenderCore:
        """Create the sender of a queue, and set it as the queue's `sender`."""

    def find_leader(self, partition: Any) -> None:
        """Set the `leader` of a partition; NO_LEADER = none is known."""

    def fail_unsent(self, partition: Any) -> None:
        """Fail the full batches of a partition: it is closed, or the whole sender."""

    def fail_rejected(self, partition: Any, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch that was taken, and cannot be sent.

        Arguments:
            partition, batch: of the batch.
            error: why.
        """

    def not_accepted(self, call: ProduceCall, partition: Any, batch: ProducerBatch, outcome: Any, now: float) -> None:
        """End an attempt to send a batch that the broker has not accepted.

        Arguments:
            call: the request.
            partition, batch: of the batch.
            outcome: a `PartitionProduceResponse` with an error; None = the response has none for the partition.
            now: in seconds of the loop's clock.
        """

    def earliest_wake(self, now: float) -> float:
        """Return the first deadline or end of a back-off, in seconds of the loop's clock; infinity = there is none."""

    def wake_at(self, now: float) -> float:
        """Return when `expire` and `requests` may have something to do without a response; infinity = never."""
