"""The storages of offsets: what is written to ZooKeeper, what a dual commit writes, and which offset is read."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial

import pytest
from kafkalite_sdk.values import OffsetAndMetadata
from kafkalite_sdk.zk.offsets.dual_commit import DualOffsets, larger_offset
from kafkalite_sdk.zk.offsets.storage import CommittedOffset, Failures, Offsets
from kafkalite_sdk.zk.offsets.zookeeper_offsets import ZooKeeperOffsets
from kafkalite_sdk.zk.session import opened_session, result_of

from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import NoChildrenForEphemeralsError, SessionExpiredError
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.errors import KafkaError, KafkaErrorCode, error_for
from kafkalite.model import TopicPartition
from kafkalite.testing.zookeeper_thread import ZooKeeperThread

DEADLINE_S = 30.0
LARGE = 2**62 + 1
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperThread]:
    with ZooKeeperThread() as server:
        yield server


def offsets_of(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("orders", int(name[1:])): OffsetAndMetadata(to) for name, to in offsets.items()}


async def node(session: Coordination, partition: int) -> tuple[bytes, int]:
    data, stat = await result_of(partial(session.get, f"/consumers/g/offsets/orders/{partition}"), DEADLINE_S)
    return data, stat.version


def test_offsets_are_decimal_text_and_unchanged_ones_are_not_written_again(zookeeper: ZooKeeperThread) -> None:
    async def run() -> None:
        async with opened_session(zookeeper.address, DEADLINE_S) as session:
            storage = ZooKeeperOffsets("g", lambda: session, DEADLINE_S)
            assert await storage.read([FIRST]) == {FIRST: None}
            assert await storage.commit(offsets_of(p0=LARGE, p1=7)) == {}
            assert await node(session, 0) == (str(LARGE).encode(), 0)
            assert await storage.commit(offsets_of(p0=LARGE, p1=8)) == {}
            assert await node(session, 0) == (str(LARGE).encode(), 0), "the offset is unchanged"
            assert await node(session, 1) == (b"8", 1)
            assert await storage.commit(offsets_of(p0=1, p1=9)) == {}
            assert await storage.read([FIRST, SECOND]) == offsets_of(p0=1, p1=9)
            await result_of(partial(session.set, "/consumers/g/offsets/orders/0", b"5"), DEADLINE_S)
            assert await storage.read([FIRST]) == offsets_of(p0=5), "the group was reset"
            assert await storage.commit(offsets_of(p0=1, p1=9)) == {}
            assert await node(session, 0) == (b"1", 3) and await node(session, 1) == (b"9", 2)

    asyncio.run(run())


def test_many_offsets_are_written_when_nodes_were_deleted(zookeeper: ZooKeeperThread) -> None:
    async def run() -> None:
        async with opened_session(zookeeper.address, DEADLINE_S) as session:
            storage = ZooKeeperOffsets("g", lambda: session, DEADLINE_S)
            names = [TopicPartition("orders", number) for number in range(600)]
            for offset in range(3):
                assert await storage.commit({each: OffsetAndMetadata(offset) for each in names}) == {}
                await result_of(partial(session.delete, "/consumers/g/offsets/orders/550"), DEADLINE_S)
            assert await storage.commit({each: OffsetAndMetadata(3) for each in names}) == {}
            assert await storage.read(names) == {each: OffsetAndMetadata(3) for each in names}

    asyncio.run(run())


def test_garbage_is_an_error_of_its_partition(zookeeper: ZooKeeperThread) -> None:
    async def run() -> None:
        async with opened_session(zookeeper.address, DEADLINE_S) as session:
            storage = ZooKeeperOffsets("g", lambda: session, DEADLINE_S)
            await storage.commit(offsets_of(p0=1, p1=2))
            await result_of(partial(session.set, "/consumers/g/offsets/orders/0", b"\xffgarbage"), DEADLINE_S)
            await result_of(partial(session.create, "/consumers/g/offsets/locked", b"", ephemeral=True), DEADLINE_S)
            found = await storage.read([FIRST, SECOND])
            assert isinstance(found[FIRST], ZnodeError) and "/consumers/g/offsets/orders/0" in str(found[FIRST])
            assert found[SECOND] == OffsetAndMetadata(2)
            locked = TopicPartition("locked", 0)
            failures = await storage.commit({locked: OffsetAndMetadata(1), SECOND: OffsetAndMetadata(3)})
            assert list(failures) == [locked] and isinstance(failures[locked], NoChildrenForEphemeralsError)
            assert await node(session, 1) == (b"3", 1)

    asyncio.run(run())


def test_lost_session_is_an_error_of_the_commit(zookeeper: ZooKeeperThread) -> None:
    async def run() -> None:
        storage = ZooKeeperOffsets("g", lambda: None, DEADLINE_S)
        with pytest.raises(SessionExpiredError):
            await storage.commit(offsets_of(p0=1))

    asyncio.run(run())


class Scripted:
    """A storage in memory, with errors of partitions."""

    def __init__(self, errors: dict[TopicPartition, KafkaError] | None = None) -> None:
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.errors = errors or {}

    async def commit(self, offsets: Offsets) -> Failures:
        self.offsets |= {each: to for each, to in offsets.items() if each not in self.errors}
        return {each: self.errors[each] for each in offsets if each in self.errors}

    def in_this_session(self) -> Callable[[Offsets], Awaitable[Failures]]:
        return self.commit

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return {each: self.offsets.get(each) for each in partitions}


def test_dual_commit_writes_nothing_to_zookeeper_in_a_later_session(zookeeper: ZooKeeperThread) -> None:
    """Another consumer may own the partition by then, and have committed a larger offset."""

    class Slow(Scripted):
        async def commit(self, offsets: Offsets) -> Failures:
            await result_of(current.pop().close, DEADLINE_S)
            return await super().commit(offsets)

    current: list[Coordination] = []

    async def run() -> None:
        async with (
            opened_session(zookeeper.address, DEADLINE_S) as later,
            opened_session(zookeeper.address, DEADLINE_S) as session,
        ):
            current.extend((later, session))
            storage = ZooKeeperOffsets("g", lambda: current[-1], DEADLINE_S)
            with pytest.raises(SessionExpiredError):
                await DualOffsets(Slow(), storage).commit(offsets_of(p0=1))
            assert await ZooKeeperOffsets("g", lambda: later, DEADLINE_S).read([FIRST]) == {FIRST: None}

    asyncio.run(run())


def test_dual_commit_writes_to_zookeeper_what_the_broker_has_accepted() -> None:
    async def run() -> None:
        third = TopicPartition("orders", 2)
        too_large = error_for(KafkaErrorCode.OFFSET_METADATA_TOO_LARGE)
        rejected = error_for(KafkaErrorCode.UNKNOWN_MEMBER_ID)
        broker, zookeeper = Scripted({SECOND: too_large, third: rejected}), Scripted()
        offsets = {**offsets_of(p0=1, p2=3), SECOND: OffsetAndMetadata(2, "x" * 5000)}
        assert await DualOffsets(broker, zookeeper).commit(offsets) == {third: rejected}
        assert list(broker.offsets) == [FIRST] and list(zookeeper.offsets) == [FIRST, SECOND]

    asyncio.run(run())


def test_dual_read_returns_the_larger_offset() -> None:
    async def run() -> None:
        broker, zookeeper = Scripted(), Scripted()
        broker.offsets = {FIRST: OffsetAndMetadata(10, "text"), SECOND: OffsetAndMetadata(1)}
        zookeeper.offsets = offsets_of(p0=9, p1=LARGE)
        found = await DualOffsets(broker, zookeeper).read([FIRST, SECOND, TopicPartition("orders", 2)])
        assert found == {
            FIRST: OffsetAndMetadata(10, "text"),
            SECOND: OffsetAndMetadata(LARGE),
            TopicPartition("orders", 2): None,
        }

    asyncio.run(run())


def test_larger_offset_is_that_of_the_broker_where_both_are_equal() -> None:
    error = ZnodeError("/consumers/g/offsets/orders/0: b'x' is not an offset")
    assert larger_offset(OffsetAndMetadata(5, "text"), OffsetAndMetadata(5)) == OffsetAndMetadata(5, "text")
    assert larger_offset(OffsetAndMetadata(5), error) is error


def test_commit_is_not_continued_in_another_session(zookeeper: ZooKeeperThread) -> None:
    """The partitions may belong to another consumer by then, whose offset would be set back."""

    async def run() -> None:
        async with opened_session(zookeeper.address, DEADLINE_S) as session:
            asked: list[Coordination] = []

            def current() -> Coordination:
                asked.append(session)
                return session

            storage = ZooKeeperOffsets("g", current, DEADLINE_S)
            assert await storage.commit(offsets_of(p0=1)) == {}
            await result_of(partial(session.delete, "/consumers/g/offsets/orders/0"), DEADLINE_S)
            asked.clear()
            assert await storage.commit(offsets_of(p0=2, p1=2)) == {}
            assert len(asked) == 1
            assert await node(session, 0) == (b"2", 0)

    asyncio.run(run())
