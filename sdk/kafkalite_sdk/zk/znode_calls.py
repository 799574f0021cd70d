"""Awaitable calls of the tree over one session: single nodes, and many nodes at once."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then, await_outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoAuthError, NoNodeError
from kafkalite.coordination.tree import Operation, Stat

Call = Callable[[Then], object]


class Reads(NamedTuple):
    """What was read of many nodes, without those that do not exist.

    Attributes:
        values: by path: (data, Stat), or the names of the children.
        forbidden: paths of the nodes that this session may not read.
    """

    values: dict[str, Any]
    forbidden: list[str]


class ZnodeCalls:
    """Calls of one session.

    Arguments:
        session: with ZooKeeper, or with the served tree.
        timeout_s: of each call.

    Every call raises CoordinationError, and TimeoutError.
    """

    def __init__(self, session: Coordination, timeout_s: float) -> None:
        self._session = session
        self._timeout_s = timeout_s

    async def children(self, path: str) -> list[str]:
        """The names of the children of a node, in order."""
        names: list[str] = (await self._one(partial(self._session.children, path)))[0]
        return names

    async def exists(self, path: str) -> Stat | None:
        """The metadata of a node; None if it does not exist."""
        stat: Stat | None = await self._one(partial(self._session.exists, path))
        return stat

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Execute all operations or none."""
        await self._one(partial(self._session.multi, operations))

    async def get_each(self, paths: Iterable[str]) -> Reads:
        """Data and metadata of many nodes."""
        listed = list(paths)
        return await self._each(listed, [partial(self._session.get, path) for path in listed])

    async def children_of_each(self, paths: Iterable[str]) -> Reads:
        """The names of the children of many nodes."""
        listed = list(paths)
        reads = await self._each(listed, [partial(self._session.children, path) for path in listed])
        return Reads({path: value[0] for path, value in reads.values.items()}, reads.forbidden)

    async def _one(self, call: Call) -> Any:
        async with asyncio.timeout(self._timeout_s):
            return (await await_outcome(call)).result()

    async def _each(self, paths: Sequence[str], calls: Sequence[Call]) -> Reads:
        """Make all calls at once. Raises the first error other than a missing node or permission."""
        if not calls:
            return Reads({}, [])
        outcomes: list[Outcome] = await self._one(lambda then: gather(calls, lambda ended: then(Outcome(ended))))
        reads = Reads({}, [])
        for path, outcome in zip(paths, outcomes, strict=True):
            if outcome.error is None:
                reads.values[path] = outcome.value
            elif isinstance(outcome.error, NoAuthError):
                reads.forbidden.append(path)
            elif not isinstance(outcome.error, NoNodeError):
                assert isinstance(outcome.error, CoordinationError)
                raise outcome.error
        return reads
