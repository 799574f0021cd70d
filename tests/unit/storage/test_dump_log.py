"""The reader of DumpLogSegments' output, and Kafka's judgement on our directories, whole and damaged."""

from pathlib import Path

import pytest

from tests.kit import dump_log, jvm
from tests.unit.storage.damage import DAMAGES, filled
from tests.unit.storage.transactional import History, new_log

needs_java = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"DumpLogSegments: {jvm.java_missing()}")

CLEAN = """Dumping /d/t-0/00000000000000000765.log
Log starting offset: 765
baseOffset: 765 lastOffset: 767 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 \
partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 \
CreateTime: 1002 size: 391 magic: 2 compresscodec: none crc: 65027821 isvalid: true
Non-consecutive offsets in /d/t-0/00000000000000000765.log
  -1 is followed by 765
"""


def test_a_clean_output_has_its_batches_counted() -> None:
    report = dump_log.parse(CLEAN)
    assert (report.problems, report.batches, report.records) == ([], 1, 3)


@pytest.mark.parametrize(
    "line",
    [
        "Found 12 invalid bytes at the end of 00000000000000000000.log",
        "Mismatches in :/d/t-0/00000000000000000000.index",
        "  Index offset: 12, log offset: 14",
        "Found timestamp mismatch in :/d/t-0/00000000000000000000.timeindex",
        "Found out of order timestamp in :/d/t-0/00000000000000000000.timeindex",
        "The following indexed offsets are not found in the log.",
        "  17 is followed by 21",
        "java.lang.IllegalStateException: what nobody has seen yet",
    ],
)
def test_any_other_line_is_a_problem(line: str) -> None:
    assert dump_log.parse(CLEAN + line).problems == [line.strip()]


def test_a_bad_checksum_is_a_problem() -> None:
    report = dump_log.parse(CLEAN.replace("isvalid: true", "isvalid: false"))
    assert (len(report.problems), report.batches) == (1, 0)


def test_nothing_dumped_is_a_problem() -> None:
    assert dump_log.parse("").problems


@needs_java
def test_kafka_finds_nothing_wrong_in_our_files(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    log.close()
    report = dump_log.dump(tmp_path / "t-0")
    assert report.problems == []
    assert (report.batches, report.records) == (120, 360)
    segments = len(log.segments)
    assert report.dumped == {".log": segments, ".index": segments, ".timeindex": segments, ".snapshot": segments}


@needs_java
def test_kafka_reads_our_transactions_and_producers(tmp_path: Path) -> None:
    history = History(new_log(tmp_path / "t-0", segment_bytes=4_000), seed=7)
    history.run(300)
    history.log.close()
    with_aborts = [segment for segment in history.log.segments if segment.transactions]
    assert len(with_aborts) > 1
    report = dump_log.dump(tmp_path / "t-0")
    assert report.problems == []
    assert report.dumped[".txnindex"] == len(with_aborts)
    assert report.dumped[".snapshot"] == len(history.log.segments)


@needs_java
@pytest.mark.parametrize("damage", DAMAGES)
def test_verification_detects_every_damage(tmp_path: Path, damage: str) -> None:
    filled(tmp_path / "t-0").close()
    DAMAGES[damage](tmp_path / "t-0")
    assert dump_log.dump(tmp_path / "t-0").problems
