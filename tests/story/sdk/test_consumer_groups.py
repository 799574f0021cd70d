"""Consumers in classic groups of the scripted cluster in virtual time: listeners, commits, poll intervals."""

import asyncio

import pytest
from kafkalite_sdk.consumer.listeners import RebalanceListener
from kafkalite_sdk.values import OffsetAndMetadata

from kafkalite.errors import ClientUseError, KafkaErrorCode, KafkaTimeoutError, MaxPollIntervalExceededError
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, B, append, committed, consuming, new_consumer, values


class Journal(RebalanceListener):
    """Notes every call; async like an application that saves its state."""

    def __init__(self):
        self.calls = []

    async def on_partitions_revoked(self, partitions):
        await asyncio.sleep(0)
        self.calls.append(("revoked", list(partitions)))

    def on_partitions_assigned(self, partitions):
        self.calls.append(("assigned", list(partitions)))

    def on_partitions_lost(self, partitions):
        self.calls.append(("lost", list(partitions)))


def member(world: Story, **options):
    return new_consumer(world, **{"group": "g", "group_protocol": "classic", **options})


@story()
async def test_member_reads_its_topic_and_leaves_at_close(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"a")
    append(world, B, b"b")
    journal = Journal()
    async with member(world) as consumer:
        consumer.subscribe("orders", listener=journal)
        assert sorted(await values(consumer, 2)) == [b"a", b"b"]
        assert consumer.assignment() == {A, B} and journal.calls == [("assigned", [A, B])]
        await pass_time(5.0)
        health = consumer.health()
        assert (health.group_protocol, health.coordinator, health.waiting_for) == ("classic", 1, None)
        assert health.member_id and health.last_heartbeat_s is not None and health.lag == {A: 0, B: 0}
    assert journal.calls[1:] == [("revoked", [A, B])]
    assert world.broker.requests(LeaveGroupRequest)
    assert committed(world)[-1] == {("orders", 0): 1, ("orders", 1): 1}


@story()
async def test_next_member_continues_at_the_committed_offset(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    async with member(world) as consumer:
        consumer.subscribe("orders")
        await values(consumer, 2, max_records=2)
    async with member(world) as consumer:
        consumer.subscribe("orders")
        assert await values(consumer, 1) == [b"2"]


@story()
async def test_partitions_move_between_members(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    journal = Journal()
    async with member(world) as first, member(world) as second:
        first.subscribe("orders", listener=journal)
        await first.poll(5.0)
        assert first.assignment() == {A, B}
        second.subscribe("orders")
        joining = asyncio.ensure_future(second.poll(10.0))
        while not first.assignment() < {A, B}:
            await first.poll(1.0)
        await joining
        assert len(first.assignment()) == len(second.assignment()) == 1
        assert journal.calls[:2] == [("assigned", [A, B]), ("revoked", [A, B])]
        append(world, A, b"a")
        append(world, B, b"b")
        assert len(await values(first, 1)) == len(await values(second, 1)) == 1


@story()
async def test_commits_are_explicit_without_automatic_ones(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0", b"1")
    append(world, B, b"0")
    async with member(world, enable_auto_commit=False) as consumer:
        consumer.subscribe("orders")
        await values(consumer, 3)
        await pass_time(20.0)
        await consumer.poll(0)
        assert committed(world) == []
        await consumer.commit()
        await consumer.commit("orders")
        await consumer.commit(B)
        await consumer.commit({A: 1, B: OffsetAndMetadata(0, "again")})
        ended = []
        consumer.commit_nowait(A, ended.append)
        await consumer.poll(1.0)
        everything = {("orders", 0): 2, ("orders", 1): 1}
        assert committed(world) == [
            everything,
            everything,
            {("orders", 1): 1},
            {("orders", 0): 1, ("orders", 1): 0},
            {("orders", 0): 2},
        ]
        assert ended == [None]
        found = await consumer.committed([A, B])
        assert found[A].offset == 2 and (found[B].offset, found[B].metadata) == (0, "again")
        await consumer.commit("unknown")
    assert len(committed(world)) == 5


@story()
async def test_automatic_commit_covers_the_previous_poll_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    async with member(world, max_poll_records=1, auto_commit_interval_ms=1000) as consumer:
        consumer.subscribe("orders")
        await values(consumer, 1)
        await pass_time(3.0)
        assert ("orders", 0) not in {key for each in committed(world) for key in each if each[key] == 1}
        await values(consumer, 1)
        await pass_time(0.1)
        assert committed(world)[-1] == {("orders", 0): 1}
        await pass_time(2.0)
        await consumer.poll(5.0)
        await pass_time(0.1)
        assert committed(world)[-1] == {("orders", 0): 2}
    assert committed(world)[-1] == {("orders", 0): 3}


@story()
async def test_iteration_commits_the_records_before_the_current_one(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *(b"%d" % number for number in range(20)))
    async with member(world, auto_commit_interval_ms=1000) as consumer:
        consumer.subscribe("orders")
        seen = 0
        async for _ in consumer:
            seen += 1
            await pass_time(0.5)
            assert all(offset < seen for each in committed(world) for offset in each.values())
            if seen == 20:
                break
        assert len(committed(world)) > 5
    assert committed(world)[-1] == {("orders", 0): 20}


@story()
async def test_exception_closes_the_consumer_without_commit(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    with pytest.raises(ZeroDivisionError):
        async with member(world) as consumer:
            consumer.subscribe("orders")
            await values(consumer, 1)
            raise ZeroDivisionError
    assert all(offset == 0 for each in committed(world) for offset in each.values())
    assert world.broker.requests(LeaveGroupRequest)


@story()
async def test_handler_keeps_its_partitions_between_polls(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1")
    async with member(world, session_timeout_ms=6000, heartbeat_interval_ms=2000, enable_auto_commit=False) as consumer:
        consumer.subscribe("orders")
        await values(consumer, 1, max_records=1)
        before = len(world.broker.requests(HeartbeatRequest))
        await pass_time(60.0)
        assert 25 <= len(world.broker.requests(HeartbeatRequest)) - before <= 32
        await consumer.commit()
        assert await values(consumer, 1) == [b"1"]
    assert len(world.broker.requests(JoinGroupRequest)) <= 2


@story()
async def test_exceeded_poll_interval_is_an_error_of_the_next_call_and_the_member_joins_again(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    journal = Journal()
    async with member(world, max_poll_interval_ms=5000, enable_auto_commit=False) as consumer:
        consumer.subscribe("orders", listener=journal)
        await values(consumer, 1)
        await pass_time(10.0)
        assert world.broker.requests(LeaveGroupRequest)
        with pytest.raises(MaxPollIntervalExceededError, match="max_poll_interval_ms"):
            await consumer.commit()
        assert await values(consumer, 1) == [b"0"]
        assert journal.calls == [("assigned", [A]), ("lost", [A]), ("assigned", [A])]


@story()
async def test_long_poll_and_slow_iteration_do_not_exceed_the_poll_interval(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *(b"%d" % number for number in range(20)))
    async with member(world, max_poll_interval_ms=5000, heartbeat_interval_ms=1000) as consumer:
        consumer.subscribe("orders")
        for _ in range(20):
            await anext(consumer)
            await pass_time(1.5)
        assert await consumer.poll(30.0) == []
    assert len(world.broker.requests(JoinGroupRequest)) <= 2


@story()
async def test_revocation_interrupts_an_iteration(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    for each in (A, B):
        append(world, each, *(b"%d" % number for number in range(50)))
    async with member(world, heartbeat_interval_ms=500) as first, member(world) as second:
        first.subscribe("orders")
        seen = {A: [], B: []}
        record = await anext(first)
        second.subscribe("orders")
        joining = asyncio.ensure_future(second.poll(60.0))
        others = []
        while not others:
            seen[(record.partition == 1 and B) or A].append(record.offset)
            await pass_time(0.2)
            record = await anext(first)
            if joining.done():
                others = joining.result()
        (moved,) = {(each.topic, each.partition) for each in others}
        position = others[0].offset
        assert position == len(seen[moved]), "the new owner begins behind what the old owner received"


@story()
async def test_listener_may_seek_and_commit_but_not_poll(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    errors = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions):
            for each in partitions:
                consumer.seek(each, 2)
            errors.append(await outcome(consumer.poll(1.0)))

        async def on_partitions_revoked(self, partitions):
            await consumer.commit(dict.fromkeys(partitions, 1))

    async with member(world, enable_auto_commit=False) as consumer:
        consumer.subscribe("orders", listener=Listener())
        assert await values(consumer, 1) == [b"2"]
        assert isinstance(errors[0], ClientUseError)
    assert committed(world) == [{("orders", 0): 1}]


@story()
async def test_exception_of_a_listener_is_raised_after_the_change(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            raise ZeroDivisionError

    async with member(world) as consumer:
        consumer.subscribe("orders", listener=Listener())
        with pytest.raises(ZeroDivisionError):
            await consumer.poll(10.0)
        assert consumer.assignment() == {A}
        assert await values(consumer, 1) == [b"0"]


@story()
async def test_exception_of_a_listener_at_close_is_raised_after_the_member_has_left(world: Story) -> None:
    world.broker.cluster.create_topic("orders")

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            raise ZeroDivisionError

    consumer = member(world)
    await consumer.start()
    consumer.subscribe("orders", listener=Listener())
    await consumer.poll(1.0)
    assert consumer.assignment() == {A}
    with pytest.raises(ZeroDivisionError):
        await consumer.close()
    assert len(world.broker.requests(LeaveGroupRequest)) == 1
    assert isinstance(await outcome(consumer.poll()), ClientUseError)


@story()
async def test_consumer_is_not_closed_by_a_listener(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    errors = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions):
            errors.append(await outcome(consumer.unsubscribe()))
            errors.append(await outcome(consumer.close()))
            await pass_time(1.0)

    async with member(world) as consumer:
        consumer.subscribe("orders", listener=Listener())
        poll = asyncio.ensure_future(consumer.poll(10.0))
        while len(errors) < 2:
            await pass_time(0.1)
        assert all(isinstance(each, ClientUseError) and "a listener runs" in str(each) for each in errors)
        assert [each.value for each in await poll] == [b"0"]


@story()
async def test_cancelled_poll_continues_the_change(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    calls = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions):
            calls.append(partitions)
            await pass_time(100.0)

    async with member(world) as consumer:
        consumer.subscribe("orders", listener=Listener())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20.0):
                await consumer.poll(10.0)
        assert await values(consumer, 1) == [b"0"] and len(calls) == 1


@pytest.mark.parametrize(
    "code",
    [
        KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaErrorCode.COORDINATOR_NOT_AVAILABLE,
        KafkaErrorCode.NOT_COORDINATOR,
        KafkaErrorCode.REQUEST_TIMED_OUT,
    ],
)
@pytest.mark.parametrize("request_class", [OffsetCommitRequest, OffsetFetchRequest, FindCoordinatorRequest])
def test_requests_to_the_coordinator_are_retried(request_class: type, code: KafkaErrorCode) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0")
        world.broker.on(request_class, error=code, times=3)
        async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
            await values(consumer, 1)
            await consumer.commit()
            assert (await consumer.committed([A]))[A].offset == 1
        assert len(world.broker.requests(request_class)) > 3

    run()


@story(nodes=2)
async def test_commit_fails_at_its_timeout_while_the_coordinator_loads(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    world.broker.on(OffsetCommitRequest, error=KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
    async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
        await values(consumer, 1)
        before = world.now
        with pytest.raises(KafkaTimeoutError, match="orders-0 is not committed in time in group g"):
            await consumer.commit(timeout=3.0)
        assert world.now - before == pytest.approx(3.0, abs=0.1)


@story()
async def test_commit_of_a_deleted_topic_fails_and_names_it(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
        await values(consumer, 1)
        world.broker.on(OffsetCommitRequest, error=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=None)
        error = await outcome(consumer.commit())
        assert error.code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION and "orders-0" in str(error)


@story()
async def test_denied_group_is_an_error_of_poll(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(FindCoordinatorRequest, error=KafkaErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    async with member(world) as consumer:
        consumer.subscribe("orders")
        error = await outcome(consumer.poll(10.0))
        assert error.code == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED and "g" in str(error)
        before = len(world.broker.requests(FindCoordinatorRequest))
        await pass_time(10.0)
        assert len(world.broker.requests(FindCoordinatorRequest)) - before in range(1, 12)


@story()
async def test_subscriptions_change_and_end(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.cluster.create_topic("returns")
    async with member(world) as consumer:
        consumer.subscribe(["orders"])
        await consumer.poll(2.0)
        assert {each.topic for each in consumer.assignment()} == {"orders"}
        consumer.add_topic("returns")
        await consumer.poll(2.0)
        await consumer.poll(2.0)
        assert {each.topic for each in consumer.assignment()} == {"orders", "returns"}
        consumer.subscribe("returns")
        await consumer.poll(2.0)
        await consumer.poll(2.0)
        assert {each.topic for each in consumer.assignment()} == {"returns"}
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset() and consumer.health().group_state is None
        assert isinstance(await outcome(consumer.poll(1.0)), ClientUseError)


@story()
async def test_pattern_matches_whole_names_and_new_topics(world: Story) -> None:
    for each in ("orders", "orders-old", "reorders"):
        world.broker.cluster.create_topic(each)
    async with member(world, metadata_max_age_ms=2000) as consumer:
        consumer.subscribe(pattern="orders.*", exclude=".*-old")
        await consumer.poll(2.0)
        assert {each.topic for each in consumer.assignment()} == {"orders"}
        world.broker.cluster.create_topic("orders-new")
        for _ in range(5):
            await consumer.poll(2.0)
        assert {each.topic for each in consumer.assignment()} == {"orders", "orders-new"}
        with pytest.raises(ValueError, match="RE2"):
            consumer.subscribe(pattern="(")
        with pytest.raises(ValueError, match="pass names of topics, or a pattern"):
            consumer.subscribe("orders", pattern="o")


@story()
async def test_health_says_what_poll_waits_for(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    stalled = world.broker.on(FindCoordinatorRequest, stall=True)
    async with member(world) as consumer:
        consumer.subscribe("orders")
        waiting = asyncio.ensure_future(consumer.poll(60.0))
        await stalled.reached()
        assert consumer.health().waiting_for == "the coordinator of group g"
        joining = world.broker.on(JoinGroupRequest, stall=True, skip=0)
        stalled.release()
        await joining.reached()
        assert "an assignment of group g" in consumer.health().waiting_for
        fetching = world.broker.on(OffsetFetchRequest, stall=True)
        joining.release()
        await fetching.reached()
        assert consumer.health().waiting_for == "the committed offset of orders-0"
        fetching.release()
        await pass_time(1.0)
        assert consumer.health().waiting_for == "records"
        consumer.pause()
        assert consumer.health().waiting_for == "resume() of orders-0"
        append(world, A, b"0")
        consumer.resume()
        assert [each.value for each in await waiting] == [b"0"] and consumer.health().waiting_for is None


@story()
async def test_close_of_a_member_returns_in_time_without_brokers(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    for end in ("freeze", "stop"):
        consumer = member(world, group=end)
        await consumer.start()
        consumer.subscribe("orders")
        await values(consumer, 1)
        getattr(world.broker.nodes[1], end)()
        before = world.now
        await consumer.close(3.0)
        assert world.now - before <= 3.2
        world.broker.nodes[1].thaw()
