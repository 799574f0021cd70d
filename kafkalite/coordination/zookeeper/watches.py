"""The watches of a client: which callbacks an event concerns, and the requests that set the watches again.

1. A watch fires once: `fire` removes it. A path without watches uses no memory.
2. The server knows three types (DataTree.setWatches): of a node's data, of the existence of a node that did not exist,
   of a node's children. Each must be set again as its own type, or it fires at once or never.
"""

from collections.abc import Iterator

from kafkalite.coordination.tree import CHANGED, CHILDREN, CREATED, DELETED, Watcher
from kafkalite.coordination.zookeeper.records import SetWatchesRequest

SET_WATCHES_BYTES = 128 * 1024
"""Largest sum of the paths in one request, as in the Java client (SET_WATCHES_MAX_LENGTH): far below jute.maxbuffer."""

DATA, EXIST, CHILD = 0, 1, 2
"""Types of watches, in the order of the fields of SetWatchesRequest."""

CONCERNED = {CREATED: (DATA, EXIST), CHANGED: (DATA, EXIST), DELETED: (DATA, EXIST, CHILD), CHILDREN: (CHILD,)}
"""Types by the kind of event that fires them (ZKWatchManager.materialize)."""


def server_path(chroot: str, path: str) -> str:
    """Return the path on the server of a path of the session."""
    return chroot if chroot and path == "/" else chroot + path


class Watches:
    """The watches of one session, by type and path.

    Arguments:
        chroot: path on the server of the session's root; "" = the server's root.
    """

    def __init__(self, chroot: str = "") -> None:
        self._chroot = chroot
        self._by_type: tuple[dict[str, dict[Watcher, None]], ...] = ({}, {}, {})

    def __len__(self) -> int:
        """Return the number of (type, path) pairs with a watch."""
        return sum(map(len, self._by_type))

    def add(self, type: int, path: str, watcher: Watcher) -> None:
        """Add a watch that the server has set; the same callback on the same path counts once."""
        self._by_type[type].setdefault(path, {})[watcher] = None

    def fire(self, kind: str, server_path: str) -> tuple[str, list[Watcher]]:
        """Return the path of an event, and its callbacks, each once, in the order in which they were added.

        Arguments:
            kind: of the event, as in WatchEvent.
            server_path: with the chroot; the returned one is without it.
        """
        path = server_path.removeprefix(self._chroot) or "/"
        concerned: dict[Watcher, None] = {}
        for each in CONCERNED[kind]:
            concerned |= self._by_type[each].pop(path, {})
        return path, list(concerned)

    def clear(self) -> None:
        """Remove all watches."""
        for paths in self._by_type:
            paths.clear()

    def requests(self, zxid: int) -> Iterator[SetWatchesRequest]:
        """Yield the requests that set all watches again.

        Arguments:
            zxid: the last that the client has seen; watches of nodes that changed later fire at once.
        """
        chunk: tuple[list[str], ...] = ([], [], [])
        size = 0
        for type, paths in enumerate(self._by_type):
            for each in paths:
                path = server_path(self._chroot, each)
                bytes_of_path = len(path.encode())
                if size + bytes_of_path > SET_WATCHES_BYTES:
                    yield SetWatchesRequest(zxid, *map(tuple, chunk))
                    chunk, size = ([], [], []), 0
                chunk[type].append(path)
                size += bytes_of_path
        if size:
            yield SetWatchesRequest(zxid, *map(tuple, chunk))
