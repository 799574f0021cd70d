"""Sends the lines of an input in transactions, and knows which lines are committed."""

from contextlib import suppress

from kafkalite.cli.failure import Failure
from kafkalite.cli.records.lines import RecordLine
from kafkalite.cli.records.sender import ABANDON_S, RecordSender
from kafkalite.cli.records.sent_lines import range_text
from kafkalite.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, OutcomeUnknownError

UNKNOWN = (OutcomeUnknownError, KafkaTimeoutError, KafkaConnectionError)  # a commit that failed so may be a commit


class TransactionalSender:
    """Sends records in transactions of a number of lines; the lines behind the last commit are aborted at a failure.

    Arguments:
        sender: sends the records; its producer has a transactional id.
        commit_every: lines of a transaction; None = the whole input is one transaction.
    """

    def __init__(self, sender: RecordSender, commit_every: int | None) -> None:
        self._sender = sender
        self._commit_every = commit_every
        self._committed = 0  # lines
        self._transactions = 0
        self._is_open = False
        self._in_doubt = False  # the commit has no outcome

    async def send(self, line: RecordLine) -> None:
        """Queue a record, in a transaction that is begun if none is open; commit after the last line of one."""
        if not self._is_open:
            await self._sender.watched(self._sender.producer.begin_transaction())
            self._is_open = True
        await self._sender.send(line)
        if self._commit_every is not None and self._sender.lines - self._committed >= self._commit_every:
            await self._commit()

    async def flush(self) -> None:
        """Wait until all records are acknowledged; the transaction stays open."""
        await self._sender.flush()

    async def keep_sent(self) -> None:
        """Do nothing: at a line that is no record, the transaction of the lines before it is aborted."""

    async def finish(self) -> None:
        """Commit the last transaction."""
        if self._is_open:
            await self._commit()

    async def _commit(self) -> None:
        await self._sender.flush()
        self._in_doubt = True
        try:
            await self._sender.watched(self._sender.producer.commit_transaction())
        except Failure as failure:
            cause = failure.__cause__  # of a fenced producer, it may be the cause of the cause
            self._in_doubt = isinstance(cause, UNKNOWN) or (cause is not None and isinstance(cause.__cause__, UNKNOWN))
            raise
        self._in_doubt = self._is_open = False
        self._committed = self._sender.lines
        self._transactions += 1

    async def abandon(self) -> None:
        """Abort the open transaction, and end the producer."""
        self._sender.note_delivered()  # the abort fails records that are not acknowledged
        if self._is_open and not self._in_doubt:
            with suppress(KafkaError):
                await self._sender.producer.abort_transaction(ABANDON_S)
        with suppress(KafkaError):
            await self._sender.producer.close(0)

    def report(self) -> str:
        """Return which lines were committed, and the next step."""
        lines = f": {range_text(1, self._committed)}" if self._committed else ""
        text = f"{self._committed} record(s) were committed{lines}"
        if self._in_doubt:
            doubt = range_text(self._committed + 1, self._sender.lines)
            return f"{text}; {doubt} may be committed: `kafkalite consume` shows it"
        return f"{text}; continue with line {self._committed + 1}"

    def failure_text(self, failure: Failure | KafkaError) -> str:
        """Return the text of a failure that ends the command, with the line whose record has failed."""
        return f"{self._sender.cause_text(failure)}; {self.report()}"

    def summary(self, topic: str) -> str:
        """Return what was committed to the topic at the end of the input."""
        return f"committed {self._committed} record(s) to {topic} in {self._transactions} transaction(s)"
