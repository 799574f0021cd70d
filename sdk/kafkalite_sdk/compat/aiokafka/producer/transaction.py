"""The ends of transactions as aiokafka's: a missing right is raised itself, not as the cause of another error."""

from collections.abc import Awaitable
from types import TracebackType

from kafkalite.errors import AuthorizationError, TransactionAbortedError
from kafkalite_sdk.producer.transactions.block import Transaction


async def raise_authorization(call: Awaitable[None]) -> None:
    """Await a call of a transaction.

    Arguments:
        call: of the engine.

    Raises:
        AuthorizationError: the transaction has failed, as the user lacks a right (aiokafka's `error_transaction`).
        TransactionAbortedError: it has failed for another reason.
    """
    try:
        await call
    except TransactionAbortedError as error:
        cause = error.__cause__
        if not isinstance(cause, AuthorizationError):
            raise
    else:
        return
    raise cause


class AuthorizedTransaction(Transaction):
    """The block of one transaction, with the errors of `raise_authorization`."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await raise_authorization(super().__aexit__(kind, error, trace))
