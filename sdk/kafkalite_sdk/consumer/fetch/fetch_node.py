"""The fetches from one broker: its session, its open request, and when the next one may leave.

Pure: no I/O, no clock. Invariants:
1. One request is open at a time.
2. While a partition of the broker has enough records buffered, no request leaves: it would wait at the broker for the
   other partitions, and the first one could not be fetched meanwhile. This ends `max_wait_s` after the last response,
   so that a slow application delays its other partitions no longer.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.backoff import exponential_pause
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite_sdk.consumer.fetch.fetch_session import FetchSession, WantedPartition
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.fetch.partition_buffer import PartitionBuffer


class FetchCall:
    """A request to one broker.

    Attributes:
        node: broker id.
        request: the request.
        version_max: the highest version to use, None = any.
        partitions: what the broker was asked, in this request or in an earlier one of its session.
        names: of the topics, by topic id.
        reserved: bytes that the response may have.
    """

    __slots__ = ("names", "node", "partitions", "request", "reserved", "version_max")

    def __init__(self, node: int, request: FetchRequest, version_max: int | None) -> None:
        self.node = node
        self.request = request
        self.version_max = version_max
        self.partitions: Mapping[TopicPartition, WantedPartition] = {}
        self.names: dict[bytes, str] = {}
        self.reserved = 0


class FetchNode:
    """One broker.

    Arguments:
        node: its id.
        settings: of the fetcher.

    Attributes:
        wanted: the partitions of the next request.
        full: those with enough records in the buffer.
        session: the fetch session.
        call: the open request, None = none.
        retry_at: no request leaves before, in seconds of the loop's clock.
        ended_at: when the last request ended, in seconds of the loop's clock.
        hold_until: until then a request waits for partitions with enough records, in seconds of the loop's clock.
        failures: number of failed requests one after another.
    """

    __slots__ = (
        "_changed",
        "_settings",
        "call",
        "ended_at",
        "failures",
        "full",
        "hold_until",
        "node",
        "retry_at",
        "session",
        "wanted",
    )

    def __init__(self, node: int, settings: FetchSettings) -> None:
        self.node = node
        self.wanted: dict[TopicPartition, WantedPartition] = {}
        self.full: set[TopicPartition] = set()
        self.session = FetchSession()
        self.call: FetchCall | None = None
        self.retry_at = 0.0
        self.ended_at = 0.0
        self.hold_until = 0.0
        self.failures = 0
        self._settings = settings
        self._changed: dict[TopicPartition, None] = {}  # since the last request

    def want(self, name: TopicPartition, asked: WantedPartition) -> None:
        """Ask for a partition in the next request, behind the others if that is a full one."""
        self.remove(name)
        self.wanted[name] = asked

    def mark_full(self, name: TopicPartition) -> None:
        """A partition of the broker has enough records in the buffer."""
        self.remove(name)
        self.full.add(name)

    def remove(self, name: TopicPartition) -> None:
        """Do not ask for a partition any more."""
        self.full.discard(name)
        self.wanted.pop(name, None)
        self._changed[name] = None

    def begin(self, buffers: Mapping[TopicPartition, PartitionBuffer[Any, Any]], max_bytes: int) -> FetchCall:
        """Open a request.

        Arguments:
            buffers: by partition; those of changed partitions expect the response from now on.
            max_bytes: largest response.
        """
        settings = self._settings
        try:
            request, version_max = self.session.request(self.wanted, self._changed)
        except BaseException:
            self.session.lost()  # the next request names all partitions
            raise
        request.max_wait_ms = int(settings.max_wait_s * 1000)
        request.min_bytes = settings.min_bytes
        request.max_bytes = max_bytes
        request.isolation_level = settings.isolation_level
        request.rack_id = settings.rack
        call = FetchCall(self.node, request, version_max)
        call.partitions = self.session.partitions
        call.names = self.session.names
        call.reserved = min(max_bytes, len(self.wanted) * settings.partition_max_bytes)
        for name in self._changed:
            if name in self.wanted:
                buffers[name].expected_from = self.node
        self._changed.clear()
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
        self.failures += 1
        self.retry_at = now + exponential_pause(settings.retry_backoff_s, self.failures, settings.retry_backoff_max_s)
