"""The session of this broker with the coordination service, whichever it is now: a lost one is replaced by another.

What a session owns (watches, ephemeral nodes, elections) is built again on each one. Reads and writes of requests may
come at any time; they use this object. Without a session they fail with SessionExpiredError.
"""

from collections.abc import Sequence

from kafkalite.clock import Outcome, Then
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import SessionExpiredError
from kafkalite.coordination.tree import ANY_VERSION, NO_SESSION, Operation, Watcher


class CurrentSession:
    """A `Coordination` over the current session.

    Attributes:
        session: it, None while there is none.
    """

    def __init__(self, session: Coordination | None = None) -> None:
        self.session = session

    @property
    def session_id(self) -> int:
        """The id of the current session, 0 without one."""
        return NO_SESSION if self.session is None else self.session.session_id

    @property
    def lost(self) -> bool:
        """Whether there is no session."""
        return self.session is None or self.session.lost

    @property
    def suspended(self) -> bool:
        """Whether the service is out of reach."""
        return self.session is None or self.session.suspended

    def get(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(data, Stat) of the node `path`, for `then`; `watch` is called at its next change."""
        if self.session is None:
            lost(then)
        else:
            self.session.get(path, then, watch)

    def exists(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """Stat of the node `path`, or None, for `then`; `watch` is called at its next change."""
        if self.session is None:
            lost(then)
        else:
            self.session.exists(path, then, watch)

    def children(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(names of the children in order, Stat) of the node `path`, for `then`; `watch` receives the next change."""
        if self.session is None:
            lost(then)
        else:
            self.session.children(path, then, watch)

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Create a node; `then` receives a `CreatedNode`.

        Arguments: as of `Coordination.create`.
        """
        if self.session is None:
            lost(then)
        else:
            self.session.create(path, data, then, ephemeral=ephemeral, sequence=sequence)

    def set(self, path: str, data: bytes, then: Then, version: int = ANY_VERSION) -> None:
        """Replace the data of the node `path` if it has this `version`; `then` receives the new Stat."""
        if self.session is None:
            lost(then)
        else:
            self.session.set(path, data, then, version)

    def delete(self, path: str, then: Then, version: int = ANY_VERSION) -> None:
        """Remove the node `path` if it has this `version`; `then` receives None."""
        if self.session is None:
            lost(then)
        else:
            self.session.delete(path, then, version)

    def multi(self, operations: Sequence[Operation], then: Then) -> None:
        """Execute all operations or none; a list with `CreatedNode`, Stat or None for each."""
        if self.session is None:
            lost(then)
        else:
            self.session.multi(operations, then)

    def close(self, then: Then) -> None:
        """End the current session; None."""
        session, self.session = self.session, None
        if session is None:
            then(Outcome())
        else:
            session.close(then)


def lost(then: Then) -> None:
    """Fail a call, because there is no session."""
    then(Outcome(error=SessionExpiredError()))
