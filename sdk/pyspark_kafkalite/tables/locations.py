"""The locations of the files of a table."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from pyspark_kafkalite.tables.errors import DamagedTableError, UnsupportedFileSystemError

T = TypeVar("T")

COMMITS = "_commits"
ATTEMPTS = "_attempts"
RECOVERED = "_recovered"
COMPACTIONS = "_compactions"
REPLACED = "_replaced"
SEARCHES = 2
"""A file that is being published leaves one directory for another: it is searched again."""


def find(root: Path, name: str) -> Path:
    """Return where a committed file is now: published, about to be published, or replaced.

    Arguments:
        root: directory of the table.
        name: of the file, see `DataFile`.

    Raises:
        DamagedTableError: it does not exist.
    """
    found = _found(root, name)
    if found is not None:
        return found
    raise DamagedTableError(
        f"table {root}: file {name} does not exist. If a compaction has replaced it and its retention has ended, read "
        "the table again; else restore it, or read its records from the topic again: kafkalite pipeline repair"
    )


def exists(root: Path, name: str) -> bool:
    """Return whether a committed file exists, see `find`."""
    return _found(root, name) is not None


def _found(root: Path, name: str) -> Path | None:
    base = Path(name).name
    paths = (root / name, *(root / each / base for each in (ATTEMPTS, RECOVERED, COMPACTIONS, REPLACED)))
    return next((path for path in paths * SEARCHES if path.exists()), None)


def using(root: Path, name: str, use: Callable[[Path], T]) -> T:
    """Return what a function returns for the path of a committed file, wherever it is when it is used.

    Arguments:
        root, name: as of `find`.
        use: is called again if a writer has moved the file.

    Raises:
        DamagedTableError: it does not exist.
    """
    while True:
        path = find(root, name)
        try:
            return use(path)
        except FileNotFoundError:
            continue  # `find` ends this if it is nowhere


def open_committed(root: Path, name: str) -> BinaryIO:
    """Open a committed file. Raises DamagedTableError: it does not exist."""
    return using(root, name, lambda path: open(path, "rb"))


def parquet_files(root: Path) -> Iterator[Path]:
    """Yield the files that a plain reader of the directory would read."""
    for directory, names, files in os.walk(root):
        names[:] = [each for each in names if not each.startswith(("_", "."))]
        yield from (Path(directory, each) for each in sorted(files) if each.endswith(".parquet"))


def local_directory(location: str | os.PathLike[str]) -> Path:
    """Return the directory of a table. Raises UnsupportedFileSystemError: it is a URL."""
    text = os.fspath(location)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise UnsupportedFileSystemError(
            f"table {text}: {scheme} has no hard links, expected a directory of a mounted file system"
        )
    return Path(rest if separator else text).absolute()
