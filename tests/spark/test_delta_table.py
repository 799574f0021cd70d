"""A Delta table follows the rules of the table of plain Parquet."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow.dataset import dataset
from pyspark_kafkalite.decoding import Decoding
from pyspark_kafkalite.decoding.records import RecordDecoder
from pyspark_kafkalite.ingest.files import DeadLetterFile, write_files
from pyspark_kafkalite.ingest.outcome import batch_of, known_schema
from pyspark_kafkalite.ingest.worker import Written
from pyspark_kafkalite.tables import Batch, CommitRefusedError, DamagedTableError, TableError
from pyspark_kafkalite.tables.ddl import ddl_text, parse_ddl
from pyspark_kafkalite.tables.delta import DeltaOffsetTable
from pyspark_kafkalite.tables.model import CommittedRange, QueryTotal, batch_name, dead_letter_name
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions
from pyspark_kafkalite.tables.partitions import NO_PARTITION
from pyspark_kafkalite.tables.reading import read, read_dead_letters

from kafkalite.model import TopicPartition
from tests.spark.delta_log import remove_earlier_versions
from tests.story.tables.parquet_job import SCHEMA, batch, expected, rows, write
from tests.unit.spark.decoded import records


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


def test_columns_are_added_with_the_first_batch_that_has_them(tmp_path: Path) -> None:
    table = DeltaOffsetTable(tmp_path / "table")
    for number, schema in enumerate((FIRST, GROWN, GROWN)):
        file, ranges = write(table, {0: (number, number + 1)})
        assert table.schema_text() == (None, FIRST, GROWN)[number]
        table.commit(Batch("A", number, ranges, (file,), schema=schema))
        names = [each.name for each in DeltaTable(table.location).schema().fields]
        assert {"id", "_offset"} <= set(names) and ("at" in names) == (number > 0)
    assert in_delta(table) == expected({0: (0, 3)})
    file, ranges = write(table, {0: (3, 4)})
    with pytest.raises(TableError, match=r"column id .*string.* does not have so"):
        table.commit(Batch("A", 3, ranges, (file,), schema="_partition int, _offset bigint, id string"))
    assert in_delta(table) == expected({0: (0, 3)})


FIRST = "_partition int, _offset bigint, id int"
GROWN = f"{FIRST}, at timestamp"


def test_dead_letters_follow_the_commit_also_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaOffsetTable(tmp_path / "table")

    def with_dead_letters(number: int) -> Batch:
        file, ranges = write(table, {0: (number * 10, number * 10 + 8)})
        dead, more = write(table, {0: (number * 10 + 8, number * 10 + 10)})
        letters = (dead._replace(name=dead_letter_name(dead.name)),)
        return Batch("A", number, ranges + more, (file,), dead_letters=letters, dead_rows=2)

    refused = with_dead_letters(5)
    table.commit(with_dead_letters(0))
    with pytest.raises(CommitRefusedError):
        table.commit(refused)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="the process ends here"):
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("the process ends here")))
        table.commit(with_dead_letters(1))
    for reader in (table, DeltaOffsetTable(table.location)):
        assert rows(dataset(reader.dead_letter_files())) == expected({0: (8, 10)}) + expected({0: (18, 20)})
        assert reader.recover().published == (1 if reader is table else 0)
        assert len(list(Path(table.location, "_dead_letters").iterdir())) == 2
    again = with_dead_letters(1)
    assert table.commit(again).repeated
    assert rows(dataset(table.dead_letter_files())) == expected({0: (8, 10)}) + expected({0: (18, 20)})
    assert in_delta(table) == expected({0: (0, 8)}) + expected({0: (10, 18)})


def test_schema_is_known_without_the_history(table: DeltaOffsetTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch needs it twice; the history grows with each one."""
    table.commit(batch(table, "A", 5, {0: (10, 12)})._replace(schema="_partition int, _offset bigint"))
    reads: list[int | None] = []
    history = DeltaTable.history

    def counted(self: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
        reads.append(limit)
        return history(self, limit)

    monkeypatch.setattr(DeltaTable, "history", counted)
    for number in range(6, 9):
        assert table.schema_text() == table.schema_text() == "_partition int, _offset bigint"
        table.commit(batch(table, "A", number, {0: (number * 2, number * 2 + 2)}))
    assert reads and None not in reads
    other = DeltaOffsetTable(table.location)
    assert other.schema_text() == other.schema_text() == "_partition int, _offset bigint"
    assert reads.count(None) == 1, "the history is read when the table is opened"


def test_total_of_a_query_and_the_schema_are_known_after_the_log_has_expired(tmp_path: Path) -> None:
    table = DeltaOffsetTable(tmp_path / "table")
    for number in range(4):
        file, ranges = write(table, {0: (number * 5, number * 5 + 5)})
        table.commit(Batch("A", number, ranges, (file,), schema=None if number else GROWN))
    schema = table.schema_text()
    remove_earlier_versions(table.location)
    reopened = DeltaOffsetTable(table.location)
    assert [each.sequence for each in reopened.commits()] == [3] and schema is not None
    last = reopened.last_commit()
    assert last is not None and last.total == QueryTotal(20, 4)
    known, columns = (
        dict(each.split(" ", 1) for each in text.split(", ")) for text in (reopened.schema_text() or "", schema)
    )
    assert columns.items() <= known.items() and known.keys() - columns.keys() == {"_topic", "_timestamp"}
    file, ranges = write(reopened, {0: (20, 21)})
    reopened.commit(Batch("B", 0, ranges, (file,), schema=reopened.schema_text(), resumes=3))
    last = reopened.last_commit()
    assert last is not None and last.total == QueryTotal(1, 1)
    assert in_delta(reopened) == expected({0: (0, 21)})


@pytest.mark.parametrize("schemas", [("id int", "id int, name string"), (None, None)])
def test_decoded_records_and_dead_letters_of_ingest(tmp_path: Path, schemas: tuple[str | None, ...]) -> None:
    table = DeltaOffsetTable(tmp_path / "table")
    for number, schema in enumerate(schemas):
        decoding = Decoding(value="raw" if schema is None else "json", schema=schema, budget=0.5)
        known = known_schema(table)
        decoder = RecordDecoder(decoding, None if known is None else parse_ddl(known))
        values = [b'{"id":%d,"name":"n"}' % each if each else b"{" for each in range(4)]
        with DeadLetterFile(table.attempts, batch_name("A", number), ParquetOptions()) as dead:
            decoded = decoder.decode(records(values))
            if decoded.dead is not None:
                dead.write(decoded.dead)
            files = write_files(table.attempts, batch_name("A", number), [decoded.rows], ParquetOptions(), NO_PARTITION)
        ranges = (CommittedRange("orders", 3, number * 4, number * 4 + 4, 4, 0, 1),)
        one = Written(files, ranges, {}, dead.files, ddl_text(decoded.rows.schema), dict(decoder.causes))
        table.commit(batch_of("A", number, [Written.from_text(one.to_text())], decoding, known))
    found = DeltaTable(table.location).to_pyarrow_table().to_pydict()
    if schemas[0] is None:
        assert found["value"] == values * 2 and table.dead_letter_files() == []
        return
    pairs = Counter(zip(found["id"], found["name"], strict=True))
    assert pairs == Counter((each, name) for each in (1, 2, 3) for name in (None, "n"))
    letters = read_dead_letters(table).to_table()
    assert (letters["value"].to_pylist(), letters["cause"].to_pylist()) == ([b"{"] * 2, ["json"] * 2)
