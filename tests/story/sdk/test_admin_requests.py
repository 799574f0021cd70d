"""Requests of the administration: which are repeated, which are not, and what each resource receives; virtual time."""

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafkalite_sdk.admin import LATEST, Admin, NewTopic, Outcomes
from kafkalite_sdk.admin.lag import Lag
from kafkalite_sdk.client.environment import Environment

from kafkalite.errors import (
    KafkaErrorCode,
    KafkaTimeoutError,
    NotControllerError,
    OutcomeUnknownError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story

ORDERS = [TopicPartition("orders", index) for index in range(3)]


@asynccontextmanager
async def admin_of(world: Story, **options: Any):
    environment = Environment(dial=world.network.dial, random=world.random)
    async with Admin(world.broker.bootstrap, environment=environment, **options) as admin:
        yield admin


@story(nodes=3)
async def test_each_resource_has_its_own_outcome(world: Story) -> None:
    world.broker.cluster.create_topic("orders", partitions=1)
    async with admin_of(world) as admin:
        created = await admin.topics.create("orders", NewTopic("payments", partitions=2))
    assert list(created) == ["orders", "payments"] and created["payments"].name == "payments"
    with pytest.raises(TopicAlreadyExistsError):
        created["orders"]
    for _ in range(2):
        with pytest.raises(TopicAlreadyExistsError) as raised:
            created.check()
    assert raised.value.__notes__ == ["resource: orders"]
    assert list(created.results) == ["payments"] and list(created.errors) == ["orders"]


@story(nodes=3)
async def test_rejected_change_is_sent_to_the_new_controller(world: Story) -> None:
    world.broker.cluster.controller = 2
    rule = world.broker.on(CreateTopicsRequest, node=2, error=KafkaErrorCode.NOT_CONTROLLER, times=1)
    async with admin_of(world) as admin:
        rule.edit = lambda _: setattr(world.broker.cluster, "controller", 3)
        (await admin.topics.create("orders")).check()
    assert [each.node for each in world.broker.requests(CreateTopicsRequest)] == [2, 3]


@pytest.mark.parametrize("applied", [True, False])
def test_lost_creation_is_not_repeated_and_reports_what_is_known(applied: bool) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.on(CreateTopicsRequest, disconnect=True, applied=applied, error=0 if applied else 41)
        async with admin_of(world) as admin:
            (error,) = (await admin.topics.create("orders")).errors.values()
        assert len(world.broker.requests(CreateTopicsRequest)) == 1
        assert isinstance(error, OutcomeUnknownError) and error.made is applied
        state = "exists now" if applied else "does not exist now"
        assert f"topic orders {state}" in str(error) and "CreateTopics was sent, its response was lost" in str(error)

    run()


@pytest.mark.parametrize("applied", [True, False])
def test_lost_deletion_is_not_repeated_and_reports_what_is_known(applied: bool) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        world.broker.on(DeleteTopicsRequest, disconnect=True, applied=applied, error=0 if applied else 41)
        async with admin_of(world) as admin:
            (error,) = (await admin.topics.delete("orders")).errors.values()
        assert len(world.broker.requests(DeleteTopicsRequest)) == 1
        assert ("orders" not in world.broker.cluster.topics) is applied
        assert isinstance(error, OutcomeUnknownError) and error.made is applied
        state = "does not exist now" if applied else "exists now"
        assert f"topic orders {state}" in str(error) and "DeleteTopics was sent, its response was lost" in str(error)

    run()


@story(nodes=3)
async def test_deletion_is_sent_to_the_new_controller_until_the_deadline(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(DeleteTopicsRequest, error=KafkaErrorCode.NOT_CONTROLLER, times=None)
    async with admin_of(world) as admin:
        began = world.now
        (error,) = (await admin.topics.delete("orders", timeout=5.0)).errors.values()
        assert isinstance(error, NotControllerError) and 3.0 <= world.now - began <= 5.1
        assert "orders" in world.broker.cluster.topics


@story()
async def test_deletion_whose_response_does_not_arrive_ends_at_the_deadline(world: Story) -> None:
    for name in ("orders", "payments"):
        world.broker.cluster.create_topic(name)
    world.broker.on(DeleteTopicsRequest, stall=True)
    async with admin_of(world) as admin:
        began = world.now
        deleted = await admin.topics.delete("orders", "payments", timeout=5.0)
        assert 5.0 <= world.now - began <= 5.1
    for error in deleted.errors.values():
        assert isinstance(error, OutcomeUnknownError) and error.made is None
    assert len(world.broker.requests(DeleteTopicsRequest)) == 1


@pytest.mark.parametrize("change", ["create", "delete"])
def test_look_up_of_a_lost_change_has_the_deadline_of_the_call(change: str) -> None:
    @story()
    async def run(world: Story) -> None:
        if change == "delete":
            world.broker.cluster.create_topic("orders")
        request = {"create": CreateTopicsRequest, "delete": DeleteTopicsRequest}[change]
        world.broker.on(request, disconnect=True, delay_s=3.0)
        async with admin_of(world) as admin:
            world.broker.on(MetadataRequest, stall=True, times=None)
            began = world.now
            (error,) = (await getattr(admin.topics, change)("orders", timeout=5.0)).errors.values()
            assert isinstance(error, OutcomeUnknownError) and error.made is None
            assert world.now - began == pytest.approx(5.0, abs=0.1)

    run()


@story()
async def test_change_whose_broker_timed_out_has_an_unknown_outcome(world: Story) -> None:
    world.broker.on(CreateTopicsRequest, error=KafkaErrorCode.REQUEST_TIMED_OUT, times=1)
    async with admin_of(world) as admin:
        (error,) = (await admin.topics.create("orders")).errors.values()
    assert len(world.broker.requests(CreateTopicsRequest)) == 1
    assert isinstance(error, OutcomeUnknownError) and error.made is False


@story()
async def test_change_is_sent_once_the_broker_can_be_reached(world: Story) -> None:
    async with admin_of(world) as admin:
        world.network.refuse("node1", 9092)
        world.broker.nodes[1].disconnect()
        asyncio.get_running_loop().call_later(1.0, world.network.accept, "node1", 9092)
        (await admin.topics.create("orders")).check()
    assert len(world.broker.requests(CreateTopicsRequest)) == 1


@story(nodes=3)
async def test_lost_reads_are_repeated_for_their_partitions_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders", partitions=3)
    world.broker.on(ListOffsetsRequest, node=2, disconnect=True, times=1)
    async with admin_of(world) as admin:
        found = (await admin.partitions.offsets(dict.fromkeys(ORDERS, LATEST))).check()
    assert [found[each].offset for each in ORDERS] == [0, 0, 0]
    assert sorted(each.node for each in world.broker.requests(ListOffsetsRequest)) == [1, 2, 2, 3]


@story(nodes=3)
async def test_only_partitions_that_moved_are_asked_again(world: Story) -> None:
    world.broker.cluster.create_topic("orders", partitions=3)
    moved = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
    world.broker.on(ListOffsetsRequest, error=moved, partitions=[("orders", 1)], times=3)
    async with admin_of(world) as admin:
        (await admin.partitions.offsets(dict.fromkeys(ORDERS, LATEST))).check()
    assert len(world.broker.requests(ListOffsetsRequest)) == 4
    assert len(world.broker.requests(MetadataRequest)) == 3


@story()
async def test_missing_partitions_fail_soon_and_delay_no_other(world: Story) -> None:
    world.broker.cluster.create_topic("orders", partitions=1)
    asked = [TopicPartition("orders", 0), TopicPartition("orders", 7), TopicPartition("missing", 0)]
    async with admin_of(world) as admin:
        begin = world.now
        found = await admin.partitions.offsets(dict.fromkeys(asked, LATEST))
        assert 2.0 <= world.now - begin < 4.0
    assert found[asked[0]].offset == 0
    assert all(isinstance(found.errors[each], UnknownTopicOrPartitionError) for each in asked[1:])
    assert "orders has partitions 0 to 0, not 7" in str(found.errors[asked[1]])
    assert len(world.broker.requests(ListOffsetsRequest)) == 1


@story(nodes=2)
async def test_moved_coordinator_is_looked_up_again(world: Story) -> None:
    world.broker.on(OffsetFetchRequest, error=KafkaErrorCode.NOT_COORDINATOR, times=1)
    async with admin_of(world) as admin:
        assert (await admin.group_offsets.list("billing")).check() == {"billing": {}}
    assert len(world.broker.requests(FindCoordinatorRequest)) == 2


@story()
async def test_deadline_ends_repetitions_with_the_last_error(world: Story) -> None:
    world.broker.cluster.create_topic("orders", partitions=1)
    world.broker.on(ListOffsetsRequest, disconnect=True, times=None)
    async with admin_of(world) as admin:
        begin = world.now
        (error,) = (await admin.partitions.offsets({ORDERS[0]: LATEST}, timeout=5.0)).errors.values()
        assert world.now - begin <= 5.1
    assert isinstance(error, KafkaTimeoutError) and "ListOffsets" in str(error)


@story()
async def test_request_that_is_not_served_names_its_key(world: Story) -> None:
    async with admin_of(world) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"does not serve DescribeAclsRequest \(key 29\)"):
            await admin.acls.list()


def test_errors_that_are_not_read_are_reported() -> None:
    outcomes = Outcomes[str, None]({"orders": TopicAlreadyExistsError()})
    with pytest.warns(RuntimeWarning, match=r"errors were not read: orders: TOPIC_ALREADY_EXISTS"):
        del outcomes


def test_read_errors_are_not_reported() -> None:
    outcomes = Outcomes[str, None]({"orders": TopicAlreadyExistsError()})
    assert list(outcomes.errors) == ["orders"]
    del outcomes


@story()
async def test_a_request_behind_a_slow_connection_ends_at_the_deadline(world: Story) -> None:
    async with admin_of(world) as admin:
        world.broker.nodes[1].disconnect()
        await pass_time(1.0)
        world.broker.on(ApiVersionsRequest, delay_s=3.0)
        world.broker.on(CreateTopicsRequest, stall=True)
        began = world.now
        with pytest.raises(OutcomeUnknownError):
            (await admin.topics.create("orders", timeout=5.0)).check()
        assert 5.0 <= world.now - began < 6.0


@story()
async def test_a_cancelled_call_leaves_no_unread_error(world: Story) -> None:
    async with admin_of(world) as admin:
        rule = world.broker.on(FindCoordinatorRequest, stall=True, error=KafkaErrorCode.GROUP_AUTHORIZATION_FAILED)
        describing = asyncio.ensure_future(admin.groups.describe("g"))
        await pass_time(1.0)
        describing.cancel()
        await asyncio.wait([describing])
        rule.release()
        await pass_time(1.0)
        gc.collect()  # an exception of a future that nothing reads would reach the handler of the loop


@story()
async def test_a_call_of_several_requests_has_one_deadline(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(ListOffsetsRequest, delay_s=2.0)
    world.broker.on(ListOffsetsRequest, stall=True, times=None)
    async with admin_of(world) as admin:
        began = world.now
        starts, ends, unknown = await Lag(admin._driver, admin.groups.describe)._bounds(
            ORDERS[:1], admin._driver.countdown(5.0)
        )
        assert starts == {ORDERS[0]: 0} and ends == {} and list(unknown) == ORDERS[:1]
        assert 5.0 <= world.now - began < 5.1


@story()
async def test_a_described_topic_is_created_on_request_only(world: Story) -> None:
    world.broker.cluster.auto_create = 3
    async with admin_of(world) as admin:
        with pytest.raises(UnknownTopicOrPartitionError):
            (await admin.topics.describe("orders")).check()
        created = (await admin.topics.describe("orders", auto_create=True))["orders"]
        assert len(created.partitions) == 3
        assert (await admin.topics.describe("orders"))["orders"] == created
