"""Which retries of an idempotent producer are recognised after a restart: docs/durability.md says exactly these.

Source: ProducerStateEntry (the last five batches, in memory), ProducerStateManager.writeSnapshot (the last batch only;
ours has all five).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.producer_snapshots import write_packed
from tests.unit.storage.test_manager import Kit
from tests.unit.storage.test_producers import send

OUT_OF_ORDER = -KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
COUNT = 3  # records of a batch
HEAD, ENTRY = 6, 46  # bytes of a snapshot before the number of entries, and of each entry


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def append(log: Log, number: int) -> None:
    assert send(log, COUNT * number, COUNT) == COUNT * number
    assert log.write() == 0


def retries(kit: Kit, numbers: range) -> list[int]:
    log = kit.manager.find("t", 0)
    assert log is not None
    found = [send(log, COUNT * number, COUNT) for number in numbers]
    assert log.pending_bytes == 0, "no retry is appended"
    return found


def recognised(*numbers: int) -> list[int]:
    """Of the batches 0 to 6: their first offsets, and the error for all others."""
    return [COUNT * number if number in numbers else OUT_OF_ORDER for number in range(7)]


def keep_last_entries(snapshot: Path) -> None:
    """Write a snapshot as Kafka does: with the last batch of the only producer."""
    packed = snapshot.read_bytes()[HEAD:]
    write_packed(Disk(), str(snapshot.parent), int(snapshot.stem), (1).to_bytes(4, "big") + packed[-ENTRY:])


def test_last_five_batches_are_recognised_while_the_broker_runs(kit: Kit) -> None:
    log = kit.create()
    for number in range(7):
        append(log, number)
    assert retries(kit, range(7)) == recognised(2, 3, 4, 5, 6)


def test_last_five_batches_are_recognised_after_a_clean_restart(kit: Kit) -> None:
    log = kit.create()
    for number in range(7):
        append(log, number)
    again = kit.restart()
    assert retries(again, range(7)) == recognised(2, 3, 4, 5, 6)
    again.manager.unlock()


def test_batch_that_a_stop_has_not_written_is_not_recognised(kit: Kit) -> None:
    """Its validation ended too late: the log does not have it, so its retry must be appended."""
    log = kit.create()
    append(log, 0)
    assert send(log, COUNT, COUNT) == COUNT
    again = kit.restart()
    found = again.manager.find("t", 0)
    assert found is not None and found.log_end_offset == COUNT
    append(found, 1)
    assert found.log_end_offset == 2 * COUNT
    again.manager.unlock()


def test_last_five_batches_are_recognised_after_a_kill_before_the_first_checkpoint(kit: Kit) -> None:
    log = kit.create()
    for number in range(7):
        append(log, number)
        if number in (1, 4):
            log.roll(log.log_end_offset)
    kit.advance(0)  # the closed segments are flushed, the snapshots are written
    again = kit.restart(clean=False)
    assert retries(again, range(7)) == recognised(2, 3, 4, 5, 6)
    again.manager.unlock()


@pytest.mark.parametrize("rolled_behind", range(7))
def test_last_five_batches_are_recognised_after_a_kill_behind_a_snapshot(kit: Kit, rolled_behind: int) -> None:
    """The snapshot is that of the last roll before the checkpoint of the recovery points."""
    log = kit.create()
    for number in range(7):
        append(log, number)
        if number == rolled_behind:
            log.roll(log.log_end_offset)
            kit.advance(0)
            kit.manager.upkeep.checkpoint()
            kit.offload.drain()
    again = kit.restart(clean=False)
    assert retries(again, range(7)) == recognised(2, 3, 4, 5, 6)
    again.manager.unlock()


def test_next_batch_is_accepted_after_each_kind_of_restart(kit: Kit) -> None:
    log = kit.create()
    append(log, 0)
    killed = kit.restart(clean=False)
    again = killed.manager.find("t", 0)
    assert again is not None
    append(again, 1)
    restarted = killed.restart()
    last = restarted.manager.find("t", 0)
    assert last is not None
    append(last, 2)
    restarted.manager.unlock()


def test_last_five_batches_are_recognised_after_a_truncation(kit: Kit) -> None:
    log = kit.create()
    for number in range(9):
        append(log, number)
        if number == 3:
            log.roll(log.log_end_offset)
            kit.advance(0)  # the snapshot is written
    log.truncate_to(log.begin_truncation(7 * COUNT))
    assert retries(kit, range(7)) == recognised(2, 3, 4, 5, 6)


def test_a_snapshot_of_kafka_has_the_last_batch(kit: Kit) -> None:
    log = kit.create()
    for number in range(7):
        append(log, number)
    kit.manager.close()
    keep_last_entries(Path(log.directory) / f"{log.log_end_offset:020d}.snapshot")
    again = kit.restart(clean=False)
    assert retries(again, range(7)) == recognised(6)
    again.manager.unlock()
