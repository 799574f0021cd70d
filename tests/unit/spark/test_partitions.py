"""Rows of an attempt are divided by date."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark_kafkalite.tables import DataFile, TableError
from pyspark_kafkalite.tables import partitions as module
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions
from pyspark_kafkalite.tables.partitions import US_PER_DAY, check_layout, directory_of, write_by_date

SCHEMA = pyarrow.schema([("_timestamp", pyarrow.timestamp("us", "UTC")), ("value", pyarrow.int64())])


def batch(*rows: tuple[int, int]) -> pyarrow.RecordBatch:
    times = pyarrow.array([time for time, _ in rows], pyarrow.int64()).cast(SCHEMA.types[0])
    return pyarrow.RecordBatch.from_arrays([times, pyarrow.array([value for _, value in rows])], schema=SCHEMA)


def written(directory: Path, *batches: pyarrow.RecordBatch) -> list[tuple[str, list[int]]]:
    """The directory and the values of each file, in the order in which they were finished."""
    files = write_by_date(str(directory), "part-1.parquet", SCHEMA, batches, ParquetOptions())
    found = []
    for each in files:
        path = directory / Path(each.name).name
        table = pyarrow.parquet.read_table(path)
        assert (each.bytes, each.rows) == (path.stat().st_size, len(table))
        found.append((each.name.split("/")[0], table["value"].to_pylist()))
    assert len(list(directory.iterdir())) == len(files)
    return found


def test_each_date_has_one_file_with_its_rows_in_order(tmp_path: Path) -> None:
    day = US_PER_DAY
    first = batch((0, 1), (day, 2), (day - 1, 3), (-1, 4))
    assert sorted(written(tmp_path, first, batch(), batch((2 * day - 1, 5), (5, 6)))) == [
        ("date=1969-12-31", [4]),
        ("date=1970-01-01", [1, 3, 6]),
        ("date=1970-01-02", [2, 5]),
    ]


def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_FILES", 2)
    day = US_PER_DAY
    assert written(tmp_path, batch((0, 1)), batch((day, 2)), batch((1, 3)), batch((2 * day, 4)), batch((day, 5))) == [
        ("date=1970-01-02", [2]),
        ("date=1970-01-01", [1, 3]),
        ("date=1970-01-03", [4]),
        ("date=1970-01-02", [5]),
    ]


def test_dates_beyond_the_calendar_have_its_last_day() -> None:
    assert (directory_of(47_481), directory_of(10**9)) == ("date=2099-12-31", "date=9999-12-31")


def test_files_are_closed_after_an_error(tmp_path: Path) -> None:
    def batches() -> Iterator[pyarrow.RecordBatch]:
        yield batch((0, 1), (US_PER_DAY, 1))
        raise OSError("no space left")

    opened = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no space left"):
        write_by_date(str(tmp_path), "part-1.parquet", SCHEMA, batches(), ParquetOptions())
    assert set(os.listdir("/proc/self/fd")) == opened and len(list(tmp_path.iterdir())) == 2


def test_table_with_another_layout_is_rejected() -> None:
    by_date, plain = DataFile("date=2013-01-01/a.parquet", 1, 1), DataFile("a.parquet", 1, 1)
    check_layout("orders", [by_date], "date")
    check_layout("orders", [plain], "none")
    with pytest.raises(TableError, match='partitioned by none, this job partitions by date; set partition to "none"'):
        check_layout("orders", [plain], "date")
    with pytest.raises(TableError, match="partitioned by date, this job partitions by none"):
        check_layout("orders", [by_date], "none")


def test_first_and_last_times_belong_to_the_first_and_last_date(tmp_path: Path) -> None:
    first, last = -9_223_372_036_854_775_000, 9_223_372_036_854_775_000
    assert sorted(written(tmp_path, batch((first, 1), (last, 2), (-US_PER_DAY - 1, 3)))) == [
        ("date=0001-01-01", [1]),
        ("date=1969-12-30", [3]),
        ("date=9999-12-31", [2]),
    ]
