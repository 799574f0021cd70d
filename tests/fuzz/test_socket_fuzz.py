"""Damaged requests against a whole broker in its own process: what is wrong hurts its own connection and nothing else.

Takes a tenth of --fuzz-inputs; what stands behind an input that closes its connection is not counted. Each input is a
random request of a served API and version with one piece changed; some go out together with others, and a good one is
always behind them. The codec, run here on the same bytes, says what must come back: an answer that decodes to its last
byte, or the end of that connection. Beside it a good producer writes; at the end, and after a restart, everything it
was acknowledged is there. Replays from KAFKALITE_SEED.
"""

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups import codec
from kafkalite.errors import DecodeError
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.schema import Request, Struct
from kafkalite.records import batches
from kafkalite.server.requests.api import ROWS
from tests.kit import fuzzing
from tests.kit.brokers import Kafkalite
from tests.kit.fuzzing import PING, BlockingClient
from tests.kit.record_engines import build
from tests.unit.protocol.values import seed

pytestmark = [pytest.mark.fuzz, pytest.mark.xdist_group("socket-fuzz")]
SHARE = 10
PER_REQUEST = 10  # inputs made from one good request
PROBE_EVERY = 1000
TOPICS_EVERY = 200  # the fuzzer deletes them
PRODUCE_CODES = {0, 2, 3, 21, 76, 87}  # of these 2, 76 and 87 speak of the bytes of a batch
CONNECTIONS = 6
ENOUGH = 5000  # inputs after which every API was surely met
FRAME_BYTES_MIN = 8
WAIT_MS_MAX = 50  # a fetch that asks to wait longer is let go instead
MEMORY_GROWTH_MAX_KIB = 96 * 1024
OPEN_FILES_MAX = 700
GOOD_TOPIC = "good"
MADE_TOPICS = (GOOD_TOPIC, "health", "fuzz", "fuzz-compact", "fuzz-other")
Config = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
SERVED = {row.api_key: row.load() for row in ROWS}
JUDGES_MEMORY = os.environ.get("KAFKALITE_ENGINE", "c") == "c"  # the sanitizer keeps what was freed


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkalite]:
    """A broker process; ended with the test, whatever became of it."""
    running = Kafkalite(tmp_path, {"socket.request.max.bytes": str(16 << 20), "num.partitions": "2"})
    running.start()
    try:
        yield running
    finally:
        if running.running():
            running.kill()


# ---- good clients ---------------------------------------------------------------------------------------------------


def make_topics(client: BlockingClient) -> list[bytes]:
    """Create the topics that a fuzzed request has deleted; returns the ids of the topics in fuzzed requests."""
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in MADE_TOPICS
    ]
    topics[3].configs = [Config(name="cleanup.policy", value="compact")]
    topics[4].configs = [
        Config(name="compression.type", value="gzip"),
        Config(name="message.timestamp.type", value="LogAppendTime"),
    ]
    answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
    assert {topic.error_code for topic in answer.topics} <= {0, 36}, answer
    known = client.ask(MetadataRequest(topics=None), 12).topics
    return [topic.topic_id for topic in known if topic.name in MADE_TOPICS[2:]]


def produce(client: BlockingClient, topic: str, value: bytes) -> int:
    """Write one record to partition 0; its offset."""
    data = ProduceRequest.TopicProduceData
    batch = build((int(time.time() * 1000), None, value))  # older ones would fall to retention in a long run
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=0, records=batch)])],
    )
    outcome = client.ask(request, 9).responses[0].partition_responses[0]
    assert outcome.error_code == 0, outcome
    offset: int = outcome.base_offset
    return offset


def fetch(client: BlockingClient, topic: str, offset: int) -> list[tuple[int, bytes | None]]:
    """The records of partition 0 from `offset` on, as many as one answer has."""
    part = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[part])]
    answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 11).responses[0].partitions[0]
    assert answer.error_code == 0, answer
    records = [record for batch in batches(answer.records or b"") for record in batch]
    return [(record.offset, record.value) for record in records if record.offset >= offset]


class GoodProducer(threading.Thread):
    """Writes numbered records one at a time until it is stopped, and remembers what was acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.acknowledged: dict[int, bytes] = {}
        self.failure: BaseException | None = None
        self._client = BlockingClient(port)
        self._asked_to_end = threading.Event()

    def run(self) -> None:
        try:
            while not self._asked_to_end.wait(0.01):
                value = b"good %d" % len(self.acknowledged)
                self.acknowledged[produce(self._client, GOOD_TOPIC, value)] = value
        except (AssertionError, OSError, DecodeError) as error:
            self.failure = error

    def end(self) -> None:
        self._asked_to_end.set()
        self.join()
        self._client.close()
        if self.failure is not None:
            raise self.failure


def all_records(client: BlockingClient, topic: str) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    while new := fetch(client, topic, len(found)):
        found.update(new)
    return found


# ---- the fuzzer -----------------------------------------------------------------------------------------------------


class Expected:
    """The request in a frame by the codec, if the broker must answer it."""

    def __init__(self, frame: bytes) -> None:
        self.size = len(frame)
        self.request: Request | None = None
        self.past_header = False
        self.verdict = "header"
        self.api, self.version, self.correlation_id = "none", -1, -1
        try:
            header = codec.read_request_header(frame)
            row = SERVED.get(header.api_key)
            if row is None:
                self.verdict = "key"
                return
            self.api, self.version, self.correlation_id = row.name, header.api_version, header.correlation_id
            if not row.version_min <= header.api_version <= row.version_max:
                self.verdict = "version"
                return
            self.past_header = True
            self.request = codec.decode(row.request, header.api_version, header.body, exact=False)
            self.verdict = "decodes"
        except DecodeError as error:
            self.verdict = error.kind

    @property
    def must_close(self) -> bool:
        if self.size < FRAME_BYTES_MIN:
            return True
        return self.request is None and not (self.verdict == "version" and self.api == "ApiVersions")

    @property
    def may_be_silent(self) -> bool:
        return isinstance(self.request, ProduceRequest) and self.request.acks == 0

    @property
    def may_wait(self) -> bool:
        return isinstance(self.request, FetchRequest) and self.request.max_wait_ms > WAIT_MS_MAX


class Fuzzer:
    """Sends inputs over a few connections and judges what comes back."""

    def __init__(self, rng: random.Random, port: int, topic_ids: list[bytes]) -> None:
        self.rng = rng
        self.port = port
        self.vocabulary = fuzzing.Vocabulary(rng, topic_ids)
        self.pieces = fuzzing.Pieces(self.vocabulary)
        self.clients: list[BlockingClient | None] = [None] * CONNECTIONS
        self.inputs = self.past_header = 0
        self.outcomes: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.by_api: Counter[str] = Counter()
        self.errors: Counter[int] = Counter()

    def step(self) -> None:
        """A few inputs made from one good request: one by one, or several in one go with others between them."""
        pieces = self._request()
        frames = [fuzzing.hurt(self.rng, pieces) for _ in range(PER_REQUEST)]
        if self.rng.random() < 0.2:
            others = [fuzzing.joined(self._request()) for _ in range(self.rng.randrange(4))]
            frames += others
            self.rng.shuffle(frames)
            self.send(frames)
        else:
            for frame in frames:
                self.send([frame])

    def _request(self) -> list[fuzzing.Piece]:
        row = self.rng.choice(ROWS) if self.rng.random() < 0.7 else SERVED[ProduceRequest.api_key]
        version = self.rng.randint(row.version_min, row.version_max)
        return self.pieces.request(row.request, version, self.rng.getrandbits(30))

    def send(self, frames: list[bytes]) -> None:
        """Frames and a ping behind them, in one write; sometimes the size in front of a frame is a lie."""
        at = self.rng.randrange(CONNECTIONS)
        client = self.clients[at] = self.clients[at] or BlockingClient(self.port)
        kept = self._lie(client, frames[0]) if self.rng.random() < 0.03 else self._judge(client, frames)
        if not kept:
            client.close()
            self.clients[at] = None

    def _lie(self, client: BlockingClient, frame: bytes) -> bool:
        """A size that does not fit its frame: any answers may come, but the end of the connection must."""
        size = self.rng.choice((-1, 0, 7, len(frame) - 1, len(frame) + 1, 1 << 20, 16 << 20, (16 << 20) + 1, 2**31 - 1))
        client.send(size.to_bytes(4, "big", signed=True) + frame)
        client.end()
        while client.receive() is not None:
            self.outcomes["answered behind a wrong size"] += 1
        self.inputs += 1
        self.outcomes["wrong size"] += 1
        return False

    def _judge(self, client: BlockingClient, frames: list[bytes]) -> bool:
        """Answers come in order, up to the first frame that closes the connection."""
        all_expected = [Expected(frame) for frame in frames]
        client.send(b"".join(map(fuzzing.framed, frames)) + PING)
        if any(expected.may_wait for expected in all_expected):
            client.end()
            self._count(all_expected[0], "waits, let go")
            return False
        # What comes behind a frame that closes may still be unread then, so that earlier answers are lost on the way.
        may_close = any(expected.must_close for expected in all_expected)
        for expected in all_expected:
            if expected.may_be_silent:
                self._count(expected, "no answer asked for")
                may_close = True  # when it is refused
                continue
            answer = client.receive()
            if answer is None:
                assert may_close, f"{expected.api}: closed, not answered: {expected.request!r:.400}"
                self._count(expected, "closed")
                return False
            assert not expected.must_close, f"{expected.verdict}: answered instead of closed: {answer!r:.200}"
            self._count(expected, "answered")
            self._check_answer(expected, answer)
        ping = client.receive()
        assert may_close if ping is None else fuzzing.is_ping(ping), "the good request behind it was not answered"
        return ping is not None

    def _count(self, expected: Expected, outcome: str) -> None:
        self.inputs += 1
        self.outcomes[outcome] += 1
        self.past_header += expected.past_header
        self.by_api[expected.api] += expected.past_header
        self.verdicts[expected.verdict] += 1

    def _check_answer(self, expected: Expected, answer: bytes) -> None:
        if expected.request is None:
            return  # ApiVersions of an unknown version, answered in v0
        message = fuzzing.read_answer(type(expected.request), expected.version, expected.correlation_id, answer)
        for code in error_codes(message):
            self.errors[code] += 1
            assert code != -1, (
                f"{expected.api} v{expected.version}: UNKNOWN_SERVER_ERROR for {expected.request!r:.1000}"
            )

    def close(self) -> None:
        for client in self.clients:
            if client is not None:
                client.close()

    def lines(self) -> str:
        apis = ", ".join(f"{name} {count}" for name, count in sorted(self.by_api.items()) if count)
        head = f"socket fuzz: {self.inputs} inputs, {self.past_header} past the header, {dict(self.outcomes)}"
        codes = dict(sorted(self.errors.items()))
        return f"{head}\n  verdicts: {dict(self.verdicts)}\n  codes: {codes}\n  past the header by API: {apis}"


def error_codes(message: Any) -> Iterator[int]:
    """Every error code of an answer, at whatever depth."""
    for each in type(message).__fields__:
        value = getattr(message, each.name)
        if each.name == "error_code":
            yield value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Struct):
                yield from error_codes(one)


class Health:
    """What must stay true of the broker while others behave badly."""

    def __init__(self, broker: Kafkalite) -> None:
        self.broker = broker
        self.client = BlockingClient(broker.port)
        self.memory_kib = 0
        self.probes = 0

    def close(self) -> None:
        self.client.close()

    def check(self) -> None:
        value = b"probe %d" % self.probes
        offset = produce(self.client, "health", value)
        assert (offset, value) in fetch(self.client, "health", offset)
        files = fuzzing.open_files(self.broker.pid)
        assert files <= OPEN_FILES_MAX, f"{files} open files"
        peak = fuzzing.memory_peak_kib(self.broker.pid)
        self.memory_kib = self.memory_kib or peak
        if JUDGES_MEMORY:
            assert peak - self.memory_kib <= MEMORY_GROWTH_MAX_KIB, f"{peak} KiB, {self.memory_kib} at the beginning"
        self.probes += 1


def test_damage_hurts_its_own_connection_only(
    broker: Kafkalite, fuzz_inputs: int, record_property: Callable[[str, object], None]
) -> None:
    with contextlib.closing(Health(broker)) as health:
        fuzzer, acknowledged = fuzz(broker, health, random.Random(seed()), fuzz_inputs // SHARE)
        record_property("summary", fuzzer.lines())
        judge_log_and_data(broker, health.client, acknowledged)
    assert fuzzer.past_header >= 0.3 * fuzzer.inputs
    if fuzzer.inputs >= ENOUGH:
        assert set(fuzzer.verdicts) >= {"truncated", "varint", "null", "array length", "utf-8", "tag order"}
        assert set(fuzzer.by_api) >= {row.name for row in ROWS}
        assert set(fuzzer.errors) >= PRODUCE_CODES, PRODUCE_CODES - set(fuzzer.errors)
        assert fuzzer.outcomes["closed"] > fuzzer.inputs // 20 and fuzzer.outcomes["answered"] > fuzzer.inputs // 20


def fuzz(broker: Kafkalite, health: Health, rng: random.Random, count: int) -> tuple[Fuzzer, dict[int, bytes]]:
    """Send `count` inputs while a good producer writes; what was acknowledged to it."""
    fuzzer = Fuzzer(rng, broker.port, make_topics(health.client))
    health.check()
    producer = GoodProducer(broker.port)
    producer.start()
    try:
        topics_at, probe_at = TOPICS_EVERY, PROBE_EVERY
        while fuzzer.inputs < count:
            fuzzer.step()
            if fuzzer.inputs >= topics_at:
                topics_at += TOPICS_EVERY
                fuzzer.vocabulary.topic_ids = make_topics(health.client)
            if fuzzer.inputs >= probe_at:
                probe_at += PROBE_EVERY
                health.check()
    finally:
        print(fuzzer.lines())
        fuzzer.close()
        producer.end()
    health.check()
    return fuzzer, producer.acknowledged


def judge_log_and_data(broker: Kafkalite, client: BlockingClient, acknowledged: dict[int, bytes]) -> None:
    """Everything acknowledged is there, now and after a restart; the log reports no bug."""
    assert acknowledged
    assert all_records(client, GOOD_TOPIC) == acknowledged
    assert broker.stop() == 0
    broker.start()
    with BlockingClient(broker.port) as again:
        assert all_records(again, GOOD_TOPIC) == acknowledged
    assert broker.stop() == 0
    log = (broker.directory / "server.log").read_text(errors="replace")
    assert fuzzing.complaints(log) == [], log[-6000:]
