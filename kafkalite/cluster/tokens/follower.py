"""Follows the changes of delegation tokens that any broker makes, during one session."""

from collections.abc import Callable

from kafkalite.clock import Clock
from kafkalite.cluster.configs.notifications import Notifications
from kafkalite.cluster.node_store import StoreFollower
from kafkalite.cluster.tokens.store import DelegationTokens
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.znodes.tokens import TOKEN_CHANGE, TOKEN_CHANGES, decode_token_change

CHANGES = Notifications(TOKEN_CHANGES, TOKEN_CHANGE, decode_token_change, reload_invalid=True)


def token_follower(
    tokens: DelegationTokens, session: Coordination, clock: Clock, read: Callable[[], object]
) -> StoreFollower:
    """Return the follower of tokens; arguments as of `StoreFollower`."""
    return StoreFollower(tokens, session, clock, tokens.refresh, (CHANGES,), read)
