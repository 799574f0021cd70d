"""Changes one delegation token in the tree.

1. A change is decided on the node that was read, and written to its version. After a conflict the node is read, and
   the change decided, again.
2. In a cluster each change creates a notification, in the same transaction.
3. After a lost connection the node is read back: the change is made if the node has what was to be written.

Source: DelegationTokenManagerZk.scala of Apache Kafka 3.9, which writes without a version and notifies afterwards.
"""

from collections.abc import Callable
from functools import partial

from kafkalite.callbacks import fail_on_exception, once
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.cluster.tokens.nodes import decode, encode
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import BadVersionError, ConnectionLossError, NodeExistsError, NoNodeError
from kafkalite.coordination.tree import Create, Delete, Operation, Set
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.coordination.znodes.tokens import token_change, token_path
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.delegation_tokens import Change, Token

ATTEMPTS_MAX = 20  # each but the last one is one that another change has overtaken
NODE_BYTES_MAX = 1_000_000  # ZooKeeper closes connections with requests above 1 MiB (jute.maxbuffer)
CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError)

Decide = Callable[[Token], Change]


class TokenChange:
    """One change of a token.

    Arguments:
        session: with the coordination service.
        token_id: of the token.
        decide: returns the change of the stored token; may be called several times. None: `new` is created.
        notify: whether a notification is created.
        then: called once with the change that was made, or with its error.
        new: the token to create.
    """

    def __init__(
        self,
        session: Coordination,
        token_id: str,
        decide: Decide | None,
        *,
        notify: bool,
        then: Callable[[Change], object],
        new: Token | None = None,
    ) -> None:
        self._session = session
        self._path = token_path(token_id)
        self._decide = decide
        self._new = new
        self._notices = (token_change(token_id),) if notify else ()
        self._then = once(then)
        self._attempts = 0

    def start(self) -> None:
        """Read the node, and write it."""
        self._attempts += 1
        if self._new is not None:
            self._write(Change(token=self._new, expiry_ms=self._new.expiry_ms), None)
        else:
            self._session.get(self._path, self._guarded(self._read))

    def _read(self, outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            self._refuse(KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            return
        if outcome.error is not None:
            self._refuse(code_of(outcome.error))
            return
        data, stat = outcome.value
        try:
            token = decode(self._path, data)
        except ZnodeError:  # it is no token until an operator has corrected or deleted it
            self._refuse(KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            return
        assert self._decide is not None
        change = self._decide(token)
        if change.error or change.token == token:
            self._then(change)
        else:
            self._write(change, stat.version)

    def _write(self, change: Change, version: int | None) -> None:
        data = b"" if change.token is None else encode(change.token)
        if len(data) > NODE_BYTES_MAX:
            self._refuse(KafkaErrorCode.INVALID_REQUEST)
            return
        operation: Operation
        if version is None:
            operation = Create(self._path, data)
        elif change.token is None:
            operation = Delete(self._path, version)
        else:
            operation = Set(self._path, data, version)
        self._session.multi((operation, *self._notices), self._guarded(partial(self._written, change)))

    def _written(self, change: Change, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            self._then(change)
        elif isinstance(error, CONFLICTS) and self._new is None and self._attempts < ATTEMPTS_MAX:
            self.start()
        elif isinstance(error, ConnectionLossError):
            self._session.get(self._path, self._guarded(partial(self._read_back, change, error)))
        else:
            self._refuse(code_of(error))

    def _read_back(self, change: Change, lost: ConnectionLossError, outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            made = change.token is None
        else:
            made = outcome.error is None and change.token is not None and outcome.value[0] == encode(change.token)
        if made:
            self._then(change)
        else:
            self._refuse(code_of(lost))

    def _guarded(self, step: Then) -> Then:
        return fail_on_exception(step, lambda: self._refuse(KafkaErrorCode.UNKNOWN_SERVER_ERROR))

    def _refuse(self, error: int) -> None:
        self._then(Change(error))
