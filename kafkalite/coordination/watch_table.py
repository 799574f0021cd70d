"""The watches of a tree: set by a session on a path, fired once."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class WatchEvent(NamedTuple):
    """The event of a watch: one of the types below, and the path that it was set on."""

    kind: str
    path: str


CREATED, DELETED, CHANGED, CHILDREN = "created", "deleted", "changed", "children"
Watcher: TypeAlias = Callable[[WatchEvent], object]


class WatchTable:
    """Watches of one type (of data, or of children), each set by a session."""

    def __init__(self) -> None:
        self.total = 0  # watches
        self._by_path: dict[str, dict[Watcher, int]] = {}
        self._by_session: dict[int, set[tuple[str, Watcher]]] = {}

    def __len__(self) -> int:
        """Return the number of paths with watches."""
        return len(self._by_path)

    def add(self, path: str, watch: Watcher, session: int) -> None:
        """Set a watch; the same one on the same path counts once, for the session that has set it last."""
        watches = self._by_path.setdefault(path, {})
        if watch in watches:
            self._by_session[watches[watch]].discard((path, watch))
        else:
            self.total += 1
        watches[watch] = session
        self._by_session.setdefault(session, set()).add((path, watch))

    def take(self, path: str) -> dict[Watcher, int]:
        """Remove the watches of a path, and return them with their sessions."""
        watches = self._by_path.pop(path, {})
        self.total -= len(watches)
        for watch, session in watches.items():
            self._by_session[session].discard((path, watch))
        return watches

    def drop(self, session: int) -> None:
        """Remove the watches of a session."""
        for path, watch in self._by_session.pop(session, ()):
            watches = self._by_path[path]
            del watches[watch]
            self.total -= 1
            if not watches:
                del self._by_path[path]

    def count(self, session: int) -> int:
        """Return the number of a session's watches."""
        return len(self._by_session.get(session, ()))
