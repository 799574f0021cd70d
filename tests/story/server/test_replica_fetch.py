"""Fetches of a follower: what it receives, when, and what its leader learns from them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.leader import Leader
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.server.handlers.replica_fetch import ReplicaFetch
from kafkalite.server.requests.call import OBJECTS_MAX
from kafkalite.state.quotas.replication_quota import ReplicationQuota
from kafkalite.state.replica_sessions import ReplicaSessions
from kafkalite.storage.log.log import Log
from kafkalite.testing.virtual_clock import VirtualClock
from tests.kit.scripted_follower import FOLLOWER, LEADER, ScriptedFollower, hosted, lead
from tests.kit.server import ANSWER_S, Client, Hub, Wire, batch, outcomes, produce_request, stopped_time

DELETION = DeleteRecordsRequest.DeleteRecordsTopic
T0 = ("t", 0)


@pytest.fixture
async def led(client: Client) -> Client:
    """Two partitions, each with one record that no follower has."""
    await client.create("t", partitions=2)
    for index in range(2):
        lead(hosted(client.broker, "t", index))
        await client.produce("t", batch(b"first"), partition=index, acks=1)
    return client


@pytest.fixture
async def follower(led: Client, hub: Hub) -> AsyncIterator[ScriptedFollower]:
    """In a session with both partitions, at their log ends."""
    follower = ScriptedFollower(hub, led.broker)
    await follower.fetch(("t", 0, 0), ("t", 1, 0))
    yield follower


def produce(hub: Hub, *parts: tuple[int, bytes]) -> Wire:
    wire = Wire(hub)
    wire.send((produce_request("t", *((index, batch(value)) for index, value in parts)), 12))
    return wire


@pytest.mark.parametrize("version", [4, 11, 12, 13, 15, 17, 18])
async def test_follower_reads_beyond_the_high_watermark(led: Client, hub: Hub, version: int) -> None:
    follower = ScriptedFollower(hub, led.broker, version=version)
    await led.produce("t", batch(b"uncommitted"), acks=1)
    response = await follower.fetch(("t", 0, 0), max_wait_ms=0)
    assert follower.values[T0] == [b"first", b"uncommitted"]
    assert follower.watermarks[T0] == 0
    assert bool(response.session_id) == (version >= 7)


async def test_fetch_of_a_follower_commits_and_its_response_has_the_high_watermark(led: Client, hub: Hub) -> None:
    follower = ScriptedFollower(hub, led.broker)
    wire = produce(hub, (0, b"second"))
    hub.pump()
    await follower.fetch(("t", 0, 0))
    assert (wire.answers(), follower.values[T0]) == ([], [b"first", b"second"])
    await follower.fetch(("t", 0, 2), max_wait_ms=0)
    (found,) = outcomes(await wire.answer())
    assert (found.error_code, found.base_offset, follower.watermarks[T0]) == (0, 1, 2)


async def test_session_is_opened_at_once_also_without_records(led: Client, hub: Hub) -> None:
    follower = ScriptedFollower(hub, led.broker)
    response = await follower.fetch(("t", 0, 1), ("t", 1, 1), max_wait_ms=3_600_000)
    assert response.session_id and set(follower.parts(response)) == {T0, ("t", 1)}


async def test_append_completes_the_fetch_in_the_same_iteration_with_all_its_partitions(
    follower: ScriptedFollower, hub: Hub
) -> None:
    follower.send(("t", 0, 1), ("t", 1, 1))
    assert follower.received() is None
    wire = produce(hub, (0, b"one"), (1, b"two"))
    response = follower.received()
    assert response is not None and set(follower.parts(response)) == {T0, ("t", 1)}
    assert follower.values == {T0: [b"first", b"one"], ("t", 1): [b"first", b"two"]}
    await follower.fetch(("t", 0, 2), ("t", 1, 2), max_wait_ms=0)
    assert [found.error_code for found in outcomes(await wire.answer())] == [0, 0]


async def test_response_that_was_not_used_is_sent_again(follower: ScriptedFollower) -> None:
    """A follower that could not append keeps its fetch offset, and so names the partition in no later request."""
    for _ in range(2):
        response = await follower.fetch()
        assert set(follower.parts(response)) == {T0, ("t", 1)}
    assert follower.values[T0] == [b"first"] * 3


async def test_high_watermark_is_sent_with_the_next_response(follower: ScriptedFollower, hub: Hub) -> None:
    clock = stopped_time(follower.broker)
    follower.send(("t", 0, 1), ("t", 1, 1), max_wait_ms=500)
    hub.pump()
    assert hosted(follower.broker, "t").high_watermark == 1
    clock.advance(499)
    assert follower.received() is None
    clock.advance(1)
    await follower.answer()
    assert follower.watermarks == {T0: 1, ("t", 1): 1}
    follower.send(max_wait_ms=500)
    hub.pump()
    clock.advance(500)
    assert follower.parts(await follower.answer()) == {}, "they are sent once"


async def test_high_watermark_completes_the_fetch_while_consumers_read_from_the_follower(
    follower: ScriptedFollower, hub: Hub
) -> None:
    clock = stopped_time(follower.broker)
    (mark,) = hosted(follower.broker, "t").replica_sessions
    mark.read_until_ms = 2**62
    follower.send(("t", 0, 1), ("t", 1, 1))
    hub.pump()
    clock.advance(5)
    assert set(follower.parts(await follower.answer())) == {T0, ("t", 1)}


async def test_min_bytes_is_the_sum_over_all_partitions(follower: ScriptedFollower, hub: Hub) -> None:
    follower.send(("t", 0, 1), ("t", 1, 1), min_bytes=2 * len(batch(b"one")))
    produce(hub, (0, b"one"))
    hub.pump()
    assert follower.received() is None
    produce(hub, (1, b"two"))
    response = follower.received()
    assert response is not None and set(follower.parts(response)) == {T0, ("t", 1)}


async def test_partitions_with_records_move_behind_the_others(led: Client, hub: Hub) -> None:
    """Each response has one batch; no partition waits for the end of another one."""
    follower = ScriptedFollower(hub, led.broker)
    for index in range(2):
        await led.produce("t", batch(b"second"), partition=index, acks=1)
    order: list[tuple[str, int]] = []
    named = [("t", 0, 0), ("t", 1, 0)]
    for _ in range(4):
        response = await follower.fetch(*named, max_bytes=1)
        order += [key for key, data in follower.parts(response).items() if data.records]
        named = [(*order[-1], follower.ends[order[-1]])]
    assert order == [T0, ("t", 1)] * 2


async def test_deletion_of_records_completes_the_fetch(follower: ScriptedFollower, led: Client) -> None:
    await follower.fetch(("t", 0, 1), ("t", 1, 1), max_wait_ms=0)
    follower.send()
    partition = DELETION.DeleteRecordsPartition(partition_index=0, offset=1)
    await led.call(DeleteRecordsRequest(topics=[DELETION(name="t", partitions=[partition])], timeout_ms=0))
    response = await follower.answer()
    assert {key: data.log_start_offset for key, data in follower.parts(response).items()} == {T0: 1}


async def test_deletion_of_records_is_answered_when_the_follower_has_moved_its_log_start(
    follower: ScriptedFollower, hub: Hub
) -> None:
    await follower.fetch(("t", 0, 1), ("t", 1, 1), max_wait_ms=0)
    wire = Wire(hub, follower.broker.config.listener_between_brokers)
    role = hosted(follower.broker, "t").role
    assert isinstance(role, Leader)
    role._host.is_live = lambda *_: True  # type: ignore[method-assign]
    partition = DELETION.DeleteRecordsPartition(partition_index=0, offset=1)
    wire.send((DeleteRecordsRequest(topics=[DELETION(name="t", partitions=[partition])], timeout_ms=60_000), 2))
    await follower.fetch()
    assert (follower.log_starts[T0], wire.answers()) == (1, [])
    await follower.fetch(("t", 0, 1), log_start_offset=1, max_wait_ms=0)
    (found,) = (await wire.answer()).topics[0].partitions
    assert (found.error_code, found.low_watermark) == (0, 1)


async def test_end_of_the_leadership_completes_the_fetch(follower: ScriptedFollower) -> None:
    follower.send(("t", 0, 1), ("t", 1, 1))
    assert follower.received() is None
    hosted(follower.broker, "t").resign()
    response = await follower.answer()
    assert follower.parts(response)[T0].error_code == KafkaErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_leadership_of_another_partition_completes_the_fetch(follower: ScriptedFollower) -> None:
    """The follower can name that partition in its next fetch."""
    await follower.fetch(("t", 0, 1), ("t", 1, 1), max_wait_ms=0)
    follower.send()
    assert follower.received() is None
    sessions = follower.broker.fetch_sessions.of_replicas
    assert isinstance(sessions, ReplicaSessions)
    sessions.answer_waiting()
    response = await follower.answer()
    assert (response.error_code, follower.parts(response)) == (0, {})
    sessions.answer_waiting()  # no fetch waits: the next one does not
    await follower.fetch()


async def test_new_leader_epoch_completes_the_fetch_of_the_old_one(follower: ScriptedFollower) -> None:
    partition = hosted(follower.broker, "t")
    follower.send(("t", 0, 1), ("t", 1, 1), current_leader_epoch=1)
    assert follower.received() is None
    lead(partition)
    response = await follower.answer()
    assert follower.parts(response)[T0].error_code == KafkaErrorCode.FENCED_LEADER_EPOCH


async def test_new_leader_learns_the_progress_without_being_named(follower: ScriptedFollower) -> None:
    """The follower does not send a leader epoch here, so it has nothing to change in its session."""
    partition = hosted(follower.broker, "t")
    await follower.fetch(("t", 0, 1), ("t", 1, 1), max_wait_ms=0)
    leader = lead(partition)
    leader.followers[FOLLOWER].end_offset = -1
    await follower.fetch(max_wait_ms=0)
    assert leader.followers[FOLLOWER].end_offset == 1


async def test_log_start_that_retention_moves_is_sent_with_the_next_response(
    led: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await led.create("old", retention_bytes="1", segment_bytes="1048576")
    partition = hosted(led.broker, "old")
    lead(partition)
    for _ in range(3):
        await led.produce("old", batch(bytes(600_000)), acks=1)
    follower = ScriptedFollower(hub, led.broker)
    await follower.fetch(("old", 0, 3))
    await follower.fetch(max_wait_ms=0)
    moved, upkeep = asyncio.Event(), led.broker.logs.upkeep
    original = upkeep.on_log_start

    def on_log_start(log: Log) -> None:
        original(log)
        if log is partition.log:
            moved.set()

    monkeypatch.setattr(upkeep, "on_log_start", on_log_start)
    upkeep.check_retention(lambda log: log.log_end_offset)
    async with asyncio.timeout(ANSWER_S):
        await moved.wait()
    start = partition.log_start_offset
    assert start > 0
    await follower.fetch(max_wait_ms=0)
    assert follower.log_starts["old", 0] == start


# What the leader learns.


def progress(follower: ScriptedFollower) -> tuple[int, int]:
    role = hosted(follower.broker, "t").role
    assert isinstance(role, Leader)
    found = role.followers[FOLLOWER]
    return found.end_offset, found.caught_up_ms


def forget_progress(follower: ScriptedFollower) -> None:
    """Let the times of the fetches begin again, because the test has replaced the clock."""
    role = hosted(follower.broker, "t").role
    assert isinstance(role, Leader)
    role.followers[FOLLOWER].begin_epoch(1, 0, in_sync=True)


async def test_unnamed_partition_is_caught_up_as_of_the_last_fetch_before_an_append(
    follower: ScriptedFollower, hub: Hub
) -> None:
    clock = stopped_time(follower.broker)
    forget_progress(follower)
    for _ in range(3):
        follower.send(*([] if follower.epoch > 1 else [("t", 0, 1), ("t", 1, 1)]), max_wait_ms=500)
        hub.pump()
        clock.advance(500)
        await follower.answer()
    assert progress(follower) == (1, 0), "named by the first fetch"
    clock.advance(100)
    produce(hub, (0, b"second"))
    hub.pump()
    assert progress(follower) == (1, 1_000)


async def test_follower_outside_the_isr_is_recorded_with_each_fetch(led: Client, hub: Hub) -> None:
    """Each of its fetches may let it join. A member of the ISR at the log end is visited after a change only."""
    leader = lead(hosted(led.broker, "t"), isr=())
    follower = ScriptedFollower(hub, led.broker)
    await follower.fetch(("t", 0, 1))
    (mark,) = hosted(led.broker, "t").replica_sessions
    for _ in range(2):
        leader.followers[FOLLOWER].end_offset = -1
        await follower.fetch(max_wait_ms=0)
        assert leader.followers[FOLLOWER].end_offset == 1 and mark.session.marked
    leader.change_isr((LEADER, FOLLOWER))
    await follower.fetch(max_wait_ms=0)
    assert not mark.session.marked


@pytest.mark.parametrize(
    ("offset", "fields", "error"),
    [
        (3, {}, KafkaErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, {}, KafkaErrorCode.OFFSET_OUT_OF_RANGE),
        (1, {"current_leader_epoch": 99}, KafkaErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, {"current_leader_epoch": 0}, KafkaErrorCode.FENCED_LEADER_EPOCH),
    ],
)
async def test_rejected_fetch_is_answered_at_once_and_not_recorded(
    led: Client, hub: Hub, offset: int, fields: dict[str, int], error: int
) -> None:
    follower = ScriptedFollower(hub, led.broker)
    response = await follower.fetch(("t", 0, offset), **fields)
    assert follower.parts(response)[T0].error_code == error
    assert progress(follower)[0] == -1
    assert follower.session_id == 0, "no fetch was recorded"


async def test_fetch_behind_a_diverging_epoch_is_not_recorded(led: Client, hub: Hub) -> None:
    lead(hosted(led.broker, "t"))
    await led.produce("t", batch(b"second"), acks=1)
    follower = ScriptedFollower(hub, led.broker)
    response = await follower.fetch(("t", 0, 2), last_fetched_epoch=1)
    data = follower.parts(response)[T0]
    assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1, 1)
    assert progress(follower)[0] == -1


@pytest.mark.parametrize(
    ("epoch", "error"), [(1, KafkaErrorCode.UNKNOWN_LEADER_EPOCH), (-1, KafkaErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
async def test_replica_that_is_not_assigned_gets_no_records(led: Client, hub: Hub, epoch: int, error: int) -> None:
    other = ScriptedFollower(hub, led.broker, replica_id=77)
    response = await other.fetch(("t", 0, 0), current_leader_epoch=epoch)
    data = other.parts(response)[T0]
    assert (data.error_code, data.records or b"", response.session_id) == (error, b"", 0)


async def test_earlier_registration_is_rejected_and_its_sessions_are_closed(
    follower: ScriptedFollower, hub: Hub
) -> None:
    newer = ScriptedFollower(hub, follower.broker, broker_epoch=6)
    await newer.fetch(("t", 0, 1))
    response = await follower.fetch(max_wait_ms=0)
    assert response.error_code == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
    response = await follower.fetch(("t", 0, 1))
    assert follower.parts(response)[T0].error_code == KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.session_id == 0


@pytest.mark.parametrize("topic", ["other", "t"])
async def test_unknown_partition_and_topic_id_are_answered(led: Client, hub: Hub, topic: str) -> None:
    follower = ScriptedFollower(hub, led.broker)
    index = 0 if topic == "other" else 7
    response = await follower.fetch(("t", 1, 0), (topic, index, 0))
    error = KafkaErrorCode.UNKNOWN_TOPIC_ID if topic == "other" else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (code,) = [data.error_code for data in follower.parts(response).values() if data.error_code]
    assert code == error
    (again,) = [data.error_code for data in follower.parts(await follower.fetch()).values() if data.error_code]
    assert again == error, "an error is in each response until the partition is forgotten"


async def test_fetch_of_a_replica_on_a_listener_for_clients_closes_the_connection(led: Client, hub: Hub) -> None:
    follower = ScriptedFollower(hub, led.broker)
    follower.wire = Wire(hub)
    follower.send(("t", 0, 0))
    assert follower.wire.closed


# Sessions.


async def test_sessions_end_with_their_connection_and_leave_no_mark(follower: ScriptedFollower, hub: Hub) -> None:
    sessions = follower.broker.fetch_sessions
    assert len(hosted(follower.broker, "t").replica_sessions) == len(sessions.of_replicas) == 1  # type: ignore[arg-type]
    follower.send(("t", 0, 1), ("t", 1, 1))
    follower.wire.hang_up()
    hub.pump()
    assert hosted(follower.broker, "t").replica_sessions == ()
    assert len(sessions.of_replicas) == 0  # type: ignore[arg-type]


async def test_fetch_without_a_session_leaves_no_mark(led: Client, hub: Hub) -> None:
    follower = ScriptedFollower(hub, led.broker)
    follower.send(("t", 0, 1), session_epoch=-1)
    assert len(hosted(led.broker, "t").replica_sessions) == 1, "it waits"
    produce(hub, (0, b"second"))
    assert follower.received() is not None
    assert hosted(led.broker, "t").replica_sessions == ()


async def test_forgotten_partition_is_not_sent(follower: ScriptedFollower, hub: Hub) -> None:
    follower.send(("t", 1, 1), forgotten=[T0])
    produce(hub, (0, b"second"))
    hub.pump()
    assert follower.received() is None and hosted(follower.broker, "t").replica_sessions == ()


async def test_wrong_epoch_is_rejected(follower: ScriptedFollower) -> None:
    response = await follower.fetch(session_epoch=9)
    assert response.error_code == KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_deleted_topic_is_answered_and_detached(follower: ScriptedFollower, led: Client) -> None:
    partition = hosted(led.broker, "t")
    follower.send(("t", 0, 1), ("t", 1, 1))
    await led.delete("t")
    response = await follower.answer()
    codes = {data.error_code for topic in response.responses for data in topic.partitions}
    assert codes == {KafkaErrorCode.UNKNOWN_TOPIC_ID}
    assert partition.replica_sessions == ()


async def test_session_with_many_partitions_is_served_in_slices(led: Client, hub: Hub) -> None:
    """More than one request may visit at once; appends meanwhile are found."""
    count = OBJECTS_MAX + 100
    await led.create("many", partitions=count)
    for index in range(count):
        lead(hosted(led.broker, "many", index))
    follower = ScriptedFollower(hub, led.broker)
    response = await follower.fetch(*(("many", index, 0) for index in range(count)))
    assert len(follower.parts(response)) == count and follower.session_id
    follower.send(*(("many", index, 0) for index in range(count)))
    await led.produce("many", batch(b"value"), partition=count - 1, acks=1)
    await follower.answer()
    assert follower.values["many", count - 1] == [b"value"]
    follower.wire.hang_up()
    hub.pump()
    while any(hosted(led.broker, "many", index).replica_sessions for index in range(count)):
        await asyncio.sleep(0)  # the session is freed in slices


async def test_append_between_slices_of_a_fetch_is_found(
    led: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition was visited before the append, and no fetch waited yet."""
    follower = ScriptedFollower(hub, led.broker)
    await follower.fetch(("t", 0, 1), ("t", 1, 1), max_wait_ms=0)
    visited, partition = ReplicaFetch._visited, hosted(led.broker, "t")
    appends = [Append(memoryview(bytearray(batch(b"second"))), 1, lambda _append: None)]

    def append_first(self: ReplicaFetch, news: Any) -> None:
        while appends:
            partition.append(appends.pop())
            partition.write()
        visited(self, news)

    monkeypatch.setattr(ReplicaFetch, "_visited", append_first)
    await follower.fetch(max_wait_ms=3_600_000)
    assert follower.values[T0] == [b"second"] and not appends


@pytest.fixture
def limited(led: Client) -> VirtualClock:
    """Throttled replicas may receive 1 byte per second; the replica of partition 0 is throttled."""
    hosted(led.broker, "t").configure(
        replace(led.broker.config.topic_defaults, leader_replication_throttled_replicas=(f"0:{LEADER}",))
    )
    led.broker.config = BrokerConfig({"leader.replication.throttled.rate": "1"})
    return stopped_time(led.broker)


async def test_throttled_replica_that_is_not_in_sync_waits_for_the_quota(
    led: Client, hub: Hub, limited: VirtualClock
) -> None:
    lead(hosted(led.broker, "t"), isr=())
    follower = ScriptedFollower(hub, led.broker)
    await follower.fetch(("t", 0, 0), ("t", 1, 0))
    assert follower.values == {T0: [b"first"], ("t", 1): [b"first"]}
    await led.produce("t", batch(b"second"), acks=1)
    await led.produce("t", batch(b"second"), partition=1, acks=1)
    await follower.fetch(("t", 0, 1), ("t", 1, 1), max_wait_ms=500)
    assert follower.values == {T0: [b"first"], ("t", 1): [b"first", b"second"]}, "the others do not wait"
    assert follower.watermarks[T0] == 2
    await follower.fetch(("t", 1, 2), max_wait_ms=0)
    follower.send(max_wait_ms=500)
    hub.pump()
    assert follower.received() is None
    limited.advance(500)
    assert follower.parts(await follower.answer()) == {}
    limited.advance(600_000)
    await follower.fetch(max_wait_ms=0)
    assert follower.values[T0] == [b"first", b"second"]
    assert quota_of(led).bytes > 0


async def test_throttled_replica_in_sync_does_not_wait(led: Client, hub: Hub, limited: VirtualClock) -> None:
    follower = ScriptedFollower(hub, led.broker)
    for number in range(3):
        await follower.fetch(("t", 0, number))
        await led.produce("t", batch(b"more"), acks=1)
    assert follower.values[T0] == [b"first", b"more", b"more"]
    assert quota_of(led).bytes > 0


def quota_of(client: Client) -> ReplicationQuota:
    sessions = client.broker.fetch_sessions.of_replicas
    assert isinstance(sessions, ReplicaSessions)
    return sessions.quota
