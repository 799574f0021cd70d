"""A disk for tables of `pyspark_kafkalite.tables` that stops at any file operation, with or without a power cut.

The files are real. A power cut reverts any of the names that were created or removed and not flushed; a stop truncates
any content that was not flushed.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

from pyspark_kafkalite.tables.disk import Disk, OpenFile


class Crash(BaseException):
    """The process ends here."""


class CrashingDisk(Disk):
    """Counts file operations and stops at one of them.

    Attributes:
        steps: operations so far.
        stop_at: the operation that does not happen; None = all happen.
        fail_at: the operation that raises `error` instead.
        on_step: is called before each operation.
    """

    def __init__(self, graves: Path, rng: random.Random) -> None:
        self.steps = 0
        self.stop_at: int | None = None
        self.fail_at: int | None = None
        self.error = OSError(5, "injected")
        self.on_step: Callable[[], object] = bool
        self.stopped = False
        self._graves = graves
        self._rng = rng
        self._names: list[tuple[Path, Callable[[], object]]] = []  # directory, how to revert
        self._contents: set[Path] = set()
        graves.mkdir()

    def restart(self, *, power_cut: bool) -> None:
        """Start again after a crash. Without a power cut, names that were not flushed exist, and are still not durable.

        Arguments:
            power_cut: names that were not flushed may be lost, and removed names may exist again.
        """
        for path in sorted(self._contents):
            if path.exists():
                os.truncate(path, self._rng.randrange(path.stat().st_size + 1))
        if power_cut:
            for _, revert in reversed(self._names):
                if self._rng.random() < 0.5:
                    revert()
            self._names.clear()
            self._contents.clear()
        self.stopped, self.stop_at = False, None

    def _step(self) -> None:
        if self.stopped:
            raise Crash
        self.on_step()
        if self.steps == self.stop_at:
            self.stopped = True
            raise Crash
        self.steps += 1
        if self.steps - 1 == self.fail_at:
            self.fail_at = None
            raise self.error

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)

    def write(self, path: Path, content: bytes) -> None:
        self._step()
        self.created(path)
        super().write(path, content)

    def created(self, path: Path) -> None:
        """A file is written from now on."""
        self._names.append((path.parent, lambda: path.unlink(missing_ok=True)))
        self._contents.add(path)

    def flush_file(self, file: OpenFile, path: Path) -> None:
        self._step()
        super().flush_file(file, path)
        self._contents.discard(path)

    def link(self, source: Path, target: Path) -> None:
        self._step()
        super().link(source, target)
        self._names.append((target.parent, lambda: target.unlink(missing_ok=True)))

    def remove(self, path: Path) -> None:
        self._step()
        grave = self._graves / str(self.steps)
        if path.exists():
            os.link(path, grave)
            self._names.append((path.parent, lambda: path.exists() or os.link(grave, path)))
        super().remove(path)

    def flush_directory(self, path: Path) -> None:
        self._step()
        self._names = [each for each in self._names if each[0] != path]
