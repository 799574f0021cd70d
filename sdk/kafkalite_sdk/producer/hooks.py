"""What a producer reports about itself: hooks for single events, and a snapshot of its counters."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailedRecords:
    """Records of one partition that have failed together.

    Attributes:
        topic, partition: where they should go; partition -1 = not chosen yet.
        records_count: number of records that failed.
        unobserved: number of those whose awaitable was not awaited, read, cancelled or given a callback.
        error: why.
    """

    topic: str
    partition: int
    records_count: int
    unobserved: int
    error: BaseException


class ProducerHooks:
    """Methods that a producer calls; the ones here do nothing. Override those you need; they must return quickly.

    An exception of a hook is passed to the exception handler of the event loop.
    """

    def request_sent(self, node: int, batches: int, size: int) -> None:
        """Records left for a broker.

        Arguments:
            node: broker id.
            batches: number of batches in the request.
            size: of the batches in bytes.
        """

    def request_ended(self, node: int, seconds: float, error: BaseException | None) -> None:
        """A request was answered, or is lost.

        Arguments:
            node: broker id.
            seconds: since it was sent.
            error: why it has no response; None = it has one.
        """

    def records_failed(self, failed: FailedRecords) -> None:
        """Records have failed."""


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """The counters of a producer at one time.

    Attributes:
        buffered_bytes, buffer_memory: of records that are not acknowledged, and their limit.
        records_acknowledged, records_failed: number of records.
        batches_acknowledged, batches_retried, batches_divided: number of batches.
        requests_sent, requests_open: number of requests, all of them and those without a response.
        bytes_sent: of batches in requests, after compression, retries included.
        request_seconds: of all requests with a response, from submission to response.
        drains_waited: calls of `drain` that had to wait.
        producer_id, producer_epoch: -1 = none yet.
    """

    buffered_bytes: int
    buffer_memory: int
    records_acknowledged: int
    records_failed: int
    batches_acknowledged: int
    batches_retried: int
    batches_divided: int
    requests_sent: int
    requests_open: int
    bytes_sent: int
    request_seconds: float
    drains_waited: int
    producer_id: int
    producer_epoch: int
