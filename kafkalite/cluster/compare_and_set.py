"""Changes one node of the tree by compare-and-set: the base of the changes of ACLs, tokens and quotas.

1. A change is decided on the node that was read, and written to its version. After a conflict the node is read, and the
   change decided, again: no change is lost.
2. In a cluster each change creates a notification, in the same transaction.
3. After a lost connection the node is read back: `_is_made` says whether it has the change.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from kafkalite.callbacks import fail_on_exception, once
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.errors import (
    BadVersionError,
    ConnectionLossError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
)
from kafkalite.coordination.tree import Create, Delete, Operation, Set
from kafkalite.errors import KafkaErrorCode, reason_of

ATTEMPTS_MAX = 20  # each but the last one is one that another change has overtaken
NODE_BYTES_MAX = 1_000_000  # ZooKeeper closes connections with requests above 1 MiB (jute.maxbuffer)
CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError)

End = TypeVar("End")


class CompareAndSet(ABC, Generic[End]):
    """One change of a node.

    Arguments:
        session: with the coordination service.
        path: of the node.
        notices: the notifications to create.
        what: the contents in the plural, for texts: "ACLs".
        then: called once with the end of the change.
    """

    def __init__(
        self,
        session: Coordination,
        path: str,
        notices: Sequence[Create],
        what: str,
        then: Callable[[End], object],
    ) -> None:
        self._session = session
        self._path = path
        self._notices = notices
        self._what = what
        self._then = once(then)
        self._attempts = 0

    # Of the subclass.

    @abstractmethod
    def _decide(self, data: bytes | None, version: int | None) -> None:
        """Call `_write`, or `_then` if nothing is to be written; both are None where there is no node."""

    @abstractmethod
    def _is_made(self, data: bytes | None) -> bool:
        """Whether a node with these contents has the change; None: there is no node."""

    @abstractmethod
    def _made(self) -> None:
        """Call `_then`: the change is durable."""

    @abstractmethod
    def _refuse(self, error: int, text: str | None) -> None:
        """Call `_then` with a Kafka error code and a text for the user: nothing has changed."""

    # The change.

    def start(self) -> None:
        """Read the node, and write it."""
        self._attempts += 1
        self._attempt()

    def _attempt(self) -> None:
        self._session.get(self._path, self._guarded(self._read))

    def _read(self, outcome: Outcome) -> None:
        if outcome.error is None:
            data, stat = outcome.value
            self._decide(data, stat.version)
        elif isinstance(outcome.error, NoNodeError):
            self._decide(None, None)
        else:
            self._fail(outcome.error)

    def _write(self, data: bytes | None, version: int | None) -> None:
        """Write the node if it has this version, None = no node; no data = it is deleted."""
        if version is None:
            assert data is not None
            create = partial(self._create, Create(self._path, data))
            ensure_nodes(self._session, znodes.parents(self._path), self._guarded(create))
        else:
            self._commit(Delete(self._path, version) if data is None else Set(self._path, data, version))

    def _create(self, node: Create, outcome: Outcome) -> None:
        if outcome.error is None:
            self._commit(node)
        else:
            self._written(outcome)

    def _commit(self, operation: Operation) -> None:
        size = len(operation.data) if isinstance(operation, Create | Set) else 0
        if size > NODE_BYTES_MAX:
            text = f"the {self._what} would have {size} bytes, allowed are {NODE_BYTES_MAX}"
            self._refuse(KafkaErrorCode.INVALID_REQUEST, text)
        else:
            self._session.multi((operation, *self._notices), self._guarded(self._written))

    def _written(self, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            self._made()
        elif isinstance(error, CONFLICTS) and self._attempts < ATTEMPTS_MAX:
            self.start()
        elif isinstance(error, ConnectionLossError):
            self._session.get(self._path, self._guarded(partial(self._read_back, error)))
        else:
            self._fail(error)

    def _read_back(self, lost: ConnectionLossError, outcome: Outcome) -> None:
        known = outcome.error is None or isinstance(outcome.error, NoNodeError)
        if known and self._is_made(None if outcome.error else outcome.value[0]):
            self._made()
        else:
            self._fail(lost)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, CONFLICTS):
            text = f"the {self._what} are changed by others all the time: try again"
            self._refuse(KafkaErrorCode.REQUEST_TIMED_OUT, text)
        elif isinstance(error, CoordinationError):
            code = code_of(error)
            self._refuse(code, reason_of(code))
        else:
            raise error

    def _guarded(self, step: Then) -> Then:
        return fail_on_exception(step, lambda: self._refuse(KafkaErrorCode.UNKNOWN_SERVER_ERROR, None))
