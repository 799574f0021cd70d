"""Tracks the partition directories in which jobs write, so that no file of a deleted log gets into a new one.

A log is created in a directory only after every job that may still write there by name has ended. Jobs that only read,
or that use open files, are not tracked.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial


class DirectoriesInUse:
    """Counts the jobs of each directory, and keeps the callbacks that wait for the last job; loop thread only."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, list[Callable[[], object]]] = defaultdict(list)

    def enter(self, directory: str) -> Callable[[], None]:
        """Register a job in a directory; call the returned function once, after the job's outcome is applied."""
        self._held[directory] += 1
        return partial(self._release, directory)

    def is_in_use(self, directory: str) -> bool:
        """Whether a job uses the directory."""
        return bool(self._held.get(directory))

    def when_free(self, directory: str, then: Callable[[], object]) -> None:
        """Call `then` when no job uses the directory, perhaps at once."""
        if self._held[directory]:
            self._waiting[directory].append(then)
        else:
            then()

    def close(self) -> None:
        """Drop all waiting callbacks, because the broker stops."""
        self._waiting.clear()

    def _release(self, directory: str) -> None:
        self._held[directory] -= 1
        if not self._held[directory]:
            del self._held[directory]
            for then in self._waiting.pop(directory, ()):
                self.when_free(directory, then)  # the one before may hold it again
