"""Tests AlterReplicaLogDirs: partitions that move between the log directories of a broker while clients use them."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from tests.kit.log_dirs import (
    NOT_AVAILABLE,
    STORAGE_ERROR,
    VALUE,
    WAIT_S,
    HeldCopies,
    Jbod,
    all_values,
    fill,
    log_of,
    move,
    replicas,
    until_in,
)
from tests.kit.server import Client, Hub, Wire, batch, connected, idempotent, outcomes, produce_request
from tests.story.server.test_configs import SET, alter
from tests.story.server.test_transactional_produce import TV2
from tests.story.server.test_transactional_produce import Producer as TransactionalProducer

TOPIC = 2


@pytest.fixture
async def client(jbod: Jbod) -> AsyncIterator[Client]:
    async with jbod.start() as broker, connected(broker) as client:
        yield client


async def test_a_partition_moves_with_its_records(client: Client, jbod: Jbod) -> None:
    values = await fill(client)
    assert set(await replicas(client)) == {("a", False)}
    assert await move(client, jbod.path("b")) == {"t": 0}
    await until_in(client, "b")
    assert await all_values(client) == values
    assert (await client.produce("t", batch(b"later"))).error_code == 0
    assert await all_values(client) == [*values, b"later"]
    assert await client.offset("t", -1) is not None and (await client.offset("t", -1)).offset == len(values) + 1
    assert [each.name for each in (jbod.data / "a").glob("t-0*")] != ["t-0"]


@pytest.mark.parametrize("clean", [True, False], ids=["stop", "crash"])
async def test_a_moved_partition_is_found_after_a_restart(jbod: Jbod, clean: bool) -> None:
    async with jbod.start() as broker, connected(broker) as client:
        values = await fill(client)
        assert await move(client, jbod.path("b")) == {"t": 0}
        await until_in(client, "b")
        assert (await client.produce("t", batch(b"later"))).error_code == 0
    if not clean:
        for name in "abc":
            (jbod.data / name / ".kafka_cleanshutdown").unlink()
    async with jbod.start() as broker, connected(broker) as client:
        assert set(await replicas(client)) == {("b", False)}
        assert await all_values(client) == [*values, b"later"]
        assert (await client.produce("t", batch(b"again"))).base_offset == len(values) + 1


async def test_the_new_directory_is_recorded(jbod: Jbod) -> None:
    """While it is offline, the partition is offline, too, and not created empty."""
    async with jbod.start() as broker, connected(broker) as client:
        await fill(client)
        assert await move(client, jbod.path("b")) == {"t": 0}
        await until_in(client, "b")
    (jbod.data / "b").rename(jbod.data / "away")
    (jbod.data / "b").write_bytes(b"no directory")
    async with jbod.start() as broker, connected(broker) as client:
        assert (await client.produce("t", batch(b"x"))).error_code == STORAGE_ERROR


async def test_progress_is_described(client: Client, jbod: Jbod) -> None:
    values = await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    before = await replicas(client)
    assert (before["b", True].partition_size, before["b", True].offset_lag) == (0, len(values))
    assert before["a", False].offset_lag == 0 and before["a", False].partition_size == log_of(client).size
    lags = [len(values)]
    while copies.jobs.waiting:
        copies.advance()
        now = await replicas(client)
        if ("b", True) in now:
            lags.append(now["b", True].offset_lag)
            assert now["b", True].partition_size <= now["a", False].partition_size
    assert lags == sorted(lags, reverse=True) and lags[-1] < lags[0] // 2
    await until_in(client, "b")


async def test_appends_and_reads_go_on_during_a_move(client: Client, jbod: Jbod) -> None:
    values = await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    while copies.jobs.waiting:
        value = b"during %d" % len(values)
        outcome = asyncio.create_task(client.produce("t", batch(value, VALUE)))
        copies.advance()
        assert (await outcome).base_offset == len(values)
        values += [value, VALUE]
        assert (await client.read("t", offset=len(values) - 1))[-1] == VALUE
    await until_in(client, "b")
    assert await all_values(client) == values


async def test_a_repeated_batch_is_recognized_after_a_move(client: Client, jbod: Jbod) -> None:
    await fill(client)
    first = await client.produce("t", idempotent(b"once", sequence=0))
    assert await move(client, jbod.path("b")) == {"t": 0}
    await until_in(client, "b")
    assert (await client.produce("t", idempotent(b"once", sequence=0))).base_offset == first.base_offset
    assert (await client.produce("t", idempotent(b"twice", sequence=1))).base_offset == first.base_offset + 1


async def test_batches_that_wait_for_a_coordinator_are_appended_after_any_step_of_a_move(
    client: Client, jbod: Jbod
) -> None:
    """The log keeps their verification entries, which are not on the disk."""
    values, checks, later = await fill(client), client.broker.replicas.transaction_checks, list[Callable[[], object]]()
    ask = checks.check
    checks.check = lambda *args, **named: later.append(partial(ask, *args, **named))  # type: ignore[method-assign]
    copies, hub, wires = HeldCopies(client), Hub(client.broker), list[Wire]()
    for number in range(30):
        producer = TransactionalProducer(client, f"producer-{number}")
        await producer.init()
        wires.append(Wire(hub))
        sent = produce_request("t", (0, producer.batch(b"%d" % number)), transactional_id=producer.transactional_id)
        wires[-1].send((sent, TV2))
    assert len(later) == len(wires)
    await copies.requested(client, jbod.path("b"))
    while copies.jobs.waiting:
        later.pop()()
        copies.advance()
        client.broker.replicas.write_pending()
    await until_in(client, "b")
    assert later, "some wait until the log was moved"
    for answer in later:
        answer()
    client.broker.replicas.write_pending()
    for wire in wires:
        assert [found.error_code for found in outcomes(await wire.answer())] == [0]
    assert len(await all_values(client)) == len(values) + len(wires)


async def test_deleted_records_do_not_move(client: Client, jbod: Jbod) -> None:
    values = await fill(client, retention_ms="-1")
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    copies.advance(2)
    before = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=17)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[before])
    await client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000))
    client.broker.logs.upkeep.check_retention(lambda log: log.log_end_offset)
    await copies.finish(client, "b")
    assert (await client.offset("t", -2)).offset == 17
    assert await all_values(client, offset=17) == values[17:]
    assert log_of(client).segments[0].base_offset > 0


async def test_configs_that_change_during_a_move_apply(client: Client, jbod: Jbod) -> None:
    await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    copies.advance()
    assert await alter(client, TOPIC, "t", ("segment.bytes", SET, "2000000")) == (0, None)
    await copies.finish(client, "b")
    assert log_of(client).config.segment_bytes == log_of(client).segment_bytes == 2_000_000


async def test_a_move_back_to_the_current_directory_cancels(client: Client, jbod: Jbod) -> None:
    values = await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    copies.advance(2)
    assert await move(client, jbod.path("a")) == {"t": 0}
    copies.advance(3)
    assert set(await replicas(client)) == {("a", False)}
    assert list((jbod.data / "b").glob("t-0.*-future")) == []
    assert await all_values(client) == values
    assert await move(client, jbod.path("a")) == {"t": 0}, "it is there"


async def test_a_third_directory_replaces_the_move(client: Client, jbod: Jbod) -> None:
    values = await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    copies.advance(2)
    await copies.requested(client, jbod.path("c"))
    assert set(await replicas(client)) == {("a", False), ("c", True)}
    await copies.finish(client, "c")
    assert await all_values(client) == values
    assert list((jbod.data / "b").glob("t-0.*-future")) == []


async def test_a_repeated_request_continues_the_move(client: Client, jbod: Jbod) -> None:
    await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    copies.advance(2)
    size = (await replicas(client))["b", True].partition_size
    assert size > 0 and await move(client, jbod.path("b")) == {"t": 0}
    assert (await replicas(client))["b", True].partition_size == size
    await copies.finish(client, "b")


async def test_a_stop_during_a_move(jbod: Jbod) -> None:
    async with jbod.start() as broker, connected(broker) as client:
        values = await fill(client)
        copies = HeldCopies(client)
        await copies.requested(client, jbod.path("b"))
        copies.advance(2)
    async with jbod.start() as broker, connected(broker) as client:
        await until_in(client, "b")
        assert await all_values(client) == values
        assert list((jbod.data / "b").glob("t-0.*-future")) == []


async def test_a_deleted_topic_leaves_no_copy(jbod: Jbod) -> None:
    async with jbod.start() as broker, connected(broker) as client:
        await fill(client)
        copies = HeldCopies(client)
        await copies.requested(client, jbod.path("b"))
        copies.advance(2)
        assert (await client.delete("t"))[0].error_code == 0
        copies.advance(2)
        assert list((jbod.data / "b").glob("t-0.*-future")) == []
        values = await fill(client)
        assert set(await replicas(client)) == {("a", False)} and await all_values(client) == values
    async with jbod.start() as broker, connected(broker) as client:
        assert set(await replicas(client)) == {("a", False)} and await all_values(client) == values


async def test_many_partitions_move_one_after_the_other(client: Client, jbod: Jbod) -> None:
    names = [f"t{number}" for number in range(6)]
    for name in names:
        await fill(client, name, count=3)
    b = jbod.path("b")
    assert await move(client, b, names[0], *((name, b) for name in names[1:])) == dict.fromkeys(names, 0)
    for name in names:
        await until_in(client, name="b", topic=name)
        assert len(await all_values(client, name)) == 3


async def test_errors_of_requests(client: Client, jbod: Jbod) -> None:
    await fill(client)
    assert await move(client, jbod.path("x")) == {"t": KafkaErrorCode.LOG_DIR_NOT_FOUND}
    assert await move(client, "b") == {"t": KafkaErrorCode.LOG_DIR_NOT_FOUND}
    long = "x" * 220
    assert await move(client, jbod.path("b"), long) == {long: KafkaErrorCode.INVALID_TOPIC_EXCEPTION}
    assert await move(client, jbod.path("b"), "no") == {"no": KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    client.broker.logs.take_offline(jbod.path("c"), OSError(errno.EIO, "test"))
    assert await move(client, jbod.path("c")) == {"t": STORAGE_ERROR}
    client.broker.logs.take_offline(jbod.path("a"), OSError(errno.EIO, "test"))
    assert await move(client, jbod.path("b")) == {"t": STORAGE_ERROR}


async def test_the_last_of_several_directories_counts(client: Client, jbod: Jbod) -> None:
    await fill(client)
    assert await move(client, jbod.path("b"), "t", ("t", jbod.path("c"))) == {"t": 0}
    await until_in(client, "c")


async def test_a_partition_without_files_is_created_where_it_was_requested(client: Client, jbod: Jbod) -> None:
    """Kafka remembers the directory of a partition that does not exist."""
    for name in ("b", "c"):
        topic = f"in-{name}"
        assert await move(client, jbod.path(name), topic) == {topic: KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await client.create(topic)
        assert (await client.produce(topic, batch(b"x"))).error_code == 0
        assert set(await replicas(client, topic)) == {(name, False)}


async def test_a_partition_without_records_moves(client: Client, jbod: Jbod) -> None:
    client.broker.logs.prefer(TopicPartition("t", 0), jbod.path("a"))
    await client.create("t")
    async with asyncio.timeout(WAIT_S):
        while (error := (await move(client, jbod.path("b")))["t"]) == NOT_AVAILABLE:
            await asyncio.sleep(0)
    assert error == 0
    await until_in(client, "b")
    assert (await client.produce("t", batch(b"x"))).base_offset == 0
    assert await all_values(client) == [b"x"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_an_error_of_the_new_directory_ends_the_move(client: Client, jbod: Jbod, number: int) -> None:
    values = await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    copies.advance(2)
    jbod.disk.fail("write", number, path="/b/", repeat=True)
    copies.advance(3)
    jbod.disk.heal()
    assert set(await replicas(client)) == {("a", False)}
    assert client.broker.logs.is_online(jbod.path("b")) == (number == errno.ENOSPC)
    assert await all_values(client) == values
    assert (await client.produce("t", batch(b"x"))).error_code == 0


async def test_an_unreadable_file_ends_the_move_alone(client: Client, jbod: Jbod) -> None:
    await fill(client)
    copies = HeldCopies(client)
    await copies.requested(client, jbod.path("b"))
    jbod.disk.fail("read", errno.EIO, path="/a/t-0/")
    copies.advance(2)
    assert set(await replicas(client)) == {("a", False)}
    assert (await client.produce("t", batch(b"x"))).error_code == 0


async def test_only_current_replicas_can_be_assigned(client: Client) -> None:
    """What kafka-reassign-partitions sends before it moves partitions between log directories."""
    await client.create("t")
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    own = client.broker.broker_id

    async def assign(replicas: list[int] | None, name: str = "t", index: int = 0) -> int:
        wanted = topic.ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[topic(name=name, partitions=[wanted])])
        answer = await client.call(request)
        assert answer.error_code == 0
        return int(answer.responses[0].partitions[0].error_code)

    assert await assign([own]) == 0
    assert await assign([own + 1]) == KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await assign(None) == KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await assign([own], "no") == await assign([own], index=7) == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
