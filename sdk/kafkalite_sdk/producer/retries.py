"""Decides what follows when a broker rejects a batch: a retry, a split, a new epoch of the producer, or a failure.

The `sender` carries it out. Which errors are retriable at all is in the table of `kafkalite/errors`. Source:
Sender.java of Apache Kafka 4.3.
"""

from enum import Enum

from kafkalite.errors import KafkaError, KafkaErrorCode, error_class, error_for
from kafkalite.protocol.messages.produce import ProduceResponse
from kafkalite_sdk._speedups.deliveries import ProducerBatch

PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
TOO_LARGE = (KafkaErrorCode.MESSAGE_TOO_LARGE, KafkaErrorCode.RECORD_LIST_TOO_LARGE)
MAYBE_APPENDED = (
    KafkaErrorCode.REQUEST_TIMED_OUT,
    KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaErrorCode.KAFKA_STORAGE_ERROR,
    KafkaErrorCode.NETWORK_EXCEPTION,
    # With acks=all the broker may answer these while it waits for replicas (DelayedProduce.scala): it has lost the
    # leadership, or the partition was moved away, and the next leader may have the batch.
    KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
SEQUENCE_LOST = (
    KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaErrorCode.UNKNOWN_PRODUCER_ID,
    KafkaErrorCode.INVALID_PRODUCER_EPOCH,
)
SEQUENCE_LOST_IN_TRANSACTION = (KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,)  # the others end the transaction
COMPLETING_PAUSE_S = 0.02
"""Pause until the markers of the last transaction are written; the broker itself has waited for them (KIP-890)."""


class AfterError(Enum):
    """What follows; the values describe it."""

    RETRY = "the batch is sent again, after a back-off, to the leader of then"
    WAIT = "the batch is sent again when the last transaction of the producer is complete"
    SPLIT = "the batch is too large: two halves are sent"
    NEW_EPOCH = "the broker has lost the sequences of the producer: the batch is sent again in a new epoch"
    FAIL = "the records fail with the error"


def after_error(
    error: KafkaError, batch: ProducerBatch, idempotent: bool, *, transactional: bool = False
) -> AfterError:
    """Decide by the error of a response.

    Arguments:
        error: as from `error_of`.
        batch: a single record cannot be split.
        idempotent: whether the producer has sequences.
        transactional: whether the batch belongs to a transaction.
    """
    if error.code in TOO_LARGE and batch.records_count > 1 and not batch.done:
        return AfterError.SPLIT
    if idempotent and error.code in (SEQUENCE_LOST_IN_TRANSACTION if transactional else SEQUENCE_LOST):
        return AfterError.NEW_EPOCH
    if error.code == KafkaErrorCode.CONCURRENT_TRANSACTIONS:
        return AfterError.WAIT
    return AfterError.RETRY if error.retriable else AfterError.FAIL


def error_of(batch: ProducerBatch, outcome: PartitionResponse) -> KafkaError:
    """The error of a batch as a user sees it."""
    reasons = (outcome.error_message, *(each.batch_index_error_message for each in outcome.record_errors))
    reason = next(filter(None, reasons), None) or error_class(outcome.error_code).code.message
    return error_for(outcome.error_code, f"{batch.topic}-{batch.partition}: {reason}")
