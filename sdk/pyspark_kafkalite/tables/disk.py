"""The file operations of a table. Tests inject an error or a crash at each of them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class OpenFile(Protocol):
    """A file of Python, or of Arrow."""

    def flush(self) -> None:
        """Write what is buffered. Raises OSError."""

    def fileno(self) -> int:
        """Return the descriptor."""


class Disk:
    """File operations; what returns normally and is followed by `flush_directory` survives a power cut."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and those above it, durably. It may exist."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.flush_directory(each.parent)

    def write(self, path: Path, content: bytes) -> None:
        """Create a file and flush it. Raises FileExistsError."""
        with open(path, "xb") as file:
            file.write(content)
            self.flush_file(file, path)

    def flush_file(self, file: OpenFile, path: Path) -> None:
        """Make the content of an open file durable; `path` is its name."""
        file.flush()
        os.fsync(file.fileno())

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, atomically. Raises FileExistsError, FileNotFoundError."""
        os.link(source, target, follow_symlinks=False)

    def remove(self, path: Path) -> None:
        """Remove a name of a file; it may be missing."""
        path.unlink(missing_ok=True)

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Hold a lock until the end of the block or of the process. Raises BlockingIOError: another process has it."""
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def flush_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
