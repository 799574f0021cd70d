"""Damaged commits and heartbeats on their fast ways: what these take, the common way takes for the same.

A fast way may leave anything to the common one; the tests count that it serves what is as usual. Commits take a
twentieth of --fuzz-inputs, heartbeats another. Replays from KAFKALITE_SEED.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite._speedups.codec import (
    decode,
    encode,
    encode_request,
    read_request_header,
    response_header,
)
from kafkalite._speedups.groups.offset_commit_request import PackedCommit, read_packed
from kafkalite._speedups.groups.offset_commit_response import encode_response
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.errors import DecodeError
from kafkalite.net.memory_transport import MemoryHub
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.records import Builder
from kafkalite.server.handlers.offset_commit import answer
from kafkalite.server.requests.response_arrays import ResponseArray
from kafkalite.slicing import finish
from kafkalite.state.groups.records import OffsetsCommitted, commits_of
from tests.kit.packed import PARTITIONS_MAX, name_and_id, whole, whole_packed
from tests.unit.protocol.damage import damaged
from tests.unit.protocol.values import random_message, scalar, seed

pytestmark = pytest.mark.fuzz
SHARE = 20
DAMAGED_PER_REQUEST = 10
VERSIONS = range(2, 11)
FRAME_BYTES_MIN = 8
BATCH_BYTES = 1 << 20
INTERVAL_MS = 5_000
PEER = "1.2.3.4"
ENOUGH = 2_000  # inputs after which all of this was surely met


# ---- commits --------------------------------------------------------------------------------------------------------


def plain(rng: random.Random, kind: str) -> Any:
    """A value as clients send it in most cases: the fast way is for these."""
    if kind == "string":
        return rng.choice(("", "orders", "x" * 127, "Zürich" if rng.random() < 0.05 else "note"))
    if kind in ("int32", "int64") and rng.random() < 0.8:
        return rng.randrange(100)
    return scalar(rng, kind)


def commit_bytes(rng: random.Random, version: int) -> bytes:
    """The body of a commit; most have no retention time, as of every client of the last years."""
    request = random_message(rng, OffsetCommitRequest, version, plain)
    if rng.random() < 0.9:
        request.retention_time_ms = -1
    return encode(request, version)


def take_commit(version: int, body: bytes, rng: random.Random) -> str:
    """Read the frame on both paths; returns the outcome."""
    elements_max = rng.choice((3, 100_000))
    packed = read_packed(version, body, elements_max)
    if packed is None:
        return "left"
    try:
        request = decode(OffsetCommitRequest, version, body, False, elements_max)
    except DecodeError as error:
        pytest.fail(f"the codec refuses what was read: {error}; v{version} {body.hex()}")
    indexes = [[part.partition_index for part in topic.partitions] for topic in request.topics]
    if any(not 0 <= index < PARTITIONS_MAX for each in indexes for index in each):
        numbered_topics = enumerate(packed.topics)
        expected = [all(0 <= index < PARTITIONS_MAX for index in each) for each in indexes]
        first = expected.index(False)
        locate = packed.offsets.locate
        found = [locate(at, *name_and_id(named), PARTITIONS_MAX) for at, named in numbered_topics if at <= first]
        assert found == expected[: first + 1]
        return "of no partition"
    assert whole_packed(packed) == whole(request, version)
    check_answer(packed, request, version, rng)
    check_batch(packed, rng)
    return "read"


def check_answer(packed: PackedCommit, request: OffsetCommitRequest, version: int, rng: random.Random) -> None:
    """The answer has the bytes that the codec writes."""
    errors = tuple(rng.choice((0, 0, 3, 22)) for _ in range(len(packed.offsets)))
    header = response_header(OffsetCommitResponse, version, 77)
    elements = partial(ResponseArray, OffsetCommitResponse, version)
    assert encode_response(packed, 77, errors) == header + encode(
        finish(answer(request, {}, iter(errors), elements)), version
    )


def check_batch(packed: PackedCommit, rng: random.Random) -> None:
    """The batch has the bytes of one that was written record by record; what does not fit leaves nothing."""
    record = OffsetsCommitted(packed.group_id, packed.offsets, 5)
    codec, common = GroupRecordSerde(), Builder(BATCH_BYTES)
    for one in commits_of(record):
        assert common.append(7, *codec.encode(one)) >= 0
    fast = Builder(BATCH_BYTES)
    assert codec.append_plain(fast, [record], 0, 7) == 1
    small = Builder(rng.choice((100, 300)))
    taken = codec.append_plain(small, [record], 0, 7)
    if len(packed.offsets):
        assert fast.build() == common.build()
        assert taken == 0 or small.build() == common.build()


def test_damaged_commits(fuzz_inputs: int, record_property: Callable[[str, object], None]) -> None:
    rng, outcomes = random.Random(seed()), Counter[str]()
    count, whole_ones = fuzz_inputs // SHARE, Counter[str]()
    while outcomes.total() < count:
        version = rng.choice(VERSIONS)
        good = commit_bytes(rng, version)
        whole_ones[take_commit(version, good, rng)] += 1
        for _ in range(DAMAGED_PER_REQUEST):
            outcomes[take_commit(version, damaged(rng, good), rng)] += 1
    said = f"commits in one piece: {outcomes.total()} damaged: {dict(outcomes)}; whole: {dict(whole_ones)}"
    record_property("summary", said)
    if count >= ENOUGH:
        assert set(outcomes) == {"left", "of no partition", "read"}, said
        assert whole_ones["read"] > whole_ones.total() // 5, said


# ---- heartbeats -----------------------------------------------------------------------------------------------------


class Service:
    """The group service, and the dispatcher behind it."""

    def __init__(self, rng: random.Random) -> None:
        self.quick = Heartbeats()
        self.quick.register_callbacks(classic=self.classic, consumer=self.consumer)
        self.rng = rng
        self.asked: list[tuple[Any, ...]] = []
        self.said_plain = False
        self.dispatched: list[bytes] = []

    def classic(self, *asked: Any) -> bool:
        self.asked.append(asked)
        self.said_plain = self.rng.random() < 0.8
        return self.said_plain

    def consumer(self, *asked: Any) -> int | None:
        return INTERVAL_MS if self.classic(*asked) else None

    def connected(self, connection: object) -> bool:
        return True

    def disconnected(self, connection: object) -> None: ...

    def request(self, reply: Any, frame: memoryview) -> None:
        self.dispatched.append(bytes(frame))
        reply.skip()

    def write_pending(self) -> None: ...


def heartbeat_frame(rng: random.Random) -> bytes:
    """A heartbeat of either protocol, most without news."""
    client_id = rng.choice(("perf", "", None, "Zürich"))
    if rng.random() < 0.5:
        version = rng.randrange(5)
        return encode_request(random_message(rng, HeartbeatRequest, version), version, rng.getrandbits(31), client_id)
    version = rng.randrange(2)
    request = random_message(rng, ConsumerGroupHeartbeatRequest, version)
    if rng.random() < 0.8:
        known = (request.group_id, request.member_id, request.member_epoch, request.instance_id)
        request = ConsumerGroupHeartbeatRequest(
            group_id=known[0], member_id=known[1], member_epoch=known[2], instance_id=known[3]
        )
    return encode_request(request, version, rng.getrandbits(31), client_id)


def common_way(frame: bytes) -> tuple[tuple[Any, ...], bytes]:
    """What the common way reads of a heartbeat, and answers when nothing is wrong. Raises DecodeError."""
    header = read_request_header(frame)
    version = header.api_version
    if header.api_key == HeartbeatRequest.api_key:
        fast_heartbeat: Any = decode(HeartbeatRequest, version, header.body)
        said: Any = HeartbeatResponse()
        asked: tuple[Any, ...] = (
            fast_heartbeat.group_id,
            fast_heartbeat.member_id,
            fast_heartbeat.group_instance_id,
            fast_heartbeat.generation_id,
        )
    else:
        assert header.api_key == ConsumerGroupHeartbeatRequest.api_key
        fast_heartbeat = decode(ConsumerGroupHeartbeatRequest, version, header.body)
        said = ConsumerGroupHeartbeatResponse(
            member_id=fast_heartbeat.member_id,
            member_epoch=fast_heartbeat.member_epoch,
            heartbeat_interval_ms=INTERVAL_MS,
        )
        asked = (
            fast_heartbeat.group_id,
            fast_heartbeat.member_id,
            fast_heartbeat.instance_id,
            fast_heartbeat.member_epoch,
            header.client_id,
            PEER,
        )
    whole_answer = response_header(type(said), version, header.correlation_id) + encode(said, version)
    return asked, len(whole_answer).to_bytes(4, "big") + whole_answer


def take_heartbeat(hub: MemoryHub, service: Service, frame: bytes) -> str:
    """Send one frame; returns the outcome."""
    client = hub.connect(peer=(PEER, 5))
    service.asked.clear()
    service.dispatched.clear()
    client.send(len(frame).to_bytes(4, "big") + frame)
    got = client.take_received()
    assert not client.connection.closed, frame.hex()
    client.close()
    if service.asked:
        asked, usual = common_way(frame)
        assert service.asked == [asked], frame.hex()
        if service.said_plain:
            assert (got, service.dispatched) == (usual, []), frame.hex()
            return "answered"
    assert (got, service.dispatched) == (b"", [frame]), frame.hex()
    return "dispatched"


def test_damaged_heartbeats(fuzz_inputs: int, record_property: Callable[[str, object], None]) -> None:
    rng, outcomes = random.Random(seed()), Counter[str]()
    count, whole_ones = fuzz_inputs // SHARE, Counter[str]()
    service = Service(rng)
    hub = MemoryHub(service)
    while outcomes.total() < count:
        good = heartbeat_frame(rng)
        whole_ones[take_heartbeat(hub, service, good)] += 1
        for _ in range(DAMAGED_PER_REQUEST):
            frame = damaged(rng, good)
            if len(frame) >= FRAME_BYTES_MIN:
                outcomes[take_heartbeat(hub, service, frame)] += 1
    said = f"heartbeats: {outcomes.total()} damaged: {dict(outcomes)}; whole: {dict(whole_ones)}"
    record_property("summary", said)
    if count >= ENOUGH:
        assert outcomes["answered"] > 0 and whole_ones["answered"] > whole_ones.total() // 2, said
