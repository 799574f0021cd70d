"""What follows when a broker does not accept a batch: a retry, a split, a new epoch of the producer, or a failure.

`after_error` decides, `Retries` carries it out. Which errors are retriable at all is in the table of
`kafkalite/errors`. Source: Sender.java of Apache Kafka 4.3.
"""

import logging
from collections.abc import Callable
from enum import Enum

from kafkalite.backoff import Backoff
from kafkalite.errors import DecodeError, KafkaError, KafkaErrorCode, error_class, error_for, with_right
from kafkalite.protocol.messages.produce import ProduceResponse
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk._speedups.sender_core import ProduceCall, SenderCore
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.partition_sender import SEQUENCE_MASK, PartitionSender

LOGGER = logging.getLogger("kafkalite_sdk.retries")
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
    text = f"{batch.topic}-{batch.partition}: {reason}"
    return error_for(outcome.error_code, with_right(outcome.error_code, text, "write", batch.topic))


class Retries:
    """The batches of a producer that a broker has not accepted.

    Arguments:
        sender: sends and fails the batches.
        needs_metadata: of the sender: topics of which a leader is wrong are added.
        leader_of: broker id of the leader of a topic's partition; NO_LEADER = none is known.
        random: returns a number from 0 to below 1; spreads retries.

    Attributes:
        retried, divided: number of batches that were sent again, and that were split.
    """

    def __init__(
        self,
        sender: SenderCore,
        needs_metadata: set[str],
        leader_of: Callable[[str, int], int],
        random: Callable[[], float],
    ) -> None:
        settings = sender.settings
        self.retried = 0
        self.divided = 0
        self._sender = sender
        self._needs_metadata = needs_metadata
        self._leader_of = leader_of
        self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, random)

    def lost(self, call: ProduceCall, error: KafkaError, now: float) -> None:
        """A request has no response: its connection ended, or it timed out.

        Arguments:
            call: the request.
            error: why; one that is not retriable fails the batches. A response that does not parse is a lost one: the
                broker may have appended the batches.
            now: in seconds of the loop's clock.
        """
        self._sender.close_call(call)
        for partition, batch in call.batches:
            if error.retriable or isinstance(error, DecodeError):
                self._needs_metadata.add(batch.topic)
                batch.in_doubt = True
                self._retry(partition, batch, error, now)
            else:
                self._sender.fail_rejected(partition, batch, self._sender.closed_by or error)
            self._sender.admit(partition)

    def not_accepted(
        self,
        call: ProduceCall,
        partition: PartitionSender,
        batch: ProducerBatch,
        outcome: PartitionResponse | None,
        now: float,
    ) -> None:
        """End an attempt to send a batch that has failed: retry or fail it, by the response.

        Arguments:
            call: the request.
            partition, batch: of the batch.
            outcome: the error; None = the response has none for the partition.
            now: in seconds of the loop's clock.
        """
        if outcome is None:
            batch.in_doubt = True
            self._retry(partition, batch, KafkaError(f"broker {call.node} has reported no outcome"), now)
            return
        error = error_of(batch, outcome)
        settings = self._sender.settings
        match after_error(error, batch, settings.idempotent, transactional=settings.transactional_id is not None):
            case AfterError.SPLIT:
                if self._sender.stages is not None:
                    self._sender.stages.ended(batch, error)
                self._split(partition, batch, now)
            case AfterError.NEW_EPOCH:
                partition.sequence_lost(batch)
                self._retry(partition, batch, error, now)
            case AfterError.WAIT:
                self._retry(partition, batch, error, now, pause_s=COMPLETING_PAUSE_S)
            case AfterError.RETRY:
                partition.leader = NO_LEADER
                self._needs_metadata.add(batch.topic)
                batch.in_doubt |= outcome.error_code in MAYBE_APPENDED
                moved = self._leader_of(batch.topic, batch.partition) not in (NO_LEADER, call.node)
                self._retry(partition, batch, error, now, pause_s=0.0 if moved and not partition.failures else None)
            case AfterError.FAIL:
                self._sender.fail_rejected(partition, batch, error)

    def _split(self, partition: PartitionSender, batch: ProducerBatch, now: float) -> None:
        self.divided += 1
        first, second = halves = self._sender.accumulator.split(batch)
        if batch.base_sequence >= 0:
            first.base_sequence = batch.base_sequence
            second.base_sequence = (batch.base_sequence + first.records_count) & SEQUENCE_MASK
        partition.returned(*halves, instead_of=batch, retry_at=now)

    def _retry(
        self,
        partition: PartitionSender,
        batch: ProducerBatch,
        error: KafkaError,
        now: float,
        *,
        pause_s: float | None = None,
    ) -> None:
        """Return a batch to its partition; it leaves again after `pause_s`, None = after the back-off."""
        partition.last_error = error
        if batch.done:  # its records have failed at their deadline
            partition.rejected(batch)
            return
        self.retried += 1
        LOGGER.debug("%s", error)
        partition.failures += 1
        retry_at = now + (self._backoff.delay_s(partition.failures) if pause_s is None else pause_s)
        partition.returned(batch, instead_of=batch, retry_at=retry_at)
        self._sender.next_wake = min(self._sender.next_wake, retry_at)
