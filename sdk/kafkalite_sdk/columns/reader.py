"""Reads ranges of offsets as columns, without a group and without positions: for jobs that plan their ranges."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Literal, Self, Unpack, cast

from kafkalite.model import uuid_from_text
from kafkalite_sdk._speedups.column_batch import COLUMNS, ColumnBatch
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk.client.arguments import integer, readable, reject_unknown
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.options import ClientOptions
from kafkalite_sdk.columns.range_reader import OffsetRange, RangeReader
from kafkalite_sdk.consumer.fetch.decompression import OFFLOAD_BYTES
from kafkalite_sdk.consumer.settings import ConsumerOptions, consumer_settings

FETCH_BYTES = 4 << 20
FETCHES = 3
BATCH_BYTES = 8 << 20
TIMEOUT_S = 60.0


class ReaderOptions(ClientOptions, total=False):
    """The keyword arguments of `ColumnReader`, with those of `ClientOptions`. Times are milliseconds.

    Attributes:
        isolation_level: "read_uncommitted", or "read_committed" for records of committed transactions only.
        fetch_max_wait_ms: longest wait of a broker at the end of the log.
        max_partition_fetch_bytes: largest response, unless its first batch is larger; 4 MiB by default.
        check_crcs: compare the checksums of batches.
        client_rack: records are read from a replica in this rack where the broker permits it (KIP-392).
    """

    isolation_level: str
    fetch_max_wait_ms: float
    max_partition_fetch_bytes: int
    check_crcs: bool
    client_rack: str | None


class ColumnReader:
    """A client that reads ranges of offsets, an async context manager. One reader serves many ranges at a time.

        async with ColumnReader("localhost:9092") as reader:
            async for batch in reader.read("orders", 0, 0, 1_000_000):
                frame = polars.DataFrame(batch)

    Arguments:
        bootstrap_servers: `host:port` of brokers, separated by commas or as a list.
        fetches: the most requests and unread responses of a range.
        environment: connections and randomness; another one in simulations.
        options: see `help(kafkalite_sdk.columns.ReaderOptions)`.

    Raises:
        TypeError, ValueError: an argument is not valid.
    """

    @readable("kafkalite_sdk.columns.ReaderOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        fetches: int = FETCHES,
        environment: Environment | None = None,
        **options: Unpack[ReaderOptions],
    ) -> None:
        reject_unknown("ColumnReader", options, ReaderOptions.__annotations__)
        given = {"max_partition_fetch_bytes": FETCH_BYTES, **cast(dict[str, Any], options)}
        settings = consumer_settings(bootstrap_servers, cast(ConsumerOptions, given))
        self._fetches = integer("fetches", fetches)
        self._settings = settings.fetch
        self._client = ClusterClient(settings.client, environment, name="ColumnReader")
        self._decoder: RecordDecoder[bytes, bytes] = RecordDecoder(
            read_committed=bool(settings.isolation_level),
            check_crcs=options.get("check_crcs", True),
            offload_bytes=OFFLOAD_BYTES,
        )
        self._topics: Counter[str] = Counter()

    async def start(self, timeout: float | None = None) -> None:
        """Connect to the cluster; `async with` does it.

        Arguments:
            timeout: in seconds, None = `default_api_timeout_ms`.

        Raises:
            KafkaConnectionError: no bootstrap server is reachable. KafkaTimeoutError: the timeout has passed.
        """
        await self._client.start(timeout)

    async def close(self) -> None:
        """Close the connections; open reads fail. A second call does nothing."""
        await self._client.close(0.0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        columns: Iterable[str] = COLUMNS,
        batch_bytes: int = BATCH_BYTES,
        timestamp_unit: Literal["ms", "us"] = "ms",
        timeout: float = TIMEOUT_S,
        topic_id: str | None = None,
    ) -> AsyncGenerator[ColumnBatch, None]:
        """Yield the records of a range, in order, in batches.

        Arguments:
            topic, partition: of the records.
            start, end: offsets; `end` does not belong to the range. Offsets without a record are skipped.
            columns: names of `COLUMNS`, in the order of the batches.
            batch_bytes: a batch ends with the record that reaches it; 2 to 16 MiB are suitable, at most 1 GiB.
            timestamp_unit: "ms" as Kafka, or "us" as Spark; a record whose time microseconds cannot represent is a
                CorruptRecordError.
            timeout: longest time without records, in seconds: while the leader is unknown, and at the end of the log.
            topic_id: as `Admin.topics` returns it: a topic of this name with another id has not the range. None = the
                topic that exists now.

        Raises:
            OffsetRangeError: retention or a truncation has removed records, the topic was deleted, or the log ends
                before `end`; it names the range. KafkaTimeoutError: no broker has answered with records within the
                timeout. CorruptRecordError: a batch is damaged. KafkaError: an error of the partition that is not
                retriable. TypeError, ValueError: an argument is not valid.
        """
        if not 0 <= start <= end:
            raise ValueError(f"start is {start} and end {end}, expected 0 <= start <= end")
        builder = ColumnBuilder(columns, bytes_max=batch_bytes, timestamp_unit=timestamp_unit)
        wanted = OffsetRange(topic, partition, start, end)
        uuid = None if topic_id is None else uuid_from_text(topic_id)
        self._client.check_owner()
        self._topics[topic] += 1
        try:
            self._client.use_topics([topic])
            reader = RangeReader(self._client, wanted, self._settings, self._fetches, self._decoder, timeout, uuid)
            async for batch in reader.batches(builder):
                yield batch
        finally:
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
                self._client.drop_topics([topic])
