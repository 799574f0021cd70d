"""The arguments and results of the administration of transactions.

Pure.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kafkalite.model import TopicPartition

ONGOING, PREPARE_COMMIT, PREPARE_ABORT = "Ongoing", "PrepareCommit", "PrepareAbort"
OPEN_STATES = (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
"""States with an open transaction; one in a prepared state waits for its markers."""

STATES = ("Empty", *OPEN_STATES, "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead")


@dataclass(frozen=True, slots=True, order=True)
class TransactionListing:
    """A transaction in a list.

    Attributes:
        transactional_id: of its producer.
        producer_id: of its producer.
        state: such as "Ongoing" and "CompleteCommit".
        coordinator: broker id.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction.

    Attributes:
        transactional_id, producer_id, producer_epoch: of its producer.
        state: such as "Ongoing" and "CompleteCommit".
        timeout_ms: the coordinator aborts it after this time.
        start_time_ms: in ms since 1970, None = it has not begun.
        partitions: of an open transaction, sorted; in a prepared state those without a marker.
        coordinator: broker id, -1 = it has moved meanwhile.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int = -1

    @property
    def is_open(self) -> bool:
        """Whether the transaction is ongoing, or waits for its markers."""
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition: its first record and those behind it are not stable.

    Attributes:
        partition: the partition.
        producer_id, producer_epoch: of its producer.
        coordinator_epoch: of the last marker of the producer, -1 = none.
        start_offset: of its first record.
        last_timestamp_ms: of the last batch of the producer, in ms since 1970.
        transactional_id: of the producer; None = no coordinator knows the producer id.
        state: at the coordinator; None as for `transactional_id`.
        is_hanging: no coordinator has this partition in a transaction, so none writes the marker (KIP-664).
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None = None
    state: str | None = None
    is_hanging: bool = False


class ProducerEpoch(NamedTuple):
    """A producer id and its epoch; producers of the transactional id with an older epoch are fenced."""

    producer_id: int
    producer_epoch: int
