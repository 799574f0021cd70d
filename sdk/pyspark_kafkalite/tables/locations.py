"""Where the files of a table are."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from pyspark_kafkalite.tables.errors import DamagedTableError

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
    base = Path(name).name
    found = (root / name, *(root / each / base for each in (ATTEMPTS, RECOVERED, COMPACTIONS, REPLACED)))
    for path in found * SEARCHES:
        if path.exists():
            return path
    raise DamagedTableError(
        f"table {root}: file {name} does not exist. If a compaction has replaced it and its retention has ended, read "
        "the table again; else restore it"
    )


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


def opened(root: Path, name: str) -> BinaryIO:
    """Open a committed file. Raises DamagedTableError: it does not exist."""
    return using(root, name, lambda path: open(path, "rb"))
