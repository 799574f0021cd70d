"""Queries of all shards of a coordinator, for requests that list groups or transactions."""

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from kafkalite.callbacks import Completion, FanIn
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.coordinators.runtime.shard import Command, Machine
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token, answer_only

M = TypeVar("M", bound=Machine)
Result = TypeVar("Result")
Machines: TypeAlias = Mapping[int, M | None]  # by partition


def query_command(query: Callable[[M], object]) -> Command[M]:
    """The command that changes nothing and returns the result of `query`."""

    def run_query(machine: M, token: Token, _now: Now) -> Effects:
        return answer_only(token, query(machine))

    return run_query


def query_all(
    runtime: CoordinatorRuntime[M], query: Callable[[M], Iterable[Result | None]], put: Callable[[Result], object]
) -> Generator[None, None, Machines[M]]:
    """Call `put` with each result of `query` in every shard, in steps.

    Arguments:
        runtime: the shards.
        query: yields a result for each item of a shard, None = no result.
        put: called with each result.

    Returns: the machines that were queried, for `when_committed`.
    """
    machines = {partition: runtime.machine(partition) for partition in runtime.partitions()}
    for machine in machines.values():
        for result in query(machine) if machine is not None else ():
            if result is not None:
                put(result)
            yield
    return machines


def when_committed(runtime: CoordinatorRuntime[M], queried: Machines[M], then: Callable[[int], object]) -> None:
    """Call `then(error)` once everything that `query_all` has seen is committed.

    Errors: COORDINATOR_LOAD_IN_PROGRESS and others if a shard is loading, or was replayed after the query. A shard that
    has moved to another broker is ignored.

    Arguments:
        runtime: the shards.
        queried: the result of `query_all`.
        then: called once, with 0 or the error.
    """
    loading = int(KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    ignored = (0, int(KafkaErrorCode.NOT_COORDINATOR))

    def done(errors: list[int]) -> None:
        same = all(runtime.machine(partition) is before for partition, before in queried.items())
        serious = [error for error in errors if error not in ignored]
        then(min(serious, default=0 if same or any(errors) else loading))

    gathered = FanIn[int](len(queried), done)
    for at, partition in enumerate(queried):
        put = partial(gathered.put, at)
        runtime.submit(partition, query_command(no_result), Completion(put, put), is_query=True)


def no_result(_machine: Any) -> int:
    """An empty query: it completes once all earlier records are committed."""
    return 0
