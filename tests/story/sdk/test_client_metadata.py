"""Metadata and coordinators of a cluster client, in virtual time."""

import pytest
from kafkalite_sdk.client.cluster_view import NO_LEADER, PartitionView

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, KafkaTimeoutError, error_class
from kafkalite.model import Node
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Ends, Story, metadata_when, story


def asked(world: Story) -> list[tuple[list[str] | None, bool]]:
    """The topics of the Metadata requests, and whether the broker may create them."""
    return [
        (
            None if each.request.topics is None else [topic.name for topic in each.request.topics],
            each.request.allow_auto_topic_creation,
        )
        for each in world.broker.requests(MetadataRequest)
    ]


@story(nodes=2)
async def test_new_topics_are_requested_together_and_alone(world: Story) -> None:
    for name in ("a", "b", "c"):
        world.broker.cluster.create_topic(name, 2)
    async with world.client() as client:
        client.use_topics(["a"])
        client.use_topics(["b"], create=False)
        client.use_topics(["a"])
        await metadata_when(client, lambda: {"a", "b"} <= client.view.topics.keys())
        client.use_topics(["c"])
        await metadata_when(client, lambda: "c" in client.view.topics)
        assert asked(world) == [([], False), (["a", "b"], False), (["c"], False)]
        assert [client.view.leader("a", each) for each in (0, 1, 2)] == [1, 2, NO_LEADER]


@story()
async def test_topics_that_are_used_before_the_start_are_loaded_by_it(world: Story) -> None:
    world.broker.cluster.create_topic("a")
    client = world.new_client()
    client.use_topics(["a"])
    await client.start()
    assert client.view.leader("a", 0) == 1
    await client.close()


@story()
async def test_only_a_missing_topic_may_be_created(world: Story) -> None:
    world.broker.cluster.create_topic("old")
    async with world.client(metadata_max_age_s=50.0) as client:
        client.use_topics(["old", "new"], create=True)
        await metadata_when(client, lambda: "old" in client.view.topics)
        world.broker.cluster.create_topic("new")
        await metadata_when(client, lambda: "new" in client.view.topics)
        await pass_time(51.0)
        assert asked(world)[1] == (["old", "new"], True)
        assert (["new"], True) in asked(world)
        assert asked(world)[-1] == (["old", "new"], False)


@story()
async def test_missing_topic_is_requested_with_back_off_and_delays_no_other(world: Story) -> None:
    world.broker.cluster.create_topic("there")
    async with world.client() as client:
        failures = []
        client.on_metadata.append(lambda changes: failures.append(changes.failed))
        client.use_topics(["missing"])
        await pass_time(30.0)
        requests = [topics for topics, _ in asked(world)[1:]]
        assert requests == [["missing"]] * len(requests) and 28 <= len(requests) <= 42
        assert failures == [{"missing": KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION}] * len(requests)
        begin = world.now
        client.use_topics(["there"])
        await metadata_when(client, lambda: "there" in client.view.topics)
        assert world.now - begin < 0.01
        client.drop_topics(["missing"])
        count = len(asked(world))
        await pass_time(30.0)
        assert len(asked(world)) == count


@story(nodes=2)
async def test_topic_without_a_leader_is_requested_until_it_has_one(world: Story) -> None:
    world.broker.cluster.create_topic("ready", leaders=[1])
    world.broker.cluster.create_topic("waiting", leaders=[NO_LEADER])
    async with world.client() as client:
        client.use_topics(["ready", "waiting"])
        await metadata_when(client, lambda: client.view.leader("ready", 0) == 1)
        await pass_time(20.0)
        world.broker.cluster.move_leader("ready", 0, 2)
        begin = world.now
        client.refresh_metadata(["ready"])
        await metadata_when(client, lambda: client.view.leader("ready", 0) == 2)
        assert world.now - begin < 0.2
        world.broker.cluster.move_leader("waiting", 0, 1)
        begin = world.now
        await metadata_when(client, lambda: client.view.leader("waiting", 0) == 1)
        assert world.now - begin < 1.3
        count = len(asked(world))
        await pass_time(100.0)
        assert len(asked(world)) == count


@story()
async def test_refreshes_are_combined_and_separated_by_the_back_off(world: Story) -> None:
    world.broker.cluster.create_topic("a")
    async with world.client() as client:
        client.use_topics(["a"])
        await metadata_when(client, lambda: "a" in client.view.topics)
        count = len(asked(world))
        for _ in range(1000):
            client.refresh_metadata(["a"])
            await pass_time(0.01)
        assert 8 <= len(asked(world)) - count <= 18  # 10 seconds, pauses of 0.1 to 1 s
        client.refresh_metadata(["unused"])
        count = len(asked(world))
        await pass_time(5.0)
        assert len(asked(world)) <= count + 1


@story()
async def test_topic_that_may_not_be_read_is_reported_and_not_repeated(world: Story) -> None:
    async with world.client() as client:
        failed = []
        client.on_metadata.append(lambda changes: failed.append(changes.failed))
        client.use_topics(["secret"])
        world.broker.on(MetadataRequest, error=KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        world.broker.cluster.create_topic("secret")
        await pass_time(100.0)
        assert failed == [{"secret": KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED}]


@story()
async def test_metadata_is_refreshed_at_its_maximum_age(world: Story) -> None:
    world.broker.cluster.create_topic("a")
    async with world.client(metadata_max_age_s=60.0) as client:
        client.use_topics(["a"])
        await pass_time(50.0)
        world.broker.cluster.add_partitions("a", 3)
        await pass_time(20.0)
        assert len(client.view.topics["a"].partitions) == 3
        await pass_time(290.0)
        assert len(asked(world)) == 1 + 1 + 5


@story()
async def test_recreated_topic_is_noticed(world: Story) -> None:
    world.broker.cluster.create_topic("a", 3)
    async with world.client(metadata_max_age_s=60.0) as client:
        client.use_topics(["a"])
        await metadata_when(client, lambda: "a" in client.view.topics)
        recreated = []
        client.on_metadata.append(lambda changes: recreated.extend(changes.recreated))
        world.broker.cluster.delete_topic("a")
        world.broker.cluster.create_topic("a", 1)
        await pass_time(61.0)
        assert recreated == ["a"] and len(client.view.topics["a"].partitions) == 1


@story(nodes=2)
async def test_all_topics_of_the_cluster_follow_their_creation_and_deletion(world: Story) -> None:
    world.broker.cluster.create_topic("a")
    async with world.client(metadata_max_age_s=10.0) as client:
        client.use_all_topics(True)
        await metadata_when(client, lambda: "a" in client.view.topics)
        world.broker.cluster.create_topic("b")
        await pass_time(11.0)
        assert client.view.topics.keys() == {"a", "b"}
        world.broker.cluster.delete_topic("a")
        await pass_time(11.0)
        assert client.view.topics.keys() == {"b"}
        assert asked(world)[-1] == (None, False)


@story()
async def test_metadata_without_brokers_is_ignored(world: Story) -> None:
    async with world.client() as client:
        world.broker.on(MetadataRequest, edit=lambda response: response.brokers.clear())
        client.refresh_metadata()
        await pass_time(0.05)
        assert list(client.view.brokers) == [1]
        await pass_time(1.0)
        assert len(asked(world)) == 3


@story(nodes=3)
async def test_client_starts_again_at_its_bootstrap_servers_when_all_known_brokers_are_gone(world: Story) -> None:
    async with world.client("node1:9092", rebootstrap_after_s=1000.0) as client:
        assert sorted(client.view.brokers) == [1, 2, 3]
        for node, port in ((1, 9092), (2, 7002), (3, 7003)):  # the cluster moves; the bootstrap address stays
            world.broker.nodes[node].stop()
            world.broker.nodes[node].port = port
        await pass_time(30.0)
        for node, each in world.broker.nodes.items():
            await each.start()
            world.broker.cluster.addresses[node] = each.host, each.port
        begin = world.now
        await client.call_any(MetadataRequest(topics=[]))
        client.refresh_metadata()
        await metadata_when(client, lambda: client.view.brokers[3].port == 7003)
        assert world.now - begin < 3.0


@story(nodes=2)
async def test_broker_may_demand_a_rebootstrap(world: Story) -> None:
    async with world.client("node1:9092") as client:
        await client.call(2, MetadataRequest(topics=[]))
        world.broker.on(MetadataRequest, edit=lambda r: setattr(r, "error_code", KafkaErrorCode.REBOOTSTRAP_REQUIRED))
        world.broker.cluster.addresses[2] = "node2", 1234
        connections = len({each.connection for each in world.broker.log})
        client.refresh_metadata()
        await metadata_when(client, lambda: 2 in client.view.brokers and client.view.brokers[2].port == 1234)
        last = world.broker.requests(MetadataRequest)[-1]
        assert last.node == 1 and len({each.connection for each in world.broker.log}) == connections + 1


@story(nodes=2)
async def test_client_without_metadata_for_long_forgets_its_brokers(world: Story) -> None:
    async with world.client("node1:9092", rebootstrap_after_s=40.0, request_timeout_s=5.0) as client:
        await client.call(2, MetadataRequest(topics=[]))
        for each in world.broker.nodes.values():
            each.freeze()
        client.refresh_metadata()
        await pass_time(30.0)
        assert sorted(client.view.brokers) == [1, 2]
        await pass_time(30.0)
        assert client.view.brokers == {}
        for each in world.broker.nodes.values():
            each.thaw()
        await metadata_when(client, lambda: sorted(client.view.brokers) == [1, 2])


@story(nodes=2)
async def test_leader_that_a_response_names_is_used_at_once(world: Story) -> None:
    world.broker.cluster.create_topic("a", leaders=[1])
    async with world.client("node1:9092") as client:
        client.use_topics(["a"])
        await metadata_when(client, lambda: client.view.leader("a", 0) == 1)
        world.broker.nodes[2].stop()
        world.broker.nodes[2].port = 7777
        await world.broker.nodes[2].start()
        client.view.leader_changed("a", 0, PartitionView(3, 1), [Node(3, "node2", 7777)])
        assert client.view.leader("a", 0) == 3
        await client.call(3, MetadataRequest(topics=[]))


@story(nodes=2)
async def test_coordinator_is_found_once_and_cached(world: Story) -> None:
    async with world.client() as client:
        ends = Ends()
        for _ in range(3):
            client.find_coordinator("g", 0, ends.end, ends.end)
        assert client.coordinator("g") is None
        first = (await ends.reached(3))[0]
        assert ends.ends == [first] * 3 and client.coordinator("g") == first
        client.find_coordinator("g", 0, ends.end, ends.end)
        assert ends.ends == [first] * 4 and len(world.broker.requests(FindCoordinatorRequest)) == 1
        client.forget_coordinator("g")
        assert client.coordinator("g") is None
        client.find_coordinator("g", 0, ends.end, ends.end)
        await ends.reached(5)
        assert len(world.broker.requests(FindCoordinatorRequest)) == 2


@pytest.mark.parametrize("version", [0, 3, 4])
def test_coordinator_is_looked_up_until_the_broker_has_one(version: int) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.versions[FindCoordinatorRequest] = (0, version)
        world.broker.on(FindCoordinatorRequest, error=KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, times=3)
        async with world.client() as client:
            ends = Ends()
            client.find_coordinator("g", 0, ends.end, ends.end)
            assert await ends.reached(1) == [1]
            assert 0.8 * 0.7 <= world.now <= 1.2 * 0.8
            world.broker.on(FindCoordinatorRequest, error=KafkaErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
            client.forget_coordinator("g")
            client.find_coordinator("g", 0, ends.end, ends.end)
            denied = (await ends.reached(2))[1]
            assert isinstance(denied, error_class(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED))
            assert "group g" in str(denied)

    run()


@story()
async def test_response_without_a_coordinator_is_retried(world: Story) -> None:
    world.broker.on(FindCoordinatorRequest, edit=lambda response: response.coordinators.clear())
    async with world.client() as client:
        ends = Ends()
        client.find_coordinator("g", 0, ends.end, ends.end)
        assert await ends.reached(1) == [1] and len(world.broker.requests(FindCoordinatorRequest)) == 2


@story()
async def test_brokers_with_impossible_ids_are_ignored(world: Story) -> None:
    async with world.client() as client:

        def impossible(response: MetadataResponse) -> None:
            response.brokers.append(MetadataResponse.MetadataResponseBroker(node_id=-1, host="nowhere", port=1))

        world.broker.on(MetadataRequest, edit=impossible, times=None)
        client.refresh_metadata()
        await pass_time(1.0)
        assert list(client.view.brokers) == [1] and len(asked(world)) == 2
        world.broker.nodes[1].disconnect()
        await client.call_any(MetadataRequest(topics=[]))


@story()
async def test_lookup_of_a_coordinator_ends_at_its_deadline(world: Story) -> None:
    async with world.client(request_timeout_s=2.0) as client:
        world.broker.on(FindCoordinatorRequest, error=KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, times=None)
        ends = Ends()
        begin = world.now
        client.find_coordinator("g", 0, ends.end, ends.end, timeout_s=5.0)
        (error,) = await ends.reached(1)
        assert isinstance(error, KafkaTimeoutError) and "COORDINATOR_NOT_AVAILABLE" in str(error)
        assert 3.5 < world.now - begin <= 5.0
        world.broker.nodes[1].freeze()
        begin = world.now
        client.find_coordinator("h", 0, ends.end, ends.end, timeout_s=5.0)
        assert isinstance((await ends.reached(2))[1], KafkaTimeoutError | KafkaConnectionError)
        assert world.now - begin == pytest.approx(5.0, abs=0.1)


@story()
async def test_coordinator_that_metadata_has_not_named_is_addressable(world: Story) -> None:
    async with world.client() as client:

        def elsewhere(response: object) -> None:
            for each in response.coordinators:  # type: ignore[attr-defined]
                each.node_id, each.host, each.port = 77, "node1", 9092

        world.broker.on(FindCoordinatorRequest, edit=elsewhere)
        ends = Ends()
        client.find_coordinator("g", 0, ends.end, ends.end)
        assert await ends.reached(1) == [77]
        await client.call(77, MetadataRequest(topics=[]))


@story()
async def test_callback_that_fails_does_not_end_the_metadata(world: Story) -> None:
    async with world.client(metadata_max_age_s=10.0) as client:
        seen = []

        def failing(_changes: object) -> None:
            seen.append("failing")
            raise ZeroDivisionError

        world.expect_failures()
        client.on_metadata += [failing, lambda _changes: seen.append("other")]
        await pass_time(35.0)
        assert seen == ["failing", "other"] * 3 and client.is_connected(1)
