"""A table of plain Parquet as its readers and writers see it."""

import errno
import json
import os
from pathlib import Path

import pytest
from pyspark_kafkalite.tables import (
    CommitRefusedError,
    DamagedTableError,
    Gap,
    ManifestTable,
    TableError,
    UnsupportedFileSystemError,
)
from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.model import batch_name
from pyspark_kafkalite.tables.reading import read

from kafkalite.model import TopicPartition
from tests.story.tables.parquet_job import batch, expected, files, plain_rows, rows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def table(root: Path) -> ManifestTable:
    """A table with one batch of query A: partition 0 up to offset 10, partition 1 from 5 up to 8."""
    created = ManifestTable(root)
    created.commit(batch(created, "A", 0, {0: (0, 4), 1: (5, 8)}, {0: (4, 10)}))
    return created


def test_commit_publishes_all_files_and_the_offsets(root: Path, table: ManifestTable) -> None:
    assert plain_rows(root) == rows(read(root)) == expected({0: (0, 10), 1: (5, 8)})
    assert ManifestTable(root).end_offsets() == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 8}
    (written,) = [json.loads(each.read_bytes()) for each in (root / "_commits").iterdir()]
    assert (written["query_id"], written["batch_id"], len(written["files"])) == ("A", 0, 2)
    assert written["ranges"][0] == {
        "topic": "orders",
        "partition": 0,
        "start": 0,
        "end": 10,
        "rows": 10,
        "min_timestamp_ms": 0,
        "max_timestamp_ms": 1,
    }
    assert os.listdir(root / "_attempts") == []


def test_attempts_are_invisible_until_their_commit(root: Path, table: ManifestTable) -> None:
    before = plain_rows(root)
    waiting = batch(table, "A", 1, {0: (10, 20)})
    assert plain_rows(root) == rows(read(root)) == before
    table.commit(waiting)
    assert plain_rows(root) == before + expected({0: (10, 20)})


def test_repeated_batch_is_skipped_and_its_files_are_removed(root: Path, table: ManifestTable) -> None:
    before = files(root)
    for opened in (table, ManifestTable(root)):
        result = opened.commit(batch(opened, "A", 0, {0: (0, 10)}, {1: (5, 8)}))
        assert result == (0, True)
        assert files(root) == before


def test_commit_removes_the_attempts_of_failed_tasks_of_its_query(root: Path, table: ManifestTable) -> None:
    """They stay if another query, or a later batch, may still commit them."""
    batches = [batch(table, query, number, {0: (10, 12)}) for query, number in (("A", 0), ("A", 1), ("A", 2), ("B", 0))]
    dead = root / "_attempts" / f"dead-{batch_name('A', 1)}-failed.parquet"
    dead.write_bytes(b"unfinished")
    names = [each.files[0].name for each in batches]
    table.commit(batch(table, "A", 1, {0: (10, 14)}))
    assert sorted(os.listdir(root / "_attempts")) == sorted(names[2:])
    late = batch(table, "A", 1, {0: (10, 12)}).files[0].name  # a speculative task that ends after the commit
    table.commit(batch(table, "A", 2, {0: (14, 15)}))
    assert os.listdir(root / "_attempts") == [names[3]] and late not in names
    assert plain_rows(root) == expected({0: (0, 15), 1: (5, 8)})


def test_partition_that_is_new_may_begin_anywhere(root: Path, table: ManifestTable) -> None:
    table.commit(batch(table, "A", 1, {2: (100, 103)}))
    assert plain_rows(root) == expected({0: (0, 10), 1: (5, 8), 2: (100, 103)})


def test_batch_without_offsets_creates_no_commit(root: Path, table: ManifestTable) -> None:
    before = files(root)
    assert table.commit(batch(table, "A", 1)) == (-1, False)
    assert files(root) == before


REFUSED = [
    ("gap", "A", 1, {0: (12, 20)}, "ends at 10: offsets 10 to 11 are missing.*allow_gaps=True"),
    ("overlap", "A", 1, {0: (9, 20)}, "begins orders-0 at offset 9, but the table ends at 10.*there twice"),
    ("owner", "B", 0, {0: (10, 20)}, "query A writes to it.*resume_from_table=True"),
    ("owner", "B", 0, {2: (0, 3)}, "query A writes to it.*stop one of them"),
    ("batch", "A", 0, {0: (10, 20)}, r"batch 0 of query A was committed with other offsets: orders-0 \[0, 10\)"),
    ("batch", "A", 0, {0: (0, 10)}, "resume_from_table=True"),
]


@pytest.mark.parametrize(("reason", "query_id", "batch_id", "offsets", "text"), REFUSED)
def test_batch_that_does_not_continue_the_table_changes_nothing(
    root: Path,
    table: ManifestTable,
    reason: str,
    query_id: str,
    batch_id: int,
    offsets: dict[int, tuple[int, int]],
    text: str,
) -> None:
    refused = batch(table, query_id, batch_id, offsets)
    before = files(root)
    with pytest.raises(CommitRefusedError, match=text) as raised:
        table.commit(refused)
    assert (raised.value.reason, files(root)) == (reason, before)


def test_splits_that_are_not_adjacent_are_refused(root: Path, table: ManifestTable) -> None:
    for lost in ({0: (12, 20)}, {0: (10, 13)}):
        refused = batch(table, "A", 1, {0: (10, 11)}, lost)
        with pytest.raises(CommitRefusedError, match="not adjacent"):
            table.commit(refused)


def test_lost_offsets_are_recorded_when_they_are_allowed(root: Path, table: ManifestTable) -> None:
    table.commit(batch(table, "A", 1, {0: (12, 20)}, allow_gaps=True))
    assert [each.gaps for each in ManifestTable(root).commits()] == [(), (Gap("orders", 0, 10, 12),)]


def test_query_with_a_new_checkpoint_resumes_from_the_table(root: Path, table: ManifestTable) -> None:
    """The old query is refused from then on, even if it comes back with offsets that fit."""
    resumes = table.commits()[-1].sequence
    ends = table.end_offsets()
    start = ends[TopicPartition("orders", 0)]
    table.commit(batch(table, "B", 0, {0: (start, start + 5)}, resumes=resumes))
    table.commit(batch(table, "B", 1, {0: (start + 5, start + 6)}, resumes=resumes))
    with pytest.raises(CommitRefusedError, match="query B writes to it"):
        table.commit(batch(table, "A", 1, {0: (16, 17)}))
    assert plain_rows(root) == expected({0: (0, 16), 1: (5, 8)})


def test_resuming_query_is_refused_if_the_old_one_still_commits(root: Path, table: ManifestTable) -> None:
    resumes = table.commits()[-1].sequence
    table.commit(batch(table, "A", 1, {1: (8, 9)}))
    with pytest.raises(CommitRefusedError, match="It has committed since query B was started"):
        table.commit(batch(table, "B", 0, {0: (10, 11)}, resumes=resumes))


class Interrupting(Disk):
    """Has another writer commit just before this one creates its commit."""

    def __init__(self) -> None:
        self.other: list[object] = []

    def link(self, source: Path, target: Path) -> None:
        if target.parent.name == "_commits" and self.other:
            commit, committed = self.other
            self.other = []
            commit(committed)  # type: ignore[operator]
        super().link(source, target)


def test_of_two_writers_at_one_moment_one_commits(root: Path, table: ManifestTable) -> None:
    disk = Interrupting()
    slower = ManifestTable(root, disk=disk)
    disk.other = [table.commit, batch(table, "A", 1, {0: (10, 14)})]
    with pytest.raises(CommitRefusedError, match="records would be there twice"):
        slower.commit(batch(slower, "A", 2, {0: (10, 12)}))
    assert plain_rows(root) == expected({0: (0, 14), 1: (5, 8)})


def test_same_batch_of_two_incarnations_is_committed_once(root: Path, table: ManifestTable) -> None:
    disk = Interrupting()
    slower = ManifestTable(root, disk=disk)
    disk.other = [table.commit, batch(table, "A", 1, {0: (10, 14)})]
    assert slower.commit(batch(slower, "A", 1, {0: (10, 14)})) == (1, True)
    assert plain_rows(root) == expected({0: (0, 14), 1: (5, 8)})
    assert os.listdir(root / "_attempts") == []


class Unpublished(Disk):
    """Has no space for the names of published files."""

    def link(self, source: Path, target: Path) -> None:
        if target.suffix == ".parquet" and source.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().link(source, target)


def test_reader_of_the_commits_sees_a_batch_before_it_is_published(root: Path, table: ManifestTable) -> None:
    failing = ManifestTable(root, disk=Unpublished())
    with pytest.raises(OSError, match="No space left"):
        failing.commit(batch(failing, "A", 1, {0: (10, 14)}))
    before = expected({0: (0, 10), 1: (5, 8)})
    assert (plain_rows(root), rows(read(root))) == (before, before + expected({0: (10, 14)}))
    assert ManifestTable(root).recover() == (1, 0)
    assert plain_rows(root) == before + expected({0: (10, 14)})


def test_recovery_removes_attempts_that_no_commit_needs(root: Path, table: ManifestTable) -> None:
    lost = batch(table, "A", 1, {0: (10, 14)}, {0: (14, 15)})
    before = plain_rows(root)
    assert ManifestTable(root).recover() == (0, 2)
    assert os.listdir(root / "_attempts") == []
    with pytest.raises(DamagedTableError, match=r"no file, expected .* bytes; another writer has recovered the table"):
        table.commit(lost)
    assert plain_rows(root) == before


class WithoutLinks(Disk):
    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_file_system_without_hard_links_is_rejected(root: Path) -> None:
    with pytest.raises(UnsupportedFileSystemError, match=r"no hard links.*Delta"):
        ManifestTable(root, disk=WithoutLinks())
    with pytest.raises(UnsupportedFileSystemError, match=r"s3 has no hard links, expected a directory"):
        ManifestTable("s3://bucket/table")
    assert not (root / "_attempts").exists() or os.listdir(root / "_attempts") == []


def test_directory_with_files_of_others_is_rejected(root: Path) -> None:
    (root / "2013").mkdir(parents=True)
    (root / "2013" / "x.parquet").write_bytes(b"")
    with pytest.raises(TableError, match=r"2013/x.parquet belongs to no commit"):
        ManifestTable(root)


def test_missing_table_is_not_created_by_a_reader(root: Path) -> None:
    with pytest.raises(TableError, match="not a table of kafkalite"):
        read(root)
    assert not root.exists()


def test_missing_or_damaged_commit_is_named(root: Path, table: ManifestTable) -> None:
    table.commit(batch(table, "A", 1, {0: (10, 14)}))
    first = root / "_commits" / "00000000000000000000.json"
    content = first.read_bytes()
    first.unlink()
    with pytest.raises(DamagedTableError, match=r"0000.json is missing, but 00000000000000000001.json exists"):
        ManifestTable(root)
    for damaged in (content[:-1], b"[]", content.replace(b'"ranges"', b'"other"')):
        first.write_bytes(damaged)
        with pytest.raises(DamagedTableError, match="cannot be read"):
            ManifestTable(root)
    first.write_bytes(content.replace(b'"format":1', b'"format":2'))
    with pytest.raises(DamagedTableError, match="format 2, this version of kafkalite reads 1"):
        ManifestTable(root)


def test_missing_file_of_the_last_commit_is_named(root: Path, table: ManifestTable) -> None:
    published = next(root.glob("*.parquet"))
    published.unlink()
    with pytest.raises(DamagedTableError, match=f"file {published.name} of its last commit is missing"):
        ManifestTable(root).recover()


def test_rows_of_ranges_and_files_must_agree(root: Path, table: ManifestTable) -> None:
    good = batch(table, "A", 1, {0: (10, 14)})
    with pytest.raises(ValueError, match="4 rows in its ranges, but 3 in its files"):
        table.commit(good._replace(files=(good.files[0]._replace(rows=3),)))
