"""What the driver does with the transactions of a micro-batch: it decides, commits them, and aborts the others.

1. Before the decision each transaction is open, with time left: otherwise the batch fails undecided, and its repetition
   writes it again.
2. After the decision the batch is never written again. Each step may be repeated, by another driver, too: EndTxn with
   the epoch of the task has the same outcome each time.
3. The batch is complete before the commit of Spark returns, so before an attempt of the next batch uses its ids.
"""

import logging
import re
import time
from collections.abc import Collection, Sequence

from kafkalite_sdk import DetachedTransaction
from kafkalite_sdk.admin import TransactionDescription

from kafkalite.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from pyspark_kafkalite import clients
from pyspark_kafkalite.errors import DecidedTransactionLostError, UndecidedBatchError
from pyspark_kafkalite.exactly_once.attempts import WrittenOnce, id_prefix
from pyspark_kafkalite.exactly_once.decision_log import DecisionLog
from pyspark_kafkalite.exactly_once.decisions import Decision
from pyspark_kafkalite.sink_options import SinkOptions

LOGGER = logging.getLogger("pyspark_kafkalite")

OPEN = "Ongoing"
MARGIN = 0.1
"""Part of the transaction timeout that must be left at the decision, for the commits."""

ENDED_OTHERWISE = (
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    InvalidProducerIdMappingError,
)
"""Errors of EndTxn that no repetition changes: the transaction has expired, or its producer is fenced."""

REPEATED = "it is not decided; start the query again, which writes the batch again"


class BatchCommitter:
    """Ends the transactions of micro-batches.

    Arguments:
        options: of the sink.
        log: of the decisions.
    """

    def __init__(self, options: SinkOptions, log: DecisionLog) -> None:
        self._client = options.shared
        self._log = log

    def commit(self, written: Sequence[WrittenOnce], batch: int) -> None:
        """Commit a batch, or complete it if it was decided before.

        Arguments:
            written: what the attempts that Spark counts have written.
            batch: id of the batch.

        Raises:
            UndecidedBatchError: the batch must be written again. DecidedTransactionLostError: a decided transaction
            cannot be committed. KafkaError: the batch may be decided; a repetition completes it then.
        """
        if not written:
            return
        query = written[0].query
        transactions = tuple(each.transaction for each in written if each.transaction is not None)
        self._log.create()
        decision = self._log.last(query, batch)
        if decision is None or decision.batch < batch:
            if not transactions:
                return  # no rows
            decision = self._decide(query, batch, transactions)
        if decision.batch > batch:
            raise UndecidedBatchError(
                f"query {query}: batch {decision.batch} is decided, so another driver has continued the query; "
                f"end one of them. Batch {batch} of this one is not committed"
            )
        if not decision.complete:
            self._end(query, decision)
        self._abort_others(query)
        if not decision.complete:
            self._log.append(query, Decision(batch, (), complete=True))

    def abort(self, written: Sequence[WrittenOnce | None]) -> None:
        """Abort what the attempts of a failed batch have written.

        Arguments:
            written: None = the task has failed. If no task has failed, the commit may have decided: nothing is aborted,
                as the repetition of the batch completes it, or aborts what is left.
        """
        transactions = [each.transaction for each in written if each is not None and each.transaction is not None]
        if None not in written or not transactions:
            return
        ended = clients.admin(self._client).transactions.end(*transactions, committed=False)
        for transaction, error in ended.errors.items():
            LOGGER.warning("%s is not aborted: %s", transaction.transactional_id, error)

    # the decision

    def _decide(self, query: str, batch: int, transactions: tuple[DetachedTransaction, ...]) -> Decision:
        """Append the decision; return the valid one, which another driver may have appended before."""
        self._check_open(batch, transactions)
        own = Decision(batch, transactions)
        offset = self._log.append(query, own)
        valid = self._log.last(query, batch)
        if valid is None:
            raise UndecidedBatchError(f"query {query}: the decision about batch {batch} is not in the log; {REPEATED}")
        if valid.offset != offset:
            self._log.append(query, valid)  # compaction keeps the last record
            raise UndecidedBatchError(
                f"query {query}: another driver has decided batch {valid.batch}; end one of them. Batch {batch} of "
                "this one is not committed"
            )
        return valid

    def _check_open(self, batch: int, transactions: Collection[DetachedTransaction]) -> None:
        """Raise UndecidedBatchError, unless all transactions are open and have time left."""
        described = clients.admin(self._client).transactions.describe(*(each.transactional_id for each in transactions))
        for each in transactions:
            reason = _closed(each, described[each.transactional_id])
            if reason is not None:
                raise UndecidedBatchError(f"batch {batch}: transaction {each.transactional_id} {reason}; {REPEATED}")

    # after the decision

    def _end(self, query: str, decision: Decision) -> None:
        """Commit the transactions of a decision."""
        ended = clients.admin(self._client).transactions.end(*decision.transactions, committed=True)
        errors = ended.errors
        lost = {each.transactional_id: error for each, error in errors.items() if isinstance(error, ENDED_OTHERWISE)}
        if lost:
            names = ", ".join(sorted(lost))
            raise DecidedTransactionLostError(
                f"query {query}: batch {decision.batch} is decided, but {len(lost)} of its "
                f"{len(decision.transactions)} transactions have ended without a commit, as their timeout has passed "
                f"or a producer is fenced: {names}. Their rows are missing. Run the query once with exactlyOnce false: "
                "it writes this batch again, and the rows of its other transactions are then duplicates"
            ) from next(iter(lost.values()))
        ended.check()

    def _abort_others(self, query: str) -> None:
        """Abort the open transactions of the query: those of attempts that Spark does not count."""
        transactions = clients.admin(self._client).transactions
        pattern = re.escape(id_prefix(query)) + ".*"
        others = [each.transactional_id for each in transactions.list(states=[OPEN], pattern=pattern)]
        for name, error in transactions.fence_producers(*others).errors.items() if others else ():
            LOGGER.warning("%s is not aborted, so its records delay readers until its timeout: %s", name, error)


def _closed(transaction: DetachedTransaction, described: TransactionDescription) -> str | None:
    """Return why a transaction cannot be decided, None = it can."""
    producer = (described.producer_id, described.producer_epoch)
    if described.state != OPEN or producer != (transaction.producer_id, transaction.producer_epoch):
        return "has ended: its timeout has passed, or another driver or attempt has its transactional id"
    begun_ms = described.start_time_ms or 0
    left_ms = begun_ms + described.timeout_ms - time.time() * 1000
    if left_ms < described.timeout_ms * MARGIN:
        return (
            f"has {left_ms:.0f} ms left of its timeout of {described.timeout_ms} ms; raise "
            "kafka.transaction.timeout.ms, or write smaller batches"
        )
    return None
