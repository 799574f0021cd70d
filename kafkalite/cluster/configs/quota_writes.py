"""Changes the settings of a quota entity in the tree by compare-and-set: client quotas, SCRAM credentials of users.

1. Settings that are no quotas, such as SCRAM credentials, are kept.
2. A node without settings is deleted, with those above it that are empty (tryCleanQuotaNodes in Kafka), unless it has
   children.

Source: AdminZkClient.changeEntityConfig of Apache Kafka 3.9.
"""

from collections.abc import Callable, Mapping
from functools import partial

from kafkalite.clock import Outcome
from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.compare_and_set import CompareAndSet
from kafkalite.cluster.configs.client_quotas import QuotaEntity
from kafkalite.cluster.configs.writes import notice_of
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import NotEmptyError
from kafkalite.coordination.znodes.quotas import decode_quotas
from kafkalite.errors import KafkaErrorCode

Done = Callable[[Refusal | None], object]
Check = Callable[[Mapping[str, str]], Refusal | None]


class QuotaChange(CompareAndSet[Refusal | None]):
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
        notices = (notice_of(entity.path.removeprefix("/config/"), znodes.CONFIG_CHANGES),) if notify else ()
        super().__init__(session, entity.path, notices, "settings of this entity", then)
        self._texts = texts
        self._check = check
        self._version: int | None = None
        self._deletes = False

    def _decide(self, data: bytes | None, version: int | None) -> None:
        try:
            before = {} if data is None else decode_quotas(self._path, data)
        except znodes.ZnodeError as error:
            self._refuse(KafkaErrorCode.INVALID_CONFIG, str(error))
            return
        refusal, after = self._check(before), self._changed(before)
        if refusal is not None or after == before:
            self._then(refusal)
            return
        self._version, self._deletes = version, not after
        self._write(znodes.encode_configs(after) if after else None, version)

    def _changed(self, before: Mapping[str, str]) -> dict[str, str]:
        merged = {**before, **self._texts}
        return {key: text for key, text in merged.items() if text is not None}

    def _written(self, outcome: Outcome) -> None:
        if isinstance(outcome.error, NotEmptyError):
            self._deletes = False
            self._write(znodes.encode_configs({}), self._version)
        else:
            super()._written(outcome)

    def _is_made(self, data: bytes | None) -> bool:
        try:
            stored = {} if data is None else decode_quotas(self._path, data)
        except znodes.ZnodeError:  # another program has written it
            return False
        return self._changed(stored) == stored

    def _made(self) -> None:
        if self._deletes:
            self._delete_empty(znodes.parents(self._path)[2:])
        else:
            self._then(None)

    def _refuse(self, error: int, text: str | None) -> None:
        self._then(Refusal(error, text))

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


def has_settings(path: str, data: bytes) -> bool:
    """Whether a node has settings, or contents that cannot be read."""
    try:
        return bool(decode_quotas(path, data))
    except znodes.ZnodeError:
        return True
