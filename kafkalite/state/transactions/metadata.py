"""The state of a transactional id as a plain value: the record of `__transaction_state`, kept in memory.

Source: TransactionMetadata.java of Apache Kafka.
"""

from typing import NamedTuple

from kafkalite.state.transactions.partitions import NO_PARTITIONS, TransactionPartitions
from kafkalite.state.transactions.states import EpochRelation, TransactionState

NONE = -1  # no producer id, epoch or time
EPOCH_MAX = 32767  # only in markers: a client never has it
EPOCH_LAST = EPOCH_MAX - 1  # the last one that a client gets from one producer id


class TransactionMetadata(NamedTuple):
    """A transactional id. Times are wall time in ms.

    Arguments:
        previous_producer_id: before the last change; -1 = none.
        next_producer_id: follows once the transaction is complete, because the epoch overflows; -1 = none.
        last_producer_epoch: an InitProducerId with it is a retry (KIP-360); not stored, thus -1 after loading, as in
            Kafka.
        version: of the last transaction: 0 (unknown or TV1) or 2.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: TransactionPartitions = NO_PARTITIONS
    start_ms: int = NONE
    previous_producer_id: int = NONE
    next_producer_id: int = NONE
    last_producer_epoch: int = NONE
    version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a client (isProducerEpochExhausted)."""
        return self.producer_epoch >= EPOCH_LAST

    def relation(self, producer_id: int, epoch: int) -> EpochRelation:
        """How the producer id and epoch of a request relate to the current ones."""
        if producer_id == self.producer_id:
            return _relation_of_epochs(epoch, self.producer_epoch)
        if producer_id == self.previous_producer_id and epoch == EPOCH_LAST and self.producer_epoch == 0:
            return EpochRelation.PREVIOUS_ID
        return EpochRelation.OTHER_ID


class TransactionDeleted(NamedTuple):
    """The transactional id has expired: a tombstone."""

    transactional_id: str


TransactionRecord = TransactionMetadata | TransactionDeleted


def _relation_of_epochs(epoch: int, current: int) -> EpochRelation:
    if epoch == current:
        return EpochRelation.CURRENT
    if epoch > current:
        return EpochRelation.NEWER
    return EpochRelation.PREVIOUS if epoch == current - 1 else EpochRelation.OLDER
