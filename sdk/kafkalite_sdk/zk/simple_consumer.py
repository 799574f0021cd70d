"""The simple consumer of Kafka 0.8: fetches of chosen offsets from one broker, and the offsets of segments.

    async with SimpleConsumer("localhost", 9092) as consumer:
        (fetched,) = await consumer.fetch(PartitionFetch("orders", 0, offset=0))
        for record in fetched.result():
            ...
        offsets = await consumer.get_offsets_before("orders", 0, time_ms=-1, max_offsets=10)

It sends each fetch to this broker and follows no leader: a broker that is not the leader answers with an error.
Sources: SimpleConsumer.scala, FetchRequest.scala (FetchRequestBuilder) of Kafka 0.8.2.2.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self, Unpack, cast

from kafkalite.errors import KafkaConnectionError, KafkaError, error_for
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords
from kafkalite_sdk.client.arguments import INT32_MAX, integer
from kafkalite_sdk.client.channels import bootstrap_node
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.options import ClientOptions
from kafkalite_sdk.client.security import SecurityOptions
from kafkalite_sdk.rpc.call import Call
from kafkalite_sdk.rpc.connection import Connection

SO_TIMEOUT_MS = 30_000
FETCH_BYTES = 1 << 20
WITH_NAMES = 12  # the last version of Fetch that has the names of topics
LATEST, EARLIEST = -1, -2

Records = list[Record[bytes, bytes]]
FetchTopic = FetchRequest.FetchTopic
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class PartitionFetch(NamedTuple):
    """A partition of a fetch.

    Attributes:
        topic, partition: the partition.
        offset: of the first record.
        fetch_size: largest size in bytes; the first batch is returned even if it is larger.
    """

    topic: str
    partition: int
    offset: int
    fetch_size: int = FETCH_BYTES


class FetchedPartition(NamedTuple):
    """The response about a partition.

    Attributes:
        topic, partition: the partition.
        records: whole records from the offset on.
        high_watermark: offset behind the last record that a consumer may read.
        error: why there are no (further) records; None = there is no error.
    """

    topic: str
    partition: int
    records: Records
    high_watermark: int
    error: KafkaError | None

    def result(self) -> Records:
        """Return the records. Raises the error, unless there are records before it."""
        if self.error is not None and not self.records:
            raise self.error
        return self.records


class SimpleConsumer:
    """A consumer of one broker. It belongs to the event loop in which it is started.

    Arguments:
        host, port: of the broker.
        so_timeout: deadline of a request, in ms (30,000).
        client_id: sent with every request.
        environment: connections and randomness; simulations replace it.
        security: TLS and SASL; see `help(kafkalite_sdk.SecurityOptions)`.

    Raises ValueError, TypeError: an argument is not valid.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        so_timeout: int = SO_TIMEOUT_MS,
        client_id: str = "",
        environment: Environment | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options: ClientOptions = {
            **cast(ClientOptions, security),
            "client_id": client_id,
            "request_timeout_ms": integer("so_timeout", so_timeout),
            "default_api_timeout_ms": so_timeout,
        }
        self._connection = Connection(address, environment=environment, **options)
        self._decoder: RecordDecoder[bytes, bytes] = RecordDecoder()
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to the broker. Raises KafkaConnectionError, KafkaTimeoutError, AuthenticationError."""
        import kafkalite.records  # noqa: F401 - registers the codecs

        await self._connection.start()

    async def close(self) -> None:
        """End the connection. A second call does nothing."""
        await self._connection.close()

    async def fetch(
        self, *partitions: PartitionFetch | Sequence[PartitionFetch], max_wait: int = 0, min_bytes: int = 0
    ) -> list[FetchedPartition]:
        """Fetch records of one partition or of many. A request that is lost with its connection is sent once more.

        Arguments:
            partitions: what is fetched, each partition at most once.
            max_wait: how long the broker waits for `min_bytes`, in ms.
            min_bytes: number of bytes for which the broker waits.

        Returns: the partitions in the order of the arguments.

        Raises:
            ValueError: there is no partition, or one is named twice. KafkaConnectionError, KafkaTimeoutError: the
            broker does not answer. Errors of single partitions are in the result.
        """
        wanted = list(_flat(partitions))
        if not wanted or len({each[:2] for each in wanted}) < len(wanted):
            raise ValueError(f"fetch: expected each partition once, got {wanted}")
        request = FetchRequest(
            max_wait_ms=integer("max_wait", max_wait, least=0),
            min_bytes=integer("min_bytes", min_bytes, least=0),
            topics=_topics(wanted),
        )
        response = await self._send(request)
        if response.error_code:
            raise error_for(response.error_code)
        found = {(topic.topic, each.partition_index): each for topic in response.responses for each in topic.partitions}
        return [self._partition(each, found.get(each[:2])) for each in wanted]

    async def _send(self, request: FetchRequest) -> FetchResponse:
        async with self._lock:
            try:
                return await self._call(request)
            except KafkaConnectionError:
                return await self._call(request)

    async def _call(self, request: FetchRequest) -> FetchResponse:
        call = Call(request, broker=bootstrap_node(0), version_max=WITH_NAMES)
        replies = await self._connection.poll(None, call)
        while True:
            for reply in replies:
                if reply.call is call:  # else the fetch that has sent it was cancelled
                    return cast(FetchResponse, reply.result())
            replies = await self._connection.poll(None)

    def _partition(self, wanted: PartitionFetch, data: PartitionData | None) -> FetchedPartition:
        topic, partition, offset, _size = wanted
        if data is None:
            error: KafkaError | None = KafkaError(f"{topic}-{partition}: the broker's response does not have it")
            return FetchedPartition(topic, partition, [], -1, error)
        if data.error_code:
            error = error_for(data.error_code, f"{topic}-{partition} at offset {offset}")
            return FetchedPartition(topic, partition, [], data.high_watermark, error)
        records: Records = []
        fetched = FetchedRecords(self._decoder, topic, partition, data.records or b"", offset)
        while fetched.take(records, INT32_MAX):
            pass
        return FetchedPartition(topic, partition, records, data.high_watermark, fetched.error)

    async def get_offsets_before(self, topic: str, partition: int, time_ms: int, max_offsets: int) -> list[int]:
        """Return the offsets at which segments begin that are not newer than a time, descending.

        Arguments:
            topic, partition: the partition.
            time_ms: in ms since 1970; -1 = all segments and the log end, -2 = the first segment.
            max_offsets: the largest number of offsets.

        Raises UnsupportedVersionError: Apache Kafka 4 does not serve it. KafkaError: the leader cannot answer.
        """
        return await self._connection.offsets_before(topic, partition, time_ms, max_offsets)

    async def earliest_or_latest_offset(self, topic: str, partition: int, earliest_or_latest: int) -> int:
        """Return the log start or the log end.

        Arguments:
            topic, partition: the partition.
            earliest_or_latest: -2 = the log start, -1 = the log end.
        """
        if earliest_or_latest not in (LATEST, EARLIEST):
            raise ValueError(f"earliest_or_latest is {earliest_or_latest}, expected -2 (log start) or -1 (log end)")
        (offset,) = await self.get_offsets_before(topic, partition, earliest_or_latest, 1)
        return offset


def _flat(partitions: Iterable[PartitionFetch | Sequence[PartitionFetch]]) -> Iterable[PartitionFetch]:
    for each in partitions:
        if isinstance(each, list):
            yield from (PartitionFetch(*part) for part in each)
        else:
            yield PartitionFetch(*cast(PartitionFetch, each))


def _topics(wanted: Iterable[PartitionFetch]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for topic, partition, offset, size in wanted:
        entry = FetchTopic.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=integer("fetch_size", size)
        )
        topics.setdefault(topic, FetchTopic(topic=topic, partitions=[])).partitions.append(entry)
    return list(topics.values())
