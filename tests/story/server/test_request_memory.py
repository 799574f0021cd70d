"""Large requests over sockets while others wait: for a flush, for followers, for the transaction coordinator."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kafkalite.protocol.messages.fetch import FetchRequest
from tests.kit.scripted_follower import BROKER_EPOCH, FOLLOWER, hosted, lead
from tests.kit.server import ANSWER_S, Client, batch, connected, outcomes, produce_request, running

LIMIT = 1_000_000
GUARANTEED = 64 * 1024
LARGE = 700_000
PRODUCERS = 20


@pytest.fixture
async def led() -> AsyncIterator[Client]:
    """A client of the leader of a partition, whose follower the test is."""
    settings = dict.fromkeys(("queued.max.request.bytes", "socket.request.max.bytes"), str(LIMIT))
    async with running(settings=settings) as client:
        await client.create("t")
        lead(hosted(client.broker, "t"))
        yield client


class HeldChecks:
    """A transaction coordinator that answers when the test says so."""

    verifies = True

    def __init__(self) -> None:
        self.asked: list[Callable[[int], None]] = []

    def check(self, *_: object, on_result: Callable[[int], None], **__: object) -> None:
        self.asked.append(on_result)

    def write_pending(self) -> None:
        """It appends nothing."""

    def close(self) -> None:
        """It asks no other broker."""


def held_bytes(client: Client) -> int:
    (driver,) = client.broker.listening._drivers.values()
    held: int = driver.reactor.memory.held_bytes  # type: ignore[attr-defined]
    return held


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(ANSWER_S):
        while not condition():
            await asyncio.sleep(0)


def large_fetch(client: Client, offset: int) -> FetchRequest:
    """A fetch of the follower in a frame of more than 200 kB: it forgets partitions that it has never named."""
    topic_id = client.topic_id("t")
    asked = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=BROKER_EPOCH),
        max_wait_ms=0,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[asked])],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[*range(1, 60_000)])],
    )


async def fetch(follower: Client, offset: int) -> None:
    answer = await follower.call(large_fetch(follower, offset), 17)
    assert answer.error_code == 0
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [0]


def log_end(client: Client) -> int:
    log = hosted(client.broker, "t").log
    return 0 if log is None else log.log_end_offset


async def test_produces_that_wait_for_a_follower_hold_no_memory(led: Client) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(led.broker)) for _ in range(PRODUCERS)]
        sent = [asyncio.ensure_future(each.produce("t", batch(bytes(LARGE)))) for each in clients]
        await until(lambda: log_end(led) == PRODUCERS)
        assert not any(each.done() for each in sent)
        await until(lambda: held_bytes(led) == 0)
        await fetch(led, PRODUCERS)
        assert sorted([(await each).base_offset for each in sent]) == [*range(PRODUCERS)]


async def test_large_fetch_of_a_follower_is_served_while_produces_use_the_memory(led: Client) -> None:
    """They wait for the coordinator, which may wait for the follower. One after the other is received."""
    led.broker.replicas._checks = checks = HeldChecks()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(led.broker)) for _ in range(PRODUCERS)]
        sent = [asyncio.ensure_future(transactional(each, number)) for number, each in enumerate(clients)]
        bound = LIMIT + 2 * (LARGE + 1000) + (PRODUCERS + 1) * GUARANTEED
        while log_end(led) < PRODUCERS:
            await until(lambda: bool(checks.asked))
            assert held_bytes(led) <= bound
            await fetch(led, log_end(led))
            asked, checks.asked = checks.asked, []
            for then in asked:
                then(0)
            led.broker.replicas.write_pending()
        await fetch(led, PRODUCERS)
        assert sorted([(await each).base_offset for each in sent]) == [*range(PRODUCERS)]
        assert held_bytes(led) == 0


async def transactional(client: Client, producer_id: int) -> Any:
    records = batch(bytes(LARGE), producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    answer = await client.call(produce_request("t", (0, records), transactional_id=f"id-{producer_id}"), 11)
    (found,) = outcomes(answer)
    assert found.error_code == 0
    return found
