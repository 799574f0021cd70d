"""Divides the rows of an attempt by date: one file for each date, in the directories `date=2013-01-31` of a table.

Dates are those of the records in UTC. Spark and DuckDB derive a column `date` from the directories.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyspark_kafkalite.tables.errors import TableError
from pyspark_kafkalite.tables.model import DataFile
from pyspark_kafkalite.tables.parquet_writer import AttemptWriter, ParquetOptions

if TYPE_CHECKING:
    import pyarrow

DATE, NO_PARTITION = "date", "none"
PARTITIONS = (DATE, NO_PARTITION)
OPEN_FILES = 200
"""Dates with an open file; one more closes the file that was not written for the longest time."""

TIME_COLUMN = "_timestamp"
US_PER_DAY = 86_400_000_000
EPOCH = date(1970, 1, 1)
FIRST_DAY, LAST_DAY = (date.min - EPOCH).days, (date.max - EPOCH).days


def directory_of(day: int) -> str:
    """Return the directory of a date.

    Arguments:
        day: number of days since 1970. Days beyond the years 1 to 9999 belong to the first or last day of these.
    """
    return f"{DATE}={(EPOCH + timedelta(days=min(max(day, FIRST_DAY), LAST_DAY))).isoformat()}"


def write_by_date(
    directory: str,
    name: str,
    schema: "pyarrow.Schema",
    batches: Iterable["pyarrow.RecordBatch"],
    options: ParquetOptions,
) -> tuple[DataFile, ...]:
    """Write and flush one file for each date. More than `OPEN_FILES` dates that alternate have several files.

    Arguments:
        directory: `attempts` of a table.
        name: of a file, unique in the table; the files have it with a number.
        schema: of the batches, with `_timestamp` in microseconds.
        batches: they are written as they come.
        options: of Parquet.

    Raises:
        FileExistsError: an attempt has this name. OSError: as of the file system. What `batches` raises.
    """
    stem, written = name.removesuffix(".parquet"), 0
    writers: OrderedDict[int, AttemptWriter] = OrderedDict()
    files: list[DataFile | None] = []
    try:
        for batch in batches:
            for day, rows in _by_day(batch):
                if day not in writers:
                    if len(writers) == OPEN_FILES:
                        files.append(writers.popitem(last=False)[1].finish())
                    numbered = f"{directory_of(day)}/{stem}-{written:04}.parquet"
                    writers[day] = AttemptWriter(directory, numbered, schema, options)
                    written += 1
                writers.move_to_end(day)
                writers[day].write(rows)
        while writers:
            files.append(writers.popitem(last=False)[1].finish())
    except BaseException:
        with ExitStack() as stack:
            for writer in writers.values():
                stack.callback(writer.abandon)
        raise
    return tuple(each for each in files if each is not None)


def _by_day(batch: "pyarrow.RecordBatch") -> Iterator[tuple[int, "pyarrow.RecordBatch"]]:
    """Yield the rows of each day since 1970, in their order."""
    import pyarrow
    from pyarrow import compute

    if not batch.num_rows:
        return
    times = batch.column(TIME_COLUMN).cast(pyarrow.int64())
    days = compute.divide(times, US_PER_DAY)  # towards 0; a midnight before the first time would be beyond 64 bits
    days = compute.subtract(days, compute.less(times, compute.multiply(days, US_PER_DAY)).cast(pyarrow.int64()))
    found = compute.unique(days)
    for day in found:
        yield day.as_py(), batch if len(found) == 1 else batch.filter(compute.equal(days, day))


def check_layout(location: str, files: Sequence[DataFile], partition: str) -> None:
    """Reject a table whose files are divided in another way: readers that derive columns would fail.

    Arguments:
        location: of the table, for errors.
        files: of its commits.
        partition: one of `PARTITIONS`.

    Raises:
        TableError: the table is divided in another way.
    """
    for each in files:
        found = DATE if each.name.startswith(f"{DATE}=") else NO_PARTITION
        if found != partition:
            raise TableError(
                f"table {location}: its files are partitioned by {found}, this job partitions by {partition}; "
                f'set partition to "{found}", or use another directory'
            )
