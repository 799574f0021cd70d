"""The groups of this broker, asked by name: which shard a group belongs to, and who waits for which answer.

A request is a command of the shard's machine; looking is a command, too, so that nothing is seen before it is
committed.
Every question ends exactly once, by `then(result)` or by `failed(error)`: 14 while the shard is loaded, 15 and 16 where
this broker cannot serve it now, and -1 after something unforeseen.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kafkalite.coordinators.runtime import Runtime, Waiting
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.consumer_sessions import Plain
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.group_shard import GroupsDeleted, GroupShard

__all__ = ["Command", "Groups", "Question"]

Result = TypeVar("Result")
Command = Callable[[GroupShard, Token, Now], Effects]
Failed = Callable[[int], object]


class Question:
    """Somebody who waits for an answer; the token of the command.

    Arguments:
        then: told the result.
        failed: told why there is none.
    """

    __slots__ = ("_failed", "_then")

    def __init__(self, then: Callable[..., object], failed: Failed) -> None:
        self._then = then
        self._failed = failed

    def answer(self, result: object) -> None:
        """The machine's answer, committed."""
        self._then(result)

    def fail(self, error: int) -> None:
        """There is no answer."""
        self._failed(error)


class Groups:
    """All groups that this broker coordinates.

    Arguments:
        runtime: keeps the shards.
    """

    def __init__(self, runtime: Runtime[GroupShard]) -> None:
        self._runtime = runtime

    def ready(self, then: Callable[[int], None]) -> None:
        """Make the topic of the groups if need be; `then` gets 0 or COORDINATOR_NOT_AVAILABLE."""
        self._runtime.ready(then)

    def submit(self, group: str, command: Command, waiting: Waiting) -> None:
        """Run a command in the shard of a group; `waiting` hears what became of it."""
        self._runtime.submit(self._runtime.shard_for(group), command, waiting)

    def beat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> bool:
        """Take note of a heartbeat that changes nothing but that a member was heard; False = it is not one, and nothing
        has happened. `submit` would answer it at once, without an error.
        """
        machine = self._runtime.at_rest(group)
        if machine is None:
            return False
        return machine.kinds.beat(group, member_id, instance_id, generation, self._runtime.now_ms())

    def consumer_beat(
        self, group: str, member_id: str, instance_id: str | None, epoch: int, client_id: str | None, host: str
    ) -> Plain | None:
        """The same of a member of the consumer protocol; None = it is not one. While the calm stands that it tells of,
        the same heartbeat from the same client need not be asked for again: it moves the session on.
        """
        machine = self._runtime.at_rest(group)
        if machine is None:
            return None
        client = client_id or "", f"/{host}"
        return machine.consumers.beat(group, member_id, instance_id, epoch, client, self._runtime.now_ms())

    def ask(self, group: str, command: Command, then: Callable[..., object], failed: Failed) -> None:
        """Run a command in the shard of a group."""
        self.submit(group, command, Question(then, failed))

    def look(
        self, group: str, query: Callable[[GroupShard], Result], then: Callable[[Result], object], failed: Failed
    ) -> None:
        """Ask what the shard of a group knows, once everything before is committed."""
        self.ask(group, looking(query), then, failed)

    def look_each(
        self,
        groups: Sequence[str],
        queries: Sequence[Callable[[GroupShard], Result]],
        failed: Sequence[Callable[[int], Result]],
        then: Callable[[list[Result]], object],
    ) -> None:
        """`look` for several groups, each with a query of its own; `then` gets a result for each, in their order. A
        look that fails becomes a result by the group's `failed(error)`.
        """
        gathered = Gathered(len(groups), then)
        for at, (group, query, refused) in enumerate(zip(groups, queries, failed, strict=True)):
            told = partial(gathered.put, at)
            self.look(group, query, told, partial(put_failed, told, refused))

    def look_everywhere(
        self, query: Callable[[GroupShard], Result], then: Callable[[list[Result], int], object]
    ) -> None:
        """`look` in every shard; `then` gets what was found, and the first error or 0. A shard that has just gone to
        another broker is passed over.
        """
        shards = self._runtime.shards()
        errors: list[int] = []

        def told(found: list[Result | int]) -> None:
            then([each for each in found if not isinstance(each, int)], min(errors, default=0))

        def failed(at: int, error: int) -> None:
            if error != KafkaErrorCode.NOT_COORDINATOR:
                errors.append(error)
            gathered.put(at, error)

        gathered = Gathered[Result | int](len(shards), told)
        for at, shard in enumerate(shards):
            question = Question(partial(gathered.put, at), partial(failed, at))
            self._runtime.submit(shard, looking(query), question)

    def delete(self, groups: Sequence[str], then: Callable[[list[int]], object]) -> None:
        """Delete groups that have no members, those of a shard in one batch; `then` gets an error for each, or 0, in
        their order.
        """
        by_shard: dict[int, list[int]] = {}
        for at, group in enumerate(groups):
            by_shard.setdefault(self._runtime.shard_for(group), []).append(at)
        gathered = Gathered[int](len(groups), then)
        for shard, places in by_shard.items():
            told, failed = partial(put_deleted, gathered, places), partial(put_undeleted, gathered, places)
            self._runtime.submit(shard, deletion([groups[at] for at in places]), Question(told, failed))


class Gathered(Generic[Result]):
    """Results that come one by one, told together."""

    def __init__(self, count: int, then: Callable[[list[Result]], object]) -> None:
        self._results: dict[int, Result] = {}
        self._count = count
        self._then = then
        if not count:
            then([])

    def put(self, at: int, result: Result) -> None:
        self._results[at] = result
        if len(self._results) == self._count:
            self._then([self._results[each] for each in range(self._count)])


def put_failed(told: Callable[[Any], object], failed: Callable[[int], object], error: int) -> None:
    """Tell what stands for a result."""
    told(failed(error))


def put_deleted(gathered: Gathered[int], places: Sequence[int], done: GroupsDeleted) -> None:
    """What became of the groups of one shard."""
    for at, error in zip(places, done.errors, strict=True):
        gathered.put(at, error)


def put_undeleted(gathered: Gathered[int], places: Sequence[int], error: int) -> None:
    """The shard could not be asked."""
    for at in places:
        gathered.put(at, error)


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
