"""Few files replace many small ones: rows, offsets and the owner of the table stay."""

import os
import threading
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark_kafkalite.tables import DamagedTableError, ManifestTable, TableError, snapshots
from pyspark_kafkalite.tables.compaction import compact, groups, merged_spans
from pyspark_kafkalite.tables.locations import find
from pyspark_kafkalite.tables.model import Batch, CommittedRange, DataFile, Span
from pyspark_kafkalite.tables.parquet_writer import AttemptWriter, ParquetOptions
from pyspark_kafkalite.tables.reading import read

from tests.story.tables.parquet_job import batch, expected, plain_rows, rows

BATCHES = 6


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def table(root: Path) -> ManifestTable:
    """A table with six batches of ten rows, each one in two files."""
    created = ManifestTable(root)
    for number in range(BATCHES):
        start = number * 10
        created.commit(batch(created, "A", number, {0: (start, start + 4)}, {0: (start + 4, start + 10)}))
    return created


def names(root: Path) -> list[str]:
    return sorted(each.name for each in root.glob("*.parquet"))


def test_compaction_replaces_small_files_in_one_commit(root: Path, table: ManifestTable) -> None:
    before = table.state()
    done = compact(table)
    assert (done.sequence, done.replaced, done.written, done.removed) == (BATCHES, 2 * BATCHES, 1, 0)
    assert done.bytes_after == sum(path.stat().st_size for path in root.glob("*.parquet")) < done.bytes_before
    assert plain_rows(root) == rows(read(root)) == expected({0: (0, 60)})
    after = ManifestTable(root).state()
    assert (after.ends, after.starts, after.batches) == (before.ends, before.starts, before.batches)
    assert after.last is not None and set(after.last.removed) == set(before.files) and after.last.ranges == ()
    assert len(after.files) == 1 and os.listdir(table.compactions) == ["lock"]
    assert compact(table).sequence == -1, "there is nothing more to replace"


def test_job_continues_after_a_compaction(root: Path, table: ManifestTable) -> None:
    """Also from another checkpoint, and a batch that is repeated is still skipped."""
    compact(table)
    assert table.commit(batch(table, "A", BATCHES - 1, {0: (50, 60)})) == (BATCHES - 1, True)
    table.commit(batch(table, "A", BATCHES, {0: (60, 70)}))
    resumes = table.state().sequence
    compact(table)
    table.commit(batch(table, "B", 0, {0: (70, 71)}, resumes=resumes))
    assert plain_rows(root) == expected({0: (0, 71)})
    with pytest.raises(TableError, match="query B writes to it"):
        table.commit(batch(table, "A", BATCHES + 1, {0: (71, 72)}))


def test_running_reader_reads_replaced_files_until_their_retention_ends(root: Path, table: ManifestTable) -> None:
    running = read(root)
    compact(table, retention_s=0)
    assert rows(running) == expected({0: (0, 60)})
    table.commit(batch(table, "A", BATCHES, {0: (60, 61)}))
    assert compact(table, retention_s=3600).removed == 0
    assert rows(running) == expected({0: (0, 60)})
    assert compact(table, retention_s=0).removed == 2 * BATCHES + 2
    with pytest.raises(DamagedTableError, match="read the table again"):
        rows(running)
    assert plain_rows(root) == rows(read(root)) == expected({0: (0, 61)})


def test_one_process_compacts_at_a_time(root: Path, table: ManifestTable) -> None:
    with table.compacting(), pytest.raises(TableError, match="another process compacts or repairs it; try again later"):
        compact(ManifestTable(root))
    assert compact(table).replaced == 2 * BATCHES


def test_jobs_and_readers_beside_compactions_lose_and_repeat_nothing(root: Path) -> None:
    table, total = ManifestTable(root), 40
    failed: list[BaseException] = []
    ended = threading.Event()

    def repeat(action: object) -> None:
        try:
            while not ended.is_set():
                action()  # type: ignore[operator]
        except BaseException as error:
            failed.append(error)

    def read_commits() -> None:
        found = rows(read(root))
        assert found == expected({0: (0, len(found))})

    table.commit(batch(table, "A", 0, {0: (0, 1)}))
    compacted = ManifestTable(root)
    threads = [threading.Thread(target=repeat, args=(each,)) for each in (lambda: compact(compacted), read_commits)]
    for thread in threads:
        thread.start()
    for number in range(1, total):
        table.commit(batch(table, "A", number, {0: (number, number + 1)}))
    ended.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert plain_rows(root) == expected({0: (0, total)})
    assert any(each.removed for each in table.commits())


TOPICS = pyarrow.schema([("_topic", pyarrow.string()), ("_offset", pyarrow.int64())])


def write_topics(table: ManifestTable, batch_id: int, directory: str, topics: dict[str, int]) -> None:
    """Commit one file with an offset of each topic."""
    name = f"{directory}part-{batch_id}.parquet"
    writer = AttemptWriter(table.attempts, name, TOPICS, ParquetOptions())
    rows = [{"_topic": topic, "_offset": offset} for topic, offset in topics.items()]
    writer.write(pyarrow.RecordBatch.from_pylist(rows, TOPICS))
    file = writer.finish()
    assert file is not None
    ranges = tuple(CommittedRange(topic, 0, at, at + 1, 1, 0, 0) for topic, at in topics.items())
    spans = tuple(Span(topic, 0, at, at + 1) for topic, at in topics.items())
    table.commit(Batch("A", batch_id, ranges, (file._replace(spans=spans),)))


def test_files_are_divided_by_directory_and_topic(root: Path) -> None:
    table = ManifestTable(root)
    for number in range(3):
        directory = f"date=2026-01-0{1 + number // 2}/"
        write_topics(table, number, directory, {"a": number, "b": number})
    write_topics(table, 3, "date=2026-01-02/", {"a": 3})
    write_topics(table, 4, "date=2026-01-02/", {"a": 4})
    assert compact(table).written == 3
    found = {}
    for file in table.state().files.values():
        content = pyarrow.parquet.read_table(find(root, file.name), partitioning=None)
        found[file.name.partition("/")[0], *sorted(set(content["_topic"].to_pylist()))] = file.spans
    assert found == {
        ("date=2026-01-01", "a"): (Span("a", 0, 0, 2),),
        ("date=2026-01-01", "b"): (Span("b", 0, 0, 2),),
        ("date=2026-01-02", "a"): (Span("a", 0, 3, 5),),
        ("date=2026-01-02", "a", "b"): (Span("a", 0, 2, 3), Span("b", 0, 2, 3)),
    }


def test_groups_are_filled_to_the_target_size() -> None:
    files = [DataFile(f"{number}", size, 1) for number, size in enumerate([40, 40, 40, 90, 70, 20, 20])]
    assert [[each.name for each in group] for group in groups(files, 100)] == [["0", "1"], ["4", "5"]]


def test_spans_are_joined() -> None:
    def file(*spans: Span) -> DataFile:
        return DataFile("x", 1, 1, spans)

    both = [file(Span("b", 0, 5, 9), Span("a", 1, 0, 4)), file(Span("a", 1, 4, 6), Span("a", 0, 4, 6))]
    assert merged_spans(both) == (Span("a", 0, 4, 6), Span("a", 1, 0, 6), Span("b", 0, 5, 9))
    assert merged_spans([*both, file()]) == ()


def test_table_is_opened_from_its_snapshot(root: Path, table: ManifestTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EVERY", 4)
    ManifestTable(root).recover()
    compact(table)
    before = table.state()
    path = max((root / "_commits").glob("*.snapshot"))
    loaded: list[int] = []
    load = ManifestTable._load
    monkeypatch.setattr(ManifestTable, "_load", lambda self, number: [loaded.append(number), load(self, number)][1])
    assert ManifestTable(root).state() == before
    assert loaded[0] == int(path.stem) + 1 == BATCHES + 1
    path.write_bytes(path.read_bytes()[:-5])
    assert ManifestTable(root).state() == before, "a damaged snapshot is ignored"
