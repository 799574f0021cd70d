"""What follows an error in a transaction, as literal tables: request and error code -> reaction.

Pure. Sources: the handlers of TransactionManager.java of Apache Kafka 4.3. Deviations:

1. INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, UNKNOWN_PRODUCER_ID and INVALID_PRODUCER_ID_MAPPING are fatal in most of
   Java's handlers. Here the transaction is aborted, and InitProducerId with the current id and epoch decides (KIP-360):
   the coordinator answers PRODUCER_FENCED if another producer has the transactional id. A transaction that has timed
   out is therefore abortable (KAFKA-19690).
2. Any error of Produce aborts the transaction, also a retriable one, as the batch was retried until its deadline.
"""

from enum import Enum

from kafkalite.errors import KafkaErrorCode as Code
from kafkalite.errors import error_class


class Step(Enum):
    """A request of a transaction; the value is its name in Kafka."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"
    PRODUCE = "Produce"


class Reaction(Enum):
    """What follows an error."""

    RETRY = "repeat the request after a pause"
    FIND = "find the coordinator again, and repeat the request"
    ABORT = "the transaction must be aborted"
    RECOVER = "the same, and InitProducerId with the current epoch must return another one"
    FENCED = "another producer has the transactional id; this one is closed"
    FATAL = "the producer cannot continue"


COMMON: dict[int, Reaction] = {
    Code.NOT_COORDINATOR: Reaction.FIND,
    Code.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    Code.NETWORK_EXCEPTION: Reaction.FIND,
    Code.TRANSACTION_ABORTABLE: Reaction.ABORT,
    Code.INVALID_PRODUCER_EPOCH: Reaction.RECOVER,
    Code.INVALID_TXN_STATE: Reaction.RECOVER,
    Code.UNKNOWN_PRODUCER_ID: Reaction.RECOVER,
    Code.INVALID_PRODUCER_ID_MAPPING: Reaction.RECOVER,
    Code.PRODUCER_FENCED: Reaction.FENCED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.FATAL,
    Code.CLUSTER_AUTHORIZATION_FAILED: Reaction.FATAL,
    Code.UNSUPPORTED_VERSION: Reaction.FATAL,
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: Reaction.FATAL,
}

OF_STEP: dict[tuple[Step, int], Reaction] = {
    (Step.INIT, Code.INVALID_PRODUCER_EPOCH): Reaction.FENCED,
    (Step.INIT, Code.INVALID_PRODUCER_ID_MAPPING): Reaction.FENCED,
    (Step.INIT, Code.INVALID_TXN_STATE): Reaction.FATAL,
    (Step.INIT, Code.UNKNOWN_PRODUCER_ID): Reaction.FATAL,
    (Step.INIT, Code.TRANSACTION_ABORTABLE): Reaction.RETRY,
    # Another partition of the request has failed; its own error decides.
    (Step.ADD_PARTITIONS, Code.OPERATION_NOT_ATTEMPTED): Reaction.RETRY,
}

OTHERS = {
    Step.INIT: Reaction.FATAL,
    Step.ADD_PARTITIONS: Reaction.ABORT,
    Step.ADD_OFFSETS: Reaction.ABORT,
    Step.COMMIT_OFFSETS: Reaction.ABORT,
    Step.END: Reaction.FATAL,
    Step.PRODUCE: Reaction.ABORT,
}
"""The reaction to an error that is in no table and is not retriable."""

SEVERITY = list(Reaction)
"""Of several errors in one response the last one of this order decides."""


def reaction_to(step: Step, code: int) -> Reaction:
    """Return what follows an error code in the response to a request."""
    found = OF_STEP.get((step, code)) or COMMON.get(code)
    if step is Step.PRODUCE:
        return Reaction.ABORT if found in (None, Reaction.FIND) else found
    if found is None:
        found = Reaction.RETRY if error_class(code).retriable else OTHERS[step]
    return found
