"""Nodes of the tree that a broker has in memory, such as ACLs and tokens: read with each session, and followed.

1. All nodes are read once their notifications are watched. Then each notification names a node, which is read.
2. A read is repeated until it succeeds or the session ends: the next session reads everything.
3. A node that cannot be decoded is applied as the ZnodeError that says why.
4. What a read of all nodes returns is older than a change of this broker that was applied meanwhile: that key is kept,
   and read again.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kafkalite.callbacks import gather
from kafkalite.clock import Clock, Outcome, Then
from kafkalite.cluster.configs.notifications import ConfigWatcher, Notifications
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError, SessionExpiredError
from kafkalite.coordination.znodes.fields import ZnodeError

LOGGER = logging.getLogger("kafkalite.cluster")
RETRY_S = 0.5

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class NodeStore(ABC, Generic[Key, Value]):
    """The contents of nodes by key.

    Arguments:
        session: with the coordination service.
        clock: for pauses.
        what: the contents in the plural, for the log: "ACLs".
        absent: the value of a key without a node.
    """

    def __init__(self, session: Coordination, clock: Clock, what: str, absent: Value) -> None:
        self._session = session
        self._clock = clock
        self._what = what
        self._absent = absent
        self._changed: list[dict[Key, None]] = []  # keys that this broker has changed, per running read of all nodes

    @abstractmethod
    def _read_all(self, then: Then) -> None:
        """Read all nodes; the value is a dictionary from keys to values or ZnodeErrors."""

    @abstractmethod
    def _read(self, key: Key, then: Then) -> None:
        """Read a node; the value is that of the key, or a ZnodeError."""

    @abstractmethod
    def _known(self) -> Collection[Key]:
        """Return the keys that have a value or an error."""

    @abstractmethod
    def _apply(self, key: Key, value: Value | ZnodeError) -> None:
        """Replace the value of a key."""

    def load(self, then: Then) -> None:
        """Read all nodes, and apply them; `then` is called with the outcome."""
        changed: dict[Key, None] = {}
        self._changed.append(changed)

        def read(outcome: Outcome) -> None:
            self._changed = [each for each in self._changed if each is not changed]
            if outcome.error is None:
                self._apply_all(outcome.value, changed)
            then(outcome)

        self._read_all(read)

    def _apply_all(self, stored: Mapping[Key, Value | ZnodeError], changed: Collection[Key]) -> None:
        for key in set(self._known()) - stored.keys():
            if key not in changed:
                self._apply(key, self._absent)
        for key, value in stored.items():
            if key not in changed:
                self._apply(key, value)
        for key in changed:
            self.refresh(key)

    def _apply_change(self, key: Key, value: Value) -> None:
        """Apply a change that this broker has made."""
        for changed in self._changed:
            changed[key] = None
        self._apply(key, value)

    def reload(self, then: Callable[[], object] = lambda: None) -> None:
        """Read all nodes until it succeeds or the session ends; `then` is called after a success."""
        self._until_read(self.load, then)

    def refresh(self, key: Key) -> None:
        """Read a node until it succeeds or the session ends, and apply it."""

        def load(then: Then) -> None:
            self._read(key, partial(read, then))

        def read(then: Then, outcome: Outcome) -> None:
            if outcome.error is None:
                self._apply(key, outcome.value)
            then(outcome)

        self._until_read(load, lambda: None)

    def _until_read(self, read: Callable[[Then], object], then: Callable[[], object]) -> None:
        def ended(outcome: Outcome) -> None:
            if outcome.error is None:
                then()
            elif isinstance(outcome.error, CoordinationError):
                if not isinstance(outcome.error, SessionExpiredError):
                    text = "the %s cannot be read, next attempt in %.1f s: %s"
                    LOGGER.warning(text, self._what, RETRY_S, outcome.error)
                    self._clock.call_at(self._clock.monotonic() + RETRY_S, self._until_read, read, then)
            else:
                raise outcome.error

        read(ended)


class StoreFollower:
    """Follows the changes of a store that any broker makes, during one session.

    Arguments:
        store: reads the nodes, over this session.
        session: with the coordination service.
        clock: for pauses.
        changed: called with what a notification names.
        subjects: the notifications.
        read: called when all nodes were read in this session, each time.
    """

    def __init__(
        self,
        store: NodeStore[Any, Any],
        session: Coordination,
        clock: Clock,
        changed: Callable[..., object],
        subjects: Sequence[Notifications],
        read: Callable[[], object],
    ) -> None:
        self._store = store
        self._read = read
        self._closed = False
        self._unwatched = len(subjects)
        self._watchers = [ConfigWatcher(session, clock, changed, self._reload, each) for each in subjects]

    def start(self) -> None:
        """Watch, and read everything."""
        for watcher in self._watchers:
            watcher.start()

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        for watcher in self._watchers:
            watcher.close()

    def _reload(self) -> None:
        """A watch is set for the first time, or a notification is missing."""
        self._unwatched = max(0, self._unwatched - 1)
        if not self._closed and not self._unwatched:
            self._store.reload(self._read)


def read_node(
    session: Coordination, path: str, decode: Callable[[str, bytes], object], absent: object, then: Then
) -> None:
    """Read and decode a node.

    Arguments:
        session: with the coordination service.
        path: of the node.
        decode: returns the value from the path and the contents; raises ZnodeError, which becomes the value.
        absent: the value where there is no node.
        then: called with the outcome.
    """

    def read(outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            then(Outcome(absent))
        elif outcome.error is not None:
            then(outcome)
        else:
            then(Outcome(value_of(outcome.value[0])))

    def value_of(data: bytes) -> object:
        try:
            return decode(path, data)
        except ZnodeError as error:
            return error

    session.get(path, read)


def read_each(keys: Sequence[Key], read: Callable[[Key, Then], object], then: Then) -> None:
    """Read several nodes; the value is a dictionary from keys to values.

    Arguments:
        keys: of the nodes.
        read: reads one.
        then: called with the outcome: the values, or the first failure.
    """

    def all_read(outcomes: list[Outcome]) -> None:
        values = {key: outcome.value for key, outcome in zip(keys, outcomes, strict=True)}
        then(first_failure(outcomes) or Outcome(values))

    calls: list[Callable[[Then], object]] = [partial(read, key) for key in keys]
    gather(calls, all_read)


def first_failure(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the first outcome with an error; None: there is none."""
    return next((each for each in outcomes if each.error is not None), None)
