"""Changes one delegation token in the tree by compare-and-set.

Source: DelegationTokenManagerZk.scala of Apache Kafka 3.9, which writes without a version and notifies afterwards.
"""

from collections.abc import Callable

from kafkalite.cluster.compare_and_set import CompareAndSet
from kafkalite.cluster.tokens.nodes import decode, encode
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.tree import Create
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.coordination.znodes.tokens import token_change, token_path
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.delegation_tokens import Change, Token

Decide = Callable[[Token], Change]


class TokenChange(CompareAndSet[Change]):
    """One change of a token.

    Arguments:
        session: with the coordination service.
        token_id: of the token.
        change: returns the change of the stored token; may be called several times. Or a new token, which is created.
        notify: whether a notification is created.
        then: called once with the change that was made, or with its error.
    """

    def __init__(
        self,
        session: Coordination,
        token_id: str,
        change: Decide | Token,
        *,
        notify: bool,
        then: Callable[[Change], object],
    ) -> None:
        super().__init__(session, token_path(token_id), (token_change(token_id),) if notify else (), "tokens", then)
        self._change = change
        self._decided = Change()

    def _attempt(self) -> None:
        """Read the node, and write it; a new one is written at once."""
        if isinstance(self._change, Token):
            self._decided = Change(token=self._change, expiry_ms=self._change.expiry_ms)
            self._commit(Create(self._path, encode(self._change)))
        else:
            super()._attempt()

    def _decide(self, data: bytes | None, version: int | None) -> None:
        assert not isinstance(self._change, Token)
        try:
            token = None if data is None else decode(self._path, data)
        except ZnodeError:  # it is no token until an operator has corrected or deleted it
            token = None
        if token is None:
            self._refuse(KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND, None)
            return
        self._decided = self._change(token)
        if self._decided.error or self._decided.token == token:
            self._made()
        else:
            self._write(self._encoded(), version)

    def _encoded(self) -> bytes | None:
        return None if self._decided.token is None else encode(self._decided.token)

    def _is_made(self, data: bytes | None) -> bool:
        return data == self._encoded()

    def _made(self) -> None:
        self._then(self._decided)

    def _refuse(self, error: int, text: str | None) -> None:
        self._then(Change(error))
