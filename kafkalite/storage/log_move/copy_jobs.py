"""The jobs that copy the files of a partition to its future directory, byte for byte.

1. A job receives values only: paths and sizes. It copies what it was given, however the log changes meanwhile; the loop
   decides afterwards what of it is still valid (`log_copy`).
2. A job syncs what it has copied, so that the last one, which appends wait for, has little to sync.
3. A read error of the source is a `SourceError`: it ends the move and nothing else. An `OSError` is one of the target.
   A file of the source that is gone was deleted or compacted meanwhile: `SourceChangedError`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.storage import names
from kafkalite.storage.log.flush_job import sync_and_close

CHUNK = 1 << 20  # bytes that are read and written with one call each
SMALL_FILES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT)
SEGMENT_FILES = (names.LOG, *SMALL_FILES)


class SourceError(Exception):
    """A file of the current log cannot be read; the message contains the path and the reason."""


class SourceChangedError(Exception):
    """A file of the current log was replaced or removed while it was copied."""


class Piece(NamedTuple):
    """`size` bytes of one segment from `begin` on; `last`: they end a closed segment, whose small files follow."""

    base_offset: int
    begin: int
    size: int
    last: bool


@dataclass(frozen=True, slots=True)
class CopyTask:
    """What one job copies.

    Attributes:
        source, target: the directories of the partition.
        removed: base offsets of segments whose copies are removed first.
        pieces: copied in this order.
        files: names and contents of further files of the target.
        sizes: the bytes that each segment must have in the target afterwards, by base offset.
    """

    source: str
    target: str
    removed: Sequence[int]
    pieces: Sequence[Piece]
    files: Mapping[str, bytes]
    sizes: Mapping[int, int]


def create(disk: Disk, directory: str, metadata: bytes) -> None:
    """Create the future directory of a partition, with its topic id. Raises OSError.

    Arguments:
        metadata: the content of `partition.metadata`.
    """
    disk.make_dir(directory)
    disk.write_atomic(os.path.join(directory, names.PARTITION_METADATA), metadata, sync=True)
    disk.sync_dir(os.path.dirname(directory))


def copy(disk: Disk, task: CopyTask) -> None:
    """Copy and sync. Raises SourceError, SourceChangedError, OSError."""
    for base_offset in task.removed:
        remove_segment(disk, task.target, base_offset)
    for piece in task.pieces:
        _copy_piece(disk, task, piece)
    for name, content in task.files.items():
        disk.write_atomic(os.path.join(task.target, name), content, sync=True)


def finish(disk: Disk, task: CopyTask) -> None:
    """Copy the rest, and check that every segment is complete; then the copy is on the disk, with its name.

    Raises SourceError, SourceChangedError, OSError.
    """
    copy(disk, task)
    found = {base for base, suffix in _segment_files(disk, task.target) if suffix == names.LOG}
    sizes = {base: disk.size(_path(task.target, base, names.LOG)) for base in found}
    if sizes != dict(task.sizes):
        raise SourceChangedError(f"{task.target}: has {sizes} bytes by segment, expected {dict(task.sizes)}")
    disk.sync_dir(task.target)
    disk.sync_dir(os.path.dirname(task.target))


def remove_segment(disk: Disk, directory: str, base_offset: int) -> None:
    """Remove the copy of a segment. Raises OSError."""
    for suffix in SEGMENT_FILES:
        path = _path(directory, base_offset, suffix)
        if disk.exists(path):
            disk.remove(path)


def _segment_files(disk: Disk, directory: str) -> Iterable[tuple[int, str]]:
    return filter(None, map(names.parse_file_name, disk.list(directory)))


def _path(directory: str, base_offset: int, suffix: str) -> str:
    return os.path.join(directory, names.file_name(base_offset, suffix))


def _copy_piece(disk: Disk, task: CopyTask, piece: Piece) -> None:
    source = _open(disk, _path(task.source, piece.base_offset, names.LOG))
    target = disk.open(_path(task.target, piece.base_offset, names.LOG), create=True)
    try:
        if piece.begin == 0:
            target.truncate(0)
        _copy_bytes(source, target, piece.begin, piece.begin + piece.size)
    finally:
        sync_and_close(target)
        source.close()
    if piece.last:
        for suffix in SMALL_FILES:
            _copy_small(disk, task, piece.base_offset, suffix)


def _copy_bytes(source: File, target: File, begin: int, end: int) -> None:
    while begin < end:
        data = _read(source, min(CHUNK, end - begin), begin)
        target.pwrite(data, begin)
        begin += len(data)


def _read(source: File, size: int, position: int) -> bytes:
    try:
        data = source.pread_outside(size, position)
    except OSError as error:
        raise SourceError(f"{source.path}: {error}") from error
    if len(data) < size:
        raise SourceChangedError(f"{source.path}: ends at {position + len(data)}")
    return data


def _open(disk: Disk, path: str) -> File:
    try:
        return disk.open(path, read_only=True)
    except FileNotFoundError as error:
        raise SourceChangedError(f"{path}: was removed") from error
    except OSError as error:
        raise SourceError(f"{path}: {error}") from error


def _copy_small(disk: Disk, task: CopyTask, base_offset: int, suffix: str) -> None:
    """Copy a file of a closed segment, if it has one. It is rewritten only where it was damaged or missing, and then
    its size changes.
    """
    path, target = _path(task.source, base_offset, suffix), _path(task.target, base_offset, suffix)
    if not disk.exists(path):
        return
    source = _open(disk, path)
    try:
        size = source.size()
        content = _read(source, size, 0) if size else b""
        if source.size() != size:
            raise SourceChangedError(f"{path}: was rewritten")
    finally:
        source.close()
    disk.write_atomic(target, content, sync=True)
