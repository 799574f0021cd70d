"""Writes the Parquet file of an attempt. Runs in the workers; needs pyarrow."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.model import DataFile

if TYPE_CHECKING:
    import pyarrow

COMPRESSIONS = ("none", "snappy", "lz4", "zstd")


class ParquetOptions(NamedTuple):
    """How a file is written.

    Attributes:
        compression: one of `COMPRESSIONS`.
        level: of zstd; None = that of pyarrow, 1.
    """

    compression: str = "zstd"
    level: int | None = None


def write_attempt(
    directory: str,
    name: str,
    schema: "pyarrow.Schema",
    batches: Iterable["pyarrow.RecordBatch"],
    options: ParquetOptions,
    disk: Disk | None = None,
) -> DataFile | None:
    """Write and flush a file, batch by batch.

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
    import pyarrow.parquet as parquet

    disk = disk or Disk()
    path = Path(directory, name)
    rows = 0
    with open(path, "xb") as sink:
        with parquet.ParquetWriter(
            sink, schema, compression=options.compression, compression_level=options.level
        ) as writer:
            for batch in batches:
                if batch.num_rows:
                    writer.write_batch(batch)
                    rows += batch.num_rows
        disk.flush_file(sink)
        size = sink.tell()
    if not rows:
        disk.remove(path)
        return None
    disk.flush_directory(path.parent)
    return DataFile(name, size, rows)
