"""The threads of the cleaner: each has a log of its own, they share one rate and stop on request."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from kafkalite._speedups.compaction.offset_map import OffsetMap
from kafkalite.clock import Outcome
from kafkalite.storage.compaction.cleaner import CleanerConfig
from kafkalite.storage.compaction.throttle import Throttle
from kafkalite.testing.virtual_clock import SeededRandom
from tests.unit.storage.test_cleaner import Kit, plain, records, values


def test_each_thread_has_a_log_of_its_own(tmp_path: Path) -> None:
    kit = Kit(tmp_path, cleaner=CleanerConfig(threads=2, backoff_ms=1_000))
    logs = [plain(kit, range(100), topic) for topic in ("one", "two", "three")]
    kit.offload.held = True
    kit.start()
    assert [kit.manager.is_cleaned_now(log) for log in logs].count(True) == 2
    kit.offload.release()
    for _ in range(3):
        kit.run()
    assert kit.checkpoint() == {(log.topic, 0): log.active.base_offset for log in logs}
    for log in logs:
        assert values(records(log)) == {b"%d" % (number % 10): b"%d" % number * 25 for number in range(90, 100)}


def test_cleaner_thread_is_free_after_a_job_has_released_the_memory_of_its_map(tmp_path: Path) -> None:
    """The system takes 10 ms for 128 MiB, in which the loop would serve no client."""
    kit = Kit(tmp_path)
    logs = [plain(kit, range(100), topic) for topic in ("one", "two")]
    slot, run, jobs = kit.cleaner._slots[0], kit.offload.run, []

    def noted(job: Callable[..., object], *arguments: object, done: Callable[[Outcome], None]) -> None:
        jobs.append((job, slot.worker.offsets.slots, slot.run))
        run(job, *arguments, done=done)

    kit.offload.run = noted  # type: ignore[method-assign]
    kit.start()
    for _ in range(3):
        kit.run()
    freed = [number for number, (job, _, _) in enumerate(jobs) if job == slot.worker.offsets.clear]
    assert len(freed) == 2
    for number in freed:
        assert jobs[number][1] > 0 and jobs[number][2] is None
    assert slot.worker.offsets.slots == 0
    assert not any(kit.cleaner.is_busy(log) for log in logs)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_memory_of_all_threads_together_is_bounded(tmp_path: Path, threads: int) -> None:
    wanted = CleanerConfig(threads=threads, dedupe_buffer_size=1_000_000)
    slots = Kit(tmp_path, cleaner=wanted).cleaner._slots
    assert len(slots) == threads
    taken = 0
    for slot in slots:
        slot.worker.offsets.clear(1 << 40)
        taken += slot.worker.offsets.slots * 24
    assert 1_000_000 - 24 * threads < taken <= 1_000_000


def test_each_map_has_a_secret_of_its_own_drawn_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets: list[bytes] = []

    def noted(secret: bytes, bytes_max: int, load_factor: float) -> OffsetMap:
        secrets.append(secret)
        return OffsetMap(secret, bytes_max, load_factor)

    monkeypatch.setattr("kafkalite.storage.compaction.cleaner.OffsetMap", noted)
    Kit(tmp_path, cleaner=CleanerConfig(threads=3))
    drawn = SeededRandom(2)  # the one that a kit gives its cleaner
    assert secrets == [drawn.bytes(16) for _ in range(3)]
    assert len(set(secrets)) == 3


def test_a_thread_waits_as_long_as_the_rate_asks() -> None:
    class RecordingEvent(threading.Event):
        waits: ClassVar[list[float | None]] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.waits.append(timeout)
            return False

    wait = Throttle(1_000.0, lambda: 0.0).waiter(RecordingEvent())
    wait(500)
    wait(250)
    assert RecordingEvent.waits == [0.5, 0.75]


def test_the_rate_is_kept_between_all_threads() -> None:
    now = [0.0]
    throttle = Throttle(1_000.0, lambda: now[0])
    assert throttle.delay(500) == 0.5
    assert throttle.delay(500) == 1.0
    now[0] = 3.0
    assert throttle.delay(250) == 0.25


def test_throttled_cleaning_ends_at_once_when_it_is_aborted(tmp_path: Path) -> None:
    kit = Kit(tmp_path, cleaner=CleanerConfig(io_max_bytes_per_second=1.0))
    log = plain(kit, range(100))
    kit.cleaner.start(lambda log: log.log_end_offset)
    for slot in kit.cleaner._slots:
        slot.prepare = lambda now: None  # type: ignore[method-assign]
        slot.stopped.set()
        slot.worker.stop = True
    kit.run()
    assert not kit.cleaner.is_busy(log)
    assert log.segments[0].base_offset == 0
    assert len(records(log)) == 100
