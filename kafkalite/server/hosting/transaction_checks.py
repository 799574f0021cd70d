"""Asks the coordinators of transactions whether a partition is in a transaction, or lets them add it (KIP-890).

1. Each check ends once, with 0 or the coordinator's error code; at the latest with NETWORK_EXCEPTION after
   `request.timeout.ms`.
2. On the coordinator's broker a check is a function call. A transaction has one call in progress; its checks that
   arrive meanwhile are one call after it, so that a request with many partitions appends few records.
3. Other brokers are asked by `add_partitions_to_txn_manager`.
4. While the previous transaction is being completed, a check that adds (TV2) is repeated: as soon as this broker has
   completed that transaction, and after each `add.partitions.to.txn.retry.backoff.ms`. Of a coordinator on another
   broker it is repeated after 1 ms at first, then after up to that time. It ends after
   `add.partitions.to.txn.retry.backoff.max.ms` in total. The checks of a transaction have one pause, also those that
   begin in it, and are one question after it.
5. What answers outside a loop iteration is written at once.

Source: ReplicaManager.handleProduceAppend of Apache Kafka 4.3. Deviation: there TxnOffsetCommit is not repeated.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import takewhile
from typing import Protocol

from kafkalite.callbacks import Completion, call_each
from kafkalite.clock import Clock
from kafkalite.cluster.broker_peers import BrokerPeers
from kafkalite.cluster.metadata.image import NO_LEADER
from kafkalite.cluster.partition.held_appends import Deadline
from kafkalite.cluster.replicas import Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.server.hosting.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from kafkalite.server.hosting.transaction_check import Check, Pause, TransactionKey, transaction_key
from kafkalite.state.transactions.requests import AddPartitions, VerifyPartitions
from kafkalite.state.transactions.states import TransactionVersion

FIRST_PAUSE_MS = 1
Errors = dict[TopicPartition, int]


class Coordinator(Protocol):
    """The transactions that this broker coordinates (`coordinators.transaction.service.TransactionService`)."""

    def add_partitions(self, request: AddPartitions, completion: Completion[int]) -> None:
        """Add partitions; the result is an error code."""

    def verify_partitions(self, request: VerifyPartitions, completion: Completion[Errors]) -> None:
        """Whether partitions are in the open transaction; the result is an error code per partition."""


class ChecksHost(Protocol):
    """The broker, as the checks use it."""

    broker_id: int
    clock: Clock
    config: BrokerConfig
    peers: BrokerPeers | None  # None: the broker is alone
    replicas: Replicas

    @property
    def transactions(self) -> Coordinator: ...

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates a transactional id, NO_LEADER if none is known."""


class TransactionChecks:
    """The checks of a broker (`cluster.partition.verification.TransactionChecks`).

    Arguments:
        host: the broker.

    Attributes:
        failures: number of checks that ended with an error.
    """

    def __init__(self, host: ChecksHost) -> None:
        self._host = host
        self._open: dict[Check, None] = {}  # in the order of their deadlines
        self._deadline = Deadline(host.clock, self._expire)
        self._local: dict[TransactionKey, list[Check]] = {}  # with a call in progress: the checks after it
        self._manager = AddPartitionsToTxnManager(host, self._use_results)
        self._paused: dict[TransactionKey, Pause] = {}
        self._closed = False
        self.failures = 0

    @property
    def verifies(self) -> bool:
        """Whether partitions of TV1 producers are verified (`transaction.partition.verification.enable`)."""
        return self._host.config.transaction_partition_verification_enable

    def check(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        on_result: Callable[[int], None],
        before_repetition: Callable[[], None] | None = None,
    ) -> None:
        """Verify that a partition is in an open transaction, or add it.

        Arguments:
            transactional_id, producer_id, epoch: of the producer.
            partition: of the batch.
            add: whether the partition is added.
            on_result: called once with 0 or the coordinator's error code, perhaps before this returns; after at most
                `request.timeout.ms`.
            before_repetition: called before each repetition of the question.
        """
        key = transaction_key((transactional_id, producer_id, epoch, add))
        check = Check(key, partition, on_result, before_repetition, self._host.clock.monotonic())
        if not self._open:  # else an earlier check has an earlier deadline
            self._deadline.lower(self._deadline_of(check))
        self._open[check] = None
        pause = self._paused.get(key)
        if pause is not None and check.begun >= pause.begun_min:
            pause.checks.append(check)
        elif key in self._local and not self._closed:
            self._local[key].append(check)
        else:
            self._begin(key, [check])

    def transaction_completed(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """End the pause of the checks of the next transaction.

        Arguments:
            transactional_id: of a transaction that this broker has completed.
            producer_id, epoch: of the next one.
        """
        self._begin_again(transaction_key((transactional_id, producer_id, epoch, True)))

    def close(self) -> None:
        """End all checks with COORDINATOR_NOT_AVAILABLE, and later ones at once."""
        self._closed = True
        self._manager.close()
        self._deadline.cancel()
        self._paused.clear()
        checks, self._open = self._open, {}
        end_each(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, checks)

    def _begin(self, key: TransactionKey, checks: list[Check]) -> None:
        leader = NO_LEADER if self._closed else self._host.transaction_coordinator(key.transactional_id)
        if leader == self._host.broker_id:
            self._ask_here(key, checks)
        elif leader == NO_LEADER or self._host.peers is None:
            self._use((check, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE) for check in checks)
        else:
            self._manager.ask(leader, checks)

    # The end of a check.

    def _use(self, results: Iterable[tuple[Check, int]]) -> None:
        """End checks with their error codes; additions are repeated while the previous transaction is completed."""
        ended: list[tuple[Check, int]] = []
        concurrent: dict[TransactionKey, list[Check]] = {}
        for check, error in results:
            if error == KafkaErrorCode.CONCURRENT_TRANSACTIONS and check.key.add:
                concurrent.setdefault(check.key, []).append(check)
            else:
                ended.append((check, error))
        for key, checks in concurrent.items():
            left = self._repeat(key, checks, (self._host.clock.monotonic() - checks[0].begun) * 1000 + FIRST_PAUSE_MS)
            ended += ((check, KafkaErrorCode.CONCURRENT_TRANSACTIONS) for check in left)
        call_each(lambda result: self._end(result[1], result[0]), ended)

    def _end(self, error: int, check: Check) -> None:
        self._open.pop(check, None)
        if error and check.on_result is not None:
            self.failures += 1
        check.end(error)

    def _repeat(self, key: TransactionKey, checks: list[Check], pause_ms: float = math.inf) -> list[Check]:
        """Repeat checks of a transaction later; returns those for which there is no time.

        Arguments:
            key: of the transaction.
            checks: of its partitions.
            pause_ms: the pause; at most `add.partitions.to.txn.retry.backoff.ms`, which suffices where
                `transaction_completed` ends it.
        """
        config = self._host.config
        pause = self._paused.get(key)
        if pause is None:
            limit_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)
            end = self._host.clock.monotonic() + min(pause_ms, config.add_partitions_to_txn_retry_backoff_ms) / 1000
            pause = Pause(end, math.inf if self._closed else end - limit_ms / 1000, [])
        begun_min = pause.begun_min
        repeated = [check for check in checks if check.begun >= begun_min and check.on_result is not None]
        if repeated and not pause.checks:
            self._paused[key] = pause
            self._host.clock.call_at(pause.end, self._begin_again, key)
        pause.checks.extend(repeated)
        if len(repeated) == len(checks):
            return []
        return [check for check in checks if check.begun < begun_min or check.on_result is None]

    def _begin_again(self, key: TransactionKey) -> None:
        pause = self._paused.pop(key, None)
        checks = [] if pause is None else [check for check in pause.checks if check.on_result is not None]
        if checks:
            self._writing(partial(self._ask_again, key, checks))

    def _ask_again(self, key: TransactionKey, checks: list[Check]) -> None:
        try:
            call_each(
                operator.call, [check.before_repetition for check in checks if check.before_repetition is not None]
            )
        finally:
            self._begin(key, checks)

    def _writing(self, step: Callable[[], object]) -> None:
        """Do a step outside a loop iteration, and write what it appends."""
        try:
            step()
        finally:
            self.write_pending()

    def write_pending(self) -> None:
        """Write what was appended outside a loop iteration."""
        if not self._host.replicas.is_writing:
            self._host.replicas.write_pending()

    def _deadline_of(self, check: Check) -> float:
        limit_s: float = self._host.config.request_timeout_ms / 1000
        return check.begun + limit_s

    def _expire(self, now: float) -> None:
        expired = list(takewhile(lambda check: self._deadline_of(check) <= now, self._open))
        for check in expired:
            del self._open[check]
        if self._open:
            self._deadline.lower(self._deadline_of(next(iter(self._open))))
        self.failures += len(expired)
        self._writing(partial(end_each, KafkaErrorCode.NETWORK_EXCEPTION, expired))

    def _use_results(self, results: Mapping[Check, int]) -> None:
        self._writing(partial(self._use, list(results.items())))

    # Transactions that this broker coordinates.

    def _ask_here(self, key: TransactionKey, checks: list[Check]) -> None:
        following = self._local.get(key)
        if following is None:
            self._call(key, checks)
        else:
            following += checks

    def _call(self, key: TransactionKey, checks: list[Check]) -> None:
        self._local[key] = []
        partitions = frozenset([check.partition for check in checks])
        ended = partial(self._answered_here, key, checks)
        try:
            if key.add:
                added = AddPartitions(*key[:3], partitions, TransactionVersion.TV2)
                self._host.transactions.add_partitions(added, Completion(ended, ended))
            else:
                verified = VerifyPartitions(*key[:3], partitions)
                answer = partial(self._verified_here, key, checks)
                self._host.transactions.verify_partitions(verified, Completion(answer, ended))
        except Exception as error:
            self._host.replicas.report(self._call, error)
            if key in self._local:
                self._answered_here(key, checks, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _answered_here(self, key: TransactionKey, checks: list[Check], error: int) -> None:
        self._ended_here(key, partial(self._use_error, key, checks, error))

    def _verified_here(self, key: TransactionKey, checks: list[Check], errors: Errors) -> None:
        self._ended_here(key, partial(self._use, [(check, errors[check.partition]) for check in checks]))

    def _use_error(self, key: TransactionKey, checks: list[Check], error: int) -> None:
        """Do as `_use` with one error code, or 0, of all these checks."""
        if error == KafkaErrorCode.CONCURRENT_TRANSACTIONS and key.add:
            checks = self._repeat(key, checks)
        call_each(partial(self._end, error), checks)

    def _ended_here(self, key: TransactionKey, use_result: Callable[[], object]) -> None:
        """Use the result of a call; checks that begin meanwhile follow in the next one, too."""
        try:
            use_result()
        finally:
            following = [check for check in self._local.pop(key, ()) if check.on_result is not None]
            if following:
                self._call(key, following)


def end_each(error: int, checks: Iterable[Check]) -> None:
    """End checks with an error code."""
    call_each(lambda check: check.end(error), checks)
