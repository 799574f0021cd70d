"""The files that one task writes: rows of the table, and dead letters."""

import uuid
from collections.abc import Iterable
from itertools import groupby
from typing import Self

import pyarrow

from pyspark_kafkalite.tables.columns import DEAD_LETTER_SCHEMA
from pyspark_kafkalite.tables.model import DataFile, dead_letter_name
from pyspark_kafkalite.tables.parquet_writer import AttemptWriter, ParquetOptions, write_attempt
from pyspark_kafkalite.tables.partitions import DATE, write_by_date


def write_files(
    directory: str, batch: str, batches: Iterable[pyarrow.RecordBatch], options: ParquetOptions, partition: str
) -> tuple[DataFile, ...]:
    """Write rows of a table to a file, or one for each date; to other ones from a batch on that has more columns.

    Arguments:
        directory: `attempts` of the table.
        batch: for the names of the files, see `batch_name`.
        batches: they are written as they come.
        options: of Parquet.
        partition: one of `PARTITIONS`.

    Raises:
        OSError: as of the file system. What `batches` raises.
    """
    files: list[DataFile] = []
    for schema, same in groupby(batches, lambda each: each.schema):
        name = _name("part", batch)
        if partition == DATE:
            files += write_by_date(directory, name, schema, same, options)
        elif (file := write_attempt(directory, name, schema, same, options)) is not None:
            files.append(file)
    return tuple(files)


class DeadLetterFile:
    """The dead letters of a task: a file if there are any. It is a context manager.

    Arguments:
        directory: `attempts` of the table.
        batch: for the name of the file, see `batch_name`.
        options: of Parquet.

    Attributes:
        files: the flushed file with its name in the table, after the context.
    """

    def __init__(self, directory: str, batch: str, options: ParquetOptions) -> None:
        self.files: tuple[DataFile, ...] = ()
        self._arguments = (directory, _name("dead", batch), DEAD_LETTER_SCHEMA, options)
        self._writer: AttemptWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._writer is None:
            return
        if error is not None:
            self._writer.abandon()
        elif (file := self._writer.finish()) is not None:
            self.files = (file._replace(name=dead_letter_name(file.name)),)

    def write(self, rows: pyarrow.RecordBatch) -> None:
        """Append rows of DEAD_LETTER_SCHEMA. Raises OSError."""
        if self._writer is None:
            self._writer = AttemptWriter(*self._arguments)
        self._writer.write(rows)


def _name(kind: str, batch: str) -> str:
    return f"{kind}-{batch}-{uuid.uuid4().hex}.parquet"
