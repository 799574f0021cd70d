"""Follows the changes of ACLs that any broker makes, during one session."""

from collections.abc import Callable

from kafkalite.clock import Clock
from kafkalite.cluster.acls.nodes import pattern_of
from kafkalite.cluster.acls.store import AclStore
from kafkalite.cluster.configs.notifications import ConfigWatcher, Notifications
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.znodes.acls import (
    ACL_CHANGE,
    EXTENDED_CHANGES,
    LITERAL_CHANGES,
    ChangedAcls,
    decode_extended_change,
    decode_literal_change,
)

LITERAL = Notifications(LITERAL_CHANGES, ACL_CHANGE, decode_literal_change, reload_invalid=True)
EXTENDED = Notifications(EXTENDED_CHANGES, ACL_CHANGE, decode_extended_change, reload_invalid=True)


class AclFollower:
    """Reads all ACLs when both kinds of notifications are watched, then the patterns that have changed.

    Arguments:
        store: reads them, over this session.
        session: with the coordination service.
        clock: for pauses.
        read: called when all ACLs were read in this session, each time.
    """

    def __init__(self, store: AclStore, session: Coordination, clock: Clock, read: Callable[[], object]) -> None:
        self._store = store
        self._read = read
        self._closed = False
        kinds = (LITERAL, EXTENDED)
        self._unwatched = len(kinds)
        self._watchers = [ConfigWatcher(session, clock, self._changed, self._reload, each) for each in kinds]

    def start(self) -> None:
        """Watch, and read everything."""
        for watcher in self._watchers:
            watcher.start()

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        for watcher in self._watchers:
            watcher.close()

    def _changed(self, resource_type: str, name: str, prefixed: bool) -> None:
        pattern = pattern_of(ChangedAcls(resource_type, name, prefixed))
        if pattern is None:  # a type that this version does not know
            self._store.reload()
        else:
            self._store.refresh(pattern)

    def _reload(self) -> None:
        """A watch is set for the first time, or a notification is missing."""
        self._unwatched = max(0, self._unwatched - 1)
        if not self._closed and not self._unwatched:
            self._store.reload(self._read)
