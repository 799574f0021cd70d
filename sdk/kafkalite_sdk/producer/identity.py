"""Decides when an idempotent producer requests its id, and what follows from the response.

Pure: no I/O, no clock. A newer epoch of an id needs no request: the producer increments it, as Apache Kafka's does
(TransactionManager.bumpIdempotentProducerEpoch). After the last epoch it requests another id.
"""

from math import inf

from kafkalite.backoff import Backoff
from kafkalite.errors import DecodeError, KafkaError, KafkaErrorCode, error_class, error_for, with_right
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkalite_sdk.producer.partition_sender import NO_PRODUCER_ID, ProducerId

EPOCH_MAX = 0x7FFF
TRANSACTION_TIMEOUT_MS = 60_000  # without a meaning here, but brokers check it


class Identity:
    """The producer id and its epoch.

    Arguments:
        backoff: pause before a request is repeated.

    Attributes:
        retry_at: no request before, in seconds of the loop's clock.
    """

    def __init__(self, backoff: Backoff) -> None:
        self.retry_at = -inf
        self._backoff = backoff
        self._open = False
        self._failures = 0

    def next_epoch(self, current: ProducerId) -> ProducerId | None:
        """Return the next epoch of an id; None = another id is needed."""
        if current == NO_PRODUCER_ID or current.epoch >= EPOCH_MAX:
            return None
        return ProducerId(current.producer_id, current.epoch + 1)

    def request(self, now: float) -> InitProducerIdRequest | None:
        """Return the request that leaves now; `accept_response` or `failed` must follow. None = none may leave now."""
        if self._open or now < self.retry_at:
            return None
        self._open = True
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)

    def accept_response(self, response: InitProducerIdResponse, now: float) -> ProducerId | None:
        """Return the new identity; None = the request must be repeated.

        Arguments:
            response: of the broker.
            now: in seconds of the loop's clock.

        Raises:
            KafkaError: no broker will assign an id to this producer.
        """
        self._open = False
        if response.error_code:
            code = response.error_code
            text = with_right(code, error_class(code).code.message, "idempotent-write")
            if code == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                text += ", and so does the right to write to a topic"
            error = error_for(code, text)
            if not error.retriable:
                raise error
            self.failed(error, now)
            return None
        self._failures = 0
        return ProducerId(response.producer_id, response.producer_epoch)

    def failed(self, error: KafkaError, now: float) -> None:
        """The request has no response. Raises `error` if it is neither retriable nor a response that does not parse.

        Arguments:
            error: why.
            now: in seconds of the loop's clock.
        """
        self._open = False
        if not error.retriable and not isinstance(error, DecodeError):
            raise error
        self._failures += 1
        self.retry_at = now + self._backoff.delay_s(self._failures)
