"""The groups of this broker, asked by name: which shard a group belongs to, and who waits for which answer.

A request is a command of the shard's machine; looking is a command, too, so that nothing is seen before it is
committed.
Every question ends exactly once, by `then(result)` or by `failed(error)`: 14 while the shard is loaded, 15 and 16 where
this broker cannot serve it now, and -1 after something unforeseen.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from kafkalite.callbacks import Completion, FanIn
from kafkalite.coordinators.runtime.runtime import CommandCompletion, CoordinatorRuntime
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.shard import GroupsDeleted, GroupShard

__all__ = ["Command", "GroupService"]

Result = TypeVar("Result")
Item = TypeVar("Item")
DELETED_AT_ONCE = 20
Machines: TypeAlias = Sequence[GroupShard | None]
Command = Callable[[GroupShard, Token, Now], Effects]
Failed = Callable[[int], object]


class GroupService:
    """All groups that this broker coordinates.

    Arguments:
        runtime: keeps the shards.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._runtime = runtime

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Make the topic of the groups if need be; `then` gets 0 or COORDINATOR_NOT_AVAILABLE."""
        self._runtime.ensure_topic(then)

    def submit(self, group: str, command: Command, waiting: CommandCompletion) -> None:
        """Run a command in the shard of a group; `waiting` hears what became of it."""
        self._runtime.submit(self._runtime.shard_for(group), command, waiting)

    def fast_heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> bool:
        """Take note of a heartbeat that changes nothing but that a member was heard; False = it is not one, and nothing
        has happened. `submit` would answer it at once, without an error.
        """
        machine = self._runtime.committed_machine(group)
        if machine is None:
            return False
        return machine.registry.fast_heartbeat(group, member_id, instance_id, generation, self._runtime.now_ms())

    def fast_consumer_heartbeat(
        self, group: str, member_id: str, instance_id: str | None, epoch: int, client_id: str | None, host: str
    ) -> int | None:
        """The same of a member of the consumer protocol: the heartbeat interval of the answer, in ms; None = the
        heartbeat changes something, and nothing has happened.
        """
        machine = self._runtime.committed_machine(group)
        if machine is None:
            return None
        client = client_id or "", f"/{host}"
        return machine.consumers.fast_heartbeat(group, member_id, instance_id, epoch, client, self._runtime.now_ms())

    def query(
        self, group: str, query: Callable[[GroupShard], Result], then: Callable[[Result], object], failed: Failed
    ) -> None:
        """Ask what the shard of a group knows, once everything before is committed."""
        self.submit(group, looking(query), Completion(then, failed))

    def query_each(
        self,
        items: Sequence[Item],
        group_of: Callable[[Item], str],
        query: Callable[[Item, GroupShard], Result],
        failed: Callable[[Item, int], Result],
        then: Callable[[list[Result]], object],
    ) -> Generator[None, None, None]:
        """`look` for each item, in steps.

        Arguments:
            group_of: the group of an item.
            query: answers the result of an item from the shard of its group.
            failed: answers what stands for the result of an item whose shard answers an error.
            then: called with a result for each item, in their order, once all are committed.
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
            failed: answers what stands for the result of a command whose shard answers an error.
            then: called with a result for each command, in their order, once all are committed.
        """
        shard = self._runtime.shard_for(group)
        gathered = FanIn(len(commands), then)
        for at, command in enumerate(commands):
            put = partial(gathered.put, at)
            self._runtime.submit(shard, command, Completion(put, partial(put_failed, put, failed)))
            if len(commands) > 1:  # one is written at the end of the pass
                self._runtime.write_pending()
            yield

    def query_all_shards(
        self, query: Callable[[GroupShard], Iterable[Result | None]], put: Callable[[Result], object]
    ) -> Generator[None, None, Machines]:
        """Call `put` with what `query` yields in every shard, in steps; groups may come and go between two of them.

        Arguments:
            query: yields something for each group of a shard, None = nothing.

        Returns: what `committed` must know of the walk.
        """
        machines = [self._runtime.machine(shard) for shard in self._runtime.shards()]
        for machine in machines:
            for result in query(machine) if machine is not None else ():
                if result is not None:
                    put(result)
                yield
        return machines

    def group_count(self) -> int:
        """How many groups `walk` comes by, about."""
        machines = map(self._runtime.machine, self._runtime.shards())
        return sum(machine.count() for machine in machines if machine is not None)

    def when_committed(self, walked: Machines, then: Callable[[int], object]) -> None:
        """Call `then(error)` once all that a walk has seen is committed.

        Errors: COORDINATOR_LOAD_IN_PROGRESS and the like where a shard is loading, or was read again meanwhile. A shard
        that has just gone to another broker is passed over.
        """
        shards = self._runtime.shards()
        loading = int(KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        passed = (0, int(KafkaErrorCode.NOT_COORDINATOR))

        def done(errors: list[int]) -> None:
            machines = map(self._runtime.machine, shards)
            same = all(now is then for now, then in zip(machines, walked, strict=False))
            serious = [error for error in errors if error not in passed]
            then(min(serious, default=0 if same or any(errors) else loading))

        gathered = FanIn[int](len(shards), done)
        for at, shard in enumerate(shards):
            put = partial(gathered.put, at)
            self._runtime.submit(shard, looking(nothing), Completion(put, put))

    def delete(self, groups: Sequence[str], then: Callable[[list[int]], object]) -> Generator[None, None, None]:
        """Delete groups that have no members, in steps; `then` gets an error for each, or 0, in their order. Up to
        `DELETED_AT_ONCE` groups of a shard are one batch.
        """
        by_shard: dict[int, list[int]] = {}
        for at, group in enumerate(groups):
            by_shard.setdefault(self._runtime.shard_for(group), []).append(at)
            yield
        gathered = FanIn[int](len(groups), then)
        for shard, all_indexes in by_shard.items():
            for begin in range(0, len(all_indexes), DELETED_AT_ONCE):
                indexes = all_indexes[begin : begin + DELETED_AT_ONCE]
                done, failed = partial(put_deleted, gathered, indexes), partial(put_undeleted, gathered, indexes)
                self._runtime.submit(shard, deletion([groups[at] for at in indexes]), Completion(done, failed))
                self._runtime.write_pending()
                yield


def put_failed(done: Callable[[Any], object], failed: Callable[[int], object], error: int) -> None:
    """Tell what stands for a result."""
    done(failed(error))


def put_deleted(gathered: FanIn[int], indexes: Sequence[int], done: GroupsDeleted) -> None:
    """What became of the groups of one shard."""
    for at, error in zip(indexes, done.errors, strict=True):
        gathered.put(at, error)


def put_undeleted(gathered: FanIn[int], indexes: Sequence[int], error: int) -> None:
    """The shard could not be asked."""
    for at in indexes:
        gathered.put(at, error)


def nothing(_shard: GroupShard) -> int:
    """A look at nothing: its answer comes when all before it is committed."""
    return 0


def deletion(groups: Sequence[str]) -> Command:
    """The command that deletes groups of one shard."""
    return lambda shard, token, now: shard.delete_groups(groups, token, now)


def looking(query: Callable[[GroupShard], object]) -> Command:
    """The command that changes nothing and answers what `query` finds."""

    def look(shard: GroupShard, token: Token, _now: Now) -> Effects:
        effects = Effects()
        effects.answer(token, query(shard))
        return effects

    return look
