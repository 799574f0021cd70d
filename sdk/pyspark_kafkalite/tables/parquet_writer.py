"""Writes the Parquet file of an attempt. Runs in the workers; needs pyarrow."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafkalite.tables.dictionaries import dictionary_columns
from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.model import DataFile

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

COMPRESSIONS = ("none", "snappy", "lz4", "zstd")
BUFFER_BYTES = 65536
"""Of a file: small pages are written together."""


class ParquetOptions(NamedTuple):
    """How a file is written.

    Attributes:
        compression: one of `COMPRESSIONS`.
        level: of zstd; None = that of pyarrow, 1.
    """

    compression: str = "zstd"
    level: int | None = None


class AttemptWriter:
    """Writes one file, batch by batch.

    Arguments:
        directory: `attempts` of a table.
        name: that the file will have in the table; its last part is unique in the table.
        schema: of the batches.
        options: of Parquet.
        disk: file operations; another one in tests.

    Raises:
        FileExistsError: an attempt has this name. OSError: as of the file system.
    """

    def __init__(
        self, directory: str, name: str, schema: "pyarrow.Schema", options: ParquetOptions, disk: Disk | None = None
    ) -> None:
        import pyarrow

        self._disk = disk or Disk()
        self._name = name
        self._path = Path(directory, Path(name).name)
        self._schema = schema
        self._options = options
        self._rows = 0
        with open(self._path, "xb"):  # Arrow does not create a file exclusively
            self._file = pyarrow.OSFile(str(self._path), "wb")
        self._sink = pyarrow.BufferedOutputStream(self._file, BUFFER_BYTES)  # Python's file would copy each page
        self._writer: parquet.ParquetWriter | None = None

    def write(self, batch: "pyarrow.RecordBatch") -> None:
        """Append rows."""
        if not batch.num_rows:
            return
        if self._writer is None:
            self._writer = self._open(batch)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> DataFile | None:
        """Write the end of the file and flush it. Returns the file; None = there are no rows and no file."""
        with self._sink:
            self._end()
            if not self._rows:
                self._disk.remove(self._path)
                return None
            self._sink.flush()
            self._disk.flush_file(self._file, self._path)
            size = self._file.tell()
        self._disk.flush_directory(self._path.parent)
        return DataFile(self._name, size, self._rows)

    def abandon(self) -> None:
        """Close the file after an error, unless it is closed; the next start of the job removes it. Raises OSError."""
        if not self._sink.closed:
            with self._sink:
                self._end()

    def _open(self, first: "pyarrow.RecordBatch") -> "parquet.ParquetWriter":
        """Open the writer; `first` selects the columns with a dictionary."""
        from pyarrow import parquet

        compression, level = self._options
        columns = dictionary_columns(first)
        return parquet.ParquetWriter(
            self._sink, self._schema, compression=compression, compression_level=level, use_dictionary=columns
        )

    def _end(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


def write_attempt(
    directory: str,
    name: str,
    schema: "pyarrow.Schema",
    batches: Iterable["pyarrow.RecordBatch"],
    options: ParquetOptions,
    disk: Disk | None = None,
) -> DataFile | None:
    """Write and flush a file.

    Arguments:
        directory: `attempts` of a table.
        name: unique in the table.
        schema: of the batches.
        batches: they are written as they come.
        options: of Parquet.
        disk: file operations; another one in tests.

    Returns:
        The file; None = there are no rows and no file.

    Raises:
        FileExistsError: an attempt has this name. OSError: as of the file system. What `batches` raises.
    """
    writer = AttemptWriter(directory, name, schema, options, disk)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
