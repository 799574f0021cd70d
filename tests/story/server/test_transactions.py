"""Tests transactions as consumers see them. Without a coordinator, the broker itself appends batches and markers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.server.requests.offset_lookup import LATEST
from tests.kit.server import (
    Client,
    Hub,
    Wire,
    batch,
    fetch_request,
    fetched,
    idempotent,
    running,
    stopped_time,
    values_of,
)

COMMITTED = 1
WAIT_MS = 5000


class Writer:
    """What a coordinator and transactional producers do to partition 0 of a topic."""

    def __init__(self, client: Client, topic: str = "t") -> None:
        found = client.broker.replicas.partition(topic, b"", 0, by_id=False)
        assert isinstance(found, Partition)
        self.partition = found
        self._replicas = client.broker.replicas
        self._sequence: dict[int, int] = {}

    def append(self, data: bytes) -> Append:
        """Have the broker append a batch of its own."""
        done: list[Append] = []
        self.partition.append_internal(OwnAppend(bytearray(data), done.append))
        self._replicas.write_pending()
        (append,) = done
        return append

    def send(self, producer: int, *values: bytes) -> int:
        """A transactional batch; its first offset."""
        sequence = self._sequence.get(producer, 0)
        self._sequence[producer] = sequence + len(values)
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        append = self.append(batch(*values, transactional=True, **fields))
        assert append.error == 0
        return append.base_offset

    def end(self, producer: int, kind: ControlType, coordinator: int = 0) -> int:
        """A marker; its offset, or the negative error code."""
        append = self.append(build_marker(Marker(kind, coordinator), producer, 0, 7))
        return -append.error or append.base_offset

    def abort(self, producer: int) -> int:
        return self.end(producer, ControlType.ABORT)

    def commit(self, producer: int) -> int:
        return self.end(producer, ControlType.COMMIT)


@pytest.fixture
async def writer(client: Client) -> AsyncIterator[Writer]:
    await client.create("t")
    await client.produce("t", batch(b"plain"))
    yield Writer(client)


async def read(client: Client, offset: int = 0, isolation_level: int = COMMITTED, **more: Any) -> Any:
    answer = await client.call(fetch_request("t", (0, offset), isolation_level=isolation_level, **more), 12)
    return fetched(answer)["t", 0]


def aborted(part: Any) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in part.aborted_transactions]


async def test_only_read_committed_returns_aborted_transactions(client: Client, writer: Writer) -> None:
    part = await read(client)
    assert (part.aborted_transactions, values_of(part.records)) == ([], [b"plain"])
    assert (await read(client, isolation_level=0)).aborted_transactions is None
    assert (await read(client, offset=99)).aborted_transactions is None, "an error has nothing to skip"
    assert (await read(client, offset=1)).aborted_transactions == [], "nor has the end, which is no error"


async def test_read_committed_stops_at_the_last_stable_offset(client: Client, writer: Writer) -> None:
    assert writer.send(7, b"a", b"b") == 1
    assert (await client.produce("t", batch(b"later"))).base_offset == 3
    part = await read(client)
    assert (part.last_stable_offset, part.high_watermark, values_of(part.records)) == (1, 4, [b"plain"])
    everything = await read(client, isolation_level=0)
    assert (everything.last_stable_offset, values_of(everything.records)) == (1, [b"plain", b"a", b"b", b"later"])
    assert writer.commit(7) == 4
    part = await read(client)
    assert (part.last_stable_offset, part.high_watermark, aborted(part)) == (5, 5, [])
    assert values_of(part.records)[:4] == [b"plain", b"a", b"b", b"later"]


async def test_read_committed_returns_aborted_transactions(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")  # 1
    writer.send(8, b"b")  # 2
    writer.abort(8)  # 3
    writer.send(7, b"c")  # 4
    writer.abort(7)  # 5
    assert aborted(await read(client)) == [(8, 2), (7, 1)]
    assert aborted(await read(client, offset=4)) == [(7, 1)]
    assert aborted(await read(client, offset=6)) == []


async def test_latest_offset_of_read_committed_is_the_last_stable_offset(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    assert (await client.offset("t", LATEST)).offset == 2
    assert (await client.offset("t", LATEST, isolation_level=COMMITTED)).offset == 1
    writer.abort(7)
    assert (await client.offset("t", LATEST, isolation_level=COMMITTED)).offset == 3


async def test_last_stable_offset_completes_delayed_fetch(client: Client, writer: Writer) -> None:
    time = stopped_time(client.broker)
    hub = Hub(client.broker)
    committed, everything = Wire(hub), Wire(hub)
    for wire, level in ((committed, COMMITTED), (everything, 0)):
        wire.send((fetch_request("t", (0, 1), isolation_level=level, max_wait_ms=WAIT_MS), 12))
    assert writer.send(7, b"a") == 1
    assert values_of(fetched(await everything.answer())["t", 0].records) == [b"a"]
    assert committed.answers() == []
    await client.produce("t", batch(b"later"))
    assert committed.answers() == [], "what lies behind an open transaction is not for it"
    assert writer.abort(7) == 3
    part = fetched(await committed.answer())["t", 0]
    assert (part.last_stable_offset, aborted(part)) == (4, [(7, 1)])
    assert values_of(part.records)[:2] == [b"a", b"later"]
    assert time.monotonic() == 0, "no deadline was needed"


async def test_delayed_read_committed_fetch_waits_for_min_bytes(client: Client, writer: Writer) -> None:
    time = stopped_time(client.broker)
    wire = Wire(Hub(client.broker))
    wire.send((fetch_request("t", (0, 1), isolation_level=COMMITTED, max_wait_ms=WAIT_MS, min_bytes=500), 12))
    writer.send(7, b"a")
    writer.commit(7)
    assert wire.answers() == [], "it is stable, and too little"
    await client.produce("t", batch(b"x" * 400))
    assert len(values_of(fetched(await wire.answer())["t", 0].records)) == 3
    wire.send((fetch_request("t", (0, 1), isolation_level=COMMITTED, max_wait_ms=WAIT_MS, min_bytes=5000), 12))
    writer.send(7, b"b")
    time.advance(WAIT_MS)
    assert len(values_of(fetched(await wire.answer())["t", 0].records)) == 3, "the time was up"


async def test_fenced_transaction_coordinator_is_rejected(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    assert writer.end(7, ControlType.COMMIT, coordinator=3) == 2
    assert writer.end(7, ControlType.ABORT, coordinator=2) == -KafkaErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_describe_producers_with_open_transactions(client: Client, writer: Writer) -> None:
    writer.send(7, b"a", b"b")
    writer.end(7, ControlType.COMMIT, coordinator=3)
    writer.send(7, b"c")
    await client.produce("t", idempotent(b"d", sequence=40, producer=9, epoch=2))
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    answer = await client.call(DescribeProducersRequest(topics=[asked]), 0)
    found = {each.producer_id: each for each in answer.topics[0].partitions[0].active_producers}
    first, second = found[7], found[9]
    assert (first.producer_epoch, first.last_sequence, first.coordinator_epoch) == (0, 2, 3)
    assert first.current_txn_start_offset == 4
    assert (second.producer_epoch, second.last_sequence, second.coordinator_epoch) == (2, 40, -1)
    assert (second.current_txn_start_offset, second.last_timestamp > 0) == (-1, True)


async def test_transactions_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = str(tmp_path_factory.mktemp("data"))
    async with running(data) as client:
        await client.create("t")
        await client.produce("t", batch(b"plain"))
        writer = Writer(client)
        writer.send(8, b"gone")
        writer.abort(8)
        writer.send(7, b"a")
    async with running(data) as client:
        part = await read(client)
        assert (part.last_stable_offset, part.high_watermark, aborted(part)) == (3, 4, [(8, 1)])
        assert Writer(client).commit(7) == 4
        assert (await read(client)).last_stable_offset == 5


async def test_duplicate_batches_are_counted(client: Client) -> None:
    await client.create("t")
    for _ in range(3):
        assert (await client.produce("t", idempotent(b"a", sequence=0))).base_offset == 0
    (family,) = (each for each in client.broker.metrics.walk() if each.name == "kafkalite_duplicate_batches")
    assert [member.value for member in family.members.values()] == [2]
    await client.delete("t")
    await asyncio.sleep(0)
    assert [member.value for member in family.members.values()] == [2]
