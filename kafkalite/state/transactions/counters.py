"""Counts the ended transactions of a broker."""

from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.states import PREPARED, TransactionEvent, TransactionState
from kafkalite.state.transactions.step import TransactionStep

COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class TransactionCounters:
    """Counters of the decisions and completions of one broker; all of its machines share them.

    They count records as they are written: a record whose append fails is counted, too.

    Attributes:
        committed: decisions to commit.
        aborted_by_client, aborted_by_fence, aborted_by_timeout: decisions to abort, by EndTxn, by InitProducerId of
            another producer, and by the transaction timeout.
        completed: transactions with all markers.
        completion_ms: wall time from decision to completion of all of these, in ms, a failover included.
        completion_ms_max: the longest one, in ms.
    """

    __slots__ = (
        "aborted_by_client",
        "aborted_by_fence",
        "aborted_by_timeout",
        "committed",
        "completed",
        "completion_ms",
        "completion_ms_max",
    )

    def __init__(self) -> None:
        self.committed = 0
        self.aborted_by_client = 0
        self.aborted_by_fence = 0
        self.aborted_by_timeout = 0
        self.completed = 0
        self.completion_ms = 0
        self.completion_ms_max = 0

    def count(self, step: TransactionStep) -> None:
        """Count the record that a step writes, if it decides or completes a transaction."""
        for record in step.effects.records:
            if isinstance(record, TransactionMetadata):
                if record.state in PREPARED:
                    self._count_decision(step.event)
                elif record.state in COMPLETE and step.event is TransactionEvent.MARKERS_WRITTEN:
                    self._count_completion(max(record.updated_ms - step.metadata.updated_ms, 0))

    def _count_decision(self, event: TransactionEvent) -> None:
        if event is TransactionEvent.COMMIT:
            self.committed += 1
        elif event is TransactionEvent.ABORT:
            self.aborted_by_client += 1
        elif event is TransactionEvent.TIMEOUT:
            self.aborted_by_timeout += 1
        else:
            self.aborted_by_fence += 1

    def _count_completion(self, duration_ms: int) -> None:
        self.completed += 1
        self.completion_ms += duration_ms
        self.completion_ms_max = max(self.completion_ms_max, duration_ms)
