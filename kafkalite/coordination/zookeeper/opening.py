"""Opens a session with ZooKeeper that can be used: it is established, and its chroot exists.

1. The creation of the chroot is repeated when its connection breaks, and in another session when a new one is lost.
2. A failed opening leaves no session open; the session of an earlier process is left to its timeout.
3. A session that is lost before it can be used is not reported.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.clock import Outcome, Then
from kafkalite.coordination.errors import ConnectionLossError, SessionExpiredError

if TYPE_CHECKING:
    from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession

Connect = Callable[[Then, Callable[[], object]], "ZooKeeperSession"]


class SessionOpening:
    """One opening.

    Arguments:
        connect: begins a session; calls the first argument with the outcome, the second when the session is lost.
        then: called once with the session, or with an error.
        on_lost: called when a session that was passed to `then` is lost.
        is_new: another session may take the place of one that is lost; False: `connect` continues an earlier one.
    """

    def __init__(self, connect: Connect, then: Then, on_lost: Callable[[], object], *, is_new: bool) -> None:
        self._connect = connect
        self._then = then
        self._on_lost = on_lost
        self._is_new = is_new
        self._usable = False
        self._session: ZooKeeperSession

    def begin(self) -> None:
        """Begin a session. Raises ValueError: the servers are not valid."""
        self._session = self._connect(self._established, self._lost)

    def stop(self) -> None:
        """End all attempts; a session that exists already is left to its timeout. `then` is not called any more."""
        self._session.stop()

    def _established(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._then(outcome)
        else:
            self._session.create_chroot(self._created)

    def _created(self, made: Outcome) -> None:
        if made.error is None:
            self._usable = True
            self._then(Outcome(self._session))
        elif isinstance(made.error, ConnectionLossError):
            self._session.exists("/", self._reconnected)  # the read waits for the next connection
        elif not self._is_new:
            self._session.stop()
            self._then(made)
        elif isinstance(made.error, SessionExpiredError):
            self.begin()
        else:
            self._session.close(lambda _closed: self._then(made))

    def _reconnected(self, read: Outcome) -> None:
        if read.error is None:
            self._session.create_chroot(self._created)
        else:
            self._created(read)

    def _lost(self) -> None:
        if self._usable:
            self._on_lost()
