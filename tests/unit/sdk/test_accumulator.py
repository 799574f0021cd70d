"""The buffer of a producer: batches, order, memory, partitions of records without a key, splitting."""

import asyncio
import itertools
import math
import random

import pytest

from kafkalite._speedups.records.batches import Batch
from kafkalite.errors import BufferExhaustedError
from tests.unit.sdk.accumulators import RECORD, Clock, accumulator, values, waiting


async def test_records_of_a_partition_keep_their_order_across_batches():
    buffer = accumulator()
    buffer.set_partitions("t", 3)
    sent = {number: [] for number in range(3)}
    rng = random.Random(1)
    for number in range(200):
        partition = rng.randrange(3)
        sent[partition].append(b"%d" % number * rng.randrange(1, 30))
        buffer.send("t", sent[partition][-1], partition=partition)
    for queue in buffer.partitions_of("t"):
        assert len(queue.full) > 1
        assert waiting(queue) == sent[queue.partition]


async def test_records_before_the_metadata_come_first():
    buffer = accumulator()
    early = [buffer.send("t", b"%d" % number, partition=0) for number in range(50)]
    assert list(buffer.unassigned) == ["t"] and buffer.partitions_of("t") is None
    assert not any(future.done() for future in early)
    before = buffer.buffered
    buffer.set_partitions("t", 1)
    assert 0 < buffer.buffered <= before
    late = buffer.send("t", b"50")
    (queue,) = buffer.partitions_of("t")
    assert waiting(queue) == [b"%d" % number for number in range(51)]
    buffer.close_batches(math.inf)
    offset = 0
    for batch in list(queue.full):
        count = batch.records_count
        buffer.complete(batch, offset)
        offset += count
    assert [future.result().offset for future in [*early, late]] == list(range(51))
    assert buffer.buffered == 0


async def test_futures_that_are_awaited_before_the_metadata_complete():
    buffer = accumulator()
    future = buffer.send("t", b"v")
    cancelled = buffer.send("t", b"w")
    task = asyncio.ensure_future(asyncio.wait_for(future, 60))
    cancelled.cancel()
    await asyncio.sleep(0)
    buffer.set_partitions("t", 1)
    (queue,) = buffer.partitions_of("t")
    assert values(queue.open) == [b"v", b"w"] and queue.open.observed == 2
    buffer.complete(queue.open, 9)
    assert (await task).offset == 9 and cancelled.cancelled()


async def test_a_partition_that_does_not_exist_is_rejected():
    buffer = accumulator()
    early = buffer.send("t", b"v", partition=2)
    buffer.set_partitions("t", 2)
    with pytest.raises(ValueError, match="t has partitions 0 to 1, not 2"):
        await early
    with pytest.raises(ValueError, match="t has partitions 0 to 1, not -1"):
        buffer.send("t", b"v", partition=-1)
    assert buffer.buffered == 0


async def test_the_records_of_an_unknown_topic_fail_together():
    buffer = accumulator()
    futures = [buffer.send("t", b"v") for _ in range(3)]
    futures[0].cancel()
    batch = buffer.fail_topic("t", KeyError("t"))
    assert (batch.records_count, batch.observed, buffer.buffered) == (3, 1, 0)
    for future in futures[1:]:
        with pytest.raises(KeyError):
            await future
    buffer.send("t", b"v")
    assert list(buffer.unassigned) == ["t"]


async def test_memory_is_bounded_and_released_by_completed_batches():
    buffer = accumulator(buffer_memory=5000)
    buffer.set_partitions("t", 1)
    futures = []
    with pytest.raises(BufferExhaustedError, match=r"await drain\(\) first"):
        while True:
            futures.append(buffer.send("t", RECORD))
    assert 5000 <= buffer.buffered < 5000 + 2 * len(RECORD)
    buffer.close_batches(math.inf)
    (queue,) = buffer.partitions_of("t")
    for number, batch in enumerate(list(queue.full)):
        if number % 2:
            buffer.fail(batch, ValueError())
        else:
            buffer.complete(batch, 0)
    assert buffer.buffered == 0
    assert all(future.done() for future in futures)


async def test_memory_of_records_without_metadata_is_bounded():
    buffer = accumulator(buffer_memory=5000)
    with pytest.raises(BufferExhaustedError):
        for _ in range(100):
            buffer.send("t", RECORD)


async def test_a_record_that_is_larger_than_a_batch_is_one_of_its_own():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    for value in (b"a", RECORD * 20, b"b"):
        buffer.send("t", value)
    (queue,) = buffer.partitions_of("t")
    assert [values(batch) for batch in queue.full] == [[b"a"], [RECORD * 20]]
    assert values(queue.open) == [b"b"]


async def test_open_batches_are_closed_in_the_order_of_their_first_records():
    clock = Clock()
    buffer = accumulator(clock)
    buffer.set_partitions("t", 3)
    for now, partition in ((1.0, 2), (2.0, 0), (3.0, 2), (4.0, 1)):
        clock.now = now
        buffer.send("t", b"v", partition=partition)
    assert buffer.close_batches(0.9) == 1.0
    assert not buffer.ready
    assert buffer.close_batches(2.5) == 4.0
    assert [queue.partition for queue in buffer.ready] == [2, 0]
    assert len(buffer.ready[0].full[0].builder) == 2
    assert buffer.close_batches(4.0) is None
    clock.now = 5.0
    buffer.send("t", b"v", partition=2)
    assert buffer.close_batches(math.inf) is None
    assert [queue.partition for queue in buffer.ready] == [2, 0, 1]  # each queue once


async def test_records_with_a_key_go_where_java_clients_send_them():
    buffer = accumulator()
    buffer.set_partitions("t", 4)
    for key in (b"21", b"foobar", b"abc", bytearray(b"abc"), b""):
        buffer.send("t", b"v", key)
    found = {
        queue.partition: [r.key for r in Batch(queue.open.builder.build())]
        for queue in buffer.partitions_of("t")
        if queue.open
    }
    expected = {}
    for key, hashed in (
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"abc", 479470107),
        (b"abc", 479470107),
        (b"", 275646681),
    ):
        expected.setdefault((hashed & 0x7FFFFFFF) % 4, []).append(key)
    assert found == expected


async def test_a_partitioner_of_the_user_chooses():
    asked = []

    def last(key, value, partitions, available):
        asked.append((key, value, list(partitions), list(available)))
        return partitions[-1]

    buffer = accumulator(partitioner=last)
    buffer.set_partitions("t", 4, [0, 2])
    buffer.send("t", b"v", b"k")
    buffer.send("t", b"w", partition=0)
    assert asked == [(b"k", b"v", [0, 1, 2, 3], [0, 2])]
    assert [queue.partition for queue in buffer.partitions_of("t") if queue.open] == [0, 3]


async def test_records_without_a_key_stay_for_a_batch_then_change_the_partition():
    buffer = accumulator()
    buffer.set_partitions("t", 8)
    chosen = []
    for _ in range(400):
        before = {queue.partition: waiting(queue) for queue in buffer.partitions_of("t")}
        buffer.send("t", RECORD)
        (grown,) = [q.partition for q in buffer.partitions_of("t") if len(waiting(q)) > len(before[q.partition])]
        chosen.append(grown)
    changes = sum(before != after for before, after in itertools.pairwise(chosen))
    assert 400 * 110 / 1000 * 0.6 < changes < 400 * 110 / 1000 * 1.2
    assert len(set(chosen)) == 8


async def test_partitions_with_long_queues_get_fewer_records_without_a_key():
    buffer = accumulator()
    buffer.set_partitions("t", 2)
    for _ in range(80):
        buffer.send("t", RECORD, partition=0)
    slow, fast = buffer.partitions_of("t")
    queued = len(slow.full)
    for _ in range(100):
        buffer.send("t", RECORD)
        fast.full.clear()  # the broker of this partition answers at once
    assert queued >= 8 and len(slow.full) - queued <= 3


async def test_more_partitions_take_records_too():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    buffer.send("t", b"v")
    buffer.set_partitions("t", 3)
    buffer.send("t", b"v", partition=2)
    assert [queue.partition for queue in buffer.partitions_of("t")] == [0, 1, 2]
    with pytest.raises(ValueError, match="t cannot shrink from 3 to 2 partitions"):
        buffer.set_partitions("t", 2)


async def test_a_split_batch_completes_its_futures_by_their_halves():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    futures = [
        buffer.send("t", b"%d" % number, b"k", timestamp_ms=number, headers=[("h", b"%d" % number)])
        for number in range(5)
    ]
    buffer.close_batches(math.inf)
    (queue,) = buffer.partitions_of("t")
    batch = queue.full.popleft()
    held = buffer.buffered
    awaited = asyncio.ensure_future(asyncio.gather(*futures[:2]))
    await asyncio.sleep(0)
    first, second = buffer.split(batch)
    assert [values(half) for half in (first, second)] == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert next(r.headers for r in Batch(second.builder.build())) == (("h", b"2"),)
    assert buffer.buffered == held
    buffer.complete(first, 10)
    assert not futures[0].done()
    left, right = buffer.split(second)
    buffer.complete(left, 20)
    buffer.fail(right, ValueError("too large"))
    assert buffer.buffered == 0
    assert [each.offset for each in await awaited] == [10, 11]
    assert [future.exception() is None for future in futures] == [True, True, True, False, False]
    metadata = futures[2].result()
    assert (metadata.offset, metadata.timestamp_ms) == (20, 2)
    with pytest.raises(ValueError, match="too large"):
        futures[4].result()


async def test_one_record_cannot_be_split():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    buffer.send("t", b"v")
    (queue,) = buffer.partitions_of("t")
    with pytest.raises(ValueError, match="one record cannot be split"):
        buffer.split(queue.open)


async def test_a_completed_batch_is_neither_completed_nor_split_again():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    buffer.send("t", b"v")
    buffer.close_batches(math.inf)
    batch = buffer.partitions_of("t")[0].full.popleft()
    buffer.complete(batch, 0)
    for again in (
        lambda: buffer.complete(batch, 0),
        lambda: buffer.fail(batch, ValueError()),
        lambda: buffer.split(batch),
    ):
        with pytest.raises(asyncio.InvalidStateError):
            again()
    assert buffer.buffered == 0


@pytest.mark.parametrize("bad", [{"value": "text"}, {"key": "text"}, {"headers": [(1, b"")]}, {"topic": None}])
async def test_arguments_of_another_type_are_rejected_and_leave_nothing_behind(bad):
    for known in (True, False):
        buffer = accumulator()
        if known:
            buffer.set_partitions("t", 1)
        with pytest.raises(TypeError):
            buffer.send(**{"topic": "t", "value": b"v", **bad})
        assert buffer.buffered == 0
        buffer.send("t", b"v")
        buffer.set_partitions("t", 1)
        assert waiting(buffer.partitions_of("t")[0]) == [b"v"]


@pytest.mark.parametrize("seed", range(10))
async def test_every_future_completes_once_with_its_own_offset(seed):
    rng = random.Random(seed)
    buffer = accumulator(seed=seed, batch_size=rng.choice((200, 1000, 5000)))
    log, futures = {}, []
    for number in range(300):
        topic, value = rng.choice("abc"), b"%d" % number
        if rng.random() < 0.02 and buffer.partitions_of(topic) is None:
            buffer.set_partitions(topic, rng.randrange(1, 5))
        futures.append((buffer.send(topic, value, rng.choice((None, b"k%d" % (number % 7)))), value))
    for topic in "abc":
        if buffer.partitions_of(topic) is None:
            buffer.set_partitions(topic, 2)
    buffer.close_batches(math.inf)
    while buffer.ready:
        queue = buffer.ready.popleft()
        while queue.full:
            batch = queue.full.popleft()
            if batch.records_count > 1 and rng.random() < 0.3:
                queue.full.extendleft(reversed(buffer.split(batch)))
                continue
            partition = log.setdefault((queue.topic, queue.partition), [])
            base = len(partition)
            partition += values(batch)
            buffer.complete(batch, base)
    for future, value in futures:
        metadata = await future
        assert log[metadata.topic, metadata.partition][metadata.offset] == value
    assert sum(map(len, log.values())) == 300 and buffer.buffered == 0


async def test_rejected_record_opens_no_batch():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    (queue,) = buffer.partitions_of("t")
    with pytest.raises(TypeError):
        buffer.send("t", 1)
    assert queue.open is None and buffer.close_batches(math.inf) is None and not buffer.ready
    buffer.send("t", RECORD)
    before = buffer.buffered
    with pytest.raises(TypeError):
        buffer.send("t", RECORD, headers=[("name", 1)])
    buffer.close_batches(math.inf)
    assert [values(batch) for batch in queue.full] == [[RECORD]] and buffer.buffered == before
