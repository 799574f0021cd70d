"""Follows changes of configs that any broker makes: each is a sequential node below `/config/changes`.

1. Only notifications with a higher number than the last one are handled, in the order of their numbers. The ones that
   exist at the start of a session are not: the broker reads all its configs then.
2. A notification names what has changed. The value is read when it is handled, so the newest one counts.
3. Notifications older than 15 minutes are deleted whenever others are handled. Several brokers may do it.
4. Both formats of Kafka are read: version 1 has the type and the name of an entity, version 2 its path. Others and
   garbage are logged and skipped.

Sources: ZkNodeChangeNotificationListener.scala, ZkConfigManager.scala of Apache Kafka 3.9.
"""

import logging
from collections.abc import Callable
from functools import partial

from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.cluster.change_notifications import EXPIRATION_MS
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError, SessionExpiredError
from kafkalite.coordination.tree import WatchEvent

LOGGER = logging.getLogger("kafkalite.cluster")
NAME = znodes.CONFIG_CHANGE
RETRY_S = 1.0

Changed = Callable[[str, str], object]


class ConfigWatcher:
    """The notifications as one session sees them.

    Arguments:
        session: with the coordination service.
        clock: for the age of notifications.
        changed: called with the type and the name of each changed entity, as in the tree: ("topics", "orders").
        loaded: called once when the watch is set; configs that are read from then on are followed.
        path: the node above the notifications.
    """

    def __init__(
        self,
        session: Coordination,
        clock: Clock,
        changed: Changed,
        loaded: Callable[[], object] = lambda: None,
        path: str = znodes.CONFIG_CHANGES,
    ) -> None:
        self._path = path
        self._session = session
        self._clock = clock
        self._changed = changed
        self._loaded = loaded
        self._last: int | None = None
        self._created: dict[str, int] = {}  # time of creation of each notification that was read, in ms
        self._reading = self._again = self._closed = False
        self._retry: Timer | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._look()

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _fired(self, _event: WatchEvent) -> None:
        self._look()

    def _look(self) -> None:
        """Read the names; one read at a time, and another one if something changed meanwhile."""
        if self._closed:
            return
        self._again = self._reading
        if not self._reading:
            self._reading = True
            self._session.children(self._path, self._listed, self._fired)

    def _listed(self, outcome: Outcome) -> None:
        self._reading = False
        if self._closed:
            return
        if isinstance(outcome.error, SessionExpiredError):
            return
        if isinstance(outcome.error, CoordinationError):
            LOGGER.warning("changes of configs cannot be read, next attempt in %.0f s: %s", RETRY_S, outcome.error)
            self._retry = self._clock.call_at(self._clock.monotonic() + RETRY_S, self._look)
            return
        self._handle(outcome.result()[0])
        if self._again:
            self._look()

    def _handle(self, names: list[str]) -> None:
        numbers = sorted((int(name.removeprefix(NAME)), name) for name in names if is_notification(name))
        last, first = self._last, self._last is None
        self._last = max([-1 if last is None else last, *(number for number, _ in numbers)])
        created, self._created = self._created, {}
        for number, name in numbers:
            if name in created:
                self._keep(name, created[name])
            else:
                self._session.get(f"{self._path}/{name}", partial(self._read, name, last, number))
        if first:
            self._loaded()

    def _read(self, name: str, last: int | None, number: int, outcome: Outcome) -> None:
        """Handle a notification that was created after `last`."""
        if self._closed or isinstance(outcome.error, CoordinationError):  # another broker has deleted it
            return
        data, stat = outcome.result()
        if last is not None and number > last:
            try:
                entity = znodes.decode_config_change(f"{self._path}/{name}", data)
            except znodes.ZnodeError as error:
                LOGGER.warning("%s: the notification is skipped", error)
            else:
                self._changed(*entity)
        self._keep(name, stat.ctime)

    def _keep(self, name: str, created_ms: int) -> None:
        """Remember when a notification was created, or delete it if it is old."""
        if created_ms < self._clock.wall_ms() - EXPIRATION_MS:
            path = f"{self._path}/{name}"
            self._session.delete(path, partial(deleted, path))
        else:
            self._created[name] = created_ms


def deleted(path: str, outcome: Outcome) -> None:
    """Log a deletion that failed; the next change repeats it."""
    error = outcome.error
    if error is None or isinstance(error, NoNodeError):
        return
    if not isinstance(error, CoordinationError):
        raise error
    LOGGER.info("%s was not deleted: %s", path, error)


def is_notification(name: str) -> bool:
    """Whether the name is one of a sequential node, with its number."""
    return name.startswith(NAME) and name.removeprefix(NAME).isdecimal() and len(name) <= len(NAME) + 10
