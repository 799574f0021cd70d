"""`send_columns` beside `send`: the same partitions, batches and errors, in virtual time."""

import asyncio
import mmap
import random
import struct
from typing import Any

import numpy
import polars
import pyarrow
import pytest
from kafkalite_sdk.interceptors import ProducerInterceptor

from kafkalite._speedups.records.batches import batches
from kafkalite.errors import (
    BufferExhaustedError,
    ClientUseError,
    KafkaErrorCode,
    KafkaTimeoutError,
    MessageTooLargeError,
)
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.record_engines import seed
from tests.kit.server import batch
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.producer_rig import numbers, producing, values
from tests.unit.sdk.test_columns import batch_of

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
TYPES = {
    "key": (pyarrow.binary(), pyarrow.string(), pyarrow.large_binary(), pyarrow.binary_view(), pyarrow.large_string()),
    "value": (pyarrow.binary(), pyarrow.large_string(), pyarrow.string_view(), pyarrow.binary_view()),
    "headers": (HEADERS, pyarrow.large_list(HEADERS.value_type), pyarrow.map_(pyarrow.string(), pyarrow.binary())),
    "partition": (pyarrow.int32(), pyarrow.int64(), pyarrow.uint8(), pyarrow.int16()),
    "timestamp": (pyarrow.int64(), pyarrow.timestamp("ms", "UTC"), pyarrow.timestamp("us"), pyarrow.timestamp("ns")),
}


def logs(world: Story) -> list[list[tuple[Any, ...]]]:
    """Timestamp, key, value and headers of the records, by partition."""
    return [
        [
            (record.timestamp, record.key, record.value, record.headers)
            for stored in partition.log
            for found in batches(stored.data)
            for record in found
        ]
        for partition in world.broker.cluster.topics["orders"].partitions
    ]


def random_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    def text() -> bytes | None:
        return rng.choice((None, b"", b"k%d" % rng.randrange(20), b"x" * rng.randrange(40)))

    return [
        {
            "key": text(),
            "value": text(),
            "headers": rng.choice(([], [("h", b"v")], [("", None), ("ä", b"1" * 20)])),
            "partition": rng.choice((None, None, 0, 2)),
            "timestamp": rng.randrange(1, 1 << 40),
        }
        for _ in range(count)
    ]


def as_table(rows: list[dict[str, Any]], rng: random.Random) -> pyarrow.Table:
    columns = {}
    for name, types in TYPES.items():
        cells = [row[name] for row in rows]
        chosen = rng.choice(types)
        if name == "headers" and not pyarrow.types.is_map(chosen):
            cells = [[{"key": key, "value": value} for key, value in cell] for cell in cells]
        if name in ("key", "value") and "string" in str(chosen):
            cells = [None if cell is None else cell.decode() for cell in cells]
        array = pyarrow.array([None, *cells], pyarrow.int64() if "timestamp" in str(chosen) else chosen).slice(1)
        if pyarrow.types.is_timestamp(chosen):
            array = array.cast(pyarrow.timestamp("ms", chosen.tz)).cast(chosen)
        columns[name] = array
    middle = len(rows) // 2
    table = pyarrow.table(columns)
    return pyarrow.concat_tables([table.slice(0, middle), table.slice(middle)])


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_rows_of_all_types_equal_single_sends(partitioner: str) -> None:
    rng = random.Random(seed())

    @story()
    async def send_all(world: Story, rows: list[dict[str, Any]], table: Any, *, known: bool = True) -> None:
        world.broker.cluster.create_topic("orders", 3)
        async with producing(world, partitioner=partitioner, batch_size=500) as producer:
            if known:
                await producer.send("orders", b"first")
            await producer.send_columns("orders", table) if table is not None else None
            for row in rows if table is None else ():
                named = {"partition": row["partition"], "timestamp_ms": row["timestamp"], "headers": row["headers"]}
                producer.send("orders", row["value"], row["key"], **named)
            await producer.flush()
        found.append([sorted(map(repr, each)) if keyless else each for each in logs(world)])

    for keyless in (False, True):
        rows = random_rows(rng, 200)
        for row in rows if not keyless else ():
            row["key"] = row["key"] or b"k"  # a record without a key goes to a partition that is chosen at random
        if keyless:
            for row in rows:
                row["partition"] = row["partition"] or 1
        found: list[Any] = []
        send_all(rows, None)
        send_all(rows, as_table(rows, rng))
        send_all(rows, as_table(rows, rng), known=False)
        assert without_first(found[0]) == without_first(found[1]) == found[2]


def without_first(logs: list[list[Any]]) -> list[list[Any]]:
    """The records but the one of the warm-up, whose partition is chosen at random."""
    return [[each for each in log if "b'first'" not in repr(each)] for log in logs]


@story()
async def test_the_result_has_the_offsets_of_all_rows(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    rows = {"value": numbers(100), "partition": [number % 2 for number in range(100)]}
    async with producing(world, batch_size=300) as producer:
        delivery = producer.send_columns("orders", polars.DataFrame(rows))
        assert not delivery.done()
        ranges = await delivery
        assert delivery.done() and delivery.result() == ranges
        for partition in (0, 1):
            expected = 0
            for topic, number, offset, count in ranges:
                if number == partition:
                    assert (topic, offset) == ("orders", expected)
                    expected += count
            assert expected == 50 and values(world, partition=partition) == numbers(100)[partition::2]
        assert len(ranges) == 4


@story()
async def test_rows_wait_for_the_metadata_in_the_order_of_the_calls(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world) as producer:
        producer.send("orders", b"0")
        delivery = producer.send_columns("orders", polars.DataFrame({"value": [b"1", b"2"]}))
        producer.send("orders", b"3")
        assert await delivery == [("orders", 0, 1, 2)]
        await producer.flush()
    assert values(world) == numbers(4)


@story()
async def test_rows_that_wait_do_not_change_with_their_buffers(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    values_bytes, times, partitions = bytearray(b"onetwo"), numpy.array([5, 6]), numpy.array([1, 1])
    offsets = pyarrow.py_buffer(struct.pack("3i", 0, 3, 6))
    column = pyarrow.Array.from_buffers(pyarrow.binary(), 2, [None, offsets, pyarrow.py_buffer(values_bytes)])
    table = pyarrow.table({"value": column, "timestamp": pyarrow.array(times), "partition": pyarrow.array(partitions)})
    async with producing(world) as producer:
        sent = producer.send_columns("orders", table)
        values_bytes[:], times[:], partitions[:] = b"xxxxxx", 7, 0
        assert await sent == [("orders", 1, 0, 2)]
    assert logs(world) == [[], [(5, None, b"one", ()), (6, None, b"two", ())]]


@story()
async def test_an_invalid_partition_fails_all_rows_that_wait(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world) as producer:
        delivery = producer.send_columns("orders", polars.DataFrame({"value": [b"1", b"2"], "partition": [0, 1]}))
        with pytest.raises(ValueError, match="column partition, row 1: orders has partitions 0 to 0, not 1"):
            await delivery
        with pytest.raises(ValueError, match="column partition, row 1"):
            producer.send_columns("orders", polars.DataFrame({"value": [b"1", b"2"], "partition": [0, 1]}))
        await producer.flush()
    assert values(world) == []


@story()
async def test_columns_that_were_polled_are_sent(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    polled = batch_of(batch(b"a", None, b"c"), columns=["key", "value", "headers", "timestamp"])
    async with producing(world) as producer:
        await producer.send_columns("orders", polled)
    assert values(world) == [b"a", None, b"c"]


@story()
async def test_a_failure_that_is_not_awaited_is_raised_by_flush(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, delivery_timeout_ms=2000, request_timeout_ms=1000) as producer:
        await producer.send("orders", b"first")
        world.broker.on(ProduceRequest, error=KafkaErrorCode.NOT_ENOUGH_REPLICAS, times=None)
        table = polars.DataFrame({"value": numbers(3)})
        producer.send_columns("orders", table)
        with pytest.raises(KafkaTimeoutError) as caught:
            await producer.flush()
        assert "raised for 3 record(s)" in str(caught.value.__notes__)
        awaited = producer.send_columns("orders", table)
        with pytest.raises(KafkaTimeoutError) as caught:
            await awaited
        assert "3 of 3 rows failed" in str(caught.value.__notes__)
        await producer.flush()


@story()
async def test_a_batch_that_is_too_large_is_divided(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world) as producer:
        await producer.send("orders", b"first")
        world.broker.on(ProduceRequest, error=KafkaErrorCode.MESSAGE_TOO_LARGE, times=1)
        ranges = await producer.send_columns("orders", polars.DataFrame({"value": numbers(5)}))
        assert ranges == [("orders", 0, 1, 2), ("orders", 0, 3, 3)]
        await producer.flush()


@pytest.mark.parametrize(
    ("table", "error", "text"),
    [
        ({"value": [1, 2]}, TypeError, "column value has the Arrow type 'l', expected binary or a string"),
        ({"value": [b"a"], "offset": [1]}, ValueError, "column 'offset' cannot be sent, only key, value, headers"),
        ({"partition": [b"a"]}, TypeError, "column partition has the Arrow type 'z', expected integers"),
        ({"partition": [0, -1]}, ValueError, "column partition, row 1: -1 is no partition"),
        (
            {"timestamp": pyarrow.array([None, -1, -(2**62)], pyarrow.timestamp("s"))},
            ValueError,
            "column timestamp, row 2: -4611686018427387904 s exceeds 64 bits in ms",
        ),
        (
            {"timestamp": pyarrow.array([9_223_372_036_854_775, 9_223_372_036_854_776], pyarrow.timestamp("s", "UTC"))},
            ValueError,
            "column timestamp, row 1: 9223372036854776 s exceeds 64 bits in ms",
        ),
        (
            {"timestamp": pyarrow.array([1, 2**63], pyarrow.uint64())},
            ValueError,
            "column timestamp, row 1: 9223372036854775808 ms exceeds 64 bits in ms",
        ),
        ({"timestamp": [1.5]}, TypeError, "column timestamp has the Arrow type 'g', expected a timestamp"),
        ({"headers": [b"a"]}, TypeError, "column headers has the Arrow type 'z', expected a list of structs"),
        ({"headers": [[{"name": "a"}]]}, TypeError, "column headers has items with the fields"),
        ({"headers": [[], [{"key": None, "value": b"a"}]]}, ValueError, "column headers.key, row 1: null"),
        ({"value": [b"a", b"b"], "key": [b"a", None]}, ValueError, "column key, row 1: null is not allowed"),
        ({"value": [b"a", bytes(2000)], "key": [b"a", b"b"]}, MessageTooLargeError, "row 1: a record of 2041 bytes"),
    ],
)
def test_invalid_tables_are_rejected_with_column_and_row(table: dict[str, Any], error: Any, text: str) -> None:
    @story()
    async def rejected(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        async with producing(world, max_request_size=1000) as producer:
            with pytest.raises(error, match=text):
                producer.send_columns("orders", pyarrow.table(table), require_key="key" in table)
            assert producer.metrics().buffered_bytes == 0
        assert values(world) == []

    rejected()


@pytest.mark.parametrize("column", ["key", "value"])
def test_values_above_2_gib_are_rejected_with_column_and_row(column: str) -> None:
    offsets = pyarrow.py_buffer(struct.pack("<3q", 0, 1, 1 + (1 << 31)))
    data = pyarrow.py_buffer(mmap.mmap(-1, 1 + (1 << 31)))  # its pages are not used: nothing reads them
    large = pyarrow.Array.from_buffers(pyarrow.large_binary(), 2, [None, offsets, data])

    @story()
    async def rejected(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        async with producing(world) as producer:
            with pytest.raises(ValueError, match=f"column {column}, row 1: 2147483648 bytes, the largest size is"):
                producer.send_columns("orders", pyarrow.table({column: large}))
            assert producer.metrics().buffered_bytes == 0

    rejected()


@story()
async def test_objects_without_columns_are_rejected(world: Story) -> None:
    dictionary = pyarrow.table({"value": pyarrow.array(["a", "a"]).dictionary_encode()})
    required = pyarrow.table([pyarrow.array([b"a", None])], schema=pyarrow.schema([("key", pyarrow.binary(), False)]))
    async with producing(world) as producer:
        with pytest.raises(TypeError, match="list has no Arrow PyCapsule interface"):
            producer.send_columns("orders", [b"a"])
        with pytest.raises(TypeError, match="column value is dictionary-encoded"):
            producer.send_columns("orders", dictionary)
        with pytest.raises(ValueError, match="column key, row 1: null"):
            producer.send_columns("orders", required)
        with pytest.raises(ValueError, match="column key, row 0: null"):
            producer.send_columns("orders", polars.DataFrame({"value": [b"a"]}), require_key=True)
        assert await producer.send_columns("orders", polars.DataFrame({"value": []})) == []
        assert not world.broker.requests(ProduceRequest)


@story()
async def test_a_full_buffer_rejects_columns_until_it_is_drained(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    table = polars.DataFrame({"value": [bytes(1000)] * 9})
    async with producing(world, buffer_memory=10_000, batch_size=2000, max_request_size=5000) as producer:
        await producer.send("orders", b"first")
        with pytest.raises(MessageTooLargeError, match="buffer_memory allows 10000; send slices"):
            producer.send_columns("orders", polars.concat([table, table]))
        for _ in range(10):
            producer.send_columns("orders", table)
            with pytest.raises(BufferExhaustedError, match=r"await drain\(\) first"):
                while True:
                    producer.send_columns("orders", table.slice(0, 1))
            await producer.drain()
        await producer.flush()
    assert len(values(world)) >= 91


@story()
async def test_interceptors_of_records_are_not_bypassed(world: Story) -> None:
    class Seen(ProducerInterceptor):
        def before_enqueue(self, record: Any) -> Any:
            raise AssertionError("send_columns has no record objects")

    async with producing(world, interceptors=[Seen()]) as producer:
        with pytest.raises(ClientUseError, match="send_columns calls no interceptors of single records"):
            producer.send_columns("orders", polars.DataFrame({"value": [b"a"]}))


@story()
async def test_a_topic_that_does_not_exist_fails_the_rows(world: Story) -> None:
    async with producing(world, max_block_ms=3000) as producer:
        delivery = producer.send_columns("missing", polars.DataFrame({"value": numbers(3)}))
        task = asyncio.ensure_future(delivery.wait())
        await pass_time(1.0)
        assert world.broker.requests(MetadataRequest) and not task.done()
        with pytest.raises(KafkaTimeoutError, match="missing"):
            await task
