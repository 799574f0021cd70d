"""The memory of decompressed batches: `buffer_max_bytes` bounds it, whatever the batches compress to."""

from typing import Any

from kafkalite.model import TopicPartition
from tests.kit.server import batch
from tests.unit.sdk.fetch_rig import NAMES, Rig, data

PARTITIONS = 40
BATCH_BYTES = 1 << 20
BUDGET = 4 << 20
OVERHEAD = 1 << 10  # of the records beside their values
COMPRESSED = batch(*[bytes(BATCH_BYTES // 4)] * 4, codec=4)


def opened_rig(partitions: int = PARTITIONS, **decoder: Any) -> Rig:
    """Partitions with one batch each, whose records are fetched."""
    rig = Rig(*[1] * partitions, decoder=decoder, buffer_max_bytes=BUDGET)
    rig.answer(rig.request(), *[data(COMPRESSED, number) for number in range(partitions)])
    assert rig.fetcher.buffered_bytes < BUDGET // 4
    return rig


def open_bytes(rig: Rig) -> int:
    """Memory of the open batches, counted in the records of the responses."""
    counted = sum(each.open_bytes for buffer in rig.fetcher._buffers.values() for each, _ in buffer._fetched)
    assert counted == rig.fetcher._open_bytes
    return counted


def test_open_batches_are_read_to_their_ends_before_others_are_opened_beyond_the_memory() -> None:
    rig = opened_rig()
    found: list[tuple[int, int]] = []
    most = 0
    for _ in range(4 * PARTITIONS):
        found += rig.take(1)
        most = max(most, open_bytes(rig))
    assert sorted(found) == [(number, offset) for number in range(PARTITIONS) for offset in range(4)]
    assert BUDGET <= most <= BUDGET + BATCH_BYTES + OVERHEAD
    assert open_bytes(rig) == 0 == rig.fetcher.buffered_bytes


def test_open_batches_of_paused_partitions_are_closed_and_read_later() -> None:
    rig = opened_rig()
    found: list[tuple[int, int]] = []
    most = 0
    for _ in range(PARTITIONS):
        records = rig.take(1)
        found += records
        rig.positions.pause(rig.state(records[0][0]))
        most = max(most, open_bytes(rig))
    assert most <= BUDGET + BATCH_BYTES + OVERHEAD
    for number in range(PARTITIONS):
        rig.positions.resume(rig.state(number))
    while records := rig.take(1):
        found += records
        assert open_bytes(rig) <= BUDGET + BATCH_BYTES + OVERHEAD
    assert sorted(found) == [(number, offset) for number in range(PARTITIONS) for offset in range(4)]
    assert len(rig.requests()) == 1, "nothing was fetched again"


def test_partitions_that_a_poll_names_are_read_while_open_batches_of_others_use_the_memory() -> None:
    rig = opened_rig(5)
    others = [TopicPartition("orders", number) for number in range(1, 5)]
    for each in others:
        assert len(rig.fetcher.take(1, (each,))) == 1
    assert open_bytes(rig) >= BUDGET
    assert len(rig.fetcher.take(9, (NAMES[0],))) == 4
    found = [(record.partition, record.offset) for _ in range(20) for record in rig.fetcher.take(1)]
    assert sorted(found) == [(number, offset) for number in range(1, 5) for offset in range(1, 4)]


def test_batches_that_a_thread_decompresses_are_bounded_too() -> None:
    rig = opened_rig(offload_bytes=1)
    found: list[tuple[int, int]] = []
    jobs: list[Any] = []
    while len(found) < 4 * PARTITIONS:
        found += rig.take(1)
        jobs += rig.fetcher.jobs()
        assert len(jobs) <= 2
        for job in jobs:
            job.decompress()
            rig.fetcher.decompressed(job)
        jobs.clear()
        assert open_bytes(rig) <= BUDGET + 2 * BATCH_BYTES + OVERHEAD
    assert sorted(found) == [(number, offset) for number in range(PARTITIONS) for offset in range(4)]


def test_batch_whose_bytes_are_not_kept_is_fetched_again_if_it_is_closed() -> None:
    rig = opened_rig(5)
    for number in range(4):
        assert rig.fetcher.take(1, (TopicPartition("orders", number),))
        rig.positions.pause(rig.state(number))
        for records, _ in rig.fetcher._buffers[TopicPartition("orders", number)]._fetched:
            records.detach()
    assert len(rig.take(9)) == 4  # of the last partition
    for number in range(4):
        rig.positions.resume(rig.state(number))
    call = rig.request()
    assert {each.partition: asked.offset for each, asked in call.partitions.items()} == {
        **dict.fromkeys(range(4), 1),
        4: 4,
    }
