"""Columns of random and of damaged batches: the fields of the record objects, and the same error where these end.

The second test takes a fifth of --fuzz-inputs, and all of them from a million on. Replays from KAFKALITE_SEED.
"""

import asyncio
import math
import os
import random
from collections import Counter
from typing import Any

import pytest
from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk._speedups.column_batch import COLUMNS
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.column_sends import send_columns
from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from kafkalite._speedups.records.batches import Batch
from tests.fuzz.test_fetched_records_fuzz import DECODER, OFFLOADING, at_offset
from tests.kit.arrow_reader import read_rows
from tests.kit.fuzzing import memory_kib
from tests.kit.leaks import QUARANTINE_KIB
from tests.kit.record_engines import damaged, random_batch, seed, small_batch

SHARE = 5
LONG_RUN = 1_000_000
RANDOM_SHARE = 1000
COMPARED_SHARE = 10
DAMAGED_PER_BATCH = 10
TARGETS = (1, 200, 5000, 1 << 20)
GROWN_KIB_MAX = (32 << 10) + QUARANTINE_KIB
LARGE: RecordDecoder[bytes, bytes] = RecordDecoder()


def fields(record: Record[bytes, bytes]) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "headers": record.headers,
    }


def take_columns(
    fetched: FetchedRecords[bytes, bytes], columns: list[str], rng: random.Random, *, compare: bool = True
) -> list[tuple[Any, ...]]:
    """Take all records in batches of columns, some of them as record objects first."""
    rows: list[tuple[Any, ...]] = []
    while not fetched.done:
        builder = ColumnBuilder(columns, rows_max=rng.choice((1, 7, 1000)), bytes_max=rng.choice(TARGETS))
        if rng.random() < 0.1:
            fetched.take(records := [], 1)
            assert all(builder.add(record) for record in records)
        count = len(builder) + fetched.take_columns(builder)
        if rng.random() < 0.1:
            fetched.detach()
        batch = builder.finish()
        assert len(batch) == count
        if compare:
            rows += read_rows(batch)
        if fetched.waits:
            fetched.decompress()
        elif not count:
            break
    assert fetched.done
    return rows


def take_records(fetched: FetchedRecords[bytes, bytes], columns: list[str]) -> list[tuple[Any, ...]]:
    records: list[Record[bytes, bytes]] = []
    while fetched.take(records, 1000) or fetched.waits:
        if fetched.waits:
            fetched.decompress()
    return [tuple(fields(record)[name] for name in columns) for record in records]


def some_columns(rng: random.Random) -> list[str]:
    return rng.sample(COLUMNS, rng.choice((len(COLUMNS), len(COLUMNS), rng.randrange(1, len(COLUMNS)))))


@pytest.mark.fuzz
def test_columns_of_random_batches_equal_the_records(fuzz_inputs: int) -> None:
    rng = random.Random(seed())
    for _ in range(max(50, fuzz_inputs // RANDOM_SHARE)):
        base = rng.choice((0, 1 << 40, 2**63 - 1000))
        data = at_offset(random_batch(rng), base) + at_offset(random_batch(rng), base + 200)
        columns = some_columns(rng)
        expected = take_records(FetchedRecords(LARGE, "orders", 7, data, base), columns)
        assert take_columns(FetchedRecords(LARGE, "orders", 7, data, base), columns, rng) == expected
        assert expected


@pytest.mark.fuzz
def test_lines_of_random_batches_are_the_keys_and_values_of_the_records(fuzz_inputs: int) -> None:
    rng = random.Random(seed())
    for _ in range(max(50, fuzz_inputs // RANDOM_SHARE)):
        data, end, separator = random_batch(rng), rng.choice((b"\n", b"\r\n", b"")), rng.choice((None, b"", b": "))
        expected = [
            (b"" if separator is None else (key or b"") + separator) + (value or b"") + end
            for key, value in take_records(FetchedRecords(LARGE, "orders", 7, data, 0), ["key", "value"])
        ]
        fetched, lines, count = FetchedRecords(LARGE, "orders", 7, data, 0), b"", 0
        while not fetched.done:
            limits = {"rows_max": rng.choice((1, 7, 1000)), "bytes_max": rng.choice(TARGETS)}
            builder = ColumnBuilder(line_end=end, key_separator=separator, **limits)
            count += fetched.take_columns(builder)
            lines += bytes(builder.finish().value_bytes)
        assert (count, lines) == (len(expected), b"".join(expected))


@pytest.mark.fuzz
def test_columns_that_are_sent_are_the_records_that_were_read(fuzz_inputs: int) -> None:
    rng = random.Random(seed())
    loop = asyncio.new_event_loop()
    for _ in range(max(50, fuzz_inputs // RANDOM_SHARE)):
        records: list[Record[bytes, bytes]] = []
        FetchedRecords(LARGE, "orders", 0, source := random_batch(rng), 0).take(records, 1000)
        builder = ColumnBuilder(["headers", "timestamp", "value", "key"], timestamp_unit=rng.choice(("ms", "us")))
        FetchedRecords(LARGE, "orders", 0, source, 0).take_columns(builder)
        buffer = new_accumulator(loop)
        if known := rng.random() < 0.5:
            buffer.set_partitions("orders", 1)
        delivery = send_columns(buffer, "orders", builder.finish())
        if not known:  # the rows wait as a copy
            assert buffer.set_partitions("orders", 1) == []
        found = sent_records(buffer)
        assert found == [(each.timestamp_ms, each.key, each.value, each.headers) for each in records]
        loop.run_until_complete(asyncio.sleep(0))
        assert delivery.done() and sum(count for *_, count in delivery.result()) == len(records)
    loop.close()


def new_accumulator(loop: asyncio.AbstractEventLoop) -> RecordAccumulator:
    """Batches of a few records."""
    return RecordAccumulator(
        loop,
        batch_size=5000,
        buffer_memory=1 << 30,
        monotonic_s=loop.time,
        choose=lambda _: 0,
        wake=lambda: None,
        refuse=lambda: None,
        wait=lambda: None,
    )


def sent_records(buffer: RecordAccumulator) -> list[tuple[Any, ...]]:
    """Encode and acknowledge all batches; return their records."""
    found: list[tuple[Any, ...]] = []
    buffer.close_batches(math.inf)
    queue = buffer.ready.popleft()
    while queue.full:
        batch = queue.full.popleft()
        fields = [
            (each.timestamp, each.key, each.value, each.headers) for each in Batch(batch.builder.build()).records()
        ]
        buffer.complete(batch, len(found))
        found += [(timestamp, key, value, tuple(headers)) for timestamp, key, value, headers in fields]
    return found


@pytest.mark.fuzz
def test_damaged_batches_end_columns_as_they_end_records(fuzz_inputs: int) -> None:
    rng = random.Random(seed())
    outcomes: Counter[str] = Counter()
    resident = 0
    inputs = fuzz_inputs if fuzz_inputs >= LONG_RUN else fuzz_inputs // SHARE
    for number in range(inputs):
        if number % DAMAGED_PER_BATCH == 0:
            good, last = small_batch(rng), at_offset(small_batch(rng), 100)
            columns = some_columns(rng)
        data = damaged(rng, good) + last
        decoder = rng.choice((DECODER, OFFLOADING))
        fetched = FetchedRecords(decoder, "t", 0, data, 0)
        compare = number % COMPARED_SHARE == 0
        rows = take_columns(fetched, columns, rng, compare=compare)
        outcomes["unharmed" if fetched.error is None else "damaged"] += 1
        if compare:
            twin = FetchedRecords(decoder, "t", 0, data, 0)
            assert rows == take_records(twin, columns)
            assert str(fetched.error) == str(twin.error) and fetched.position == twin.position
        if number == inputs // 10:
            resident = memory_kib(os.getpid())
    grown = memory_kib(os.getpid()) - resident
    print(f"{dict(outcomes)}, {grown} KiB more since a tenth of them")
    assert grown < GROWN_KIB_MAX
    assert outcomes["damaged"] and outcomes["unharmed"]
