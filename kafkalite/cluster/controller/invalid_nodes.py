"""The nodes of the tree that the controller leaves out, because their contents or names are invalid.

Each one is logged once for each reason, however often it is read. It is kept in the tree as it is. Paths and reasons
come from foreign programs, so their number and their length have limits; what is not remembered is still left out.
"""

import logging
from typing import NamedTuple

from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.coordination.znodes.names import is_number
from kafkalite.state.topic_names import complaint

LOGGER = logging.getLogger("kafkalite.controller")
LISTED_MAX = 10_000  # nodes that are remembered as left out
LOGGED_MAX = 10_000  # paths whose reason is remembered
TEXT_MAX = 1_000  # characters of a path or a reason


class InvalidPath(NamedTuple):
    """A node that is left out, and why."""

    path: str
    reason: str


class InvalidNodes:
    """The invalid nodes that the controller of this broker has read."""

    def __init__(self) -> None:
        self._now: dict[str, dict[str, str]] = {}  # reasons by path, by the path of the parent
        self._count = 0
        self._logged: dict[str, str] = {}

    def clear(self) -> None:
        """Forget the nodes, as another controller reads the tree; what was logged is not logged again."""
        self._now.clear()
        self._count = 0

    def list_nodes(self) -> list[InvalidPath]:
        """The nodes that are left out now, in the order of their paths."""
        return sorted(InvalidPath(*each) for children in self._now.values() for each in children.items())

    def add(self, path: str, error: ZnodeError) -> str:
        """Leave a node out; returns the reason."""
        reason = str(error)
        self._note(path, reason.removeprefix(f"{path}: "))
        return reason

    def remove(self, path: str) -> None:
        """The node is valid, or does not exist any more."""
        if self._logged:  # else there was none
            self._remove(path[:TEXT_MAX])

    def numbers(self, path: str, names: list[str]) -> list[int]:
        """The children of a node that are broker ids or indexes of partitions; the others are left out."""
        self._forget_deleted(path, names)
        wrong = [name for name in names if not is_number(name)]
        for name in wrong:
            self._note(f"{path}/{name}", "its name is not a number")
        return [int(name) for name in names if is_number(name)] if wrong else list(map(int, names))

    def topics(self, path: str, names: list[str]) -> list[str]:
        """The children of a node that are names of topics; the others are left out."""
        self._forget_deleted(path, names)
        self._forget_below(path, names)
        wrong = {name: reason for name in names if (reason := complaint(name)) is not None}
        for name, reason in wrong.items():
            self._note(f"{path}/{name}", reason)
        return [name for name in names if name not in wrong]

    def _forget_deleted(self, path: str, names: list[str]) -> None:
        """Forget the children of a node that do not exist any more."""
        if children := self._now.get(path):
            existing = {f"{path}/{name}"[:TEXT_MAX] for name in names}
            for each in children.keys() - existing:
                self._remove(each)

    def _forget_below(self, path: str, names: list[str]) -> None:
        """Forget what is below children of a node that do not exist any more."""
        prefix = f"{path}/"
        parents = [parent for parent in self._now if parent.startswith(prefix)]
        if parents:
            existing = set(names)
            for parent in parents:
                if parent.removeprefix(prefix).partition("/")[0] not in existing:
                    for each in list(self._now[parent]):
                        self._remove(each)

    def _remove(self, path: str) -> None:
        self._logged.pop(path, None)
        parent = path.rpartition("/")[0]
        children = self._now.get(parent, {})
        if children.pop(path, None) is not None:
            self._count -= 1
            if not children:
                del self._now[parent]

    def _note(self, path: str, reason: str) -> None:
        path, reason = path[:TEXT_MAX], reason[:TEXT_MAX]
        self._list(path, reason)
        if self._logged.get(path) == reason:
            return
        self._logged.pop(path, None)
        if len(self._logged) >= LOGGED_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[path] = reason
        LOGGER.error("%s: the node is ignored: %s", path, reason)

    def _list(self, path: str, reason: str) -> None:
        parent = path.rpartition("/")[0]
        if path not in self._now.get(parent, ()):
            if self._count >= LISTED_MAX:
                return
            self._count += 1
        self._now.setdefault(parent, {})[path] = reason
