"""The cleaner: what it chooses, what it leaves, how it makes way, and what a kill at any step leaves behind."""

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.records.batches import Record, batches
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import checkpoints, names
from kafkalite.storage.checkpoints import CLEANER_OFFSETS
from kafkalite.storage.compaction.cleaner import CleanerConfig, LogCleaner
from kafkalite.storage.compaction.log_to_clean import LogToClean, cleanable, groups, stable_offset
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.log.transaction_index import AbortedTransaction, pack
from kafkalite.storage.manager import LogManager
from kafkalite.storage.recovery.recover_log import PartitionDirectory, recover
from kafkalite.testing.faulty_disk import Crash, FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from tests.kit.logs import read_log
from tests.kit.seeds import chosen_seed
from tests.oracles.compactor import CONFIG, Aborted, History, Oracle, batches_of, facts
from tests.unit.storage.damage import made

SEED = chosen_seed()
US = Identity("a2Fma2FsaXRlLXRlc3RzMQ", 1)
EAGER = replace(CONFIG, min_cleanable_dirty_ratio=0.01)


class Kit:
    """A manager with a cleaner, all on virtual time; jobs run inline, their outcomes when drained."""

    def __init__(self, path: Path, config: TopicConfig = EAGER, cleaner: CleanerConfig | None = None) -> None:
        self.path = path
        self.config = config
        self.wanted = cleaner or CleanerConfig(backoff_ms=1_000)
        self.open(FaultyDisk())

    def open(self, disk: FaultyDisk) -> None:
        """Start a manager on the directory."""
        self.disk = disk
        self.clock = VirtualClock()
        self.offload = InlineOffload()
        self.manager = LogManager(
            self.disk, [str(self.path)], self.clock, self.offload, SeededRandom(1), on_offline=lambda logs: None
        )
        self.manager.lock()
        self.manager.claim(US)
        self.loaded = self.manager.load(lambda topic: self.config)
        self.cleaner = LogCleaner(self.manager, self.clock, self.offload, SeededRandom(2), self.wanted)

    def start(self) -> None:
        self.manager.cleaner = self.cleaner
        self.cleaner.start(lambda log: log.log_end_offset)
        self.manager.upkeep.start(lambda log: log.log_end_offset, initial_ms=10**9, checkpoint_ms=10**9)
        self.run()

    def run(self, ms: int = 1_000) -> None:
        """Let time pass, and everything that is due end."""
        self.clock.advance(ms)
        while self.offload.drain():
            pass

    def create(self, topic: str = "t", seed: int = SEED, steps: int = 60) -> History:
        log = made(self.manager, self.offload, str(self.path), topic, 0, bytes(range(16)), self.config)
        print(f"KAFKALITE_SEED={seed}")
        history = History(log, random.Random(seed))
        for _ in range(steps):
            history.step()
        history.end_and_roll()
        return history

    def restart(self) -> None:
        self.manager.close()
        self.manager.unlock()
        self.open(FaultyDisk())

    def checkpoint(self) -> dict[tuple[str, int], int]:
        return checkpoints.read_offsets(self.disk, str(self.path / CLEANER_OFFSETS))


def records(log: Log) -> list[Record]:
    """What a read_committed reader would get, without knowledge of transactions."""
    return [record for batch in batches_of(list(log.segments)) if not batch.control for record in batch]


def values(found: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in found}


def plain(kit: Kit, numbers: range, topic: str = "t", size: int = 100) -> Log:
    """A log of single-record batches: keys 0 to 9 in turn."""
    log = kit.manager.find(topic, 0)
    if log is None:
        log = made(kit.manager, kit.offload, str(kit.path), topic, 0, bytes(range(16)), kit.config)
    for number in numbers:
        builder = Builder(1 << 20)
        builder.append(1_000 + number, b"%d" % (number % 10), b"%d" % number * (size // 4))
        assert log.append(bytearray(builder.build()), None, 0) == number
        assert log.write() == 0
    return log


def test_cleaning_matches_the_oracle_and_is_checkpointed(tmp_path: Path) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    kit = Kit(tmp_path)
    history = kit.create(steps=200)
    log = history.log
    log.config = replace(EAGER, segment_bytes=9_000)
    closed = list(log.segments[:-1])
    upper = log.log_end_offset
    last = [(each.producer_id, each.last_offset, each.epoch) for each in log.producers]
    oracle = Oracle(history.aborted, last, kit.clock.wall_ms(), kit.config.delete_retention_ms)
    found = batches_of(closed)
    (directory,) = {segment.directory for segment in closed}
    for segment, entries in transaction_indexes(closed, history.aborted):
        (Path(directory) / names.file_name(segment, names.TXN_INDEX)).write_bytes(entries)
    kit.start()
    last_of_groups = {batches_of([segment])[-1].base_offset for segment in log.segments[:-1]}
    newest, gone = oracle.newest(found, 0), oracle.gone(found)
    expected = [
        kept
        for batch in found
        if (kept := oracle.clean_batch(
            batch, gone[batch.base_offset], newest, batch.base_offset in last_of_groups, upper
        ))
    ]  # fmt: skip
    assert [facts(batch) for batch in batches_of(list(log.segments))] == expected
    assert len(log.segments) < len(closed)
    assert kit.checkpoint() == {("t", 0): upper}
    assert not list(Path(directory).glob("*.cleaned")) + list(Path(directory).glob("*.swap"))
    kit.run(kit.config.file_delete_delay_ms)
    assert not list(Path(directory).glob("*.deleted"))


def transaction_indexes(closed: list[Segment], aborted: list[Aborted]) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of the index of each segment that has one."""
    bases = [segment.base_offset for segment in closed]
    found: dict[int, list[AbortedTransaction]] = {}
    for entry in sorted(aborted, key=lambda entry: entry[2]):
        base = max(base for base in bases if base <= entry[2])
        found.setdefault(base, []).append(AbortedTransaction(*entry))
    return [(base, pack(entries)) for base, entries in found.items()]


def test_readers_go_on_with_the_new_segments_and_those_in_flight_with_the_old(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(200))
    before = read_log(log, 0, 500, log.log_end_offset)
    assert isinstance(before, list)
    kit.start()
    assert [batch.base_offset for batch in batches(before[0].read())][:3] == [0, 1, 2]
    after = read_log(log, 0, 500, log.log_end_offset)
    assert isinstance(after, list)
    assert batches(after[0].read())[0].base_offset > 2
    kit.manager.cache.files_max = 1
    for segment in log.segments:
        segment.unload()
    assert values(records(log)) == {b"%d" % (number % 10): b"%d" % number * 25 for number in range(190, 200)}


def test_second_cleaning_begins_where_the_first_ended_also_after_a_restart(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    kit.start()
    first = kit.checkpoint()["t", 0]
    assert first == log.active.base_offset
    kit.restart()
    kit.start()
    log = plain(kit, range(100, 200))
    found = cleanable(log, kit.cleaner.clean_until(log), log.log_end_offset, kit.clock.wall_ms())
    assert (found.first_dirty, found.upper_offset) == (first, log.active.base_offset)
    kit.run()
    assert kit.checkpoint()["t", 0] == log.active.base_offset
    assert values(records(log)) == {b"%d" % (number % 10): b"%d" % number * 25 for number in range(190, 200)}


def test_cleanable_part_of_a_log(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) >= 4
    now = 1_000_000
    assert cleanable(log, None, 100, now).upper_offset == bases[-1]
    assert cleanable(log, None, bases[2] + 1, now).upper_offset == bases[2]
    assert cleanable(log, 10**6, 100, now).first_dirty == 0
    half = cleanable(log, bases[2], 100, now)
    assert (half.clean_bytes, half.dirty_bytes) == (
        sum(segment.size for segment in log.segments[:2]),
        sum(segment.size for segment in log.segments[2:-1]),
    )
    log.config = replace(EAGER, min_cleanable_dirty_ratio=0.99)
    assert not cleanable(log, bases[2], 100, now).due
    log.config = replace(EAGER, min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=now - 1_000 - bases[2] - 1)
    assert cleanable(log, bases[2], 100, now).due
    log.config = replace(EAGER, min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=now - 1_000 - bases[2])
    assert not cleanable(log, bases[2], 100, now).due
    log.config = replace(EAGER, min_compaction_lag_ms=now - log.segments[1].max_timestamp + 1)
    assert cleanable(log, None, 100, now).upper_offset == bases[1]


def test_an_open_transaction_holds_the_cleaner_back(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    assert stable_offset(log, 77) == 77
    builder = Builder(1 << 20)
    builder.append(1, b"k", b"v")
    opened = builder.build(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append(bytearray(opened), None, 0) == 100
    plain(kit, range(101, 110))
    assert stable_offset(log, 110) == 100
    assert stable_offset(log, 30) == 30


def test_the_dirtiest_log_is_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit(tmp_path)
    for topic, count in (("a", 60), ("b", 200), ("c", 60)):
        plain(kit, range(count), topic)
    kit.start()
    for topic, count in (("a", 80), ("b", 240), ("c", 160)):
        log = kit.manager.find(topic, 0)
        assert log is not None
        plain(kit, range(log.log_end_offset, count), topic)
    ratios = {log.topic: found.ratio for log in kit.manager.all() if (found := kit.cleaner.due(log)) is not None}
    assert sorted(ratios, key=lambda topic: ratios[topic]) == ["a", "b", "c"]
    with caplog.at_level("INFO", "kafkalite.storage.compaction.cleaner"):
        kit.run()
    cleaned = [record.getMessage()[0] for record in caplog.records if "compacted offsets" in record.getMessage()]
    assert cleaned == ["c", "b", "a"]


def test_groups_are_bounded_by_size_indexes_and_offsets(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(200))
    closed = list(log.segments[:-1])
    largest = max(segment.size for segment in closed)
    two = replace(EAGER, segment_bytes=2 * largest)
    assert {len(group) for group in groups(closed, log.active.base_offset, two)[:-1]} == {2}
    one = replace(two, segment_bytes=10**6, segment_index_bytes=closed[0].disk.size(closed[0].path(names.INDEX)))
    assert {len(group) for group in groups(closed, log.active.base_offset, one)} == {1}
    all_of_them = groups(closed, 2**31, replace(two, segment_bytes=10**6))
    assert [len(group) for group in all_of_them] == [len(closed)]
    assert len(groups(closed, 2**31 + 1, replace(two, segment_bytes=10**6))) == 2


def test_corrupt_batch_makes_the_partition_uncleanable_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    other = plain(kit, range(100), "other")
    location = log.segments[1].batches()[2]
    log.segments[1].opened.pwrite(b"\xff", location.position + 70)
    before = [segment.base_offset for segment in log.segments]
    kit.start()
    assert [segment.base_offset for segment in log.segments] == before
    assert "t-0 is excluded from compaction" in caplog.text
    assert "the CRC of a batch is wrong" in caplog.text
    assert kit.checkpoint()["other", 0] == other.active.base_offset
    caplog.clear()
    kit.run()
    assert caplog.text == ""
    kit.manager.delete(log)
    assert not kit.cleaner.uncleanable


def test_small_offset_map_cleans_in_several_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    kit = Kit(tmp_path, cleaner=CleanerConfig(backoff_ms=1_000, dedupe_buffer_size=1, io_buffer_load_factor=0.05))
    log = plain(kit, range(200))
    kit.start()
    for _ in range(100):
        kit.run()
    assert "the cleaner's offset map is full at offset" in caplog.text
    assert kit.checkpoint()["t", 0] == log.active.base_offset
    assert values(records(log)) == {b"%d" % (number % 10): b"%d" % number * 25 for number in range(190, 200)}


def test_batch_with_more_keys_than_the_offset_map_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit(tmp_path, cleaner=CleanerConfig(dedupe_buffer_size=1, io_buffer_load_factor=0.01))
    log = plain(kit, range(0))
    for base in (0, 10):
        builder = Builder(1 << 20)
        for number in range(10):
            builder.append(1, b"%d" % number, b"v")
        log.append(bytearray(builder.build()), None, 0)
        log.write()
        log.roll(base + 10)
    kit.start()
    assert "a single batch has more keys than" in caplog.text


@pytest.mark.parametrize("when", ["truncate", "delete", "offline", "close"])
def test_cleaning_aborts_at_every_step(tmp_path: Path, when: str) -> None:
    """The jobs are held, one after the other; whatever comes between two of them finds the log free."""
    step, over = 0, False
    while not over:
        step += 1
        kit = Kit(tmp_path / f"{when}-{step}")
        log = plain(kit, range(100))
        kit.manager.cleaner = kit.cleaner
        kit.cleaner.start(lambda log: log.log_end_offset)
        kit.offload.held = True
        kit.clock.advance(1)
        for _ in range(step):
            if not kit.offload.waiting:
                over = True
                break
            kit.offload.release()
            kit.offload.held = True
            kit.offload.drain()
        over = over or not kit.cleaner.is_busy(log)
        make_way(kit, log, when)
        kit.offload.release()
        while kit.offload.drain():
            pass
        assert not kit.cleaner.is_busy(log)
        if when == "truncate":
            ends = [segment.next_offset() for segment in log.segments if segment.size]
            assert log.log_end_offset == ends[-1] <= 35, "no gap that the cleaner has left stays at the end"
            log = recover(PartitionDirectory(FaultyDisk(), log.directory, "t", 0, EAGER))[0]
            assert log.log_end_offset <= 35
            assert all(record.value == b"%d" % record.offset * 25 for record in records(log))
        elif when != "delete":
            log = recover(PartitionDirectory(FaultyDisk(), log.directory, "t", 0, EAGER))[0]
            assert values(records(log)) == {b"%d" % (n % 10): b"%d" % n * 25 for n in range(90, 100)}
    assert step > 5


def make_way(kit: Kit, log: Log, when: str) -> None:
    if when == "truncate":
        log.truncate_to(log.begin_truncation(35))
    elif when == "delete":
        kit.manager.delete(log)
    elif when == "offline":
        kit.manager.take_offline(str(kit.path), OSError(errno.EIO, "gone"))
    else:
        kit.cleaner.close()


def test_retention_waits_for_the_cleaner(tmp_path: Path) -> None:
    kit = Kit(tmp_path, replace(EAGER, cleanup_policy=("compact", "delete"), retention_bytes=1))
    log = plain(kit, range(100))
    kit.manager.cleaner = kit.cleaner
    kit.cleaner.start(lambda log: log.log_end_offset)
    kit.offload.held = True
    kit.clock.advance(1)
    before = log.segments
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    assert log.segments == before
    kit.offload.release()
    while kit.offload.drain():
        pass
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    assert len(log.segments) == 1


def test_a_bad_checkpoint_means_all_is_dirty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    (tmp_path / CLEANER_OFFSETS).write_bytes(b"\xff\x00garbage")
    kit.start()
    assert "all compacted logs in the directory are cleaned again" in caplog.text
    assert kit.checkpoint() == {("t", 0): log.active.base_offset}


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("cleaned", [True, False])
def test_gap_below_the_cleaner_checkpoint_is_accepted_for_any_policy(
    tmp_path: Path, cleaned: bool, policy: str
) -> None:
    """Apache Kafka's cleaner drops the last batch of a segment, too. Where none was, the end of a segment was lost."""
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    segment = log.segments[1]
    segment.opened.truncate(segment.batches()[-1].position)
    kit.manager.unlock()
    clean_until = log.segments[2 if cleaned else 1].base_offset
    checkpoints.write_offsets(kit.disk, str(tmp_path / CLEANER_OFFSETS), {("t", 0): clean_until})
    kit.config = replace(EAGER, cleanup_policy=(policy,))
    kit.open(FaultyDisk())
    after = kit.manager.find("t", 0)
    assert after is not None
    assert (after.log_end_offset == 100) == cleaned


def test_a_truncated_log_is_dirty_from_its_end_on(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    kit.start()
    log.truncate_to(log.begin_truncation(log.segments[0].batches()[0].base_offset + 1))
    kit.run()
    assert kit.checkpoint()["t", 0] == log.log_end_offset


# A kill at every step.


def killed(kit: Kit) -> bool:
    """Start, and return whether that ended with the process."""
    try:
        kit.start()
    except Crash:
        return True
    return False


def test_a_kill_at_any_step_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """Whatever step the process, or the power, ends at: the newest value of each key, at its offset, once."""
    print(f"KAFKALITE_SEED={SEED}")
    expected = {b"%d" % (number % 10): (number, b"%d" % number * 25) for number in range(90, 100)}
    step = 1
    while cut_short(tmp_path / str(step), step, expected):
        step += 1
    assert step > 30


def cut_short(path: Path, step: int, expected: dict[bytes, tuple[int, bytes]]) -> bool:
    """Kill a cleaning at a step and look at what is there; False where it ended before."""
    kit = Kit(path)
    log = plain(kit, range(100))
    for segment in log.segments:
        segment.opened.sync()
    kit.disk.sync_dir(log.directory)
    kit.disk.stop_at = kit.disk.steps + step
    dead = killed(kit)
    if step % 2:
        kit.disk.crash(random.Random(SEED + step))
    after = recover(PartitionDirectory(FaultyDisk(), log.directory, "t", 0, EAGER))[0]
    found = records(after)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets)), f"killed at step {step}"
    assert {record.key: (record.offset, record.value) for record in found} == expected, f"killed at step {step}"
    assert all(record.value == b"%d" % record.offset * 25 for record in found)
    assert after.log_end_offset == 100
    return dead


def test_the_checkpoint_of_a_deletion_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    plain(kit, range(100))
    kit.start()
    (clean,) = kit.checkpoint().values()
    kit.cleaner.close()
    kit.restart()
    written = {("t", 0): clean, ("gone", 0): 40, ("t", 1): 7}
    checkpoints.write_offsets(kit.disk, str(tmp_path / CLEANER_OFFSETS), written)
    kit.start()
    assert kit.checkpoint() == {("t", 0): clean}
    kit.restart()
    checkpoints.write_offsets(kit.disk, str(tmp_path / CLEANER_OFFSETS), {("t", 0): 101})
    kit.cleaner.start(lambda log: 0)
    assert kit.checkpoint() == {}


def test_thousands_of_compacted_logs_are_looked_at_in_slices_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.slicing.VISITS_PER_SLICE", 2)
    kit = Kit(tmp_path)
    for number in range(5):
        plain(kit, range(60), f"t{number}")
    looks: list[str] = []
    look = kit.cleaner._look_at

    def counting(log: Log) -> LogToClean | None:
        looks.append(log.topic)
        return look(log)

    monkeypatch.setattr(kit.cleaner, "_look_at", counting)
    kit.start()
    kit.run()
    assert len(kit.checkpoint()) == 5
    assert len(looks) == 2 * 5, "each in the slices of one look, and again before its cleaning"
    kit.run()
    assert len(looks) == 2 * 5, "a clean log is not looked at again until it rolls"
