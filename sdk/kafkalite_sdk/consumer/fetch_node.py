"""The fetches from one broker: its session, its open request, and when the next one may leave.

Pure: no I/O, no clock. Invariants:
1. One request is open at a time.
2. While a partition of the broker has enough records buffered, no request leaves: it would wait at the broker for the
   other partitions, and the first one could not be fetched meanwhile. This ends `max_wait_s` after the last response,
   so that a slow application delays its other partitions no longer.
"""

from typing import Any

from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite_sdk.consumer.fetch_session import FetchSession, WantedPartition
from kafkalite_sdk.consumer.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.partition_buffer import PartitionBuffer


class FetchCall:
    """A request to one broker.

    Attributes:
        node: broker id.
        request: the request.
        version_max: the highest version to use, None = any.
        partitions: buffers and what was asked, by partition.
        names: of the topics, by topic id.
        reserved: bytes that the response may have.
    """

    __slots__ = ("names", "node", "partitions", "request", "reserved", "version_max")

    def __init__(self, node: int, request: FetchRequest, version_max: int | None) -> None:
        self.node = node
        self.request = request
        self.version_max = version_max
        self.partitions: dict[TopicPartition, tuple[PartitionBuffer[Any, Any], WantedPartition]] = {}
        self.names: dict[bytes, str] = {}
        self.reserved = 0


class FetchNode:
    """One broker.

    Arguments:
        node: its id.
        settings: of the fetcher.

    Attributes:
        session: the fetch session.
        call: the open request, None = none.
        retry_at: no request leaves before, in seconds of the loop's clock.
        ended_at: when the last request ended, in seconds of the loop's clock.
        hold_until: until then a request waits for partitions with enough records, in seconds of the loop's clock.
        failures: number of failed requests one after another.
    """

    __slots__ = ("_settings", "call", "ended_at", "failures", "hold_until", "node", "retry_at", "session")

    def __init__(self, node: int, settings: FetchSettings) -> None:
        self.node = node
        self.session = FetchSession()
        self.call: FetchCall | None = None
        self.retry_at = 0.0
        self.ended_at = 0.0
        self.hold_until = 0.0
        self.failures = 0
        self._settings = settings

    def begin(
        self, wanted: dict[TopicPartition, tuple[PartitionBuffer[Any, Any], WantedPartition]], max_bytes: int
    ) -> FetchCall:
        """Open a request.

        Arguments:
            wanted: the partitions.
            max_bytes: largest response.
        """
        settings = self._settings
        request, version_max = self.session.request({each: asked for each, (_, asked) in wanted.items()})
        request.max_wait_ms = int(settings.max_wait_s * 1000)
        request.min_bytes = settings.min_bytes
        request.max_bytes = max_bytes
        request.isolation_level = settings.isolation_level
        request.rack_id = settings.rack
        call = FetchCall(self.node, request, version_max)
        call.partitions = wanted
        call.names = self.session.names
        call.reserved = min(max_bytes, len(wanted) * settings.partition_max_bytes)
        for buffer, _ in wanted.values():
            buffer.call = call
        self.call = call
        return call

    def end(self, now: float) -> None:
        """The request has ended; `now` in seconds of the loop's clock."""
        self.call = None
        self.ended_at = now
        self.hold_until = now + self._settings.max_wait_s

    def failed(self, now: float) -> None:
        """The request as a whole has failed: wait before the next one; `now` in seconds of the loop's clock."""
        self.session.lost()
        settings = self._settings
        self.retry_at = now + min(settings.retry_backoff_s * 2**self.failures, settings.retry_backoff_max_s)
        self.failures += 1
