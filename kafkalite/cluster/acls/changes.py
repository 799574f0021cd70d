"""Changes the ACLs of a resource pattern in the tree by compare-and-set.

1. A node without ACLs is deleted, as by AclAuthorizer.
2. A node that cannot be read is not changed: an operator has to correct or delete it.

Source: AclAuthorizer.updateResourceAcls of Apache Kafka 3.9, which writes the notification afterwards.
"""

from collections.abc import Callable
from typing import NamedTuple

from kafkalite.cluster.acls.nodes import decode, encode, notice_of, path_of
from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.compare_and_set import CompareAndSet
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.authorizer.acls import Acl, ResourcePattern

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


class AclChange(CompareAndSet[Changed]):
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
        notices = (notice_of(pattern),) if notify else ()
        super().__init__(session, path_of(pattern), notices, "ACLs of this resource", then)
        self._change = change
        self._before: Acls = ()
        self._after: Acls = ()

    def _decide(self, data: bytes | None, version: int | None) -> None:
        try:
            self._before = () if data is None else decode(self._path, data)
        except znodes.ZnodeError as error:
            self._refuse(KafkaErrorCode.INVALID_REQUEST, f"the stored ACLs cannot be read: {error}")
            return
        self._after = self._change(self._before)
        if set(self._after) == set(self._before):
            self._made()
        else:
            self._write(encode(self._after) if self._after else None, version)

    def _is_made(self, data: bytes | None) -> bool:
        try:
            self._after = () if data is None else decode(self._path, data)
        except znodes.ZnodeError:  # another program has written it
            return False
        return set(self._change(self._after)) == set(self._after)

    def _made(self) -> None:
        self._then(Changed(None, self._before, self._after))

    def _refuse(self, error: int, text: str | None) -> None:
        self._then(Changed(Refusal(error, text)))
