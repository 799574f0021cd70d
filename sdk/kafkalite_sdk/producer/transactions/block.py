"""The block of one transaction: `async with producer.transaction():`."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from kafkalite.errors import KafkaError, TransactionAbortedError

if TYPE_CHECKING:
    from kafkalite_sdk.producer.transactions.calls import Transactions


class Transaction:
    """A transaction that begins with the block, and is committed at its end, or aborted by an exception.

    After an exception the block waits for the abort, and the exception continues. After a cancellation the abort runs
    in the background; the next transaction and the close of the producer wait for it. A transaction that the
    application has ended inside of the block stays as it is; the end of the block has the outcome of a commit in doubt.

    Arguments:
        transactions: of the producer.
        consumers: that return to their committed offsets if it is aborted.
    """

    def __init__(self, transactions: "Transactions", consumers: tuple[object, ...]) -> None:
        self._transactions = transactions
        self._consumers = consumers
        self._number = 0

    async def __aenter__(self) -> Self:
        await self._transactions.begin(self._consumers, None)
        self._number = self._transactions.count + 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transactions = self._transactions
        if error is None:
            if transactions.count < self._number or transactions.in_doubt:
                await transactions.commit(None)
        elif not transactions.open:
            return
        elif not isinstance(error, Exception):
            transactions.begin_abort()
        else:
            await self._abort(error)

    async def _abort(self, error: Exception) -> None:
        """Abort; the exception of the block continues, with a note if the abort has failed. A producer that is closed
        now has no next transaction, so its error replaces that of the transaction."""
        try:
            await self._transactions.abort(None)
        except KafkaError as failure:
            if isinstance(error, TransactionAbortedError):
                raise failure from error
            error.add_note(f"the abort of the transaction has failed: {failure}")
