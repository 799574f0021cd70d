"""The interface of a coordination service, with the guarantees for its users.

Every call ends with `then(outcome)`, called once: `outcome.result()` returns the value or raises a `CoordinationError`.
Calls use callbacks instead of awaitables, because handlers are plain functions that keep a Reply, and because a
callback may run within the call: the embedded service in memory responds before the call returns, a journal or
ZooKeeper later. A user must support both.

The contract, which tests/contract/coordination checks on every backend:
1. Changes of one session happen in the order of the calls; responses and events arrive in that order.
2. The response to a change means that it is durable; a read never shows a change that is not durable.
3. A watch is one-shot and set by the read that returned the value. Its event comes before any response that shows the
   change. Events may coalesce: read again and compare versions.
4. `multi` is all or nothing.
5. After ConnectionLossError a change may or may not have happened. Wait until the session is not `suspended`, then
   read back: reads from then on show the change if it happened, and it does not happen later.
6. A session is suspended while it has no connection. `on_suspended` is called, then changes without a response fail
   with ConnectionLossError, in the order of the calls; later changes fail at once. Changes are never repeated. Reads
   wait, and are repeated. `on_resumed` is called when the same session continues with its ephemeral znodes and watches;
   the events of changes during the suspension come before. Or the session is lost.
7. A lost session loses its ephemeral znodes and watches; `on_lost` is called once, and no other callback but those of
   open calls, which fail with SessionExpiredError, as do later ones. Rebuild everything in a new session.
8. A failed `multi` raises the error of the operation that failed, with `at` its index.

Not part of the contract: access control, the order between sessions (a read may miss another session's last changes,
except after rule 5), response times, and whether a node without data has null or empty data: both are b"".
"""

from collections.abc import Sequence
from typing import Protocol

from kafkalite.clock import Then
from kafkalite.coordination.tree import ANY_VERSION, Operation, Watcher


class Coordination(Protocol):
    """One session with a coordination service."""

    @property
    def session_id(self) -> int:
        """The owner of this session's ephemeral nodes."""

    @property
    def lost(self) -> bool:
        """Whether the session is over."""

    @property
    def suspended(self) -> bool:
        """Whether the session has no connection now: changes fail at once, reads wait. False after the session."""

    def get(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(data, Stat) of a node."""

    def exists(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """Stat of a node, or None."""

    def children(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(names of the children in order, Stat) of a node."""

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Create a node.

        Arguments:
            path: absolute; its parent exists.
            data: of the node.
            then: called with a `CreatedNode`.
            ephemeral: the node is deleted with the session.
            sequence: a counter of ten digits is appended to the path.
        """

    def set(self, path: str, data: bytes, then: Then, version: int = ANY_VERSION) -> None:
        """Replace a node's data if it has this version; the new Stat."""

    def delete(self, path: str, then: Then, version: int = ANY_VERSION) -> None:
        """Remove a node if it has this version; None."""

    def multi(self, operations: Sequence[Operation], then: Then) -> None:
        """Execute all operations or none; a list with `CreatedNode`, Stat or None for each."""

    def close(self, then: Then) -> None:
        """End the session: its ephemeral nodes go; None."""
