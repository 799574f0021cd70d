"""Runs requests on the transactions of this broker: finds the shard of a transactional id and completes each request.

Every request completes exactly once, with a result of the machine or with an error: COORDINATOR_LOAD_IN_PROGRESS while
the shard is loading, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR if this broker cannot serve it now,
UNKNOWN_SERVER_ERROR after an unexpected exception. A request may be answered before its method returns.
"""

from collections.abc import Callable, Generator
from typing import Any, Protocol

from kafkalite.coordinators.runtime.queries import Machines, query_all, query_command, when_committed
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.transactions.machine import TransactionMachine
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.partitions import TransactionPartitions
from kafkalite.state.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    VerifyPartitions,
)
from kafkalite.state.transactions.states import PREPARED

PartitionsLeft = Callable[[int, str], TransactionPartitions | None]


class Completing(Protocol):
    """The pending end of a request; exactly one method is called, once."""

    answer: Callable[[Any], object]
    fail: Callable[[int], object]


class TransactionService:
    """All transactions that this broker coordinates.

    Arguments:
        runtime: the shards.
        partitions_left: returns the partitions of a prepared transaction without a marker, None = all; called with the
            partition of `__transaction_state` and the transactional id.
    """

    def __init__(self, runtime: CoordinatorRuntime[TransactionMachine], partitions_left: PartitionsLeft) -> None:
        self._runtime = runtime
        self._partitions_left = partitions_left

    def exists(self, transactional_id: str) -> bool | None:
        """Whether there is a transactional id; None: its shard is loading, or another broker has it."""
        machine = self._runtime.machine(self._runtime.partition_for(transactional_id))
        return None if machine is None else transactional_id in machine.transactions

    def init_producer_id(self, request: InitProducerId, completion: Completing) -> None:
        """Begin a session of a producer; the result is a `ProducerId`."""
        self._submit(request, TransactionMachine.init_producer_id, completion)

    def add_partitions(self, request: AddPartitions, completion: Completing) -> None:
        """Add partitions to a transaction; the result is an error code, 0 = all were added."""
        self._submit(request, TransactionMachine.add_partitions, completion)

    def verify_partitions(self, request: VerifyPartitions, completion: Completing) -> None:
        """Whether partitions are in the open transaction; the result is a dict of an error code per partition."""
        self._submit(request, TransactionMachine.verify_partitions, completion)

    def end_transaction(self, request: EndTransaction, completion: Completing) -> None:
        """Commit or abort; the result is a `ProducerId`."""
        self._submit(request, TransactionMachine.end_transaction, completion)

    def describe(self, transactional_id: str, completion: Completing) -> None:
        """The result is the `TransactionMetadata` of a transactional id; None if it does not exist.

        Its partitions are those of the open transaction, in a prepared state those without a marker, as in Kafka.
        """
        partition = self._runtime.partition_for(transactional_id)
        if partition not in self._runtime.partitions():
            completion.fail(KafkaErrorCode.NOT_COORDINATOR)
            return

        def query(machine: TransactionMachine) -> TransactionMetadata | None:
            found = machine.transactions.get(transactional_id)
            if found is None or found.state not in PREPARED:
                return found
            left = self._partitions_left(partition, transactional_id)
            return found if left is None else found._replace(partitions=left)

        self._runtime.submit(partition, query_command(query), completion, is_query=True)

    def list(
        self, is_listed: Callable[[TransactionMetadata], bool], put: Callable[[TransactionMetadata], object]
    ) -> Generator[None, None, Machines[TransactionMachine]]:
        """Call `put` with each transaction for which `is_listed` is true, in steps; transactions may begin and end
        between two steps. Returns: the machines that were queried, for `when_committed`.
        """

        def query(machine: TransactionMachine) -> Generator[TransactionMetadata | None, None, None]:
            for transactional_id in list(machine.transactions):
                metadata = machine.transactions.get(transactional_id)
                yield metadata if metadata is not None and is_listed(metadata) else None

        return query_all(self._runtime, query, put)

    def when_committed(self, queried: Machines[TransactionMachine], then: Callable[[int], object]) -> None:
        """Call `then(error)` once everything that `list` has seen is committed (`runtime.queries.when_committed`)."""
        when_committed(self._runtime, queried, then)

    def count(self) -> int:
        """The number of transactional ids of the loaded shards."""
        machines = map(self._runtime.machine, self._runtime.partitions())
        return sum(len(machine.transactions) for machine in machines if machine is not None)

    def _submit(self, request: Any, method: Callable[..., Effects], completion: Completing) -> None:
        def command(machine: TransactionMachine, token: Token, now: Now) -> Effects:
            return method(machine, request, token, now)

        self._runtime.submit(self._runtime.partition_for(request.transactional_id), command, completion)
