"""Tests registered groups over the wire: generations, sessions, topics, claims, rewinds, broker restarts."""

import asyncio
from pathlib import Path

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.server.broker import Broker
from tests.kit.members import (
    beat_plus,
    codes,
    commit,
    create,
    fetch,
    leave,
    offsets_of,
    register,
    rewind_to,
    rewound,
    starts,
)
from tests.kit.server import ANSWER_S, Client, Hub, Wire, batch, connected, running

TopicPartition = tuple[str, int]
ORDERS = [("orders", at) for at in range(4)]
BRIEF = {"group.min.session.timeout.ms": "50"}


@pytest.fixture
async def orders(client: Client) -> Client:
    """A topic of four partitions; the first has three records."""
    await client.create("orders", partitions=4)
    assert (await client.produce("orders", batch(b"a", b"b", b"c"))).error_code == 0
    return client


async def registered(client: Client, consumer: str, *topics: str, group: str = "g") -> tuple[int, list[TopicPartition]]:
    """A registration that is answered at once: its generation and partitions."""
    answer = await client.call(register(group, consumer, *(topics or ("orders",))))
    assert answer.error_code == 0, answer
    return answer.generation_id, list(starts(answer))


async def received(client: Client, consumer: str, generation: int, group: str = "g") -> tuple[int, int]:
    """Error and generation of a heartbeat."""
    answer = await client.call(beat_plus(group, consumer, generation))
    return answer.error_code, answer.generation_id


async def sent_back(client: Client, consumer: str, generation: int) -> None:
    """Send heartbeats until the response requires the member to register again."""
    async with asyncio.timeout(ANSWER_S):
        while (error := (await received(client, consumer, generation))[0]) == 0:
            pass
    assert error == Error.REBALANCE_IN_PROGRESS


# Generations.


async def test_generation_waits_for_all_members_and_assigns_all_partitions(orders: Client, hub: Hub) -> None:
    """The first consumer is alone; each further one waits until all others have registered again."""
    assert await registered(orders, "a") == (1, ORDERS)
    wires = [Wire(hub), Wire(hub)]
    wires[0].send((register("g", "b", "orders"), 0))
    assert wires[0].answers() == []
    assert (await received(orders, "a", 1))[0] == Error.REBALANCE_IN_PROGRESS
    second, of_a = await registered(orders, "a")
    answer = await wires[0].answer()
    assert (answer.error_code, answer.generation_id) == (0, second) and second > 1
    assert sorted([*of_a, *starts(answer)]) == ORDERS and len(of_a) == 2

    wires[1].send((register("g", "c", "orders"), 0))
    wires[0].send((register("g", "b", "orders"), 0))
    assert wires[0].answers() == wires[1].answers() == []
    third, of_a = await registered(orders, "a")
    answers = [await wire.answer() for wire in wires]
    assert {each.generation_id for each in answers} == {third} and third > second
    assert sorted([*of_a, *starts(answers[0]), *starts(answers[1])]) == ORDERS
    for consumer in "abc":
        assert await received(orders, consumer, third) == (0, third)


async def test_registration_without_change_is_answered_at_once(orders: Client) -> None:
    """In a new generation: an older process with the same id can no longer commit."""
    generation, partitions = await registered(orders, "a")
    assert await registered(orders, "a") == (generation + 1, partitions)


async def test_late_registration_starts_the_next_generation(orders: Client, wire: Wire) -> None:
    answer = await orders.call(register("g", "a", "orders", rebalance_timeout_ms=50))
    wire.send((register("g", "b", "orders", rebalance_timeout_ms=50), 0))
    late = await wire.answer()
    assert late.error_code == 0 and list(starts(late)) == ORDERS
    assert (await received(orders, "a", answer.generation_id))[0] == Error.UNKNOWN_MEMBER_ID
    wire.send((register("g", "a", "orders"), 0))
    assert wire.answers() == []
    generation, of_b = await registered(orders, "b")
    back = await wire.answer()
    assert back.generation_id == generation > late.generation_id
    assert sorted([*of_b, *starts(back)]) == ORDERS


async def test_second_registration_of_a_consumer_ends_its_first(orders: Client, wire: Wire) -> None:
    await registered(orders, "a")
    wire.send((register("g", "b", "orders"), 0), (register("g", "b", "orders"), 0))
    first = await wire.answer()
    assert (first.error_code, first.partitions) == (Error.REBALANCE_IN_PROGRESS, [])
    await registered(orders, "a")
    assert (await wire.answer()).error_code == 0


async def test_disconnect_during_delayed_registration_keeps_the_group(orders: Client, wire: Wire) -> None:
    await registered(orders, "a")
    wire.send((register("g", "b", "orders"), 0))
    assert wire.answers() == []
    wire.hang_up()
    assert len((await registered(orders, "a"))[1]) == 2  # until its session is over


async def test_delayed_registrations_end_with_the_broker() -> None:
    broker = Broker()
    await broker.start()
    async with connected(broker) as client:
        await client.create("orders")
        wire = Wire(Hub(client.broker))
        await registered(client, "a")
        wire.send((register("g", "b", "orders"), 0))
        assert wire.answers() == []
        await broker.stop()
        assert (await wire.answer()).error_code == Error.NOT_COORDINATOR


# Sessions.


async def test_expired_consumer_starts_a_generation_without_it() -> None:
    async with running(settings=BRIEF) as client:
        await client.create("orders", partitions=4)
        async with connected(client.broker) as other:
            await registered(client, "a")
            lost = asyncio.create_task(other.call(register("g", "b", "orders", session_timeout_ms=50)))
            await sent_back(client, "a", 1)
            generation, some = await registered(client, "a")
            assert (await lost).error_code == 0 and len(some) == 2
        await sent_back(client, "a", generation)
        latest, everything = await registered(client, "a")
        assert everything == ORDERS and latest > generation
        assert (await received(client, "b", generation))[0] == Error.UNKNOWN_MEMBER_ID


async def test_registered_consumers_leave_by_consumer_id(orders: Client, wire: Wire) -> None:
    await registered(orders, "a")
    wire.send((register("g", "b", "orders"), 0))
    generation, _ = await registered(orders, "a")
    await wire.answer()
    left = await orders.call(leave("g", "b", "nobody"))
    assert [each.error_code for each in left.members] == [0, Error.UNKNOWN_MEMBER_ID]
    assert (await received(orders, "a", generation))[0] == Error.REBALANCE_IN_PROGRESS
    assert (await registered(orders, "a"))[1] == ORDERS


async def test_heartbeats_of_unknown_consumers_and_old_generations_fail(orders: Client) -> None:
    generation, _ = await registered(orders, "a")
    assert (await received(orders, "a", generation + 1))[0] == Error.ILLEGAL_GENERATION
    assert (await received(orders, "a", generation - 1))[0] == Error.REBALANCE_IN_PROGRESS
    assert (await received(orders, "stranger", generation))[0] == Error.UNKNOWN_MEMBER_ID
    assert (await received(orders, "a", generation, "none"))[0] == Error.UNKNOWN_MEMBER_ID
    assert (await received(orders, "a", generation, ""))[0] == Error.INVALID_GROUP_ID
    answer = await orders.call(beat_plus("g", "a", generation, session_timeout_ms=1))
    assert answer.error_code == Error.INVALID_SESSION_TIMEOUT


# Topics.


async def test_new_partitions_start_a_generation_at_their_log_start(orders: Client) -> None:
    """Without a commit, the client's reset policy decides for the partitions of the first generation only."""
    first = await orders.call(register("g", "a", "orders"))
    assert starts(first) == dict.fromkeys(ORDERS, -1)
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=5, assignments=None)
    assert (await orders.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=1000))).results[0].error_code == 0
    await sent_back(orders, "a", first.generation_id)
    second = await orders.call(register("g", "a", "orders"))
    assert starts(second) == {**dict.fromkeys(ORDERS, -1), ("orders", 4): 0}


async def test_pattern_subscription_includes_topics_created_later(orders: Client) -> None:
    made = await orders.call(create("g", topic_pattern=r"orders|late-\d+"))
    assert made.error_code == 0
    generation, some = await registered_by_definition(orders, "a")
    assert some == ORDERS
    await orders.create("late-x", "late-7", partitions=2)
    assert (await orders.produce("late-7", batch(b"x"))).error_code == 0
    await sent_back(orders, "a", generation)
    answer = await orders.call(register("g", "a"))
    assert list(starts(answer)) == [("late-7", 0), ("late-7", 1), *ORDERS]
    assert starts(answer)["late-7", 0] == 0


async def registered_by_definition(client: Client, consumer: str) -> tuple[int, list[TopicPartition]]:
    answer = await client.call(register("g", consumer))
    assert answer.error_code == 0, answer
    return answer.generation_id, list(starts(answer))


async def test_deleted_topic_is_unassigned(orders: Client) -> None:
    await orders.create("gone")
    generation, some = await registered(orders, "a", "orders", "gone")
    assert some == [("gone", 0), *ORDERS]
    await orders.delete("gone")
    await sent_back(orders, "a", generation)
    assert (await registered(orders, "a", "orders", "gone"))[1] == ORDERS


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "uniform"])
async def test_partitions_are_assigned_by_the_defined_assignor(client: Client, wire: Wire, assignor: str) -> None:
    """Two topics of three partitions: range gives the first member two of each."""
    await client.create("t1", "t2", partitions=3)
    assert (await client.call(create("g", "t1", "t2", assignor=assignor))).error_code == 0
    await registered_by_definition(client, "a")
    wire.send((register("g", "b"), 0))
    _, of_a = await registered_by_definition(client, "a")
    of_b = list(starts(await wire.answer()))
    assert sorted([*of_a, *of_b]) == [(topic, at) for topic in ("t1", "t2") for at in range(3)]
    assert len(of_a) == (4 if assignor == "range" else 3)


# Claims.


async def test_claimed_partitions_are_excluded_from_assignment(orders: Client, wire: Wire) -> None:
    """A claim waits for no other consumer; the owner of a claimed partition is notified."""
    generation, _ = await registered(orders, "a")
    wire.send((register("g", "b", claims={"orders": [1, 2]}), 0))
    claimed = await wire.answer()
    assert (claimed.error_code, list(starts(claimed))) == (0, [("orders", 1), ("orders", 2)])
    assert (await received(orders, "a", generation))[0] == Error.REBALANCE_IN_PROGRESS
    assert (await registered(orders, "a"))[1] == [("orders", 0), ("orders", 3)]
    wire.send((register("g", "c", claims={"orders": [2]}), 0), (register("g", "c", claims={"orders": [9]}), 0))
    assert (await wire.answer()).error_code == Error.UNRELEASED_INSTANCE_ID
    assert (await wire.answer()).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    await orders.call(leave("g", "b"))
    await sent_back(orders, "a", claimed.generation_id)
    assert (await registered(orders, "a"))[1] == ORDERS


# Offsets.


async def test_registered_consumers_start_at_their_committed_offsets(orders: Client) -> None:
    generation, _ = await registered(orders, "a")
    assert codes(await orders.call(commit("g", "orders", {0: 2}, "a", generation), 9)) == [0]
    for member, at, error in (
        ("a", generation + 1, Error.ILLEGAL_GENERATION),
        ("stranger", generation, Error.UNKNOWN_MEMBER_ID),
        ("", -1, Error.UNKNOWN_MEMBER_ID),
    ):
        assert codes(await orders.call(commit("g", "orders", {0: 3}, member, at), 9)) == [error]
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 2}
    assert starts(await orders.call(register("g", "a", "orders")))["orders", 0] == 2


async def test_rewind_of_live_registered_group_moves_no_partition(orders: Client, wire: Wire) -> None:
    """The owner registers and is answered at once; the others continue. Commits of the old generation are rejected."""
    await registered(orders, "a")
    wire.send((register("g", "b", "orders"), 0))
    generation, of_a = await registered(orders, "a")
    of_b = list(starts(await wire.answer()))
    owner, other = ("a", "b") if ("orders", 0) in of_a else ("b", "a")
    assert codes(await orders.call(commit("g", "orders", {0: 3}, owner, generation), 9)) == [0]
    assert rewound(await orders.call(rewind_to("g", ("orders", 0, 1, -1)))) == [(1, 0)]
    assert codes(await orders.call(commit("g", "orders", {0: 3}, owner, generation), 9)) == [Error.ILLEGAL_GENERATION]
    error, latest = await received(orders, other, generation)
    assert error == 0 and latest > generation
    assert (await received(orders, owner, generation))[0] == Error.REBALANCE_IN_PROGRESS
    answer = await orders.call(register("g", owner, "orders"))
    assert (answer.generation_id, starts(answer)["orders", 0]) == (latest, 1)
    assert list(starts(answer)) == (of_a if owner == "a" else of_b)
    assert codes(await orders.call(commit("g", "orders", {0: 2}, owner, latest), 9)) == [0]
    assert rewound(await orders.call(rewind_to("g", ("orders", 0, -1, -2)))) == [(0, 0)], "to the earliest"


async def test_rewind_of_empty_registered_group(orders: Client) -> None:
    assert (await orders.call(create("g", "orders"))).error_code == 0
    assert rewound(await orders.call(rewind_to("g", ("orders", 0, 2, -1)))) == [(2, 0)]
    assert starts(await orders.call(register("g", "a")))["orders", 0] == 2


# A restart of the broker.


async def test_registered_consumers_survive_a_broker_restart(tmp_path: Path) -> None:
    """No consumer registers again: generation, partitions, definition, claims and marks are unchanged."""
    async with running(str(tmp_path)) as client:
        await client.create("orders", partitions=4)
        assert (await client.produce("orders", batch(b"a", b"b"))).error_code == 0
        assert (await client.call(create("g", "orders", assignor="roundrobin"))).error_code == 0
        generation, _ = await registered_by_definition(client, "a")
        claimed = await client.call(register("g", "b", claims={"orders": [1]}))
        assert list(starts(claimed)) == [("orders", 1)]
        generation, _ = await registered_by_definition(client, "a")
        assert codes(await client.call(commit("g", "orders", {0: 2}, "a", generation), 9)) == [0]
        assert rewound(await client.call(rewind_to("g", ("orders", 0, 1, -1)))) == [(1, 0)]
    async with running(str(tmp_path)) as client:
        while (error := (await received(client, "b", generation))[0]) != 0:
            assert error == Error.COORDINATOR_LOAD_IN_PROGRESS
        while codes(answer := await client.call(commit("g", "orders", {0: 2}, "a", generation), 9)) == [
            Error.COORDINATOR_LOAD_IN_PROGRESS
        ]:
            pass
        assert codes(answer) == [Error.ILLEGAL_GENERATION], "the mark is there"
        assert (await received(client, "a", generation))[0] == Error.REBALANCE_IN_PROGRESS
        again = await client.call(register("g", "a"))
        assert starts(again) == {("orders", 0): 1, ("orders", 2): -1, ("orders", 3): -1}
        assert again.generation_id > generation
        assert (await received(client, "b", again.generation_id)) == (0, again.generation_id)
