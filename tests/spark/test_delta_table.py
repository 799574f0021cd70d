"""A Delta table follows the rules of the table of plain Parquet."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark_kafkalite.tables import CommitRefusedError, DamagedTableError, TableError
from pyspark_kafkalite.tables.delta import DeltaOffsetTable
from pyspark_kafkalite.tables.reading import read

from kafkalite.model import TopicPartition
from tests.story.tables.parquet_job import SCHEMA, batch, expected, rows


@pytest.fixture
def table(tmp_path: Path) -> DeltaOffsetTable:
    """A table with one batch of query A: partition 0 up to offset 10, partition 1 from 5 up to 8."""
    created = DeltaOffsetTable(tmp_path / "table", SCHEMA)
    created.commit(batch(created, "A", 0, {0: (0, 4), 1: (5, 8)}, {0: (4, 10)}))
    return created


def in_delta(table: DeltaOffsetTable) -> Any:
    return rows(DeltaTable(table.location).to_pyarrow_dataset())


def test_commit_adds_rows_and_offsets(table: DeltaOffsetTable) -> None:
    assert in_delta(table) == rows(read(table)) == expected({0: (0, 10), 1: (5, 8)})
    reopened = DeltaOffsetTable(table.location, SCHEMA)
    assert reopened.end_offsets() == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 8}
    assert DeltaTable(table.location).transaction_version("A") == 0


def test_attempts_are_invisible_until_their_commit(table: DeltaOffsetTable) -> None:
    before = in_delta(table)
    waiting = batch(table, "A", 1, {0: (10, 20)})
    assert in_delta(table) == before
    table.commit(waiting)
    assert in_delta(table) == before + expected({0: (10, 20)})


def test_repeated_batch_is_skipped_also_behind_later_ones(table: DeltaOffsetTable) -> None:
    table.commit(batch(table, "A", 1, {0: (10, 20)}))
    before, version = in_delta(table), DeltaTable(table.location).version()
    for batch_id, offsets in ((0, {0: (0, 10), 1: (5, 8)}), (1, {0: (10, 20)})):
        again = batch(table, "A", batch_id, offsets)
        assert table.commit(again) == (batch_id, True)
        assert not Path(table.location, again.files[0].name).exists()
    assert (in_delta(table), DeltaTable(table.location).version()) == (before, version)


@pytest.mark.parametrize(
    ("reason", "query_id", "batch_id", "offsets"),
    [
        ("gap", "A", 1, {0: (12, 20)}),
        ("overlap", "A", 1, {0: (9, 20)}),
        ("owner", "B", 0, {0: (10, 20)}),
        ("batch", "A", 0, {0: (10, 20)}),
    ],
)
def test_batch_that_does_not_continue_the_table_is_refused(
    table: DeltaOffsetTable, reason: str, query_id: str, batch_id: int, offsets: dict[int, tuple[int, int]]
) -> None:
    version = DeltaTable(table.location).version()
    with pytest.raises(CommitRefusedError) as raised:
        table.commit(batch(table, query_id, batch_id, offsets))
    assert (raised.value.reason, DeltaTable(table.location).version()) == (reason, version)


@pytest.mark.parametrize("query_id", ["A", "B"])
def test_of_two_writers_at_one_version_one_commits(
    table: DeltaOffsetTable, monkeypatch: pytest.MonkeyPatch, query_id: str
) -> None:
    """The other writer commits between the check and the commit of this one."""
    create = DeltaOffsetTable._create
    last = table.last_commit()
    assert last is not None
    mine = batch(table, "A", 1, {0: (10, 14)})
    other = batch(table, query_id, 2, {1: (8, 9)} if query_id == "B" else {0: (10, 12)}, resumes=last.sequence)

    def interrupted(self: DeltaOffsetTable, opened: DeltaTable, commit: Any) -> None:
        monkeypatch.setattr(DeltaOffsetTable, "_create", create)
        table.commit(other)
        create(self, opened, commit)

    monkeypatch.setattr(DeltaOffsetTable, "_create", interrupted)
    with pytest.raises(CommitRefusedError):
        table.commit(mine)
    assert in_delta(table).total() == 13 + other.files[0].rows


def test_commits_of_others_are_between_ours(table: DeltaOffsetTable) -> None:
    table.commit(batch(table, "A", 1, {0: (10, 20)}))
    DeltaTable(table.location).optimize.compact()
    table.commit(batch(table, "A", 2, {0: (20, 21)}))
    assert in_delta(table) == expected({0: (0, 21), 1: (5, 8)})


def test_missing_attempt_and_other_columns_are_named(table: DeltaOffsetTable) -> None:
    lost = batch(table, "A", 1, {0: (10, 20)})
    Path(table.location, lost.files[0].name).unlink()
    with pytest.raises(DamagedTableError, match="has no file, expected"):
        table.commit(lost)
    with pytest.raises(TableError, match="its columns are _partition, _offset, expected _partition"):
        DeltaOffsetTable(table.location, SCHEMA.remove(1))
