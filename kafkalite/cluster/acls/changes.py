"""Changes the ACLs of a resource pattern in the tree.

1. A change is computed from the node that was read, and written to its version. After a conflict it is read and
   computed again: no change is lost.
2. A node without ACLs is deleted, as by AclAuthorizer.
3. In a cluster each change creates a notification, in the same transaction.
4. After a lost connection the node is read back: the change is made if it would change nothing.
5. A node that cannot be read is not changed: an operator has to correct or delete it.

Source: AclAuthorizer.updateResourceAcls of Apache Kafka 3.9, which writes the notification afterwards.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kafkalite.callbacks import fail_on_exception, once
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.acls.nodes import decode, encode, notice_of, path_of
from kafkalite.cluster.changes import Refusal
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
from kafkalite.state.authorizer.acls import Acl, ResourcePattern

ATTEMPTS_MAX = 20  # each but the last one is one that another change has overtaken
NODE_BYTES_MAX = 1_000_000  # ZooKeeper closes connections with requests above 1 MiB (jute.maxbuffer)
CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError)

Acls = tuple[Acl, ...]


class Changed(NamedTuple):
    """The end of a change.

    Arguments:
        refusal: why nothing was changed; None: it is durable.
        before: the ACLs that the change was computed from.
        after: the ACLs that are stored.
    """

    refusal: Refusal | None
    before: Acls = ()
    after: Acls = ()


class AclChange:
    """One change of the ACLs of a pattern.

    Arguments:
        session: with the coordination service.
        pattern: whose ACLs change.
        change: returns the new ACLs; may be called several times.
        notify: whether a notification is created.
        then: called once with the end.
    """

    def __init__(
        self,
        session: Coordination,
        pattern: ResourcePattern,
        change: Callable[[Acls], Acls],
        *,
        notify: bool,
        then: Callable[[Changed], object],
    ) -> None:
        self._session = session
        self._path = path_of(pattern)
        self._change = change
        self._notices = (notice_of(pattern),) if notify else ()
        self._then = once(then)
        self._attempts = 0
        self._before: Acls = ()

    def start(self) -> None:
        """Read the node, and write it."""
        self._attempts += 1
        self._session.get(self._path, self._guarded(self._read))

    def _read(self, outcome: Outcome) -> None:
        self._before, version = (), None
        if outcome.error is None:
            data, stat = outcome.value
            version = stat.version
            try:
                self._before = decode(self._path, data)
            except znodes.ZnodeError as error:
                self._refuse(KafkaErrorCode.INVALID_REQUEST, f"the stored ACLs cannot be read: {error}")
                return
        elif not isinstance(outcome.error, NoNodeError):
            self._fail(outcome.error)
            return
        after = self._change(self._before)
        if set(after) == set(self._before):
            self._end(after)
        else:
            self._write(after, version)

    def _write(self, after: Acls, version: int | None) -> None:
        data = encode(after)
        if len(data) > NODE_BYTES_MAX:
            text = f"the ACLs of this resource would have {len(data)} bytes, allowed are {NODE_BYTES_MAX}"
            self._refuse(KafkaErrorCode.INVALID_REQUEST, text)
        elif version is None:
            create = partial(self._parent_exists, after, Create(self._path, data))
            ensure_nodes(self._session, znodes.parents(self._path), self._guarded(create))
        elif after:
            self._commit(after, Set(self._path, data, version))
        else:
            self._commit(after, Delete(self._path, version))

    def _parent_exists(self, after: Acls, node: Create, outcome: Outcome) -> None:
        if outcome.error is None:
            self._commit(after, node)
        else:
            self._written(after, outcome)

    def _commit(self, after: Acls, operation: Operation) -> None:
        self._session.multi((operation, *self._notices), self._guarded(partial(self._written, after)))

    def _written(self, after: Acls, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            self._end(after)
        elif isinstance(error, CONFLICTS) and self._attempts < ATTEMPTS_MAX:
            self.start()
        elif isinstance(error, ConnectionLossError):
            self._session.get(self._path, self._guarded(partial(self._read_back, error)))
        else:
            self._fail(error)

    def _read_back(self, lost: ConnectionLossError, outcome: Outcome) -> None:
        stored: Acls | None = None
        if isinstance(outcome.error, NoNodeError):
            stored = ()
        elif outcome.error is None:
            try:
                stored = decode(self._path, outcome.value[0])
            except znodes.ZnodeError:  # another program has written it
                stored = None
        if stored is not None and set(self._change(stored)) == set(stored):
            self._end(stored)
        else:
            self._fail(lost)

    def _guarded(self, step: Then) -> Then:
        return fail_on_exception(step, lambda: self._then(Changed(Refusal(KafkaErrorCode.UNKNOWN_SERVER_ERROR))))

    def _end(self, after: Acls) -> None:
        self._then(Changed(None, self._before, after))

    def _refuse(self, error: int, text: str | None) -> None:
        self._then(Changed(Refusal(error, text)))

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, CONFLICTS):
            self._refuse(KafkaErrorCode.REQUEST_TIMED_OUT, "the ACLs are changed by others all the time: try again")
        elif isinstance(error, CoordinationError):
            code = code_of(error)
            self._refuse(code, reason_of(code))
        else:
            raise error
