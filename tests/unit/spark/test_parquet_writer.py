"""The file of an attempt: it is complete before its flush, and an error of the disk is the one that is reported."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pyspark_kafkalite.tables.disk import Disk, OpenFile
from pyspark_kafkalite.tables.model import DataFile
from pyspark_kafkalite.tables.parquet_writer import AttemptWriter, ParquetOptions, write_attempt

NAME = "part.parquet"
ROWS = pyarrow.record_batch({"_offset": pyarrow.array(range(5000)), "value": pyarrow.array(["a value"] * 5000)})


class FullAtFlush(Disk):
    """Finds at the flush that the disk is full."""

    def flush_file(self, file: OpenFile, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Have writes behind a size fail, with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write(directory: Path, disk: Disk | None = None, rows: pyarrow.RecordBatch = ROWS) -> DataFile | None:
    return write_attempt(str(directory), NAME, rows.schema, [rows, rows], ParquetOptions("none"), disk)


def open_files(directory: Path) -> list[str]:
    links = (Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd"))
    return [str(link.readlink()) for link in links if link.is_symlink() and link.resolve().parent == directory]


def test_file_is_complete_before_its_flush(tmp_path: Path) -> None:
    class Reads(Disk):
        def flush_file(self, file: OpenFile, path: Path) -> None:
            super().flush_file(file, path)
            rows.append(parquet.read_metadata(path).num_rows)

    rows: list[int] = []
    written = write(tmp_path, Reads())
    assert rows == [10_000]
    assert written == DataFile(NAME, (tmp_path / NAME).stat().st_size, 10_000) and not open_files(tmp_path)


def test_batches_without_rows_leave_no_file(tmp_path: Path) -> None:
    assert write(tmp_path, rows=ROWS.slice(0, 0)) is None
    assert not list(tmp_path.iterdir()) and not open_files(tmp_path)


def test_attempt_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("another attempt")
    with pytest.raises(FileExistsError):
        write(tmp_path)
    assert (tmp_path / NAME).read_text() == "another attempt"


def test_full_disk_at_the_flush_is_its_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, FullAtFlush())
    assert not open_files(tmp_path)


@pytest.mark.parametrize("missing", [1, 50_000], ids=["footer", "pages"])
def test_full_disk_at_a_write_is_its_error(missing: int, tmp_path: Path) -> None:
    written = write(tmp_path)
    assert written is not None
    (tmp_path / NAME).unlink()
    with file_size_limit(written.bytes - missing), pytest.raises(OSError) as error:
        write(tmp_path)
    assert error.value.errno == errno.EFBIG and not open_files(tmp_path)


def test_writer_that_is_closed_is_abandoned_without_an_error(tmp_path: Path) -> None:
    """Compaction abandons all files of a group after an error of one of them."""
    writer = AttemptWriter(str(tmp_path), NAME, ROWS.schema, ParquetOptions("none"))
    writer.write(ROWS)
    writer.finish()
    writer.abandon()
    assert parquet.read_metadata(tmp_path / NAME).num_rows == 5000
