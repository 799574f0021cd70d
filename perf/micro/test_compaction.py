"""Compaction, one thread: the map of last offsets, and writing again: `pytest perf/micro/test_compaction.py`.

KAFKALITE_SEGMENT_MIB sets how much is compacted; the figures in docs are for 1024. Records of 100 bytes with a million
keys.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.compaction.compactor import Worker
from kafkalite._speedups.compaction.input import Transactions
from kafkalite._speedups.compaction.offset_map import OffsetMap
from kafkalite._speedups.compaction.tombstone_retention import RetentionRules
from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.log import segment_swap
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from tests.kit.logs import new_log

SEGMENT_MIB = int(os.environ.get("KAFKALITE_SEGMENT_MIB", "128"))
KEYS = 1_000_000
MAP_BYTES = 134_217_728
BUFFER_BYTES = 262_144
BATCH_RECORDS = 150
CONFIG = replace(TopicConfig(), segment_bytes=2**31 - 1)


def fill(directory: Path, codec: int) -> Log:
    log = new_log(Disk(), str(directory), "t", 0, CONFIG)
    chance = random.Random(1)
    while log.log_end_offset * 100 < SEGMENT_MIB << 20:
        builder = Builder(1 << 20)
        for _ in range(BATCH_RECORDS):
            builder.append(1_000, b"key-%012d" % chance.randrange(KEYS), chance.randbytes(38) * 2)
        assert log.append(bytearray(builder.build(codec)), None, 0) >= 0
        assert log.write() == 0
    return log


@pytest.fixture(scope="module", params=[0, 3, 4], ids=["plain", "lz4", "zstd"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    directory = tmp_path_factory.mktemp("full") / "t-0"
    yield fill(directory, request.param)
    Disk().remove_tree(str(directory))


def mapped(works: Worker, log: Log) -> Worker:
    segment = log.segments[0]
    works.offsets.clear(log.log_end_offset)
    assert works.map_segment(segment.opened, 0, segment.size, 0, 0, Transactions([]))
    return works


def worker() -> Worker:
    return Worker(OffsetMap(bytes(16), MAP_BYTES), BUFFER_BYTES)


@pytest.mark.benchmark(group="compaction: MB of batches, one thread")
def test_map(benchmark, full: Log) -> None:
    benchmark.extra_info["bytes"] = full.size
    works = worker()
    benchmark.pedantic(mapped, (works, full), rounds=3)
    assert len(works.offsets) <= KEYS


@pytest.mark.benchmark(group="compaction: MB of batches, one thread")
def test_clean(benchmark, full: Log) -> None:
    benchmark.extra_info["bytes"] = full.size
    works = mapped(worker(), full)
    segment = full.segments[0]

    def clean() -> None:
        target = Segment(0, full.directory, Disk(), CONFIG)
        target.suffix = names.CLEANED
        target.create()
        rules = RetentionRules(2_000, 86_400_000, full.log_end_offset, [])
        works.clean_segment(segment.opened, segment.size, 0, target, rules, Transactions([]), 4096, True)
        target.finish()
        segment_swap.remove(target)

    benchmark.pedantic(clean, rounds=3)
