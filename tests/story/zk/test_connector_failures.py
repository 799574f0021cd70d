"""What a consumer of a group in ZooKeeper leaves behind when it fails, and what its calls return then."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
from kafkalite_sdk.zk.consumer.broker_clients import BrokerClients
from kafkalite_sdk.zk.consumer.listener import ConsumerRebalanceListener
from kafkalite_sdk.zk.membership.errors import ReleaseTimeoutError

from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.model import TopicPartition
from kafkalite.testing.broker_cluster import BrokerCluster
from tests.story.zk.test_connector import (
    DEADLINE_S,
    PARTITIONS,
    RECORDS,
    Readers,
    children,
    committed,
    connector,
    produce,
    reading,
    run,
)

SHORT: dict[str, Any] = {"rebalance_backoff_ms": 50, "rebalance_max_retries": 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(1) as running:
        yield running


@pytest.fixture
def topic(cluster: BrokerCluster, request: pytest.FixtureRequest) -> str:
    """A topic with records 0 to RECORDS - 1; its name is also that of the group."""
    name: str = request.node.originalname
    cluster.create_topic(name, PARTITIONS)
    run(produce(cluster, name, range(RECORDS)))
    return name


class Hanging(ConsumerRebalanceListener):
    """A listener with a method that does not return."""

    def __init__(self, *, release: bool = False, start: bool = False) -> None:
        self._release = release
        self._start = start

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        if self._release:
            await asyncio.Event().wait()

    async def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[TopicPartition, StreamId]) -> None:
        if self._start:
            await asyncio.Event().wait()


def test_failed_consumer_leaves_no_nodes_before_its_shutdown(cluster: BrokerCluster, topic: str) -> None:
    """Its owners would keep partitions that no consumer reads."""

    async def story() -> None:
        failing, readers = connector(cluster, topic, **SHORT), Readers()
        failing.set_consumer_rebalance_listener(Hanging(release=True))
        async with failing:
            [stream] = failing.create_message_streams({topic: 1})[topic]
            await anext(stream)
            async with reading(cluster, topic, changed=readers.changed) as (member, second):
                await second.have(range(RECORDS))
                assert await children(cluster, f"/consumers/{topic}/ids") == [member.consumer_id]
            with pytest.raises(ReleaseTimeoutError):
                while True:
                    await anext(stream)
            with pytest.raises(ReleaseTimeoutError):
                await failing.commit_offsets()

    run(story())


def test_start_of_fetching_does_not_wait_for_a_listener_without_limit(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        member = connector(cluster, topic, **SHORT)
        member.set_consumer_rebalance_listener(Hanging(start=True))
        async with member:
            [stream] = member.create_message_streams({topic: 1})[topic]
            with pytest.raises(ReleaseTimeoutError, match="before_starting_fetchers"):
                await anext(stream)
        assert await children(cluster, f"/consumers/{topic}/ids") == []

    run(story())


def test_commit_is_not_cancelled_when_no_session_follows(cluster: BrokerCluster, topic: str) -> None:
    """`CancelledError` would end the task of the application as if it had been cancelled."""

    async def story() -> None:
        async with connector(cluster, topic, auto_commit_enable=False) as member:
            [stream] = member.create_message_streams({topic: 1})[topic]
            await anext(stream)
            driver = member._driver
            assert driver is not None
            commit = asyncio.ensure_future(member.commit_offsets())
            await asyncio.sleep(0)
            driver.failed(ConnectionLossError("/", detail="planned"))
            with pytest.raises(ConnectionLossError, match="planned"):
                await commit

    run(story())


def test_explicit_offsets_are_committed_again_after_a_lost_connection(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        async with connector(cluster, topic, auto_commit_enable=False, offsets_channel_backoff_ms=10) as member:
            [stream] = member.create_message_streams({topic: 1})[topic]
            await anext(stream)
            write, errors = member._storage.commit, [ConnectionLossError("/", detail="planned")]

            async def fails_once(offsets: Any) -> Any:
                if errors:
                    raise errors.pop()
                return await write(offsets)

            member._storage.commit = fails_once  # type: ignore[method-assign]
            await member.commit_offsets({TopicPartition(topic, 1): 3})
            assert await committed(cluster, topic) == {1: 3}

    run(story())


def test_assignments_that_follow_each_other_share_one_client(cluster: BrokerCluster, topic: str) -> None:
    """A second rebalance may begin while the client that fetches is being started."""

    async def story() -> None:
        member = connector(cluster, topic)
        clients = member._clients
        started: list[object] = []
        start = clients._start_driver

        async def counted() -> None:
            started.append(None)
            await start()

        clients._start_driver = counted  # type: ignore[method-assign]
        async with member:
            member.create_message_streams({topic: 1})
            while not clients.starts:
                await asyncio.sleep(0)
            first = clients.starts
            again = asyncio.ensure_future(clients.fetch())
            clients.starts = dict(first)
            await asyncio.wait_for(clients.fetch(), DEADLINE_S)
            await again
            assert len(started) == 1

    run(story())


def test_failed_close_of_a_client_ends_the_session(cluster: BrokerCluster, topic: str) -> None:
    async def story() -> None:
        member = connector(cluster, topic)
        await member.start()
        member.create_message_streams({topic: 1})
        await member.wait_until_assigned(DEADLINE_S)

        async def fails() -> None:
            await BrokerClients.close(member._clients)
            raise OSError("planned")

        member._clients.close = fails  # type: ignore[method-assign]
        with pytest.raises(OSError, match="planned"):
            await member.shutdown()
        assert member._sessions.current is None
        assert await children(cluster, f"/consumers/{topic}/ids") == []

    run(story())


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_consumer_follows_brokers_to_other_addresses(storage: str) -> None:
    async def story(cluster: BrokerCluster) -> None:
        await produce(cluster, "moved", range(RECORDS))
        async with reading(cluster, "moved", offsets_storage=storage) as (member, readers):
            await readers.have(range(RECORDS))
            await member.commit_offsets()
            await asyncio.to_thread(cluster.stop, 1)
            cluster._ports[1] = cluster._reserve_port(cluster._opened)
            await asyncio.to_thread(cluster.start, 1)
            await produce(cluster, "moved", range(RECORDS, 2 * RECORDS))
            await readers.have(range(2 * RECORDS))
            await member.commit_offsets()

    with BrokerCluster(1) as moving:
        moving.create_topic("moved", PARTITIONS)
        run(story(moving))
