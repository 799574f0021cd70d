"""Changes the settings of a quota entity in the tree: client quotas, and SCRAM credentials of users.

1. A change is computed from the node that was read and written to its version. If another broker has changed the node
   meanwhile, it is read and computed again. Settings that are no quotas, such as SCRAM credentials, are kept.
2. A node without settings is deleted, with those above it that are empty (tryCleanQuotaNodes in Kafka), unless it has
   children.
3. In a cluster each change creates a notification, in the same transaction, as in Kafka.
4. After a lost connection the node is read back: the change is made if it would change nothing.

Source: AdminZkClient.changeEntityConfig of Apache Kafka 3.9.
"""

from collections.abc import Callable, Mapping
from functools import partial

from kafkalite.callbacks import fail_on_exception, once
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.configs.client_quotas import QuotaEntity
from kafkalite.cluster.configs.writes import notice_of
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
    NotEmptyError,
)
from kafkalite.coordination.tree import Create, Delete, Operation, Set
from kafkalite.coordination.znodes.quotas import decode_quotas
from kafkalite.errors import KafkaErrorCode, reason_of

ATTEMPTS_MAX = 20  # each but the last one is one that another change has overtaken
CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError)

Done = Callable[[Refusal | None], object]
Check = Callable[[Mapping[str, str]], Refusal | None]


class QuotaChange:
    """One change of the quotas of an entity.

    Arguments:
        session: with the coordination service.
        entity: whose quotas change.
        texts: the new text of each key, None = it is removed.
        notify: whether a notification is created.
        then: called once with None after the change is durable, or with the reason why nothing has changed.
        check: called with the settings of the node before the first write; returns why they do not allow the change.
    """

    def __init__(
        self,
        session: Coordination,
        entity: QuotaEntity,
        texts: Mapping[str, str | None],
        *,
        notify: bool,
        then: Done,
        check: Check = lambda _before: None,
    ) -> None:
        self._session = session
        self._path = entity.path
        self._texts = texts
        self._notices = (notice_of(self._path.removeprefix("/config/"), znodes.CONFIG_CHANGES),) if notify else ()
        self._then = once(then)
        self._check = check
        self._attempts = 0

    def start(self) -> None:
        """Read the node, and write it."""
        self._attempts += 1
        self._session.get(self._path, self._guarded(self._read))

    def _read(self, outcome: Outcome) -> None:
        before: dict[str, str] = {}
        version = None  # there is no node
        if outcome.error is None:
            data, stat = outcome.value
            version = stat.version
            try:
                before = decode_quotas(self._path, data)
            except znodes.ZnodeError as error:
                self._then(Refusal(KafkaErrorCode.INVALID_CONFIG, str(error)))
                return
        elif not isinstance(outcome.error, NoNodeError):
            self._fail(outcome.error)
            return
        refusal = self._check(before)
        if refusal is not None:
            self._then(refusal)
            return
        after = self._changed(before)
        if after == before:
            self._then(None)
        else:
            self._write(after, version)

    def _changed(self, before: Mapping[str, str]) -> dict[str, str]:
        merged = {**before, **self._texts}
        return {key: text for key, text in merged.items() if text is not None}

    def _write(self, after: Mapping[str, str], version: int | None) -> None:
        data = znodes.encode_configs(after)
        if version is None:
            above = znodes.parents(self._path)
            ensure_nodes(self._session, above, self._guarded(partial(self._above_exists, Create(self._path, data))))
        elif after:
            self._commit(Set(self._path, data, version))
        else:
            self._commit(Delete(self._path, version), instead=Set(self._path, data, version))

    def _above_exists(self, node: Create, outcome: Outcome) -> None:
        if outcome.error is None:
            self._commit(node)
        else:
            self._written(node, None, outcome)

    def _commit(self, operation: Operation, *, instead: Operation | None = None) -> None:
        """Execute the change; `instead`: if the node to delete has children."""
        written = partial(self._written, operation, instead)
        self._session.multi((operation, *self._notices), self._guarded(written))

    def _written(self, operation: Operation, instead: Operation | None, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            if isinstance(operation, Delete):
                self._delete_empty(znodes.parents(self._path)[2:])
            else:
                self._then(None)
        elif isinstance(error, NotEmptyError) and instead is not None:
            self._commit(instead)
        elif isinstance(error, CONFLICTS) and self._attempts < ATTEMPTS_MAX:
            self.start()
        elif isinstance(error, ConnectionLossError):
            self._session.get(self._path, self._guarded(partial(self._read_back, error)))
        else:
            self._fail(error)

    def _read_back(self, lost: ConnectionLossError, outcome: Outcome) -> None:
        try:
            found = decode_quotas(self._path, outcome.value[0]) if outcome.error is None else {}
        except znodes.ZnodeError:  # another program has written it
            found = {}
        known = outcome.error is None or isinstance(outcome.error, NoNodeError)
        if known and self._changed(found) == found:
            self._then(None)
        else:
            self._fail(lost)

    def _delete_empty(self, above: list[str]) -> None:
        """Delete the nodes above a deleted one, from the lowest on, as long as they are empty."""
        if not above:
            self._then(None)
        else:
            self._session.get(above[-1], self._guarded(partial(self._delete_if_empty, above)))

    def _delete_if_empty(self, above: list[str], outcome: Outcome) -> None:
        if outcome.error is not None or outcome.value[1].num_children or has_settings(above[-1], outcome.value[0]):
            self._then(None)
            return
        version = outcome.value[1].version
        self._session.delete(above[-1], self._guarded(partial(self._deleted_empty, above)), version)

    def _deleted_empty(self, above: list[str], outcome: Outcome) -> None:
        if outcome.error is None:
            self._delete_empty(above[:-1])
        else:  # another broker uses it, or deletes it; an empty node has no effect
            self._then(None)

    def _guarded(self, step: Then) -> Then:
        return fail_on_exception(step, lambda: self._then(Refusal(KafkaErrorCode.UNKNOWN_SERVER_ERROR)))

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, CONFLICTS):
            text = "The quotas are changed by others all the time: try again"
            self._then(Refusal(KafkaErrorCode.REQUEST_TIMED_OUT, text))
        elif isinstance(error, CoordinationError):
            code = code_of(error)
            self._then(Refusal(code, reason_of(code)))
        else:
            raise error


def has_settings(path: str, data: bytes) -> bool:
    """Whether a node has settings, or contents that cannot be read."""
    try:
        return bool(decode_quotas(path, data))
    except znodes.ZnodeError:
        return True
