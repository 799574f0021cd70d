"""What `produce --transactional-id` reports of lines whose commit has failed."""

import asyncio
from typing import Any

import pytest

from kafkalite.cli.failure import Failure
from kafkalite.cli.records.transactional_sender import TransactionalSender
from kafkalite.errors import KafkaError, KafkaErrorCode, OutcomeUnknownError, TransactionAbortedError, error_for


def fenced(cause: KafkaError | None) -> KafkaError:
    error = error_for(KafkaErrorCode.PRODUCER_FENCED, "fenced")
    error.__cause__ = cause
    return error


class Sender:
    """A sender of lines whose commit fails with an error."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error
        self.producer: Any = self
        self.lines = 0

    def begin_transaction(self) -> None:
        """Begin without a wait."""

    def commit_transaction(self) -> KafkaError:
        return self._error

    async def watched(self, error: KafkaError | None) -> None:
        if error is not None:
            raise Failure(str(error)) from error

    async def send(self, _line: object) -> None:
        self.lines += 1

    async def flush(self) -> None:
        """Nothing is queued."""


@pytest.mark.parametrize(
    ("error", "in_doubt"),
    [
        (TransactionAbortedError("aborted"), False),
        (OutcomeUnknownError("late"), True),
        (fenced(None), False),
        (fenced(OutcomeUnknownError("late")), True),
    ],
    ids=["aborted", "late", "fenced", "fenced without an answer"],
)
def test_lines_of_a_commit_in_doubt_are_not_sent_again(error: KafkaError, in_doubt: bool) -> None:
    sender: Any = Sender(error)
    lines = TransactionalSender(sender, None)

    async def produce() -> None:
        await lines.send(sender)
        with pytest.raises(Failure):
            await lines.finish()

    asyncio.run(produce())
    assert ("line 1 may be committed" in lines.report()) is in_doubt
    assert ("continue with line 1" in lines.report()) is not in_doubt
