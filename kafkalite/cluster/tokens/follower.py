"""Follows the changes of delegation tokens that any broker makes, during one session."""

from collections.abc import Callable

from kafkalite.clock import Clock
from kafkalite.cluster.configs.notifications import ConfigWatcher, Notifications
from kafkalite.cluster.tokens.store import DelegationTokens
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.znodes.tokens import TOKEN_CHANGE, TOKEN_CHANGES, decode_token_change

CHANGES = Notifications(TOKEN_CHANGES, TOKEN_CHANGE, decode_token_change, reload_invalid=True)


class TokenFollower:
    """Reads all tokens when their notifications are watched, then those that have changed.

    Arguments:
        tokens: reads them, over this session.
        session: with the coordination service.
        clock: for pauses.
        read: called when all tokens were read in this session, each time.
    """

    def __init__(
        self, tokens: DelegationTokens, session: Coordination, clock: Clock, read: Callable[[], object]
    ) -> None:
        self._tokens = tokens
        self._read = read
        self._closed = False
        self._watcher = ConfigWatcher(session, clock, tokens.refresh, self._reload, CHANGES)

    def start(self) -> None:
        """Watch, and read everything."""
        self._watcher.start()

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        self._watcher.close()

    def _reload(self) -> None:
        if not self._closed:
            self._tokens.reload(self._read)
