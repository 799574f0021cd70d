"""Follows changes of configs that any broker makes: each is a sequential node below `/config/changes`.

1. Only notifications with a higher number than the last one are handled, in the order of their numbers. The ones that
   exist at the start of a session are not: the broker reads all its configs then.
2. A notification names what has changed. `server/configs/dynamic_configs` reads the value when it is handled, so the
   newest one counts.
3. If a new notification cannot be read, or was deleted before it was listed, the broker reads all its configs again.
   The number of creations shows the latter: the version of the node above counts them.
4. Notifications that are 15 minutes older than the newest one are deleted whenever others are handled. Several brokers
   may do it. All times are those of the service: the clocks of brokers may differ.
5. Both formats of Kafka are read: version 1 has the type and the name of an entity, version 2 its path. Others and
   garbage are logged and skipped.

Sources: ZkNodeChangeNotificationListener.scala, ZkConfigManager.scala of Apache Kafka 3.9.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.cluster.configs.expiring_nodes import EXPIRATION_MS
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError, SessionExpiredError
from kafkalite.coordination.tree import Stat, WatchEvent
from kafkalite.rate_limited_log import RateLimitedLog

LOGGER = logging.getLogger("kafkalite.cluster")
RETRY_S = 1.0
RELOAD_S = 0.2  # between a missing notification and the reads

Changed = Callable[..., object]


class Notifications(NamedTuple):
    """The notifications of one subject.

    Arguments:
        path: the node above them.
        name: with which their names begin.
        decode: returns what has changed, from the path and the contents of one; raises ZnodeError.
        reload_invalid: whether everything is read after one that cannot be read.
    """

    path: str = znodes.CONFIG_CHANGES
    name: str = znodes.CONFIG_CHANGE
    decode: Callable[[str, bytes], tuple[Any, ...]] = znodes.decode_config_change
    reload_invalid: bool = False


OF_CONFIGS = Notifications()


class ConfigWatcher:
    """The notifications as one session sees them.

    Arguments:
        session: with the coordination service.
        clock: for pauses.
        changed: called with what has changed: of configs the type and the name of the entity, as in the tree:
            ("topics", "orders").
        reload: called when the watch is set, and when a notification is missing: everything must be read. Configs that
            are read from the first call on are followed.
        of: which notifications.
    """

    def __init__(
        self,
        session: Coordination,
        clock: Clock,
        changed: Changed,
        reload: Callable[[], object] = lambda: None,
        of: Notifications = OF_CONFIGS,
    ) -> None:
        self._of = of
        self._session = session
        self._clock = clock
        self._log = RateLimitedLog(LOGGER, clock)
        self._changed = changed
        self._reload = reload
        self._last: int | None = None
        self._creations = 0  # nodes that were ever created, as of the last list
        self._listed_names: set[str] = set()
        self._created: dict[str, int] = {}  # time of creation of each notification that was read, in ms
        self._reads = 0  # of notifications, which are under way
        self._reading = self._again = self._closed = False
        self._retry: Timer | None = None
        self._reloading: Timer | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._look()

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        for timer in (self._retry, self._reloading):
            if timer is not None:
                timer.cancel()

    def _fired(self, _event: WatchEvent) -> None:
        self._look()

    def _look(self) -> None:
        """Read the names; one read at a time, and another one if something changed meanwhile."""
        if self._closed:
            return
        self._again = self._reading
        if not self._reading:
            self._reading = True
            self._session.children(self._of.path, self._listed, self._fired)

    def _listed(self, outcome: Outcome) -> None:
        self._reading = False
        if self._closed:
            return
        if isinstance(outcome.error, SessionExpiredError):
            return
        if isinstance(outcome.error, CoordinationError):
            text = "changes of configs cannot be read, next attempt in %.0f s: %s"
            self._log(logging.WARNING, "read", text, RETRY_S, outcome.error)
            self._retry = self._clock.call_at(self._clock.monotonic() + RETRY_S, self._look)
            return
        self._handle(*outcome.result())
        if self._again:
            self._look()

    def _handle(self, names: list[str], stat: Stat) -> None:
        prefix = self._of.name
        numbers = sorted((int(name.removeprefix(prefix)), name) for name in names if is_notification(name, prefix))
        last, first = self._last, self._last is None
        self._last = max([-1 if last is None else last, *(number for number, _ in numbers)])
        missing = self._count_missing(names, stat)
        created, self._created = self._created, {}
        for number, name in numbers:
            if name in created:
                self._created[name] = created[name]
            else:
                self._reads += 1
                self._session.get(f"{self._of.path}/{name}", partial(self._read, name, last, number))
        if first:
            self._reload()
        elif missing:
            self._reload_soon()

    def _count_missing(self, names: list[str], stat: Stat) -> int:
        """The number of nodes that were created since the last list and are not in this one."""
        before, known = self._creations, self._listed_names
        self._creations, self._listed_names = (stat.cversion + len(names)) // 2, set(names)
        return self._creations - before - len(self._listed_names - known)

    def _read(self, name: str, last: int | None, number: int, outcome: Outcome) -> None:
        """Handle a notification that was created after `last`."""
        self._reads -= 1
        if self._closed or isinstance(outcome.error, SessionExpiredError):
            return
        is_new = last is not None and number > last
        if isinstance(outcome.error, CoordinationError):
            if is_new:
                self._reload_soon()
            return
        data, stat = outcome.result()
        if is_new:
            try:
                entity = self._of.decode(f"{self._of.path}/{name}", data)
            except znodes.ZnodeError as error:
                LOGGER.warning("%s: the notification is skipped", error)
                if self._of.reload_invalid:
                    self._reload_soon()
            else:
                self._changed(*entity)
        self._created[name] = stat.ctime
        if not self._reads:
            self._delete_old()

    def _reload_soon(self) -> None:
        """Let the broker read everything, once for all notifications that are missing within a moment."""
        if self._reloading is None:
            self._reloading = self._clock.call_at(self._clock.monotonic() + RELOAD_S, self._reload_now)

    def _reload_now(self) -> None:
        self._reloading = None
        self._reload()

    def _delete_old(self) -> None:
        """Delete the notifications that are old compared with the newest one."""
        limit = max(self._created.values(), default=0) - EXPIRATION_MS
        for name in [name for name, created_ms in self._created.items() if created_ms < limit]:
            del self._created[name]
            path = f"{self._of.path}/{name}"
            self._session.delete(path, partial(deleted, path))


def deleted(path: str, outcome: Outcome) -> None:
    """Log a deletion that failed; the next change repeats it."""
    error = outcome.error
    if error is None or isinstance(error, NoNodeError):
        return
    if not isinstance(error, CoordinationError):
        raise error
    LOGGER.info("%s was not deleted: %s", path, error)


def is_notification(name: str, prefix: str = znodes.CONFIG_CHANGE) -> bool:
    """Whether the name is one of a sequential node, with its number."""
    return name.startswith(prefix) and name.removeprefix(prefix).isdecimal() and len(name) <= len(prefix) + 10
