"""The methods of a consumer that return records: as objects, as columns, as lines."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, Literal

from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.column_batch import COLUMNS, ColumnBatch
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import Record, by_partition
from kafkalite_sdk.client.arguments import check_seconds
from kafkalite_sdk.consumer.arguments import partitions_of
from kafkalite_sdk.consumer.driver import Driver
from kafkalite_sdk.consumer.poll_loop import PollLoop

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

ROWS_MAX = 2**31 - 1


class Polls(Generic[K, V]):
    """The polls of a consumer; see `Consumer`."""

    _driver: Driver[K, V]
    _loop: PollLoop[K, V]

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, in order per partition; wait for the first one.

        Arguments:
            timeout: in seconds, 0 = do not wait; then the list is empty.
            max_records: None = `max_poll_records`.

        Raises:
            KafkaError: of a partition or of the group; it names them and the next step.
            ClientUseError: another task polls, or the consumer is not open. ValueError: `max_records` is less than 1.
        """
        return await self._loop.poll(timeout, max_records)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record[K, V]]]:
        """Return the next records by partition; as `poll`, under the names of aiokafka.

        Arguments:
            partitions: whose records are returned; none named = all that are assigned.
            timeout_ms: longest time to wait for the first record, in ms; 0 = do not wait.
            max_records: None = `max_poll_records`.

        Raises: as `poll`.
        """
        check_seconds("timeout_ms", timeout_ms)
        only = frozenset(partitions_of(partitions))
        return by_partition(await self._loop.poll(timeout_ms / 1000, max_records, only))

    async def poll_columns(
        self,
        timeout: float = 1.0,
        max_records: int = ROWS_MAX,
        *,
        max_bytes: int = 8 << 20,
        columns: Iterable[str] = COLUMNS,
        timestamp_unit: Literal["ms", "us"] = "ms",
    ) -> ColumnBatch:
        """Return the next records as columns, which pyarrow, polars and DuckDB read; wait for the first one.

        Positions, commits, rebalances and errors are those of `poll`; keys and values are bytes.

        Arguments:
            timeout: in seconds, 0 = do not wait; then the batch has no records.
            max_records: largest number of records.
            max_bytes: the batch ends with the record that reaches it; at most 1 GiB.
            columns: names of `COLUMNS`, in the order of the batch.
            timestamp_unit: "ms" as Kafka, or "us" as Spark; a record whose time microseconds cannot represent is a
                CorruptRecordError.

        Raises: as `poll`, and ClientUseError if the consumer has interceptors of records.
        """
        builder = ColumnBuilder(columns, rows_max=max_records, bytes_max=max_bytes, timestamp_unit=timestamp_unit)
        await self._loop.poll_columns(timeout, builder)
        return builder.finish()

    async def poll_lines(
        self,
        timeout: float = 1.0,
        max_records: int = ROWS_MAX,
        *,
        max_bytes: int = 8 << 20,
        line_end: bytes = b"\n",
        key_separator: bytes | None = None,
    ) -> ColumnBatch:
        """Return the next records as lines for a file or a pipe: `value_bytes` of the batch has all of them.

        Positions, commits, rebalances and errors are those of `poll`. A null key or value is empty.

        Arguments:
            timeout, max_records, max_bytes: as `poll_columns`.
            line_end: at the end of each line.
            key_separator: a line is the key, the separator and the value; None = the value.

        Raises: as `poll_columns`.
        """
        builder = ColumnBuilder(
            rows_max=max_records, bytes_max=max_bytes, line_end=line_end, key_separator=key_separator
        )
        await self._loop.poll_columns(timeout, builder)
        return builder.finish()

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record that the application receives, of each partition that has one."""
        self._driver.client.check_owner()
        return {each: found.offset for each, found in self._driver.consumed().items()}
