"""An Iceberg table follows the rules of the table of plain Parquet."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow.dataset import dataset
from pyiceberg.catalog import Catalog, load_catalog
from pyspark_kafkalite.tables import Batch, CommitRefusedError, DamagedTableError, TableError
from pyspark_kafkalite.tables.iceberg import RETRIES, IcebergOffsetTable
from pyspark_kafkalite.tables.model import dead_letter_name
from pyspark_kafkalite.tables.reading import read

from kafkalite.model import TopicPartition
from tests.spark.ingest_job import IngestJob
from tests.story.tables.parquet_job import SCHEMA, batch, expected, rows, write

NAME = "shop.orders"
FIRST = "_partition int, _offset bigint, id int"
GROWN = f"{FIRST}, at timestamp"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog in SQLite."""
    return load_catalog("test", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")


@pytest.fixture
def table(catalog: Catalog) -> IcebergOffsetTable:
    """A table with one batch of query A: partition 0 up to offset 10, partition 1 from 5 up to 8."""
    created = IcebergOffsetTable(catalog, NAME)
    created.commit(batch(created, "A", 0, {0: (0, 4), 1: (5, 8)}, {0: (4, 10)}))
    return created


def in_iceberg(catalog: Catalog) -> Any:
    return rows(dataset(catalog.load_table(NAME).scan().to_arrow()))


def snapshots(catalog: Catalog) -> int:
    return len(catalog.load_table(NAME).snapshots())


def test_commit_adds_rows_and_offsets(catalog: Catalog, table: IcebergOffsetTable) -> None:
    assert in_iceberg(catalog) == rows(read(table)) == expected({0: (0, 10), 1: (5, 8)})
    reopened = IcebergOffsetTable(catalog, NAME)
    assert reopened.end_offsets() == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 8}


def test_attempts_are_invisible_until_their_commit(catalog: Catalog, table: IcebergOffsetTable) -> None:
    before = in_iceberg(catalog)
    waiting = batch(table, "A", 1, {0: (10, 20)})
    assert in_iceberg(catalog) == before
    table.commit(waiting)
    assert in_iceberg(catalog) == before + expected({0: (10, 20)})


def test_repeated_batch_is_skipped_also_behind_later_ones(catalog: Catalog, table: IcebergOffsetTable) -> None:
    table.commit(batch(table, "A", 1, {0: (10, 20)}))
    before = in_iceberg(catalog), snapshots(catalog)
    for batch_id, offsets in ((0, {0: (0, 10), 1: (5, 8)}), (1, {0: (10, 20)})):
        again = batch(table, "A", batch_id, offsets)
        assert table.commit(again) == (batch_id, True)
        assert not Path(table.location, again.files[0].name).exists()
    assert (in_iceberg(catalog), snapshots(catalog)) == before


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
    catalog: Catalog,
    table: IcebergOffsetTable,
    reason: str,
    query_id: str,
    batch_id: int,
    offsets: dict[int, tuple[int, int]],
) -> None:
    with pytest.raises(CommitRefusedError) as raised:
        table.commit(batch(table, query_id, batch_id, offsets))
    assert (raised.value.reason, snapshots(catalog)) == (reason, 1)


@pytest.mark.parametrize("query_id", ["A", "B"])
@pytest.mark.parametrize("retries", ["0", "4"])
def test_of_two_writers_at_one_snapshot_one_commits(
    catalog: Catalog, table: IcebergOffsetTable, monkeypatch: pytest.MonkeyPatch, query_id: str, retries: str
) -> None:
    """The other writer commits between the check and the commit of this one; another client has set the retries."""
    catalog.load_table(NAME).transaction().set_properties({RETRIES: retries}).commit_transaction()
    create = IcebergOffsetTable._create
    last = table.last_commit()
    assert last is not None
    mine = batch(table, "A", 1, {0: (10, 14)})
    other = batch(table, query_id, 2, {1: (8, 9)} if query_id == "B" else {0: (10, 12)}, resumes=last.sequence)

    def interrupted(self: IcebergOffsetTable, opened: Any, commit: Any) -> None:
        monkeypatch.setattr(IcebergOffsetTable, "_create", create)
        table.commit(other)
        create(self, opened, commit)

    monkeypatch.setattr(IcebergOffsetTable, "_create", interrupted)
    with pytest.raises(CommitRefusedError):
        table.commit(mine)
    assert in_iceberg(catalog).total() == 13 + other.files[0].rows


def test_snapshots_of_others_are_between_ours(catalog: Catalog, table: IcebergOffsetTable) -> None:
    columns = catalog.load_table(NAME).schema().as_arrow()
    other = pyarrow.Table.from_pylist([{"_partition": 7, "_offset": 0}], columns)
    catalog.load_table(NAME).append(other)
    table.commit(batch(table, "A", 1, {0: (10, 20)}))
    assert in_iceberg(catalog) == expected({0: (0, 20), 1: (5, 8), 7: (0, 1)})
    assert [each.batch_id for each in table.commits()] == [0, 1]


def test_table_that_was_rolled_back_continues_there(catalog: Catalog, table: IcebergOffsetTable) -> None:
    first = catalog.load_table(NAME).current_snapshot()
    assert first is not None
    table.commit(batch(table, "A", 1, {0: (10, 20)}))
    catalog.load_table(NAME).manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    table.commit(batch(table, "A", 1, {0: (10, 12)}))
    assert in_iceberg(catalog) == expected({0: (0, 12), 1: (5, 8)})


def test_commits_that_have_expired_are_named(catalog: Catalog, table: IcebergOffsetTable) -> None:
    """Without the error the table would begin again, and contain its records twice."""
    before = catalog.load_table(NAME)
    before.append(pyarrow.Table.from_pylist([{"_partition": 7, "_offset": 0}], before.schema().as_arrow()))
    snapshot = before.snapshots()[0]
    catalog.load_table(NAME).maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    with pytest.raises(DamagedTableError, match="commit 0 of kafkalite is in no snapshot any more"):
        table.commit(batch(table, "A", 1, {0: (10, 20)}))


def test_schema_is_known_after_the_snapshot_with_it_has_expired(catalog: Catalog) -> None:
    table = IcebergOffsetTable(catalog, NAME)
    for number in range(3):
        file, ranges = write(table, {0: (number, number + 1)})
        table.commit(Batch("A", number, ranges, (file,), schema=None if number else GROWN))
    snapshots = catalog.load_table(NAME).snapshots()
    catalog.load_table(NAME).maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in snapshots[:2]]
    ).commit()
    known = IcebergOffsetTable(catalog, NAME).schema_text()
    assert known is not None and set(GROWN.split(", ")) <= set(known.split(", "))
    last = table.last_commit()
    assert last is not None and last.total == (3, 3)


def test_missing_attempt_and_other_names_are_named(catalog: Catalog, table: IcebergOffsetTable) -> None:
    lost = batch(table, "A", 1, {0: (10, 20)})
    Path(table.location, lost.files[0].name).unlink()
    with pytest.raises(DamagedTableError, match="has no file, expected"):
        table.commit(lost)
    with pytest.raises(TableError, match=r"table orders: expected NAMESPACE\.TABLE"):
        IcebergOffsetTable(catalog, "orders")


def test_columns_are_added_with_the_first_batch_that_has_them(catalog: Catalog) -> None:
    table = IcebergOffsetTable(catalog, NAME)
    for number, schema in enumerate((FIRST, GROWN, GROWN)):
        file, ranges = write(table, {0: (number, number + 1)})
        assert table.schema_text() == (None, FIRST, GROWN)[number]
        table.commit(Batch("A", number, ranges, (file,), schema=schema))
        names = {each.name for each in catalog.load_table(NAME).schema().fields}
        assert {"id", "_offset"} <= names and ("at" in names) == (number > 0)
    assert in_iceberg(catalog) == expected({0: (0, 3)})
    file, ranges = write(table, {0: (3, 4)})
    for text in ("id string", "id int, at array<int>"):
        with pytest.raises(TableError, match=r"the columns of the batch do not fit: .*(id|at)"):
            table.commit(Batch("A", 3, ranges, (file,), schema=f"_partition int, _offset bigint, {text}"))
    assert in_iceberg(catalog) == expected({0: (0, 3)})


def test_dead_letters_follow_the_commit_also_after_a_crash(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = IcebergOffsetTable(catalog, NAME)
    file, ranges = write(table, {0: (0, 8)})
    dead, more = write(table, {0: (8, 10)})
    letters = (dead._replace(name=dead_letter_name(dead.name)),)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="the process ends here"):
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("the process ends here")))
        table.commit(Batch("A", 0, ranges + more, (file,), dead_letters=letters, dead_rows=2))
    for reader in (table, IcebergOffsetTable(catalog, NAME)):
        assert rows(dataset(reader.dead_letter_files(), SCHEMA)) == expected({0: (8, 10)})
        assert reader.recover().published == (1 if reader is table else 0)
    assert in_iceberg(catalog) == expected({0: (0, 8)})


def test_batch_without_a_record_is_committed(catalog: Catalog, table: IcebergOffsetTable) -> None:
    """All its offsets are those of control batches, or its records were dead letters."""
    file, ranges = write(table, {0: (10, 11)})
    Path(table.location, file.name).unlink()
    table.commit(Batch("A", 1, tuple(each._replace(rows=0) for each in ranges), ()))
    assert table.end_offsets()[TopicPartition("orders", 0)] == 11
    assert in_iceberg(catalog) == expected({0: (0, 10), 1: (5, 8)})


def test_topic_is_copied_to_iceberg_exactly_once(job: IngestJob, catalog: Catalog) -> None:
    for _ in range(2):
        job.run(table=IcebergOffsetTable(catalog, NAME))
        found = catalog.load_table(NAME).scan().to_arrow()
        assert sorted(found["value"].to_pylist()) == sorted(b"%d" % number for number in range(job.sent))
        job.send(20)
