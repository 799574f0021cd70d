"""Changes of groups in ZooKeeper while consumers come and commit."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafkalite_sdk.admin import Committed
from kafkalite_sdk.zk.group_changes import GroupOffsets, RegisteredConsumersError, set_offsets
from kafkalite_sdk.zk.groups import RegisteredConsumer, StoredOffset, ZooKeeperGroup, ZooKeeperGroups
from kafkalite_sdk.zk.offsets.migration import Confirmed, Migration, Storage
from kafkalite_sdk.zk.session import opened_session, result_of

from kafkalite.coordination.znodes.consumers import Registration
from kafkalite.errors import GroupIdNotFoundError
from kafkalite.model import TopicPartition
from kafkalite.testing.zookeeper_thread import ZooKeeperThread

DEADLINE_S = 30.0
T0 = TopicPartition("t", 0)


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperThread]:
    with ZooKeeperThread() as server:
        yield server


def test_no_group_is_written_if_one_of_them_has_a_consumer(zookeeper: ZooKeeperThread) -> None:
    async def run() -> None:
        async with opened_session(zookeeper.address, DEADLINE_S) as session:
            for path in ("/consumers", "/consumers/b", "/consumers/b/ids", "/consumers/b/ids/b_1"):
                await result_of(partial(session.create, path, b""), DEADLINE_S)
            wanted = [GroupOffsets(name, {T0: 7}, {}) for name in ("a", "b")]
            with pytest.raises(RegisteredConsumersError, match="b"):
                await set_offsets(ZooKeeperGroups(session, DEADLINE_S), wanted)
            assert await result_of(partial(session.exists, "/consumers/a"), DEADLINE_S) is None

    asyncio.run(run())


class Storages:
    """Both storages of the group `g`, with the interfaces that a migration uses; a consumer may commit in between."""

    def __init__(self, zookeeper: int, *, registered: bool) -> None:
        self.zookeeper = zookeeper
        self.broker: int | None = None
        self.registered = registered
        self.before_write: Callable[[], None] = lambda: None
        self.group_offsets = SimpleNamespace(list=self.list, alter=self.alter)
        self.groups = SimpleNamespace(describe=self.describe)

    def migration(self) -> Migration:
        groups = SimpleNamespace(read=self.read, calls=SimpleNamespace(exists=self.exists))
        return Migration(cast(ZooKeeperGroups, groups), cast(Any, self), "g", Storage.BROKER)

    def commit(self, offset: int) -> None:
        """Of a consumer with dual commit."""
        self.broker = self.zookeeper = offset

    async def exists(self, _path: str) -> object:
        """The version of the node of the offsets topic, which exists."""
        return object()

    async def read(self, group: str) -> ZooKeeperGroup:
        consumers = {"g_a": RegisteredConsumer(Registration({"t": 1}), 1)} if self.registered else {}
        return ZooKeeperGroup(group, consumers, {}, {T0: StoredOffset(self.zookeeper, 1)}, {T0: 1}, (), {})

    async def list(self, group: str) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        return {group: {} if self.broker is None else {T0: Committed(self.broker)}}

    async def alter(self, _group: str, offsets: Mapping[TopicPartition, int]) -> Any:
        self.before_write()
        self.broker = offsets[T0]
        return SimpleNamespace(errors={})

    async def describe(self, group: str) -> Any:
        raise GroupIdNotFoundError(group)


def test_copy_over_a_larger_offset_of_a_consumer_is_reported_and_a_repetition_copies_it() -> None:
    """The broker has no condition for commits: the copy is the last one, with the older offset."""

    async def run() -> None:
        storages = Storages(90, registered=True)
        storages.before_write = lambda: storages.commit(100)
        confirmed = Confirmed(commit_to_both=True)
        migration = storages.migration()
        assert (await migration.copy(await migration.plan(), confirmed)).differing == (T0,)
        storages.before_write = lambda: None
        assert (await migration.copy(await migration.plan(), confirmed)).differing == ()
        assert storages.broker == 100

    asyncio.run(run())


def test_copy_to_the_broker_names_consumers_that_came_meanwhile() -> None:
    async def run() -> None:
        storages = Storages(90, registered=False)
        storages.before_write = lambda: setattr(storages, "registered", True)
        migration = storages.migration()
        with pytest.raises(RegisteredConsumersError, match="g"):
            await migration.copy(await migration.plan(), Confirmed())

    asyncio.run(run())
