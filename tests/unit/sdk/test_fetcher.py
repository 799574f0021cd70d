"""The fetcher: what is requested, memory, fairness, large compressed batches, the close."""

import math
import random

import pytest

from tests.unit.sdk.fetch_rig import NAMES, Rig, data, offset, partitions
from tests.unit.sdk.test_fetched_records import batch

# ---- requests -------------------------------------------------------------------------------------------------------


def test_each_leader_gets_one_request_with_its_partitions():
    rig = Rig(1, 2, 1, min_bytes=7, max_wait_s=0.25, isolation_level=1, rack="r")
    first, second = sorted(rig.requests(), key=lambda call: call.node)
    assert (first.node, partitions(first), second.node, partitions(second)) == (1, [0, 2], 2, [1])
    request = first.request
    assert (request.min_bytes, request.max_wait_ms, request.isolation_level, request.rack_id) == (7, 250, 1, "r")
    assert request.topics[0].partitions[0].current_leader_epoch == 1
    assert rig.requests() == []


def test_records_advance_the_position_and_the_next_request_continues_behind_them():
    rig = Rig(1)
    call = rig.request()
    rig.answer(call, data(batch(0, b"a", b"b")))
    state = rig.state()
    assert (state.high_watermark, state.last_stable_offset, state.log_start) == (100, 90, 0)
    assert rig.fetcher.has_records and state.position == 0
    prefetch = rig.request()
    assert offset(prefetch) == 2
    assert rig.take() == [(0, 0), (0, 1)]
    assert (state.position, state.leader_epoch) == (2, 5)
    rig.answer(prefetch, data(batch(2, b"c")))
    assert rig.take() == [(0, 2)] and not rig.fetcher.has_records


def test_a_broker_that_is_not_usable_gets_its_request_later():
    rig = Rig(1)
    assert rig.requests(usable=False) == []
    assert rig.request().node == 1


def test_partitions_without_a_leader_make_their_topic_stale():
    rig = Rig(1, -1)
    assert partitions(rig.request()) == [0]
    assert rig.fetcher.stale_topics == {"orders"}


@pytest.mark.parametrize("field", ["paused", "revoking", "validating"])
def test_partitions_that_are_not_fetchable_are_not_requested(field):
    rig = Rig(1, 1)
    setattr(rig.state(1), field, True)
    rig.positions.changed(rig.state(1))
    assert partitions(rig.request()) == [0]


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_a_partition_with_enough_records_is_not_fetched():
    rig = Rig(1, partition_max_bytes=100)
    rig.answer(rig.request(), data(batch(0, bytes(200))))
    assert rig.requests() == [] and rig.fetcher.wake_at() == rig.now + 0.5
    rig.take()
    assert offset(rig.request()) == 1


def test_other_partitions_wait_for_a_full_one_at_most_max_wait():
    rig = Rig(1, 1, partition_max_bytes=100)
    rig.answer(rig.request(), data(batch(0, bytes(200))))
    assert rig.requests() == []
    rig.now += 0.5
    assert partitions(rig.request()) == [1]


def test_a_full_partition_of_another_broker_delays_nothing():
    rig = Rig(1, 2, partition_max_bytes=100)
    for call in rig.requests():
        rig.answer(call, *([data(batch(0, bytes(200)))] if call.node == 1 else []))
    assert partitions(rig.request()) == [1]


def test_a_paused_partition_with_enough_records_delays_nothing():
    rig = Rig(1, 1, partition_max_bytes=100)
    rig.answer(rig.request(), data(batch(0, bytes(200))))
    rig.positions.pause(rig.state(0))
    assert partitions(rig.request()) == [1]


def test_the_bytes_of_all_responses_are_bounded():
    rig = Rig(1, 2, 3, partition_max_bytes=1000, max_bytes=10_000, buffer_max_bytes=2000)
    first, second = rig.requests()
    assert first.request.max_bytes == second.request.max_bytes == 1000
    rig.answer(first, data(batch(0, bytes(1500)), partitions(first)[0]))
    assert rig.requests() == [] and rig.fetcher.buffered_bytes > 1500
    rig.answer(second)
    assert rig.requests() == []
    rig.take()
    assert rig.fetcher.buffered_bytes == 0
    assert len(rig.requests()) == 2


def test_the_broker_that_waited_longest_gets_the_free_memory():
    rig = Rig(1, 2, partition_max_bytes=1000, buffer_max_bytes=1000)
    nodes = []
    for _ in range(6):
        rig.now += 1
        call = rig.request()
        nodes.append(call.node)
        rig.answer(call)
    assert sorted(nodes[:2]) == sorted(nodes[2:4]) == sorted(nodes[4:]) == [1, 2]


def test_a_paused_partition_does_not_keep_a_large_response():
    rig = Rig(1, 1)
    small, large = batch(0, b"small"), batch(0, *[bytes(1000)] * 100)
    rig.answer(rig.request(), data(small, 0), data(large, 1))
    rig.positions.pause(rig.state(0))
    assert rig.fetcher.buffered_bytes == len(small) + len(large)
    assert len(rig.take()) == 100
    assert rig.fetcher.buffered_bytes == len(small)
    rig.positions.resume(rig.state(0))
    assert rig.take() == [(0, 0)] and rig.fetcher.buffered_bytes == 0


# ---- records --------------------------------------------------------------------------------------------------------


def test_each_take_begins_with_another_partition():
    rig = Rig(1, 1, 1)
    rig.answer(rig.request(), *(data(batch(0, *[b"v"] * 6), number) for number in range(3)))
    assert [rig.take(2) for _ in range(4)] == [[(0, 0), (0, 1)], [(1, 0), (1, 1)], [(2, 0), (2, 1)], [(0, 2), (0, 3)]]
    assert rig.take(5) == [(1, 2), (1, 3), (1, 4), (1, 5), (2, 2)]


def test_pause_keeps_prefetched_records_and_seek_drops_them():
    rig = Rig(1, 1)
    rig.answer(rig.request(), data(batch(0, b"a"), 0), data(batch(0, b"a"), 1))
    rig.positions.pause(rig.state(0))
    rig.positions.seek(rig.state(1), 7)
    assert not rig.fetcher.has_records and rig.take() == []
    rig.positions.resume(rig.state(0))
    assert rig.fetcher.has_records and rig.take() == [(0, 0)]
    assert offset(rig.request(), 1) == 7


def test_a_seek_drops_the_response_of_an_open_request():
    rig = Rig(1)
    call = rig.request()
    rig.positions.seek(rig.state(), 7)
    rig.fetcher.drop(NAMES[:1])
    rig.answer(call, data(batch(0, b"a")))
    assert rig.take() == [] and rig.state().position == 7
    assert offset(rig.request()) == 7


def test_a_partition_that_is_assigned_again_drops_the_former_response():
    rig = Rig(1)
    call = rig.request()
    rig.positions.assign([])
    rig.positions.assign(NAMES[:1])
    rig.positions.seek(rig.state(), 0)
    rig.answer(call, data(batch(0, b"a")))
    assert rig.take() == []
    assert offset(rig.request()) == 0


def test_large_compressed_batches_are_jobs():
    rig = Rig(1, decoder={"offload_bytes": 100})
    value = random.Random(1).randbytes(500)
    rig.answer(rig.request(), data(batch(0, b"small") + batch(1, value, codec=4)))
    assert rig.take() == [(0, 0)]
    (job,) = rig.fetcher.jobs()
    assert not rig.fetcher.has_records and rig.take() == [] and rig.fetcher.jobs() == []
    rig.answer(rig.request(), data(batch(2, b"next")))
    assert not rig.fetcher.has_records and rig.take() == [] and rig.fetcher.jobs() == []
    job.decompress()
    rig.fetcher.decompressed(job)
    assert rig.fetcher.has_records and rig.take() == [(0, 1), (0, 2)]


def test_a_job_of_dropped_records_is_ignored():
    rig = Rig(1, decoder={"offload_bytes": 100})
    rig.answer(rig.request(), data(batch(0, random.Random(1).randbytes(500), codec=4)))
    rig.take()
    (job,) = rig.fetcher.jobs()
    rig.positions.seek(rig.state(), 7)
    job.decompress()
    rig.fetcher.decompressed(job)
    assert rig.take() == [] and rig.state().position == 7


# ---- the close ------------------------------------------------------------------------------------------------------


def test_final_calls_end_the_open_sessions():
    rig = Rig(1, 2)
    first, second = rig.requests()
    rig.answer(first, session_id=42)
    rig.answer(second)
    (call,) = rig.fetcher.final_calls()
    assert (call.node, call.request.session_id, call.request.session_epoch) == (first.node, 42, -1)


def test_nothing_is_due_without_partitions():
    rig = Rig()
    assert rig.requests() == [] and rig.fetcher.wake_at() == math.inf and rig.take() == []
