"""The nodes of the tree that the controller leaves out, because their contents or names are invalid.

Each one is logged once for each reason, however often it is read. It is kept in the tree as it is.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.coordination.znodes.names import is_number
from kafkalite.state.topic_names import complaint

LOGGER = logging.getLogger("kafkalite.controller")
LOGGED_MAX = 10_000  # paths whose reason is remembered


class InvalidPath(NamedTuple):
    """A node that is left out, and why."""

    path: str
    reason: str


class InvalidNodes:
    """The invalid nodes that the controller of this broker has read."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}
        self._logged: dict[str, str] = {}

    def clear(self) -> None:
        """Forget the nodes, as another controller reads the tree; what was logged is not logged again."""
        self._now.clear()

    def listed(self) -> list[InvalidPath]:
        """The nodes that are left out now, in the order of their paths."""
        return [InvalidPath(*each) for each in sorted(self._now.items())]

    def add(self, path: str, error: ZnodeError) -> str:
        """Leave a node out; returns the reason."""
        reason = str(error)
        self._note(path, reason.removeprefix(f"{path}: "))
        return reason

    def remove(self, path: str) -> None:
        """The node is valid, or does not exist any more."""
        self._now.pop(path, None)
        self._logged.pop(path, None)

    def numbers(self, path: str, names: list[str]) -> list[int]:
        """The children of a node that are broker ids or indexes of partitions; the others are left out."""
        self._check(path, names, lambda name: None if is_number(name) else "its name is not a number")
        return [int(name) for name in names if is_number(name)]

    def topics(self, path: str, names: list[str]) -> list[str]:
        """The children of a node that are names of topics; the others are left out."""
        self._check(path, names, complaint)
        return [name for name in names if complaint(name) is None]

    def _check(self, path: str, names: list[str], check: Callable[[str], str | None]) -> None:
        wrong = {f"{path}/{name}": reason for name in names if (reason := check(name)) is not None}
        prefix = f"{path}/"
        known = {f"{path}/{name}" for name in names}
        for each in [one for one in self._now if one.startswith(prefix) and one not in known]:
            if "/" not in each.removeprefix(prefix):  # a child that does not exist any more
                self.remove(each)
        for each, reason in wrong.items():
            self._note(each, reason)

    def _note(self, path: str, reason: str) -> None:
        self._now[path] = reason
        if self._logged.get(path) == reason:
            return
        self._logged.pop(path, None)
        if len(self._logged) >= LOGGED_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[path] = reason
        LOGGER.error("%s: the node is ignored: %s", path, reason)
