"""Periodic work: in slices, by believable clocks, and with an eye on the free space."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.clock import Clock, ClockWatch, Outcome
from kafkalite.storage import checkpoint_writer, checkpoints
from kafkalite.storage.dirs.free_space import SCARCE_BYTES, Level, level_of
from kafkalite.storage.log.log import Log
from kafkalite.testing.virtual_clock import VirtualClock
from tests.unit.storage.damage import CONFIG, batch
from tests.unit.storage.test_manager import Kit, fill

HOUR_MS, MINUTE_MS, GIB = 3_600_000, 60_000, SCARCE_BYTES
AGED = replace(CONFIG, retention_ms=24 * HOUR_MS)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data", config=AGED).open()
    yield kit
    kit.manager.unlock()


def start(kit: Kit, pause_ms: int = HOUR_MS) -> None:
    kit.manager.upkeep.start(lambda log: int(log.log_end_offset), jump_pause_ms=pause_ms, retention_ms=5 * MINUTE_MS)


def young(kit: Kit, topic: str = "t", batches: int = 150) -> Log:
    """A log of several segments whose records are of now."""
    log = kit.create(topic)
    for number in range(batches):
        log.append(batch(3, kit.clock.wall_ms() + number), None, 0)
        assert log.write() == 0
    return log


def test_thousands_of_logs_are_checkpointed_in_slices(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalite.slicing.VISITS_PER_SLICE", 2)
    logs = [kit.create(f"t{number}", batches=1) for number in range(5)]
    for log in logs:
        log.apply_flush(log.plan_flush())
    kit.manager.upkeep.checkpoint()
    path = Path(logs[0].root) / "recovery-point-offset-checkpoint"
    kit.offload.drain()
    assert not path.exists() and kit.clock.timers == 1
    kit.manager.delete(logs[4])
    kit.advance(0)
    assert path.read_text() == "0\n4\nt0 0 3\nt1 0 3\nt2 0 3\nt3 0 3\n", "and not what went meanwhile"


# Flushing by time.


def test_a_log_is_synced_when_its_flush_ms_are_over(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, flush_ms=5_000)).open()
    log = kit.create()
    kit.manager.upkeep.start(lambda log: 0, flush_check_ms=1_000, initial_ms=1_000)
    fill(log, 2)
    kit.advance(4_000)
    assert log.recovery_point == 0
    kit.advance(1_000)
    assert log.recovery_point == 6
    fill(log, 1)
    kit.advance(4_000)
    assert log.recovery_point == 6
    kit.advance(1_000)
    assert log.recovery_point == 9
    synced = kit.disk.counts["sync"]
    kit.advance(10_000)
    assert kit.disk.counts["sync"] == synced, "nothing new, nothing to sync"
    kit.manager.unlock()


def test_without_a_scheduler_nothing_is_synced_by_time(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, flush_ms=5_000, retention_ms=-1)).open()
    log = kit.create()
    start(kit)
    fill(log, 2)
    kit.advance(59_000)
    assert log.recovery_point == 0
    kit.manager.unlock()


def test_log_starts_have_an_interval_of_their_own(kit: Kit) -> None:
    log = young(kit, batches=2)
    kit.manager.upkeep.start(lambda log: 0, checkpoint_ms=10**9, starts_ms=1_000, initial_ms=0)
    kit.advance(1)
    log.delete_records_before(4)
    starts = Path(log.root) / "log-start-offset-checkpoint"
    kit.advance(1_000)
    assert starts.read_text() == "0\n0\n", "it must not claim records that were never synced"
    kit.advance(1_000)
    assert starts.read_text() == "0\n1\nt 0 4\n"


# The clock.


def test_a_jump_of_the_clock_does_not_delete_the_world(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    log = young(kit)
    start(kit)
    kit.advance(MINUTE_MS)
    assert log.log_start_offset == 0
    with caplog.at_level(logging.WARNING, "kafkalite"):
        kit.clock.jump_wall(365 * 24 * HOUR_MS)
        kit.advance(HOUR_MS)
    assert log.log_start_offset == 0
    assert [record.message for record in caplog.records if "jumped" in record.message] == [
        "the wall clock jumped by 31536000 s; time-based retention pauses for 3600 s; the expiry of tokens follows it"
    ]
    kit.advance(10 * MINUTE_MS)
    assert log.log_start_offset == log.log_end_offset, "nobody set it right within the hour"


def test_corrected_wall_clock_deletes_no_segment(kit: Kit) -> None:
    log = young(kit)
    start(kit)
    kit.advance(MINUTE_MS)
    kit.clock.jump_wall(365 * 24 * HOUR_MS)
    kit.advance(20 * MINUTE_MS)
    kit.clock.jump_wall(-365 * 24 * HOUR_MS)
    kit.advance(3 * HOUR_MS)
    assert log.log_start_offset == 0


def test_while_time_rests_sizes_and_deletions_go_on(kit: Kit) -> None:
    large, cut = young(kit, "large"), young(kit, "cut")
    start(kit)
    kit.clock.jump_wall(365 * 24 * HOUR_MS)
    large.config = replace(AGED, retention_bytes=25_000)
    cut.delete_records_before(cut.segments[1].base_offset + 1)
    kit.advance(MINUTE_MS)
    assert 0 < large.log_start_offset < large.log_end_offset
    assert cut.segments[0].base_offset > 0


def test_the_pause_is_as_long_as_the_key_says(kit: Kit) -> None:
    log = young(kit)
    start(kit, pause_ms=0)
    kit.clock.jump_wall(365 * 24 * HOUR_MS)
    kit.advance(MINUTE_MS)
    assert log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("jump_ms", "believed"), [(600_000, True), (600_001, False)])
def test_ten_minutes_are_the_mark(sign: int, jump_ms: int, believed: bool) -> None:
    virtual = VirtualClock()
    clock: Clock = virtual
    watch = ClockWatch(clock)
    virtual.advance(HOUR_MS)
    virtual.jump_wall(sign * jump_ms)
    assert (watch.look() is not None) is believed


@pytest.mark.parametrize("step_ms", [2_100, -600_000])
def test_smaller_steps_are_logged_once(kit: Kit, caplog: pytest.LogCaptureFixture, step_ms: int) -> None:
    """Retention continues; both housekeepings of a broker see the step."""
    young(kit)
    start(kit)
    of_groups = ClockWatch(kit.clock)
    kit.advance(HOUR_MS)
    with caplog.at_level(logging.WARNING, "kafkalite.clock"):
        kit.clock.jump_wall(1_900)
        kit.advance(HOUR_MS)
        assert caplog.messages == [], "NTP may have adjusted the clock"
        kit.clock.jump_wall(step_ms)
        kit.advance(2 * HOUR_MS)
        assert of_groups.look() is not None
    (line,) = caplog.messages
    assert line.startswith(f"the wall clock has moved by {step_ms / 1000:+.1f} s, or the machine was suspended")


@pytest.mark.parametrize("batches", [0, 150])
@pytest.mark.parametrize("limit", [{"retention_ms": 1_000}, {"retention_bytes": 0}])
def test_an_empty_segment_that_is_appended_to_never_goes(kit: Kit, batches: int, limit: dict[str, int]) -> None:
    """Neither for its age, for which its file stands, nor for its size: another one like it would take its place."""
    log = young(kit, batches=batches)
    log.config = replace(AGED, **limit)  # type: ignore[arg-type]
    start(kit)
    kit.advance(2 * HOUR_MS)
    assert len(log.segments) == 1 and log.active.size == 0 and log.log_start_offset == log.log_end_offset == 3 * batches
    before, rolls = log.active, log.rolls
    os.utime(log.active.path(".log"), (0, 0))
    kit.advance(2 * HOUR_MS)
    assert log.active is before and log.rolls == rolls
    assert {path.name for path in Path(log.directory).glob("*.log*")} == {f"{3 * batches:020d}.log"}


# Free space.


def test_free_space_is_logged_at_each_level(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    free = [50 * GIB]
    kit.disk.free_bytes = lambda path: (free[0], 100 * GIB)  # type: ignore[method-assign]
    start(kit)
    lines = []
    with caplog.at_level(logging.WARNING, "kafkalite.storage.dirs.free_space"):
        for free[0] in (9 * GIB, 8 * GIB, GIB // 2, 0, 2 * GIB, 10 * GIB, GIB // 2, 12 * GIB, 50 * GIB, 5 * GIB):
            kit.advance(10_000)
            lines.append([record.message.split(": ", 1)[1] for record in caplog.records])
            caplog.clear()
    assert lines == [
        [low(9216, 9)], [], [low(512, 0)], [], [], [], [],
        ["the file system has enough space again, 12288 MiB free"], [], [low(5120, 5)],
    ]  # fmt: skip


def low(free_mib: int, percent: int) -> str:
    return f"the file system has {free_mib} of 102400 MiB free ({percent} %); produce requests fail when it is full"


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (GIB, 100 * GIB, Level.LOW),
        (GIB - 1, 100 * GIB, Level.SCARCE),
        (GIB - 1, 5 * GIB, Level.ENOUGH),
        (GIB // 2 - 1, 5 * GIB, Level.LOW),
        (GIB // 4 - 1, 5 * GIB, Level.SCARCE),
        (23 << 20, 24 << 20, Level.ENOUGH),
        (2 << 20, 24 << 20, Level.LOW),
        (1 << 20, 24 << 20, Level.SCARCE),
        (0, 0, Level.ENOUGH),
    ],
)
def test_thresholds_of_large_and_small_file_systems(free: int, total: int, level: Level) -> None:
    assert level_of(free, total) is level


def test_truncation_of_one_log_makes_the_checkpoint_lines_of_that_log_only(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [kit.create(f"t{number}", batches=2) for number in range(30)]
    for log in logs:
        log.apply_flush(log.plan_flush())
    kit.manager.upkeep.checkpoint()
    kit.offload.drain()
    made: list[str] = []
    for name, line_of in checkpoint_writer.LINES.items():

        def counting(log: Log, line_of: Callable[[Log], str | None] = line_of) -> str | None:
            made.append(log.topic)
            return line_of(log)

        monkeypatch.setitem(checkpoint_writer.LINES, name, counting)
    kit.manager.truncate({logs[7]: 3}, Outcome.result)
    kit.offload.drain()
    assert made == ["t7"] * 3, "one line in each of the checkpoints"
    found = checkpoints.read_offsets(kit.disk, str(Path(logs[0].root) / checkpoints.RECOVERY_POINTS))
    assert found == {(log.topic, 0): 3 if log is logs[7] else 6 for log in logs}
