"""The limits of a producer buffer: back-pressure, shares of topics, sizes, misuse; and its other partitioners."""

import asyncio
import math
import zlib

import pytest

from kafkalite.errors import BufferExhaustedError, KafkaErrorCode, error_class
from tests.unit.sdk.accumulators import RECORD, Clock, accumulator, misuse, waiting


def cheap(awaitable):
    """Whether an awaitable ends without a suspension."""
    return list(awaitable.__await__()) == []


async def test_drain_ends_at_once_until_the_buffer_is_full():
    waited = []
    buffer = accumulator(buffer_memory=5000, wait=lambda: waited.append(1))
    buffer.set_partitions("t", 1)
    while True:
        buffer.send("t", RECORD)
        if buffer.buffered >= 5000:
            break
        assert cheap(buffer.drain())
    assert not waited
    buffer.drain()
    assert waited == [1]


async def test_drain_gives_the_loop_an_iteration_after_128_kib():
    buffer = accumulator(buffer_memory=1 << 24)
    buffer.set_partitions("t", 1)
    pauses = 0
    for _ in range(5000):
        buffer.send("t", RECORD)
        pauses += not cheap(buffer.drain())
    assert pauses == buffer.buffered // (128 << 10)


async def test_drain_waits_while_failures_must_be_raised():
    waited = []
    buffer = accumulator(wait=lambda: waited.append(1))
    buffer.must_wait = True
    buffer.drain()
    assert waited == [1]


@pytest.mark.parametrize("known", [False, True])
async def test_a_topic_without_a_leader_fills_half_of_the_buffer(known):
    waited = []
    buffer = accumulator(buffer_memory=10_000, wait=lambda: waited.append(1))
    buffer.set_partitions("other", 1)
    if known:
        buffer.set_partitions("t", 2, [])
    while buffer.limited_topic is None:
        buffer.send("t", RECORD)
    assert 5000 <= buffer.buffered < 5000 + 2 * len(RECORD)
    buffer.drain()
    assert waited == [1]  # the sender of this topic waits
    with pytest.raises(BufferExhaustedError, match=r"t has no leader.*await drain\(\) first"):
        buffer.send("t", RECORD)
    assert not buffer.has_space("t")
    buffer.send("other", RECORD)
    assert cheap(buffer.drain())  # that of another topic does not
    buffer.set_partitions("t", 2)
    assert buffer.has_space("t")
    buffer.send("t", RECORD)
    assert buffer.limited_topic is None


async def test_a_topic_whose_records_have_left_has_space_again():
    buffer = accumulator(buffer_memory=10_000)
    buffer.set_partitions("t", 1, [])
    while buffer.limited_topic is None:
        buffer.send("t", RECORD)
    buffer.close_batches(math.inf)
    (queue,) = buffer.partitions_of("t")
    while not buffer.has_space("t"):
        buffer.complete(queue.full.popleft(), 0)
    assert buffer.buffered <= 2500 and queue.full


@pytest.mark.parametrize("known", [False, True])
async def test_a_record_that_is_too_large_is_rejected_at_once(known):
    buffer = accumulator(record_bytes_max=3000)
    if known:
        buffer.set_partitions("t", 1)
    for size in (2900, 3000):
        if size == 2900:
            buffer.send("t", bytes(size))
            continue
        with pytest.raises(error_class(KafkaErrorCode.MESSAGE_TOO_LARGE), match=r"for t; max_request_size.* 3000"):
            buffer.send("t", bytes(size))
    assert 2900 < buffer.buffered < 3000


async def test_wake_is_called_for_the_first_batch_and_when_a_partition_is_ready():
    woken = []
    buffer = accumulator(wake=lambda: woken.append(len(buffer.ready)))
    buffer.send("t", b"v")
    buffer.send("t", b"v")
    assert len(woken) == 1  # metadata is needed
    buffer.set_partitions("t", 1)
    assert len(woken) == 2  # a batch lingers
    buffer.send("t", b"v")
    assert len(woken) == 2
    for _ in range(30):
        buffer.send("t", RECORD)
    assert len(woken) == 3 and woken[-1] == 1  # once, not for each full batch
    buffer.close_batches(math.inf)
    buffer.send("t", b"v")
    assert len(woken) == 4


async def test_other_threads_and_a_closed_producer_are_refused():
    buffer = accumulator(refuse=misuse)
    buffer.set_partitions("t", 1)
    for call in (lambda: buffer.send("t", b"v"), buffer.drain):
        with pytest.raises(RuntimeError, match="misuse"):
            await asyncio.get_running_loop().run_in_executor(None, call)
    buffer.close()
    for call in (lambda: buffer.send("t", b"v"), buffer.drain):
        with pytest.raises(RuntimeError, match="misuse"):
            call()
    assert buffer.buffered == 0


async def test_a_clock_that_rejects_another_loop_leaves_no_record_behind():
    def reject():
        raise RuntimeError("another loop")

    for known in (True, False):
        buffer = accumulator(reject)
        if known:
            buffer.set_partitions("t", 1)
        with pytest.raises(RuntimeError, match="another loop"):
            buffer.send("t", b"v")
        assert buffer.buffered == 0 and not buffer.unassigned and buffer.close_batches(math.inf) is None


async def test_crc32_sends_keys_where_librdkafka_sends_them():
    buffer = accumulator(partitioner="crc32")
    buffer.set_partitions("t", 7)
    for number in range(100):
        key = b"key-%d" % number
        buffer.send("t", key, key)
    for queue in buffer.partitions_of("t"):
        assert all(zlib.crc32(value) % 7 == queue.partition for value in waiting(queue))
    buffer.send("t", b"sticky", b"")
    assert sum(b"sticky" in waiting(queue) for queue in buffer.partitions_of("t")) == 1


async def test_records_without_a_key_avoid_partitions_without_a_leader():
    buffer = accumulator(batch_size=200)
    buffer.set_partitions("t", 4, [1, 3])
    for _ in range(100):
        buffer.send("t", RECORD)
    assert [bool(waiting(queue)) for queue in buffer.partitions_of("t")] == [False, True, False, True]
    buffer.set_partitions("t", 4, [0])
    before = len(waiting(buffer.partitions_of("t")[0]))
    buffer.send("t", RECORD)
    assert len(waiting(buffer.partitions_of("t")[0])) == before + 1


async def test_a_partitioner_that_raises_fails_the_record_only():
    def reject(key, value, partitions, available):
        if key is None:
            raise KeyError("no key")
        return 0

    buffer = accumulator(partitioner=reject)
    early, kept = buffer.send("t", b"v"), buffer.send("t", b"w", b"k")
    (failed,) = buffer.set_partitions("t", 1)
    assert (failed.records_count, failed.observed) == (1, 0)
    with pytest.raises(KeyError):
        await early
    with pytest.raises(KeyError):
        buffer.send("t", b"v")
    assert not kept.done() and waiting(buffer.partitions_of("t")[0]) == [b"w"]


async def test_records_before_the_metadata_keep_the_time_of_their_send():
    clock = Clock()
    clock.now = 5.0
    buffer = accumulator(clock)
    buffer.send("t", b"v")
    assert buffer.unassigned == {"t": 5.0}
    clock.now = 9.0
    buffer.set_partitions("t", 1)
    assert buffer.close_batches(0.0) == 5.0 and not buffer.unassigned


async def test_partitions_of_a_recreated_topic_are_removed_with_their_batches():
    buffer = accumulator()
    buffer.set_partitions("t", 3)
    for partition in range(3):
        buffer.send("t", b"%d" % partition, partition=partition)
    removed = buffer.remove_partitions("t", 1)
    assert [(queue.partition, waiting(queue)) for queue in removed] == [(1, [b"1"]), (2, [b"2"])]
    buffer.send("t", b"v")
    assert waiting(buffer.partitions_of("t")[0]) == [b"0", b"v"]
    assert buffer.close_batches(math.inf) is None


async def test_the_oldest_incomplete_batch_is_known_until_its_last_part_completes():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    for _ in range(2):
        for number in range(4):
            buffer.send("t", b"%d" % number)
        buffer.close_batches(math.inf)
    first, second = buffer.partitions_of("t")[0].full
    assert (buffer.oldest_incomplete(), buffer.opened) == (1, 2)
    left, right = buffer.split(first)
    buffer.complete(second, 0)
    buffer.complete(left, 0)
    assert buffer.oldest_incomplete() == 1
    inner_left, inner_right = buffer.split(right)
    buffer.fail(inner_left, ValueError())
    assert buffer.oldest_incomplete() == 1
    buffer.complete(inner_right, 0)
    assert buffer.oldest_incomplete() == 3 > buffer.opened


async def test_large_closed_batches_are_listed_for_compression():
    buffer = accumulator(offload_bytes=500)
    buffer.set_partitions("t", 2)
    buffer.send("t", b"small", partition=0)
    for _ in range(5):
        buffer.send("t", RECORD, partition=1)
    buffer.close_batches(math.inf)
    assert list(buffer.large) == list(buffer.partitions_of("t")[1].full)


async def test_a_part_counts_its_own_observed_records():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    futures = [buffer.send("t", b"%d" % number) for number in range(4)]
    futures[3].add_done_callback(lambda _: None)
    buffer.close_batches(math.inf)
    left, right = buffer.split(buffer.partitions_of("t")[0].full.popleft())
    assert (left.observed, right.observed) == (0, 1)
    first, last = buffer.split(right)
    assert last.observed == 1
    buffer.fail(left, ValueError())
    for part in (first, last):
        buffer.complete(part, 0)
    futures[0].exception()
    assert left.observed == 1
