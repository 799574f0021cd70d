"""The states of a transactional id, the events that change it, and how a producer id and epoch relate to its own."""

from enum import Enum, IntEnum


class TransactionState(IntEnum):
    """The values are those of `__transaction_state` (TransactionState.java)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
"""The states of a decided transaction whose markers are being written."""
OPEN = frozenset((TransactionState.ONGOING, *PREPARED))


class TransactionEvent(Enum):
    """The events; the values describe them."""

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn or AddOffsetsToTxn"
    VERIFY = "AddPartitionsToTxn that only verifies"
    COMMIT = "EndTxn commits"
    ABORT = "EndTxn aborts"
    MARKERS_WRITTEN = "all partitions have their markers"
    TIMEOUT = "the transaction timeout ends"
    EXPIRED = "transactional.id.expiration.ms ends"


class EpochRelation(Enum):
    """A producer id and epoch against those of the transactional id."""

    NOT_GIVEN = "none is given"
    CURRENT = "the current id and epoch"
    PREVIOUS = "the current id, the epoch before the current one"
    OLDER = "the current id, an older epoch"
    NEWER = "the current id, an epoch that does not exist yet"
    PREVIOUS_ID = "the id and the last epoch before an overflow"
    OTHER_ID = "an unknown id"


class TransactionVersion(IntEnum):
    """The protocol of one transaction: TV1, or TV2 (KIP-890)."""

    TV1 = 1
    TV2 = 2
