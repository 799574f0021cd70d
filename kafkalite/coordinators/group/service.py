"""Runs requests on the groups of this broker: finds the shard of a group and completes each request.

Queries are commands too, so that they see committed state only. Every request completes exactly once, with a result or
with an error: COORDINATOR_LOAD_IN_PROGRESS while the shard is loading, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR if
this broker cannot serve it now, UNKNOWN_SERVER_ERROR after an unexpected exception.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from kafkalite.callbacks import Completion, FanIn
from kafkalite.coordinators.runtime.partition_writer import TransactionOfRecords
from kafkalite.coordinators.runtime.queries import query_all, query_command, when_committed
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.coordinators.runtime.shard import CommandCompletion
from kafkalite.errors import KafkaErrorCode
from kafkalite.records.control import TransactionMarker
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine, GroupsDeleted
from kafkalite.state.groups.records import TransactionEnded

Result = TypeVar("Result")
Item = TypeVar("Item")
DELETED_AT_ONCE = 20
Machines: TypeAlias = Mapping[int, GroupMachine | None]  # by partition
Command = Callable[[GroupMachine, Token, Now], Effects]
Failed = Callable[[int], object]


class GroupService:
    """All groups that this broker coordinates.

    Arguments:
        runtime: the shards.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupMachine]) -> None:
        self._runtime = runtime

    def partition_for(self, group: str) -> int:
        """The partition of a group in `__consumer_offsets`."""
        return self._runtime.partition_for(group)

    def exists(self, group: str) -> bool | None:
        """Whether there is a group; None: its shard is loading, or another broker has it."""
        machine = self._runtime.machine(self.partition_for(group))
        return None if machine is None else group in machine

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Create `__consumer_offsets` unless it exists; calls `then` with 0 or COORDINATOR_NOT_AVAILABLE."""
        self._runtime.ensure_topic(then)

    def submit(self, group: str, command: Command, completion: CommandCompletion) -> None:
        """Run a command in the shard of a group; `completion` is its pending response (`CoordinatorRuntime.submit`)."""
        self._runtime.submit(self._runtime.partition_for(group), command, completion)

    def commit_in_transaction(
        self, group: str, command: Command, transaction: TransactionOfRecords, completion: CommandCompletion
    ) -> None:
        """Run the commit of a transaction as `submit`.

        Arguments:
            group, command: as for `submit`.
            transaction: of the records.
            completion: fails also with the error with which the log would reject the records.
        """
        self._runtime.submit(self.partition_for(group), command, completion, transaction=transaction)

    def end_transaction(self, partition: int, marker: TransactionMarker, completion: CommandCompletion) -> None:
        """End the pending offsets of a transaction, and append its marker, in one step.

        Arguments:
            partition: of `__consumer_offsets`.
            marker: of the transaction.
            completion: its result is 0; fails with the errors of `submit`, and with that of a marker that the log would
                reject.
        """
        if partition in self._runtime.partitions():
            self._runtime.submit(partition, partial(end_transaction, marker), completion, transaction=marker)
        else:
            completion.fail(KafkaErrorCode.NOT_COORDINATOR)

    def fast_heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> bool:
        """Process a heartbeat that only extends a session, for which `submit` would answer at once without an error.

        Returns: False if it does more than that; then nothing has changed.
        """
        machine = self._runtime.committed_machine(group)
        if machine is None:
            return False
        return machine.registry.fast_heartbeat(group, member_id, instance_id, generation, self._runtime.now_ms())

    def fast_consumer_heartbeat(
        self, group: str, member_id: str, instance_id: str | None, epoch: int, client_id: str | None, host: str
    ) -> int | None:
        """Do what `fast_heartbeat` does, for ConsumerGroupHeartbeat.

        Arguments:
            group, member_id, instance_id, epoch: as in the request.
            client_id, host: of the client.

        Returns: the heartbeat interval of the response, in ms; None if the heartbeat does more: nothing has changed.
        """
        machine = self._runtime.committed_machine(group)
        if machine is None:
            return None
        client = client_id or "", f"/{host}"
        now_ms = self._runtime.now_ms()
        return machine.consumers.heartbeats.fast_heartbeat(group, member_id, instance_id, epoch, client, now_ms)

    def query(
        self, group: str, query: Callable[[GroupMachine], Result], then: Callable[[Result], object], failed: Failed
    ) -> None:
        """Call `then` with the result of `query` on the shard of a group, once all earlier records are committed;
        `failed` with an error code if the shard is not available.
        """
        completion = Completion(then, failed)
        self._runtime.submit(self._runtime.partition_for(group), query_command(query), completion, is_query=True)

    def query_each(
        self,
        items: Sequence[Item],
        group_of: Callable[[Item], str],
        query: Callable[[Item, GroupMachine], Result],
        failed: Callable[[Item, int], Result],
        then: Callable[[list[Result]], object],
    ) -> Generator[None, None, None]:
        """Run `query` for each item, in steps.

        Arguments:
            items: one for each result.
            group_of: returns the group of an item.
            query: returns the result of an item from the shard of its group.
            failed: returns the result of an item whose shard fails with an error code.
            then: called with the results in the order of the items, once all are committed.
        """
        gathered = FanIn(len(items), then)
        for at, item in enumerate(items):
            put = partial(gathered.put, at)
            self.query(group_of(item), partial(query, item), put, partial(put_failed, put, partial(failed, item)))
            yield

    def submit_each(
        self,
        group: str,
        commands: Sequence[Command],
        failed: Callable[[int], Result],
        then: Callable[[list[Result]], object],
    ) -> Generator[None, None, None]:
        """Run commands in the shard of a group, one in each step; other commands may run between them.

        Arguments:
            group: determines the shard.
            commands: in the order of their results.
            failed: returns the result of a command whose shard fails with an error code.
            then: called with the results in the order of the commands, once all are committed.
        """
        partition = self._runtime.partition_for(group)
        gathered = FanIn(len(commands), then)
        for at, command in enumerate(commands):
            put = partial(gathered.put, at)
            self._runtime.submit(partition, command, Completion(put, partial(put_failed, put, failed)))
            if len(commands) > 1:  # a single one is written at the end of the loop iteration
                self._runtime.write_pending()
            yield

    def query_all_shards(
        self, query: Callable[[GroupMachine], Iterable[Result | None]], put: Callable[[Result], object]
    ) -> Generator[None, None, Machines]:
        """Call `put` with each result of `query` in every shard, in steps; groups may be created and deleted between
        two steps.

        Arguments:
            query: yields a result for each group of a shard, None = no result.
            put: called with each result.

        Returns: the machines that were queried, for `when_committed`.
        """
        return query_all(self._runtime, query, put)

    def group_count(self) -> int:
        """The approximate number of groups that `query_all_shards` visits."""
        machines = map(self._runtime.machine, self._runtime.partitions())
        return sum(machine.count() for machine in machines if machine is not None)

    def when_committed(self, queried: Machines, then: Callable[[int], object]) -> None:
        """Call `then(error)` once everything that `query_all_shards` has seen is committed.

        Errors: COORDINATOR_LOAD_IN_PROGRESS and others if a shard is loading, or was replayed after the query. A shard
        that has moved to another broker is ignored.
        """
        when_committed(self._runtime, queried, then)

    def delete(self, groups: Sequence[str], then: Callable[[list[int]], object]) -> Generator[None, None, None]:
        """Delete groups without members, in steps; calls `then` with an error code for each, 0 = deleted, in their
        order. Up to `DELETED_AT_ONCE` groups of a shard are one batch.
        """
        by_partition: dict[int, list[int]] = {}
        for at, group in enumerate(groups):
            by_partition.setdefault(self._runtime.partition_for(group), []).append(at)
            yield
        gathered = FanIn[int](len(groups), then)
        for partition, all_indexes in by_partition.items():
            for begin in range(0, len(all_indexes), DELETED_AT_ONCE):
                indexes = all_indexes[begin : begin + DELETED_AT_ONCE]
                done, failed = partial(put_deleted, gathered, indexes), partial(put_undeleted, gathered, indexes)
                self._runtime.submit(partition, deletion([groups[at] for at in indexes]), Completion(done, failed))
                self._runtime.write_pending()
                yield


def put_failed(done: Callable[[Any], object], failed: Callable[[int], object], error: int) -> None:
    """Complete with the result for an error code."""
    done(failed(error))


def put_deleted(gathered: FanIn[int], indexes: Sequence[int], done: GroupsDeleted) -> None:
    """Store the results of one deletion command."""
    for at, error in zip(indexes, done.errors, strict=True):
        gathered.put(at, error)


def put_undeleted(gathered: FanIn[int], indexes: Sequence[int], error: int) -> None:
    """Store the error code of a shard that is not available as the result of its groups."""
    for at in indexes:
        gathered.put(at, error)


def deletion(groups: Sequence[str]) -> Command:
    """The command that deletes groups of one shard."""
    return lambda machine, token, now: machine.delete_groups(groups, token, now)


def end_transaction(marker: TransactionMarker, _machine: GroupMachine, token: Token, _now: Now) -> Effects:
    """The command that ends the pending offsets of a transaction; its record becomes the control batch."""
    producer_id, epoch, committed, coordinator_epoch, version = marker
    effects = Effects(records=[TransactionEnded(producer_id, committed, epoch, coordinator_epoch, version)])
    effects.answer(token, 0)
    return effects
