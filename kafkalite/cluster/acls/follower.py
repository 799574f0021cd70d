"""Follows the changes of ACLs that any broker makes, during one session."""

from kafkalite.clock import Clock
from kafkalite.cluster.acls.nodes import pattern_of
from kafkalite.cluster.acls.store import AclStore
from kafkalite.cluster.configs.watcher import ConfigWatcher, Notifications
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
    """Reads patterns that have changed, and everything at the beginning of the session.

    Arguments:
        store: reads them, over this session.
        session: with the coordination service.
        clock: for pauses.
    """

    def __init__(self, store: AclStore, session: Coordination, clock: Clock) -> None:
        self._store = store
        self._closed = False
        self._watchers = [
            ConfigWatcher(session, clock, self._changed, self._reload, LITERAL),
            ConfigWatcher(session, clock, self._changed, self._reload, EXTENDED),
        ]

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
            self._reload()
        else:
            self._store.refresh(pattern)

    def _reload(self) -> None:
        if not self._closed:
            self._store.reload()
