"""The log: append, write, look-ups, recovery, `log verify`: `pytest perf/micro/test_storage.py`.

KAFKALITE_SEGMENT_MIB sets the size of the segment that is read and scanned; the figures in docs are for 1024.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.page_cache import ReadAttempt
from kafkalite._speedups.storage.recovery_scan import scan
from kafkalite.config.topic import TopicConfig
from kafkalite.storage.log.log import Log
from kafkalite.storage.verify.verify import verify_log
from tests.kit.logs import new_log

SEGMENT_MIB = int(os.environ.get("KAFKALITE_SEGMENT_MIB", "128"))
LOOK_UPS = 1_000
PASS_BATCHES = 64
CONFIG = replace(TopicConfig(), segment_bytes=2**31 - 1)


def batch(size: int, timestamp: int = 0, **fields: int) -> bytearray:
    builder = Builder(1 << 24)
    builder.append(timestamp, b"key", bytes(size))
    return bytearray(builder.build(**fields))  # type: ignore[arg-type]


def fill(directory: Path, record_bytes: int) -> Log:
    log = new_log(Disk(), str(directory), "t", 0, CONFIG)
    number = 0
    while log.size < SEGMENT_MIB << 20:
        for _ in range(PASS_BATCHES):
            number += 1
            log.append(batch(record_bytes, number), None, 0)
        assert log.write() == 0
    return log


@pytest.fixture(scope="module", params=[16_000, 200])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    directory = tmp_path_factory.mktemp("full") / "t-0"
    yield fill(directory, request.param)
    Disk().remove_tree(str(directory))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(Disk(), str(tmp_path / "t-0"), "t", 0, CONFIG)


@pytest.mark.benchmark(group=f"storage: a pass of {PASS_BATCHES} batches of 100 bytes")
@pytest.mark.parametrize("write", [False, True], ids=["append", "append and write"])
def test_append(benchmark, log: Log, write: bool) -> None:
    made = [batch(100) for _ in range(PASS_BATCHES)]

    def append() -> None:
        for each in made:
            log.append(each, None, 0)

    benchmark.pedantic(
        append if not write else lambda: (append(), log.write()),
        teardown=None if write else lambda: log.write(),
        rounds=2_000,
    )
    if benchmark.enabled:  # otherwise there is no teardown
        assert log.log_end_offset > 0


@pytest.mark.benchmark(group=f"storage: {LOOK_UPS} random look-ups")
@pytest.mark.parametrize("by", ["offset", "time"])
def test_look_up(benchmark, full: Log, by: str) -> None:
    rng = random.Random(1)
    end = full.log_end_offset
    wanted = [rng.randrange(1, end) for _ in range(LOOK_UPS)]

    def by_offset() -> None:
        for offset in wanted:
            full.read(ReadAttempt(offset, 1_000, end, wait=True))

    def by_time() -> None:
        for timestamp in wanted:
            full.look_up_time(timestamp)

    benchmark(by_offset if by == "offset" else by_time)
    assert full.look_up_time(wanted[0])[:2] == (wanted[0], wanted[0] - 1)


@pytest.mark.benchmark(group=f"storage: {LOOK_UPS} reads of 1 MiB in memory")
@pytest.mark.parametrize("position", ["end", "older"])
@pytest.mark.parametrize("wait", [True, False], ids=["may wait", "asks the page cache"])
def test_read(benchmark, full: Log, position: str, wait: bool) -> None:
    end = full.log_end_offset
    # Behind the last 8 MiB of the active segment every read is preceded by probes of its region.
    offset = end - (1 << 20) // 20_000 if position == "end" else 1

    def read() -> None:
        for _ in range(LOOK_UPS):
            full.read(ReadAttempt(offset, 1 << 20, end, wait=wait))

    benchmark(read)
    assert isinstance(full.read(ReadAttempt(offset, 1 << 20, end, wait=wait)), list)


def mb_per_s(benchmark, size: int) -> None:
    if benchmark.stats:  # not with --benchmark-disable
        benchmark.extra_info["MB/s"] = size / benchmark.stats.stats.min / 1e6


@pytest.mark.benchmark(group="storage: recovery scan")
def test_scan(benchmark, full: Log) -> None:
    segment = full.active
    size = segment.size

    def again() -> None:
        segment.empty_indexes()
        found = scan(segment, 0, size, 4096)
        assert found.whole

    benchmark.pedantic(again, rounds=3)
    mb_per_s(benchmark, size)


@pytest.mark.benchmark(group="storage: log verify, indexes too")
def test_verify(benchmark, full: Log) -> None:
    full.active.write_indexes()

    def verify() -> None:
        assert verify_log(Disk(), full.directory) == []

    benchmark.pedantic(verify, rounds=3)
    mb_per_s(benchmark, full.active.size)
