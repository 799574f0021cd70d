"""The reports of a producer about itself: records that have failed, and a snapshot of its counters."""

from typing import NamedTuple


class FailedRecords(NamedTuple):
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


class ProducerMetrics(NamedTuple):
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


class RequestCounts:
    """The requests of one producer since its start.

    Attributes:
        requests: number of them.
        bytes: of their batches, after compression, retries included.
        seconds: of all with a response, from submission to response.
        drains: calls of `drain` that had to wait.
    """

    __slots__ = ("bytes", "drains", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = self.bytes = self.drains = 0
        self.seconds = 0.0
