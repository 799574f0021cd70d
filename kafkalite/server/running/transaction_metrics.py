"""The metrics of transactions, and a log line for each one that has been open for too long.

| gauge | meaning |
|---|---|
| `kafkalite_transactions_committed` | decisions to commit of the coordinators on this broker |
| `kafkalite_transactions_aborted`, label `cause` | decisions to abort: `client`, `fence` (InitProducerId), `timeout` |
| `kafkalite_transactions_completed` | transactions with all markers |
| `kafkalite_transaction_completion_ms`, `..._ms_max` | time from decision to last marker: the sum, and the longest |
| `kafkalite_partitions_with_late_transactions` | PartitionsWithLateTransactionsCount of KIP-664 |
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkalite.clock import Clock
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.metrics import Registry
from kafkalite.slicing import visit_in_slices

if TYPE_CHECKING:
    from kafkalite.state.transactions.counters import TransactionCounters

LOGGER = logging.getLogger("kafkalite.transactions")
CHECK_S = 60.0
LATE_MS = 300_000  # beyond transaction.max.timeout.ms; LATE_TRANSACTION_BUFFER_MS of ProducerStateManager.java
Transaction = tuple[str, int, int]  # partition, producer id, first offset


class LateTransactions:
    """Finds the partitions led by this broker whose oldest transaction is late.

    It is late once checks have found it for `transaction.max.timeout.ms` + 5 minutes: its coordinator has aborted it
    before, unless that does not know it or cannot write the marker. Deviation: Kafka compares the timestamps of its
    records, which a client chooses.

    Arguments:
        replicas: the hosted partitions.
        clock: of the broker.
        timeout_max_ms: returns `transaction.max.timeout.ms`.

    Attributes:
        count: partitions with a late transaction at the last check.
    """

    def __init__(self, replicas: Replicas, clock: Clock, timeout_max_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._clock = clock
        self._timeout_max_ms = timeout_max_ms
        self._late: set[Transaction] = set()
        self._found: dict[Transaction, float] = {}  # when the first check has found it, in s of the clock
        self._before: dict[Transaction, float] = {}
        self.count = 0

    def start(self, registry: Registry) -> None:
        """Register the gauge, and check now and every CHECK_S, until the clock is closed."""
        registry.gauge(
            "kafkalite_partitions_with_late_transactions",
            "Partitions led by this broker with a transaction older than transaction.max.timeout.ms + 5 min.",
            lambda: self.count,
        )
        self._check_again()

    def _check_again(self) -> None:
        self._clock.call_at(self._clock.monotonic() + CHECK_S, self._check_again)
        self.check()

    def check(self) -> None:
        """Check all partitions, in slices; log transactions that were not late at the previous check."""
        self._before, self._found = self._found, {}
        visit_in_slices(self._clock, list(self._led()), self._visit, self._checked)

    def _led(self) -> Iterator[Partition]:
        for hosted in self._replicas:
            for partition in hosted.partitions.values():
                if isinstance(partition.role, Leader):
                    yield partition

    def _visit(self, partition: Partition) -> None:
        log = partition.log
        transactions = log.producers.open_transactions() if log is not None else ()
        if log is None or not transactions:
            return
        offset, producer_id = transactions[0]
        transaction = (f"{log.topic}-{log.partition}", producer_id, offset)
        now_s = self._clock.monotonic()
        found_s = self._found[transaction] = self._before.get(transaction, now_s)
        if (now_s - found_s) * 1000 <= self._timeout_max_ms() + LATE_MS:
            return
        if transaction not in self._late:
            self._late.add(transaction)
            LOGGER.warning(
                "%s: the transaction of producer %d epoch %d from offset %d on has been open for %d s, more than "
                "transaction.max.timeout.ms + 5 min; readers of committed records stop there; `kafkalite transaction "
                "find-hanging --topic %s:%d` shows whether its coordinator has lost it",
                transaction[0],
                producer_id,
                log.producers.entries[producer_id].epoch,
                offset,
                now_s - found_s,
                log.topic,
                log.partition,
            )

    def _checked(self) -> None:
        self._late &= self._found.keys()
        self.count = len(self._late)


def register_transaction_metrics(registry: Registry, counters: "TransactionCounters") -> None:
    """Register the gauges of the coordinator; they are read when they are scraped.

    Arguments:
        registry: of the broker.
        counters: of the coordinator.
    """

    def gauge(name: str, help: str, read: Callable[["TransactionCounters"], int], **labels: str) -> None:
        registry.gauge(name, help, lambda: read(counters), **labels)

    gauge("kafkalite_transactions_committed", "Transactions that were committed.", lambda each: each.committed)
    aborted, name = "Transactions that were aborted, by cause.", "kafkalite_transactions_aborted"
    gauge(name, aborted, lambda each: each.aborted_by_client, cause="client")
    gauge(name, aborted, lambda each: each.aborted_by_fence, cause="fence")
    gauge(name, aborted, lambda each: each.aborted_by_timeout, cause="timeout")
    gauge("kafkalite_transactions_completed", "Transactions with all markers.", lambda each: each.completed)
    duration = "Milliseconds from the decision to the last marker"
    gauge("kafkalite_transaction_completion_ms", f"{duration}, the sum.", lambda each: each.completion_ms)
    gauge("kafkalite_transaction_completion_ms_max", f"{duration}, the longest.", lambda each: each.completion_ms_max)
