"""Hostile clients against a whole broker in its own process: bombs, claims, silence, other protocols, no reading.

The judge is always the same: that client is refused or let go, the broker's memory is bounded, and others are served.
"""

import gzip
import http.client
import os
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lz4.frame
import pytest

from kafkalite._speedups import codec
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.records import compression
from tests.kit import fuzzing
from tests.kit.brokers import Kafkalite, wait_until
from tests.kit.fuzzing import PING, BlockingClient
from tests.kit.record_engines import build, with_records

pytestmark = [pytest.mark.fuzz, pytest.mark.xdist_group("bad-input")]
MIB = 1 << 20
REQUEST_BYTES_MAX = 16 * MIB
IDLE_MS = 2000
MESSAGE_BYTES_MAX = 1_048_588
BOMB_BYTES = 1 << 30
JUDGES_MEMORY = os.environ.get("KAFKALITE_ENGINE", "c") == "c"  # the sanitizer keeps what was freed
STALL_S_MAX = 0.5  # CPU time of the broker's loop; a bomb opened on the loop takes more
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkalite]:
    """One broker with a topic for all but the silent clients: on a busy machine any client is silent for seconds."""
    with started(tmp_path_factory.mktemp("bad-input")) as running:
        with BlockingClient(running.port) as client:
            topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            assert produce(client, build((1, None, b"x" * 1_000_000))) == 0
        yield running


@contextmanager
def started(directory: Path, **settings: str) -> Iterator[Kafkalite]:
    """A broker; it ends cleanly, and its log reports no bug."""
    running = Kafkalite(directory, {"socket.request.max.bytes": str(REQUEST_BYTES_MAX), **settings})
    running.start()
    try:
        yield running
        assert running.stop() == 0
        log = (running.directory / "server.log").read_text(errors="replace")
        assert fuzzing.complaints(log) == [], log[-6000:]
    finally:
        if running.running():
            running.kill()


class Growth:
    """How much the broker's peak of memory rises within the block; asserts that it is no more than `limit_kib`."""

    def __init__(self, broker: Kafkalite, limit_kib: int) -> None:
        self.pid = broker.pid
        self.limit_kib = limit_kib

    def __enter__(self) -> "Growth":
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # resets the peak (proc(5))
        self.before = fuzzing.memory_kib(self.pid)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.kib = fuzzing.memory_peak_kib(self.pid) - self.before
        if kind is None and JUDGES_MEMORY:
            assert self.kib <= self.limit_kib, f"grew by {self.kib} KiB, {self.limit_kib} are allowed"


class Bystander(threading.Thread):
    """Another client, which asks without a pause and notes how much the broker's loop did at most before an answer."""

    def __init__(self, broker: Kafkalite) -> None:
        super().__init__()
        self.asked = 0
        self.longest_s = 0.0
        self._stat = Path(f"/proc/{broker.pid}/task/{broker.pid}/stat")
        self._client = BlockingClient(broker.port)
        self._ended = threading.Event()

    def run(self) -> None:
        with self._client:
            while not self._ended.wait(0.002):
                begin = self._cpu_s()
                if not self._client.send(PING) or self._client.receive() is None:
                    return
                self.longest_s = max(self.longest_s, self._cpu_s() - begin)
                self.asked += 1

    def _cpu_s(self) -> float:
        """CPU time of the loop's thread: what it did does not depend on how busy the machine is."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def __enter__(self) -> "Bystander":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        alive = self.is_alive()
        self._ended.set()
        self.join()
        assert alive and self.asked, "the bystander was closed"


def produce_request(batch: bytes) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data(name="t", partition_data=[part])])


def produce(client: BlockingClient, batch: bytes) -> int:
    """The error code of the one partition."""
    code: int = client.ask(produce_request(batch), 9).responses[0].partition_responses[0].error_code
    return code


# ---- bombs


def gzip_bomb() -> bytes:
    """A gigabyte of zeros in a megabyte. A full flush makes every chunk the same bytes."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    chunk = [deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH) for _ in range(2)][1]
    return gzip.compress(b"")[:10] + chunk * min(BOMB_BYTES // MIB, (MESSAGE_BYTES_MAX - 200) // len(chunk))


def gzip_small_bomb() -> bytes:
    return gzip_bomb()[: 60 * 1024]


def lz4_bomb() -> bytes:
    bomb: bytes = lz4.frame.compress(bytes(200 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return bomb


def snappy_bomb() -> bytes:
    return compression.compress(compression.SNAPPY, bytes(21 * MIB))


def snappy_claim() -> bytes:
    """Raw snappy with ten bytes that claims a size of one gigabyte."""
    return b"\x80\x80\x80\x80\x04" + b"\x24" + bytes(10)


def zstd_bomb() -> bytes:
    return compression.compress(compression.ZSTD, bytes(BOMB_BYTES // 2))


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (compression.GZIP, gzip_bomb),
    "gzip-small": (compression.GZIP, gzip_small_bomb),
    "lz4": (compression.LZ4, lz4_bomb),
    "snappy": (compression.SNAPPY, snappy_bomb),
    "snappy-claim": (compression.SNAPPY, snappy_claim),
    "zstd": (compression.ZSTD, zstd_bomb),
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bomb_is_rejected_and_delays_no_other_client(
    broker: Kafkalite, name: str, record_property: Callable[[str, object], None]
) -> None:
    kind, make = BOMBS[name]
    batch = with_records(make(), 1, attributes=kind)
    assert len(batch) <= MESSAGE_BYTES_MAX
    with (
        BlockingClient(broker.port) as client,
        Bystander(broker) as bystander,
        Growth(broker, 40 * 1024) as growth,
    ):
        codes = {produce(client, batch) for _ in range(10)}
        wait_until(lambda: bystander.asked, "the bystander is served")
    assert codes <= {KafkaErrorCode.MESSAGE_TOO_LARGE, KafkaErrorCode.CORRUPT_MESSAGE, KafkaErrorCode.INVALID_RECORD}
    assert bystander.longest_s < STALL_S_MAX
    record_property(
        "summary",
        f"bomb {name}: {len(batch)} bytes, {codes}, memory +{growth.kib} KiB, "
        f"the loop worked {bystander.longest_s * 1000:.0f} ms at most before it answered a bystander",
    )


# ---- claims, silence, other protocols


def test_memory_grows_with_received_bytes_not_with_the_size_field(broker: Kafkalite) -> None:
    clients = [BlockingClient(broker.port) for _ in range(50)]
    size = REQUEST_BYTES_MAX.to_bytes(4, "big")
    with Growth(broker, 8 * 1024):
        for client in clients:
            assert client.send(size + b"\0\3\0\1" + bytes(10_000))
        with BlockingClient(broker.port) as good:
            good.ask(MetadataRequest(topics=None), 9)
    for client in clients:
        client.close()


@pytest.mark.parametrize("size", [REQUEST_BYTES_MAX + 1, 100_000_000, 2**31 - 1, -1, 0, 7])
def test_a_size_out_of_bounds_closes_at_once(broker: Kafkalite, size: int) -> None:
    with BlockingClient(broker.port) as client:
        assert client.send(PING)
        answer = client.receive()
        assert answer is not None and fuzzing.is_ping(answer)
        assert client.send(size.to_bytes(4, "big", signed=True))
        assert client.receive() is None


def test_silent_connection_is_closed_after_the_idle_time(tmp_path: Path) -> None:
    """Before a size, within it, behind it, and within a header."""
    with started(tmp_path, **{"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        begin = time.monotonic()
        clients = [BlockingClient(broker.port) for _ in range(4)]
        for client, sent in zip(clients, (b"", PING[:2], PING[:4], PING[:9]), strict=True):
            client.send(sent)
        for client in clients:
            assert client.receive() is None
            assert time.monotonic() - begin >= IDLE_MS / 1000 - 0.1, "not before the idle time"
            client.close()


def test_bytes_one_by_one_are_a_request(broker: Kafkalite) -> None:
    with BlockingClient(broker.port) as client:
        for at in range(len(PING)):
            assert client.send(PING[at : at + 1])
        answer = client.receive()
        assert answer is not None and fuzzing.is_ping(answer)


def test_http_client_is_disconnected(broker: Kafkalite) -> None:
    browser = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=60)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        browser.request("GET", "/")
        browser.getresponse()
    browser.close()


def test_tls_client_is_disconnected(broker: Kafkalite) -> None:
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname="localhost")


# ---- clients that never read


def send_until_stuck(client: BlockingClient, data: bytes, count: int) -> int:
    """Send `data` up to `count` times; the bytes that were taken before the socket had been full for a second."""
    client.socket.setblocking(False)
    sent, whole = 0, len(data) * count
    while sent < whole:
        if not select.select([], [client.socket], [], 1.0)[1]:
            break
        at = sent % len(data)
        sent += client.socket.send(data[at:])
    client.socket.settimeout(fuzzing.ANSWER_S)
    return sent


def fetch_request() -> bytes:
    part = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[part])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MIB, topics=topics)
    return fuzzing.framed(codec.encode_request(request, 11, 7, "greedy"))


def test_client_that_never_reads_its_responses_costs_little_memory(broker: Kafkalite) -> None:
    with (
        Growth(broker, 8 * 1024),
        BlockingClient(broker.port, receive_bytes=4096) as greedy,
        Bystander(broker) as bystander,
    ):
        send_until_stuck(greedy, fetch_request(), 200)
        with BlockingClient(broker.port) as good:
            good.ask(MetadataRequest(topics=None), 9)
        wait_until(lambda: bystander.asked > 50, "the bystander is served")
    assert bystander.longest_s < STALL_S_MAX


def test_requests_of_a_client_that_never_reads_are_paused(broker: Kafkalite) -> None:
    """Small answers pile up to a bound; then the requests stay in the client's socket until it reads."""
    ping = fuzzing.framed(codec.encode_request(ApiVersionsRequest(), 0, fuzzing.PING_ID, "p" * 2000))
    with Growth(broker, 24 * 1024), BlockingClient(broker.port, receive_bytes=64 * 1024) as greedy:
        assert greedy.send(ping)
        answer = greedy.receive()
        assert answer is not None and fuzzing.is_ping(answer)
        sent = send_until_stuck(greedy, ping, 200_000)
        assert sent < 200_000 * len(ping), "the broker swallowed everything"
        count = sent // len(ping)
        assert greedy.receive_all(count * (4 + len(answer))) == (len(answer).to_bytes(4, "big") + answer) * count
