"""The requests, results and effects of the transaction machine."""

from typing import NamedTuple

from kafkalite.model import TopicPartition
from kafkalite.state.transactions.metadata import NONE
from kafkalite.state.transactions.partitions import TransactionPartitions
from kafkalite.state.transactions.states import TransactionVersion


class InitProducerId(NamedTuple):
    """Begin a session of a producer. Id and epoch are given by KIP-360, else -1. The result is a `ProducerId`."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NONE
    epoch: int = NONE


class AddPartitions(NamedTuple):
    """Add partitions; for AddOffsetsToTxn that of `__consumer_offsets`. The result is an error code."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    version: TransactionVersion


class VerifyPartitions(NamedTuple):
    """Whether partitions are in the open transaction. The result is a dict of an error code per partition."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]


class EndTransaction(NamedTuple):
    """Commit or abort. The result is a `ProducerId`: TV2 clients go on with it, for TV1 it is empty."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    version: TransactionVersion


class ProducerId(NamedTuple):
    """A result: an error code, or the producer id and epoch from now on."""

    error: int
    producer_id: int = NONE
    epoch: int = NONE


class AllocateProducerId(NamedTuple):
    """A question: a new producer id. Ends with `producer_id_allocated` or `producer_id_failed`."""

    transactional_id: str


class SendMarkers(NamedTuple):
    """An effect after the commit: write markers to all partitions, then call `markers_written`.

    Arguments:
        version: TV2 if the epoch is greater than that of the batches, else TV1 (WriteTxnMarkers 2, KIP-1228).
    """

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    partitions: TransactionPartitions
    version: TransactionVersion
