"""Follows the changes of ACLs that any broker makes, during one session."""

from collections.abc import Callable

from kafkalite.clock import Clock
from kafkalite.cluster.acls.nodes import pattern_of
from kafkalite.cluster.acls.store import AclStore
from kafkalite.cluster.configs.notifications import Notifications
from kafkalite.cluster.node_store import StoreFollower
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


def acl_follower(store: AclStore, session: Coordination, clock: Clock, read: Callable[[], object]) -> StoreFollower:
    """Return the follower of ACLs: it reads all of them once both types of notifications are watched.

    Arguments: as of `StoreFollower`.
    """

    def changed(resource_type: str, name: str, prefixed: bool) -> None:
        pattern = pattern_of(ChangedAcls(resource_type, name, prefixed))
        if pattern is None:  # a type that this version does not know
            store.reload()
        else:
            store.refresh(pattern)

    return StoreFollower(store, session, clock, changed, (LITERAL, EXTENDED), read)
