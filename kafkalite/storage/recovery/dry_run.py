"""A disk that keeps every change in memory: shows the result of a recovery without changing any file.

1. Nothing on the disk changes, not even a timestamp.
2. Reads return the changes: small files are copied into memory when they are opened, renames and removals are recorded.
   Logs are too large for that: of a truncation only the size is recorded, because recovery never reads beyond it.
"""

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.storage import names

if TYPE_CHECKING:
    from typing_extensions import Buffer


class DryRunChange(NamedTuple):
    """A change of a file by a start: `verb` (write, truncate, rename, remove), its path, and a description."""

    verb: str
    path: str
    text: str = ""


class ReadOnlyLog(File):
    """A `.log` that only records how it would be truncated."""

    changes: list[DryRunChange]

    def truncate(self, size: int) -> None:
        self.changes.append(DryRunChange("truncate", self.path, f"from {self.size()} to {size} bytes"))

    def sync(self) -> None:
        """Nothing was changed."""


class DryDisk(Disk):
    """A disk that changes nothing; `changes` lists the changes that were requested, in order."""

    def __init__(self) -> None:
        self.changes: list[DryRunChange] = []
        self._gone: set[str] = set()
        self._moved: dict[str, str] = {}  # name now -> name on the disk
        self._memory: dict[str, File] = {}

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        kept = self._memory.get(path)
        if kept is not None:
            return File(path, os.dup(kept.fd))
        if not self.exists(path):
            if not create:
                raise FileNotFoundError(2, os.strerror(2), path)
            return self._keep(path, b"")
        real = self._moved.get(path, path)
        if read_only or names.LOG in os.path.basename(path):
            file = ReadOnlyLog(path, os.open(real, os.O_RDONLY | os.O_CLOEXEC))
            file.changes = self.changes
            return file
        return self._keep(path, super().read_bytes(path))

    def _keep(self, path: str, data: "Buffer") -> File:
        file = File(path, os.memfd_create("kafkalite"))
        file.pwrite(data, 0)
        self._memory[path] = file
        self._gone.discard(path)
        self.changes.append(DryRunChange("write", path))
        return File(path, os.dup(file.fd))

    def replace(self, path: str, data: "Buffer", *, sync: bool) -> File:
        self._moved.pop(path, None)
        return self._keep(path, data)

    def list(self, path: str) -> list[str]:
        there = {name for name in os.listdir(path) if os.path.join(path, name) not in self._gone}
        ours = [*self._memory, *self._moved]
        return sorted(there | {os.path.basename(one) for one in ours if os.path.dirname(one) == path})

    def exists(self, path: str) -> bool:
        if path in self._memory or path in self._moved:
            return True
        return path not in self._gone and super().exists(path)

    def size(self, path: str) -> int:
        kept = self._memory.get(path)
        return kept.size() if kept is not None else self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    def is_dir(self, path: str) -> bool:
        return self.exists(path) and super().is_dir(self._moved.get(path, path))

    def is_regular(self, path: str) -> bool:
        return path in self._memory or (self.exists(path) and stat.S_ISREG(self._stat(path).st_mode))

    def _stat(self, path: str) -> os.stat_result:
        if not self.exists(path):
            raise FileNotFoundError(2, os.strerror(2), path)
        return os.stat(self._moved.get(path, path))

    def make_dir(self, path: str) -> None:
        """Create no directory."""

    def remove(self, path: str) -> None:
        self._forget(path)
        self.changes.append(DryRunChange("remove", path))

    def _forget(self, path: str) -> None:
        if not self.exists(path):
            raise FileNotFoundError(2, os.strerror(2), path)
        self._memory.pop(path, None)
        self._moved.pop(path, None)
        self._gone.add(path)

    def rename(self, old: str, new: str) -> None:
        kept, real = self._memory.get(old), self._moved.get(old, old)
        self._forget(old)
        self._gone.discard(new)
        self._memory.pop(new, None)
        self._moved.pop(new, None)
        if kept is not None:
            self._memory[new] = kept
        else:
            self._moved[new] = real
        self.changes.append(DryRunChange("rename", old, f"to {new}"))

    def remove_tree(self, path: str) -> None:
        self._gone.add(path)
        self.changes.append(DryRunChange("remove", path, "with its content"))

    def sync_dir(self, path: str) -> None:
        """Nothing was changed."""
