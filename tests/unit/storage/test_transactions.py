"""Transactions in a log, from hand-made batches and markers: what is stable, what was aborted, and what comes back."""

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.log_core import UNVERIFIED_BATCH
from kafkalite._speedups.storage.page_cache import ReadAttempt
from kafkalite.errors import KafkaErrorCode
from kafkalite.records.control import ControlType
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.transaction_index import AbortedTransaction
from kafkalite.storage.recovery.recover_log import PartitionDirectory, recover
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import read_log
from tests.kit.seeds import chosen_seed
from tests.unit.storage.damage import CONFIG, batch
from tests.unit.storage.transactional import History, abort, begin, commit, end, new_log, producers_of

SEED = chosen_seed()
HISTORIES = 40
INVALID_TXN_STATE = -KafkaErrorCode.INVALID_TXN_STATE


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(tmp_path / "t-0")


def written(log: Log) -> Log:
    assert log.write() == 0
    return log


def reopen(directory: Path, *, clean: bool = False, segment_bytes: int = 20_000, **offsets: int) -> Log:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    return recover(PartitionDirectory(Disk(), str(directory), "t", 0, config, clean, **offsets))[0]


def entries(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.transactions.entries()]


# What is stable.


def test_without_transactions_all_is_stable(log: Log) -> None:
    begin(log, 7, 0, transactional=False)
    written(log)
    assert (log.last_stable_offset(2), log.first_unstable_offset(2), log.has_unstable_records) == (2, -1, False)


def test_an_open_transaction_holds_the_stable_offset(log: Log) -> None:
    log.append(batch(3), None, 0)
    begin(log, 7, 0)
    begin(log, 8, 0)
    written(log)
    assert (log.last_stable_offset(7), log.first_unstable_offset(7)) == (3, 3)
    commit(log, 7)
    written(log)
    assert log.last_stable_offset(8) == 5, "the other one is open"
    abort(log, 8)
    written(log)
    assert (log.last_stable_offset(9), log.first_unstable_offset(9), log.has_unstable_records) == (9, -1, False)


def test_a_transaction_is_unstable_until_the_high_watermark_has_passed_its_marker(log: Log) -> None:
    begin(log, 7, 0)
    commit(log, 7)
    written(log)
    assert [log.last_stable_offset(mark) for mark in (0, 1, 2)] == [0, 0, 0]
    assert (log.first_unstable_offset(2), log.has_unstable_records) == (0, True)
    assert log.last_stable_offset(3) == 3
    assert (log.first_unstable_offset(3), log.has_unstable_records) == (-1, False)


def test_the_log_start_is_stable(log: Log) -> None:
    begin(log, 7, 0, count=5)
    written(log)
    assert log.delete_records_before(3) == 0
    assert (log.last_stable_offset(5), log.first_unstable_offset(5)) == (3, 3)


def test_a_marker_without_records_changes_nothing_but_its_producer(log: Log) -> None:
    assert abort(log, 7, epoch=3, coordinator=4) == 0
    written(log)
    assert (log.last_stable_offset(1), entries(log)) == (1, [])
    assert producers_of(log) == {7: (3, -1, -1, 0, 5, 4, -1)}


# What is refused.


def test_a_plain_batch_in_an_open_transaction_is_refused(log: Log) -> None:
    begin(log, 7, 0)
    assert begin(log, 7, 2, transactional=False) == INVALID_TXN_STATE
    assert begin(log, 7, 2) == 2


def test_a_marker_of_an_older_coordinator_is_refused(log: Log) -> None:
    begin(log, 7, 0)
    assert commit(log, 7, coordinator=5) == 2
    begin(log, 7, 2)
    assert commit(log, 7, coordinator=4) == -KafkaErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert commit(log, 7, coordinator=5) == 5


def test_a_marker_of_an_older_epoch_is_refused(log: Log) -> None:
    begin(log, 7, 0, epoch=2)
    assert abort(log, 7, epoch=1) == -KafkaErrorCode.INVALID_PRODUCER_EPOCH
    assert abort(log, 7, epoch=3) == 2, "the coordinator fences by a newer one"
    assert begin(log, 7, 2, epoch=2) == -KafkaErrorCode.INVALID_PRODUCER_EPOCH
    assert begin(log, 7, 1, epoch=3) == -KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert begin(log, 7, 0, epoch=3) == 3


def test_a_malformed_marker_is_refused(log: Log) -> None:
    empty = bytearray(batch(1, producer_id=7, producer_epoch=0, base_sequence=-1, transactional=True, control=True))
    assert log.append(empty, None, 0) == -KafkaErrorCode.INVALID_RECORD
    assert (log.next_offset, len(log.producers)) == (0, 0)


class Seen:
    """What the inspection of a client's batch looks like to a log."""

    error = 0


def test_a_client_cannot_open_a_transaction_by_itself(log: Log) -> None:
    def send(sequence: int) -> int:
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        return log.append(batch(2, transactional=True, **fields), Seen(), 0)

    assert send(0) == UNVERIFIED_BATCH
    assert begin(log, 7, 0) == 0
    assert (send(2), send(2)) == (2, 2), "a repeat is answered"
    commit(log, 7)
    assert send(4) == UNVERIFIED_BATCH
    assert send(2) == 2, "a repeat is answered even then"


def test_batches_without_a_sequence_follow_the_epoch_only(log: Log) -> None:
    assert [begin(log, 7, -1), begin(log, 7, -1)] == [0, 2]
    assert begin(log, 7, -1, epoch=1) == 4
    assert begin(log, 7, -1) == -KafkaErrorCode.INVALID_PRODUCER_EPOCH
    assert log.producers.duplicates == 0


# What was aborted.


def test_aborts_are_listed_with_their_last_stable_offset(log: Log) -> None:
    begin(log, 7, 0)  # 0-1
    begin(log, 8, 0)  # 2-3
    abort(log, 8)  # 4: the first is open
    commit(log, 7)  # 5
    begin(log, 9, 0)  # 6-7
    abort(log, 9)  # 8
    written(log)
    assert log.aborted_transactions(0, 9) == [AbortedTransaction(8, 2, 4, 0), AbortedTransaction(9, 6, 8, 9)]
    assert log.aborted_transactions(5, 6) == log.aborted_transactions(9, 12) == []
    assert log.aborted_transactions(4, 7) == [AbortedTransaction(8, 2, 4, 0), AbortedTransaction(9, 6, 8, 9)]
    (region,) = read_log(log, 0, 1, 9)
    assert log.aborted_in([region], ReadAttempt(0)) == log.aborted_transactions(0, 9), "the index ends with the segment"


def test_a_roll_within_a_write_puts_each_abort_into_its_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", segment_bytes=600)
    for number in range(5):
        begin(log, 7, 2 * number)
        abort(log, 7)
    written(log)
    assert len(log.segments) > 2
    for segment, following in zip(log.segments, [*log.bases()[1:], log.log_end_offset], strict=True):
        for entry in segment.transactions.entries():
            assert segment.base_offset <= entry.last_offset < following
    assert [entry.first_offset for entry in log.aborted_transactions(0, 15)] == [0, 3, 6, 9, 12]
    assert [entry.first_offset for entry in log.aborted_transactions(6, 9)] == [6]


def test_aborted_transactions_are_found_after_unload_and_drop(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", segment_bytes=600)
    for number in range(5):
        begin(log, 7, 2 * number)
        abort(log, 7)
    written(log)
    every = log.aborted_transactions(0, 15)
    for segment in log.segments[:-1]:
        segment.unload()
    assert log.aborted_transactions(0, 15) == every
    dropped = log.drop_first(1)[0]
    assert dropped.transactions.entries() == every[: len(dropped.transactions)]
    assert log.aborted_transactions(0, 15) == every[len(dropped.transactions) :]
    gone = dropped.mark_deleted()
    assert any(path.endswith(".txnindex.deleted") for path in gone) == bool(dropped.transactions)


@pytest.mark.parametrize("path", [".log", ".txnindex"])
def test_failed_write_undoes_transactions(tmp_path: Path, path: str) -> None:
    disk = FaultyDisk()
    log = new_log(tmp_path / "t-0", disk, segment_bytes=600)
    begin(log, 7, 0)
    begin(log, 8, 0)
    abort(log, 8)
    written(log)
    before = producers_of(log), log.producers.open_transactions(), entries(log), log.log_end_offset
    disk.fail("write", errno.ENOSPC, path=path, allowed=5)
    begin(log, 9, 0)
    abort(log, 7)
    begin(log, 8, 2)
    abort(log, 8)
    assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert not log.failed
    assert (producers_of(log), log.producers.open_transactions(), entries(log), log.log_end_offset) == before
    assert log.last_stable_offset(log.log_end_offset) == 0
    assert abort(log, 7) == log.log_end_offset
    written(log)
    again = reopen(tmp_path / "t-0", segment_bytes=600)
    assert (producers_of(again), entries(again)) == (producers_of(log), entries(log))


# What comes back.


def random_history(directory: Path, seed: int, segment_bytes: int = 2_500, steps: int = 120) -> History:
    history = History(new_log(directory, segment_bytes=segment_bytes), seed)
    history.run(steps)
    return history


def model_holds(history: History, log: Log) -> None:
    """The log has the outcome of each transaction."""
    assert [tuple(entry[:3]) for entry in log.aborted_transactions(0, log.log_end_offset)] == history.aborted
    assert sorted(log.producers.open_transactions()) == sorted((o, p) for p, o in history.open.items())
    assert log.last_stable_offset(log.log_end_offset) == min(history.open.values(), default=log.log_end_offset)


def test_the_stable_offset_of_an_entry_is_where_readers_stood(tmp_path: Path) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    log = new_log(tmp_path / "t-0")
    history = History(log, SEED)
    seen = 0
    for _ in range(400):
        history.step()
        assert log.write() == 0
        for entry in entries(log)[seen:]:
            assert entry.last_stable_offset == log.last_stable_offset(log.log_end_offset)
        seen = len(entries(log))
    model_holds(history, log)


@pytest.mark.parametrize("number", range(HISTORIES))
def test_any_transaction_history_is_recovered_from_any_offset(tmp_path: Path, number: int) -> None:
    """Killed at a random point; snapshots, checkpoints and indexes are as far as they are."""
    seed = SEED + number
    print(f"KAFKALITE_SEED={seed}")
    chance = random.Random(seed)
    history = random_history(tmp_path / "t-0", seed)
    log = history.log
    model_holds(history, log)
    position = chance.choice([0, chance.randrange(log.log_end_offset + 1), chance.choice(log.bases())])
    damage(tmp_path / "t-0", log, position, chance)
    again = reopen(tmp_path / "t-0", segment_bytes=2_500, recovery_point=position)
    assert producers_of(again) == producers_of(log)
    assert entries(again) == entries(log)
    model_holds(history, again)
    history.log = again
    history.run(20)
    model_holds(history, again)


def damage(directory: Path, log: Log, position: int, chance: random.Random) -> None:
    """Write some of the snapshots that are due, lose others, and spoil some files."""
    from kafkalite.storage.log import producer_state_loader

    due = log.take_due_snapshots()
    some = {offset: packed for offset, packed in due.items() if chance.random() < 0.6}
    producer_state_loader.write_snapshots(Disk(), str(directory), some, log.bases())
    for path in sorted(directory.iterdir()):
        if path.suffix == ".snapshot" and chance.random() < 0.2:
            path.write_bytes(path.read_bytes()[:-1] + b"x")
        elif path.suffix == ".txnindex" and chance.random() < 0.3:
            path.write_bytes(path.read_bytes()[: chance.randrange(1, 34)])
        elif path.suffix == ".index" and chance.random() < 0.3:
            path.unlink()


@pytest.mark.parametrize("number", range(10))
def test_a_clean_end_is_read_from_the_snapshot_alone(tmp_path: Path, number: int) -> None:
    print(f"KAFKALITE_SEED={SEED + number}")
    history = random_history(tmp_path / "t-0", SEED + number)
    history.log.close()
    end_offset = history.log.log_end_offset
    again = reopen(tmp_path / "t-0", clean=True, segment_bytes=2_500, recovery_point=end_offset)
    assert producers_of(again) == producers_of(history.log)
    model_holds(history, again)
    kept = {int(path.stem) for path in (tmp_path / "t-0").glob("*.snapshot")}
    assert kept == {*again.bases()[1:], end_offset}


@pytest.mark.parametrize("number", range(10))
def test_a_truncated_log_knows_what_is_left(tmp_path: Path, number: int) -> None:
    print(f"KAFKALITE_SEED={SEED + number}")
    chance = random.Random(SEED + number)
    history = random_history(tmp_path / "t-0", SEED + number)
    log = history.log
    if chance.random() < 0.5:
        log.close()
    log.truncate_to(log.begin_truncation(chance.randrange(log.log_end_offset)))
    cut = log.log_end_offset
    assert all(int(path.stem) <= cut for path in (tmp_path / "t-0").glob("*.snapshot"))
    assert all(entry.last_offset < cut for entry in entries(log))
    again = reopen(tmp_path / "t-0", segment_bytes=2_500)
    assert producers_of(again) == producers_of(log)
    assert entries(again) == entries(log)
    assert again.producers.open_transactions() == log.producers.open_transactions()


def test_a_snapshot_taken_at_a_roll_is_of_its_offset(tmp_path: Path) -> None:
    """Also when the roll comes in the middle of a write, with later batches of the same producers already queued."""
    log = new_log(tmp_path / "t-0", segment_bytes=600)
    begin(log, 8, 0)
    for number in range(6):
        begin(log, 7, 2 * number)
        if number % 2:
            end(log, 7, ControlType.COMMIT)
    written(log)
    due = log.take_due_snapshots()
    assert sorted(due) == log.bases()[1:]
    for offset in due:
        twin = reopen_cut(tmp_path, log, offset)
        assert sorted_entries(due[offset]) == sorted_entries(twin.producers.pack())


def reopen_cut(tmp_path: Path, log: Log, offset: int) -> Log:
    """What recovery makes of the log up to `offset` alone."""
    directory = tmp_path / f"cut-{offset}"
    directory.mkdir()
    for segment in log.segments:
        if segment.base_offset < offset:
            name = f"{segment.base_offset:020d}.log"
            (directory / name).write_bytes((tmp_path / "t-0" / name).read_bytes())
    return reopen(directory, segment_bytes=600)


def sorted_entries(packed: bytes) -> list[bytes]:
    return sorted(packed[4 + at : 50 + at] for at in range(0, len(packed) - 4, 46))


def test_stray_snapshots_are_removed_except_the_newest(tmp_path: Path) -> None:
    from kafkalite.storage.log import producer_state_loader

    for offset in (3, 5, 9, 12, 20):
        producer_state_loader.write_snapshots(Disk(), str(tmp_path), {offset: b"\0\0\0\0"}, [0, 5, 12, *range(3, 21)])
    producer_state_loader.remove_stray(Disk(), str(tmp_path), [0, 5, 12])
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [5, 12, 20]
    producer_state_loader.remove_stray(Disk(), str(tmp_path), [12, 20])
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [12, 20]
