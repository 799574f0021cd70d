"""Offsets in ZooKeeper: `/consumers/G/offsets/T/P`, decimal text (ZookeeperConsumerConnector.scala of Kafka 1.1).

1. An offset that this storage has written or read last is not written again (`checkpointedZkOffsets`).
2. Nodes that exist are written by one `multi` of at most SETS_MAX changes. Java writes them one by one.
3. ZooKeeper has no field for metadata; the text is not stored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import (
    ConnectionLossError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kafkalite.coordination.tree import Set
from kafkalite.coordination.znodes.consumers import decode_offset, encode_offset, offset_path
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.model import TopicPartition
from kafkalite_sdk.values import OffsetAndMetadata
from kafkalite_sdk.zk.offsets.storage import CommittedOffset, Failures, Offsets
from kafkalite_sdk.zk.session import result_of, within

SETS_MAX = 500  # some 50 kB; a request may have 1 MiB
UNREACHABLE = (ConnectionLossError, SessionExpiredError)

T = TypeVar("T")


class ZooKeeperOffsets:
    """The offsets of a group in ZooKeeper.

    Arguments:
        group: its name.
        session: returns the current session, None = there is none.
        timeout_s: longest time of a commit or a read, in seconds.
    """

    def __init__(self, group: str, session: Callable[[], Coordination | None], timeout_s: float) -> None:
        self._group = group
        self._session = session
        self._timeout_s = timeout_s
        self._stored: dict[TopicPartition, int] = {}  # as far as this storage knows; its node exists
        self._existing: set[TopicPartition] = set()

    async def commit(self, offsets: Offsets) -> Failures:
        """Write the offsets that have changed. Raises CoordinationError: the session has no connection, or is lost."""
        return await self.in_this_session()(offsets)

    def in_this_session(self) -> Callable[[Offsets], Awaitable[Failures]]:
        """Return `commit` of the present session: in the next one another consumer may own the partitions.

        Raises CoordinationError: there is none.
        """
        return partial(self._commit, self._current())

    async def _commit(self, session: Coordination, offsets: Offsets) -> Failures:
        changed = {each: to.offset for each, to in offsets.items() if self._stored.get(each) != to.offset}
        for each in changed:
            self._stored.pop(each, None)  # unknown until the end of the write
        failures: Failures = {}
        if not changed:
            return failures
        async with within(self._timeout_s):
            left = [each for each in changed if each not in self._existing]
            for chunk in _chunks((each for each in changed if each in self._existing), SETS_MAX):
                if not await self._set_all(session, {each: changed[each] for each in chunk}):
                    left += chunk
            await self._write_each(session, {each: changed[each] for each in left}, failures)
        return failures

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the offset of each partition. Raises CoordinationError: the session has no connection, or is lost."""
        session = self._current()
        names = list(partitions)
        async with within(self._timeout_s):
            outcomes = await self._all([partial(session.get, self._path(each)) for each in names])
        return {each: self._offset(each, outcome) for each, outcome in zip(names, outcomes, strict=True)}

    # Reads.

    def _offset(self, partition: TopicPartition, outcome: Outcome) -> CommittedOffset:
        self._stored.pop(partition, None)
        if isinstance(outcome.error, NoNodeError):
            self._existing.discard(partition)
            return None
        if outcome.error is not None:
            if isinstance(outcome.error, UNREACHABLE) or not isinstance(outcome.error, Exception):
                raise outcome.error
            return outcome.error
        self._existing.add(partition)
        try:
            offset = decode_offset(self._path(partition), outcome.value[0])
        except ZnodeError as error:
            return error
        self._stored[partition] = offset
        return None if offset < 0 else OffsetAndMetadata(offset)

    # Writes.

    async def _set_all(self, session: Coordination, offsets: dict[TopicPartition, int]) -> bool:
        """Replace the data of nodes; False = one of them was not possible, and nothing was written."""
        sets = [Set(self._path(each), encode_offset(offset)) for each, offset in offsets.items()]
        try:
            await result_of(partial(session.multi, sets), self._timeout_s)
        except UNREACHABLE:
            raise
        except CoordinationError:
            return False
        self._stored |= offsets
        return True

    async def _write_each(self, session: Coordination, offsets: dict[TopicPartition, int], failures: Failures) -> None:
        writes = [partial(session.set, self._path(each), encode_offset(to)) for each, to in offsets.items()]
        for (each, offset), outcome in zip(offsets.items(), await self._all(writes), strict=True):
            try:
                if isinstance(outcome.error, NoNodeError):
                    await self._create(session, self._path(each), encode_offset(offset))
                else:
                    outcome.result()
            except UNREACHABLE:
                raise
            except CoordinationError as error:
                failures[each] = error
                self._existing.discard(each)
            else:
                self._stored[each] = offset
                self._existing.add(each)

    async def _create(self, session: Coordination, path: str, data: bytes) -> None:
        """Create a node and those above it; set its data if another consumer has created it meanwhile."""
        try:
            await result_of(partial(session.create, path, data), self._timeout_s)
        except NoNodeError:
            parent = path.rpartition("/")[0]
            if not parent:
                raise
            await self._create(session, parent, b"")
            await self._create(session, path, data)
        except NodeExistsError:
            if data:
                await result_of(partial(session.set, path, data), self._timeout_s)

    # Calls.

    def _path(self, partition: TopicPartition) -> str:
        return offset_path(self._group, partition.topic, partition.partition)

    def _current(self) -> Coordination:
        session = self._session()
        if session is None:
            raise SessionExpiredError(detail="another one is not established yet")
        return session

    async def _all(self, calls: Sequence[Callable[[Then], object]]) -> list[Outcome]:
        """Make calls at once, and wait for all."""
        ended: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        gather(calls, lambda outcomes: None if ended.done() else ended.set_result(outcomes))
        return await ended


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while chunk := list(islice(left, size)):
        yield chunk
