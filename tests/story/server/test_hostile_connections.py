"""Tests clients that fill the request memory, or disconnect while the broker waits: other clients are not affected.

Before memory shares and hang-ups, each test failed: the broker read from no connection for up to 24.8 days, kept
connections of clients that had left, or held many times `queued.max.request.bytes`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._speedups import codec
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from tests.kit.brokers import Kafkalite, wait_until
from tests.kit.fuzzing import BlockingClient, framed, memory_peak_kib
from tests.oracles.codec import uvarint

MIB = 1 << 20
LIMIT = 100 * MIB
FOR_EVER_MS = 2**31 - 1
FETCH_VERSION = 12
ENGINE = os.environ.get("KAFKALITE_ENGINE", "c")
OVERHEAD_KIB = 100 * 1024


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkalite]:
    broker = Kafkalite(tmp_path / "broker", {"queued.max.request.bytes": str(LIMIT)})
    broker.start()
    before = sockets(broker)
    with BlockingClient(broker.port) as client:
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics[0].error_code == 0
    wait_until(lambda: sockets(broker) == before, "the connection of the first client is closed")
    try:
        yield broker
    finally:
        broker.kill()


def delayed_fetch(padding: int = 0) -> bytes:
    """A fetch that waits for a record as long as a client may ask for, behind an unknown tag of `padding` bytes."""
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
    request = FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=1, max_bytes=MIB, session_epoch=-1, topics=[topic])
    frame = codec.encode_request(request, FETCH_VERSION, 5, "hostile")
    if padding:
        assert frame.endswith(b"\0")  # no tags
        frame = frame[:-1] + uvarint(1) + uvarint(100) + uvarint(padding) + bytes(padding)
    return framed(frame)


def sockets(broker: Kafkalite) -> int:
    """How many sockets the broker has open."""
    directory, count = f"/proc/{broker.pid}/fd", 0
    for name in os.listdir(directory):
        try:
            count += os.readlink(f"{directory}/{name}").startswith("socket:")
        except FileNotFoundError:
            continue  # closed meanwhile
    return count


def serves(broker: Kafkalite) -> bool:
    with BlockingClient(broker.port) as client:
        return client.ask(ApiVersionsRequest(), 0).error_code == 0


def test_delayed_requests_hold_no_memory_and_end_with_their_clients(broker: Kafkalite) -> None:
    before = sockets(broker)
    clients = [BlockingClient(broker.port) for _ in range(2)]
    fetch = delayed_fetch(60 * MIB)
    for client in clients:
        assert client.send(fetch)
        assert serves(broker)
    wait_until(lambda: sockets(broker) == before + 2, "both fetches wait")
    for client in clients:
        client.close()
    wait_until(lambda: sockets(broker) == before, "the connections of clients that left are closed")
    assert serves(broker)


def test_thousands_of_delayed_requests_end_with_their_clients(broker: Kafkalite) -> None:
    before = sockets(broker)
    clients = [BlockingClient(broker.port) for _ in range(5)]
    for client in clients:
        assert client.send(delayed_fetch() * 5000)  # more than a connection may have open: it is not read to the end
    assert serves(broker)
    wait_until(lambda: sockets(broker) == before + 5, "all are connected")
    for client in clients:
        client.close()
    wait_until(lambda: sockets(broker) == before, "the connections of clients that left are closed")
    assert serves(broker)


@pytest.mark.skipif(ENGINE != "c", reason="the sanitizer keeps what was freed")
def test_unfinished_requests_are_counted_and_stop_no_other_client(broker: Kafkalite) -> None:
    before = memory_peak_kib(broker.pid)
    connected_before = sockets(broker)
    clients = [BlockingClient(broker.port) for _ in range(8)]
    part = framed(bytes(100 * MIB - 4))[: 66 * MIB]
    for client in clients:
        client.socket.settimeout(0.5)
        try:
            client.socket.sendall(part)
        except TimeoutError:
            continue  # what the broker does not receive stays with the client
        assert serves(broker)
    assert serves(broker)
    grown = memory_peak_kib(broker.pid) - before
    assert grown < LIMIT // 1024 + 100 * 1024 + OVERHEAD_KIB, f"{grown} KiB for 8 requests of 66 MiB"
    for client in clients:
        client.close()
    wait_until(lambda: sockets(broker) == connected_before, "the connections of clients that left are closed")
    assert serves(broker)
