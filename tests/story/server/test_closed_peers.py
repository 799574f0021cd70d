"""Tests clients that close their side: the connection ends, and with it the delayed request, whatever it waits for."""

from collections.abc import Awaitable, Callable

import pytest

from kafkalite.clock import Outcome
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.schema import Request
from kafkalite.slicing import Steps
from tests.kit.members import beat_join, join, register, sync
from tests.kit.server import ZSTD, Client, Wire, compressible, outcomes, produce_request

REBALANCE_MS = 300_000
JOIN_VERSION = 3  # a new member joins with its first request
SYNC_VERSION = 5
CONSUMER_VERSION = 1
REGISTER_VERSION = 0
PRODUCE_VERSION = 12
METADATA_VERSION = 9
DELETE_TOPICS_VERSION = 6
NAMES = [f"unknown-{number}" for number in range(600)]  # more than one loop iteration serves


async def delay_join(client: Client, wire: Wire) -> None:
    """The second member of a group waits until the first one rejoins."""
    first = await client.call(join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION)
    assert first.error_code == 0
    wire.send((join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION))


async def delay_sync(client: Client, wire: Wire) -> None:
    """The second member of a group waits for the assignments, which the first one has to send."""
    first = await client.call(join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION)
    wire.send((join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION))
    again = await client.call(join("g", first.member_id, rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION)
    second = await wire.answer()
    assert again.generation_id == second.generation_id
    wire.send((sync("g", second.member_id, second.generation_id), SYNC_VERSION))


async def delay_register_consumer(client: Client, wire: Wire) -> None:
    """The second consumer of a registered group waits until the first one registers again."""
    assert (await client.call(register("g", "a", "orders"))).error_code == 0
    wire.send((register("g", "b", "orders"), REGISTER_VERSION))


async def delay_consumer_group_heartbeat(_client: Client, wire: Wire) -> None:
    """The first heartbeat waits until the topic of the groups is created, and its partitions are loaded."""
    wire.send((beat_join("g", "m", "orders"), CONSUMER_VERSION))


@pytest.mark.parametrize("delay", [delay_join, delay_sync, delay_register_consumer, delay_consumer_group_heartbeat])
async def test_delayed_request_ends_with_its_connection(
    client: Client, wire: Wire, delay: Callable[[Client, Wire], Awaitable[None]]
) -> None:
    await client.create("orders")
    await delay(client, wire)
    assert wire.answers() == [] and not wire.closed
    wire.end()
    assert wire.closed


async def test_request_that_becomes_the_next_one_to_be_answered_ends_with_its_connection(
    client: Client, wire: Wire
) -> None:
    """The produce before it is answered, as it only waits for a job that decompresses its records."""
    await client.create("orders")
    assert (await client.call(join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION)).error_code == 0
    produce = produce_request("orders", (0, compressible(1 << 19, ZSTD)))
    wire.send((produce, PRODUCE_VERSION), (join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION))
    assert wire.answers() == []
    wire.end()
    assert not wire.closed
    assert outcomes(await wire.answer())[0].error_code == 0
    assert wire.closed


async def test_member_stays_in_its_group_when_the_connection_of_its_delayed_join_ends(
    client: Client, wire: Wire
) -> None:
    """As in Kafka, it is a member until its session ends."""
    first = await client.call(join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION)
    wire.send((join("g", rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION))
    wire.end()
    again = await client.call(join("g", first.member_id, rebalance_timeout_ms=REBALANCE_MS), JOIN_VERSION)
    assert again.error_code == 0 and len(again.members) == 2


LOOK_UP = MetadataRequest(
    topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
)
CHANGE = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in NAMES])


@pytest.mark.parametrize(
    ("request_", "version"),
    [(LOOK_UP, METADATA_VERSION), (CHANGE, DELETE_TOPICS_VERSION)],
    ids=["look-up", "change"],
)
async def test_request_served_in_slices_is_answered_after_its_client_closed_its_side(
    client: Client, wire: Wire, request_: Request, version: int
) -> None:
    ended = False

    def others() -> Steps:
        while not ended:
            yield

    client.broker.slicer.run(others(), Outcome.result)  # the request's slices take turns with these
    wire.send((request_, version))
    wire.end()
    assert wire.answers() == [] and not wire.closed
    ended = True
    answer = await wire.answer()
    assert len(answer.topics if isinstance(request_, MetadataRequest) else answer.responses) == len(NAMES)
    assert wire.closed
