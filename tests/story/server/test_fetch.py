"""Tests Fetch: immediate responses, delayed fetches and fetch sessions."""

import asyncio

import pytest

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.records import batches
from kafkalite.server.requests.deferred_free import FREED_AT_ONCE
from kafkalite.state.fetch_sessions import PARTITION_BYTES, FetchSessions
from tests.kit.brokers import wait_until
from tests.kit.server import (
    ANSWER_S,
    Client,
    Hub,
    Wire,
    batch,
    connected,
    fetch_request,
    fetched,
    outcomes,
    produce_request,
    running,
    stopped_time,
    values_of,
)

WAIT_MS = 5000


def hosted(client: Client, topic: str, index: int = 0) -> Partition:
    found = client.broker.replicas.partition(topic, b"", index, by_id=False)
    assert isinstance(found, Partition)
    return found


def only(answer: FetchResponse) -> object:
    (part,) = fetched(answer).values()
    return part


@pytest.mark.parametrize("version", range(4, 19))
async def test_fetch_in_every_version(client: Client, version: int) -> None:
    await client.create("t", partitions=2)
    await client.produce("t", batch(b"a", b"b"), partition=1)
    topic = client.topic_id("t") if version >= 13 else "t"
    found = fetched(await client.call(fetch_request(topic, (0, 0), (1, 1)), version))
    assert set(found) == {(topic, 0), (topic, 1)}
    empty, full = found[topic, 0], found[topic, 1]
    assert (empty.error_code, empty.high_watermark, values_of(empty.records)) == (0, 0, [])
    assert (full.error_code, full.high_watermark, full.last_stable_offset) == (0, 2, 2)
    assert values_of(full.records) == [b"a", b"b"]  # the whole batch that holds the offset
    assert full.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_both_isolation_levels_read_non_transactional_records(client: Client, isolation_level: int) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    part = only(await client.call(fetch_request("t", (0, 0), isolation_level=isolation_level), 12))
    assert values_of(part.records) == [b"a"] and not part.aborted_transactions


async def test_fetch_of_unknown_partitions_fails(client: Client) -> None:
    await client.create("t")
    assert only(await client.call(fetch_request("t", (1, 0)), 12)).error_code == 3
    assert only(await client.call(fetch_request("nowhere", (0, 0)), 12)).error_code == 3
    unknown = only(await client.call(fetch_request(bytes(15) + b"\1", (0, 0)), 13))
    assert unknown.error_code == KafkaErrorCode.UNKNOWN_TOPIC_ID
    assert only(await client.call(fetch_request(client.topic_id("t"), (1, 0)), 13)).error_code == 3


@pytest.mark.parametrize("offset", [-1, 3, 2**60])
async def test_offset_out_of_range_is_answered_at_once(client: Client, offset: int) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a", b"b"))
    part = only(await client.call(fetch_request("t", (0, offset), max_wait_ms=WAIT_MS), 12))
    assert part.error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(part.records) == []


async def test_empty_partition_serves_offset_0_only(client: Client) -> None:
    await client.create("t")
    assert only(await client.call(fetch_request("t", (0, 0)), 12)).error_code == 0
    assert only(await client.call(fetch_request("t", (0, 1)), 12)).error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("bound", ["max_bytes", "partition_max_bytes"])
async def test_fetch_returns_one_whole_batch_above_all_byte_limits(client: Client, bound: str) -> None:
    await client.create("t", partitions=2)
    for index in range(2):
        for _ in range(3):
            await client.produce("t", batch(b"x" * 1000), partition=index)
    found = fetched(await client.call(fetch_request("t", (0, 0), (1, 0), **{bound: 1}), 12))
    assert [len(batches(found["t", index].records)) for index in range(2)] == [1, 0]


async def test_max_bytes_limits_the_whole_response(client: Client) -> None:
    await client.create("t", partitions=3)
    one = len(batch(b"x" * 1000))
    for index in range(3):
        for _ in range(3):
            await client.produce("t", batch(b"x" * 1000), partition=index)
    request = fetch_request("t", (0, 0), (1, 0), (2, 0), max_bytes=4 * one + 10, partition_max_bytes=3 * one)
    found = fetched(await client.call(request, 12))
    assert [len(batches(found["t", index].records)) for index in range(3)] == [3, 1, 0]


async def test_fetch_checks_the_current_leader_epoch(client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    hosted(client, "t").leader_epoch = 5
    await client.produce("t", batch(b"b"))
    codes = [
        only(await client.call(fetch_request("t", (0, 0), current_leader_epoch=epoch), 12)).error_code
        for epoch in (-1, 4, 5, 6)
    ]
    assert codes == [0, KafkaErrorCode.FENCED_LEADER_EPOCH, 0, KafkaErrorCode.UNKNOWN_LEADER_EPOCH]


async def test_fetch_after_truncation_returns_the_diverging_epoch(client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a", b"b"))  # epoch 0: offsets 0 and 1
    hosted(client, "t").leader_epoch = 5
    await client.produce("t", batch(b"c"))  # epoch 5: offset 2
    part = only(await client.call(fetch_request("t", (0, 3), last_fetched_epoch=0, max_wait_ms=WAIT_MS), 12))
    assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 0, 2)
    part = only(await client.call(fetch_request("t", (0, 3), last_fetched_epoch=5), 12))
    assert part.diverging_epoch is None


# Delayed.


@pytest.fixture
async def ready(client: Client) -> Client:
    await client.create("t", "u", partitions=2)
    for topic in ("t", "u"):
        for index in range(2):
            await client.produce(topic, batch(b"0"), partition=index)
    return client


async def test_append_completes_delayed_fetch_in_the_same_iteration(ready: Client, hub: Hub) -> None:
    reader, writer = Wire(hub), Wire(hub)
    reader.send((fetch_request("t", (0, 1), (1, 1), max_wait_ms=WAIT_MS), 12))
    assert reader.answers() == []
    writer.send((produce_request("u", (0, batch(b"elsewhere"))), 12))
    assert reader.answers() == []
    writer.send((produce_request("t", (1, batch(b"here"))), 12))
    (answer,) = reader.answers()
    found = fetched(answer)
    assert values_of(found["t", 1].records) == [b"here"] and values_of(found["t", 0].records) == []
    assert not hosted(ready, "t").delayed_fetches and not hosted(ready, "t", 1).delayed_fetches


async def test_min_bytes_is_the_sum_over_all_partitions(ready: Client, hub: Hub) -> None:
    reader, writer = Wire(hub), Wire(hub)
    one = len(batch(b"x" * 100))
    reader.send((fetch_request("t", (0, 1), (1, 1), max_wait_ms=WAIT_MS, min_bytes=2 * one + 1), 12))
    for index in (0, 1):
        writer.send((produce_request("t", (index, batch(b"x" * 100))), 12))
        assert reader.answers() == []
    writer.send((produce_request("t", (0, batch(b"x" * 100))), 12))
    (answer,) = reader.answers()
    assert [len(values_of(part.records)) for part in fetched(answer).values()] == [2, 1]


async def test_available_bytes_count_towards_min_bytes_of_a_delayed_fetch(ready: Client, hub: Hub) -> None:
    reader, writer = Wire(hub), Wire(hub)
    have = len(batch(b"0"))
    reader.send((fetch_request("t", (0, 0), max_wait_ms=WAIT_MS, min_bytes=have), 12))
    assert len(reader.answers()) == 1
    reader.send((fetch_request("t", (0, 0), max_wait_ms=WAIT_MS, min_bytes=have + 1), 12))
    assert reader.answers() == []
    writer.send((produce_request("t", (0, batch(b"1"))), 12))
    assert [values_of(only(answer).records) for answer in reader.answers()] == [[b"0", b"1"]]


async def test_max_wait_expiry_returns_available_records(ready: Client, hub: Hub) -> None:
    clock = stopped_time(ready.broker)
    reader = Wire(hub)
    reader.send((fetch_request("t", (0, 0), max_wait_ms=WAIT_MS, min_bytes=10**6), 12))
    clock.advance(WAIT_MS - 1)
    hub.pump()
    assert reader.answers() == []
    clock.advance(1)
    hub.pump()
    assert [values_of(only(answer).records) for answer in reader.answers()] == [[b"0"]]
    assert not hosted(ready, "t").delayed_fetches and clock.timers == 0


async def test_fetch_without_max_wait_is_not_delayed(ready: Client, hub: Hub) -> None:
    reader = Wire(hub)
    reader.send((fetch_request("t", (0, 1), max_wait_ms=0, min_bytes=10**6), 12))
    assert len(reader.answers()) == 1


async def test_disconnect_removes_the_delayed_fetch(ready: Client, hub: Hub) -> None:
    clock = stopped_time(ready.broker)
    reader, writer = Wire(hub), Wire(hub)
    reader.send((fetch_request("t", (0, 1), max_wait_ms=WAIT_MS), 12))
    reader.hang_up()
    assert not hosted(ready, "t").delayed_fetches and clock.timers == 0
    writer.send((produce_request("t", (0, batch(b"1"))), 12))
    assert outcomes(writer.answers()[0])[0].error_code == 0


@pytest.mark.parametrize(("version", "error"), [(12, 3), (13, KafkaErrorCode.UNKNOWN_TOPIC_ID)])
async def test_topic_deletion_completes_delayed_fetch(ready: Client, hub: Hub, version: int, error: int) -> None:
    reader = Wire(hub)
    topic = ready.topic_id("t") if version >= 13 else "t"
    reader.send((fetch_request(topic, (0, 1), max_wait_ms=60_000), version))
    assert (await ready.delete("t"))[0].error_code == 0
    assert only(await reader.answer()).error_code == error


async def test_delete_records_completes_delayed_fetch(ready: Client, hub: Hub) -> None:
    reader, writer = Wire(hub), Wire(hub)
    reader.send((fetch_request("t", (0, 0), max_wait_ms=60_000, min_bytes=10**6), 12))
    writer.send((produce_request("t", (0, batch(b"1"))), 12))
    assert reader.answers() == []
    assert hosted(ready, "t").delete_records_before(2) == 0
    assert only(await reader.answer()).error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE


async def test_delayed_fetch_delays_only_its_own_connection(ready: Client, hub: Hub) -> None:
    reader, other, writer = Wire(hub), Wire(hub), Wire(hub)
    reader.send((fetch_request("t", (0, 1), max_wait_ms=WAIT_MS), 12), (fetch_request("t", (0, 0)), 12))
    other.send((fetch_request("t", (0, 0)), 12))
    assert reader.answers() == [] and len(other.answers()) == 1
    writer.send((produce_request("t", (0, batch(b"1"))), 12))
    assert [values_of(only(answer).records) for answer in reader.answers()] == [[b"1"], [b"0"]]


async def test_one_append_completes_many_delayed_fetches(ready: Client, hub: Hub) -> None:
    readers, writer = [Wire(hub) for _ in range(50)], Wire(hub)
    for reader in readers:
        reader.send((fetch_request("t", (0, 1), max_wait_ms=WAIT_MS), 12))
    writer.send((produce_request("t", (0, batch(b"1"))), 12))
    assert all(len(reader.answers()) == 1 for reader in readers)


# Sessions.


async def test_fetch_session_returns_only_changed_partitions(ready: Client) -> None:
    full = await ready.call(fetch_request("t", (0, 0), (1, 0), session_epoch=0), 12)
    assert full.session_id > 0 and len(fetched(full)) == 2
    idle = await ready.call(fetch_request("t", (0, 1), (1, 1), session_id=full.session_id, session_epoch=1), 12)
    assert (idle.error_code, idle.session_id, fetched(idle)) == (0, full.session_id, {})
    await ready.produce("t", batch(b"1"), partition=1)
    news = await ready.call(fetch_request("t", session_id=full.session_id, session_epoch=2), 12)
    assert set(fetched(news)) == {("t", 1)} and values_of(fetched(news)["t", 1].records) == [b"1"]


async def test_fetch_session_reports_a_partition_that_goes_offline(ready: Client) -> None:
    full = await ready.call(fetch_request("t", (0, 1), (1, 1), session_epoch=0), 12)
    quiet = await ready.call(fetch_request("t", session_id=full.session_id, session_epoch=1), 12)
    assert fetched(quiet) == {}
    hosted(ready, "t", 1).close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
    news = await ready.call(fetch_request("t", session_id=full.session_id, session_epoch=2), 12)
    assert {topic_partition: part.error_code for topic_partition, part in fetched(news).items()} == {
        ("t", 1): KafkaErrorCode.KAFKA_STORAGE_ERROR
    }


async def test_fetch_session_by_topic_id_reports_a_deleted_topic(ready: Client, hub: Hub) -> None:
    reader = Wire(hub)
    topic = ready.topic_id("t")
    reader.send((fetch_request(topic, (0, 1), session_epoch=0), 17))
    session_id = reader.answers()[0].session_id
    reader.send((fetch_request(topic, session_id=session_id, session_epoch=1, max_wait_ms=60_000), 17))
    assert reader.answers() == []
    await ready.delete("t")
    assert only(await reader.answer()).error_code == KafkaErrorCode.UNKNOWN_TOPIC_ID
    reader.send((fetch_request(topic, session_id=session_id, session_epoch=2, max_wait_ms=60_000), 17))
    assert only(reader.answers()[0]).error_code == KafkaErrorCode.UNKNOWN_TOPIC_ID  # until it is forgotten


async def test_fetch_session_adds_and_forgets_topics(ready: Client) -> None:
    full = await ready.call(fetch_request("t", (0, 1), (1, 1), session_epoch=0), 12)
    request = fetch_request("u", (0, 0), session_id=full.session_id, session_epoch=1)
    request.forgotten_topics_data = [request.ForgottenTopic(topic="t", partitions=[0])]
    assert set(fetched(await ready.call(request, 12))) == {("u", 0)}
    await ready.produce("t", batch(b"1"), partition=0)
    await ready.produce("t", batch(b"1"), partition=1)
    news = await ready.call(fetch_request("u", (0, 1), session_id=full.session_id, session_epoch=2), 12)
    assert set(fetched(news)) == {("t", 1)}


async def test_fetch_session_errors(ready: Client) -> None:
    full = await ready.call(fetch_request("t", (0, 0), session_epoch=0), 12)
    wrong = await ready.call(fetch_request("t", session_id=full.session_id, session_epoch=5), 12)
    assert (wrong.error_code, wrong.session_id) == (KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    unknown = await ready.call(fetch_request("t", session_id=full.session_id ^ 1, session_epoch=1), 12)
    assert unknown.error_code == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
    switched = await ready.call(
        fetch_request(ready.topic_id("t"), (0, 0), session_id=full.session_id, session_epoch=1), 13
    )
    assert switched.error_code == KafkaErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_fetch_session_beyond_the_memory_limit_is_closed(ready: Client) -> None:
    ready.broker.fetch_sessions = FetchSessions(10, PARTITION_BYTES + 1, lambda: 7)
    full = await ready.call(fetch_request("t", (0, 1), session_epoch=0), 12)
    grown = await ready.call(fetch_request("t", (1, 0), session_id=full.session_id, session_epoch=1), 12)
    assert (full.session_id, grown.error_code) == (7, KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    anew = await ready.call(fetch_request("t", (0, 0), (1, 0), session_epoch=0), 12)
    assert (anew.error_code, anew.session_id) == (0, 0)
    assert values_of(fetched(anew)["t", 0].records) == [b"0"]


async def test_final_epoch_closes_the_fetch_session(ready: Client) -> None:
    full = await ready.call(fetch_request("t", (0, 0), session_epoch=0), 12)
    last = await ready.call(fetch_request("t", (0, 0), session_id=full.session_id, session_epoch=-1), 12)
    assert last.session_id == 0 and values_of(only(last).records) == [b"0"]
    gone = await ready.call(fetch_request("t", session_id=full.session_id, session_epoch=1), 12)
    assert gone.error_code == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_fetch_sessions_end_with_their_connection(ready: Client) -> None:
    sessions = ready.broker.fetch_sessions
    kept = await ready.call(fetch_request("t", (0, 1), session_epoch=0), 12)
    async with connected(ready.broker) as leaving:
        left = [await leaving.call(fetch_request("t", (0, 0), session_epoch=0), 12) for _ in range(3)]
        assert len(sessions) == 4
    await asyncio.to_thread(wait_until, lambda: len(sessions) == 1, "the sessions of the closed connection end")
    gone = await ready.call(fetch_request("t", session_id=left[0].session_id, session_epoch=1), 12)
    assert (gone.error_code, gone.session_id) == (KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert fetched(await ready.call(fetch_request("t", session_id=kept.session_id, session_epoch=1), 12)) == {}


async def test_a_fetch_session_continues_on_the_next_connection_of_its_client(ready: Client, hub: Hub) -> None:
    first = Wire(hub)
    first.send((fetch_request("t", (0, 1), session_epoch=0), 12))
    session_id = (await first.answer()).session_id
    await ready.call(fetch_request("t", session_id=session_id, session_epoch=1), 12)
    first.hang_up()
    assert first.answers() == [] and first.closed
    await ready.produce("t", batch(b"1"))
    news = await ready.call(fetch_request("t", session_id=session_id, session_epoch=2), 12)
    assert values_of(only(news).records) == [b"1"]


async def test_large_fetch_sessions_are_freed_in_slices(
    ready: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(hub)
    wire.send((fetch_request("none", *((index, 0) for index in range(3 * FREED_AT_ONCE)), session_epoch=0), 12))
    await wire.answer()
    (session,) = ready.broker.fetch_sessions
    monkeypatch.setattr(ready.broker.slicer, "_budget_s", 1e-9)
    wire.hang_up()
    assert wire.answers() == [] and wire.closed
    assert len(ready.broker.fetch_sessions) == 0
    assert len(session.partitions) >= 2 * FREED_AT_ONCE, "one step at most in this iteration"
    async with asyncio.timeout(ANSWER_S):
        while len(session.partitions) > FREED_AT_ONCE:
            await asyncio.sleep(0)


async def test_partitions_with_records_move_to_the_end_of_the_fetch_session(ready: Client) -> None:
    for index in range(2):
        for _ in range(2):
            await ready.produce("t", batch(b"x" * 1000), partition=index)
    full = await ready.call(fetch_request("t", (0, 1), (1, 1), session_epoch=0, max_bytes=1), 12)
    firsts = [next(iter(fetched(full)))]
    for epoch in (1, 2):
        request = fetch_request("t", session_id=full.session_id, session_epoch=epoch, max_bytes=1)
        firsts.append(next(key for key, part in fetched(await ready.call(request, 12)).items() if part.records))
    assert set(firsts[1:]) == {("t", 0), ("t", 1)}


async def test_max_wait_is_limited_by_the_client_timeout_maximum() -> None:
    async with running(settings={"kafkalite.client.timeout.max.ms": "100"}) as client:
        await client.create("t")
        part = only(await client.call(fetch_request("t", (0, 0), max_wait_ms=2**31 - 1), 12))
        assert (part.error_code, values_of(part.records)) == (0, [])
