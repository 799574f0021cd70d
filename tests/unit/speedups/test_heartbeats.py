"""Heartbeats that are answered before they are dispatched: read and written as the codec does, byte for byte."""

import random
from typing import Any

import pytest

from kafkalite._speedups.codec import encode, encode_request, response_header
from kafkalite._speedups.net.framing import Connection, Limits, Reply
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.net.memory_transport import Client, MemoryHub
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.unit.protocol.values import TEXTS, seed

CLASSIC = [(HeartbeatRequest, version) for version in range(5)]
CONSUMER = [(ConsumerGroupHeartbeatRequest, version) for version in range(2)]
INTERVAL_MS = 5_000
CORRELATION_ID = 0x01020304


class Service:
    """The group service, and the dispatcher behind it."""

    def __init__(self) -> None:
        self.quick = Heartbeats()
        self.quick.register_callbacks(classic=self.classic, consumer=self.consumer)
        self.asked: list[tuple[Any, ...]] = []
        self.dispatched: list[bytes] = []
        self.kept: list[Reply] = []
        self.plain = True

    def classic(self, *asked: Any) -> bool:
        self.asked.append(asked)
        return self.plain

    def consumer(self, *asked: Any) -> int | None:
        self.asked.append(asked)
        return INTERVAL_MS if self.plain else None

    def connected(self, connection: Connection) -> bool:
        return True

    def disconnected(self, connection: Connection) -> None: ...

    def request(self, reply: Reply, frame: memoryview) -> None:
        self.dispatched.append(bytes(frame))
        self.kept.append(reply)

    def write_pending(self) -> None: ...


class Rig:
    def __init__(self, limits: Limits | None = None) -> None:
        self.service = Service()
        self.client: Client = MemoryHub(self.service, limits).connect(peer=("1.2.3.4", 5))

    def ask(self, *frames: bytes) -> bytes:
        self.client.send(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        return self.client.take_received()


def heartbeat(dice: random.Random, version: int) -> HeartbeatRequest:
    instance = dice.choice([None, *TEXTS]) if version >= 3 else None
    return HeartbeatRequest(
        group_id=dice.choice(TEXTS),
        member_id=dice.choice(TEXTS),
        generation_id=dice.randrange(-(2**31), 2**31),
        group_instance_id=instance,
    )


def consumer_heartbeat(dice: random.Random) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=dice.choice(TEXTS),
        member_id=dice.choice(TEXTS),
        member_epoch=dice.randrange(-(2**31), 2**31),
        instance_id=dice.choice([None, *TEXTS]),
    )


def sized(answer: Any, version: int) -> bytes:
    whole = response_header(type(answer), version, CORRELATION_ID) + encode(answer, version)
    return len(whole).to_bytes(4, "big") + whole


@pytest.mark.parametrize("version", range(5))
def test_plain_heartbeat_has_the_response_of_the_codec(version: int) -> None:
    rig, dice = Rig(), random.Random(seed())
    for client_id in ("perf", "", None, "Zürich"):
        for _ in range(50):
            request = heartbeat(dice, version)
            got = rig.ask(encode_request(request, version, CORRELATION_ID, client_id))
            assert got == sized(HeartbeatResponse(), version)
            known = (request.group_id, request.member_id, request.group_instance_id, request.generation_id)
            assert rig.service.asked[-1] == known
    assert not rig.service.dispatched


@pytest.mark.parametrize("version", range(2))
def test_unchanged_consumer_heartbeat_has_the_response_of_the_codec(version: int) -> None:
    rig, dice = Rig(), random.Random(seed())
    for client_id in ("perf", "", None, "Zürich"):
        for _ in range(50):
            request = consumer_heartbeat(dice)
            got = rig.ask(encode_request(request, version, CORRELATION_ID, client_id))
            answer = ConsumerGroupHeartbeatResponse(
                member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=INTERVAL_MS
            )
            assert got == sized(answer, version)
            known = (request.group_id, request.member_id, request.instance_id, request.member_epoch)
            assert rig.service.asked[-1] == (*known, client_id, "1.2.3.4")
    assert not rig.service.dispatched


NEWS: list[tuple[str, Any, int]] = [
    ("rack_id", "", 0),
    ("rack_id", "r", 0),
    ("rebalance_timeout_ms", 0, 0),
    ("rebalance_timeout_ms", 45_000, 0),
    ("subscribed_topic_names", [], 0),
    ("subscribed_topic_names", ["orders"], 0),
    ("subscribed_topic_regex", "", 1),
    ("subscribed_topic_regex", "o.*", 1),
    ("server_assignor", "", 0),
    ("server_assignor", "range", 0),
    ("topic_partitions", [], 0),
]


@pytest.mark.parametrize(("name", "value", "since"), NEWS)
def test_changed_consumer_heartbeat_is_dispatched(name: str, value: Any, since: int) -> None:
    rig, dice = Rig(), random.Random(seed())
    for version in range(since, 2):
        request = consumer_heartbeat(dice)
        setattr(request, name, value)
        frame = encode_request(request, version, CORRELATION_ID, "c")
        assert rig.ask(frame) == b"" and rig.service.dispatched.pop() == frame
    assert not rig.service.asked


@pytest.mark.parametrize(("cls", "version"), CLASSIC + CONSUMER)
def test_malformed_and_unusual_heartbeats_are_dispatched(cls: type, version: int) -> None:
    """Truncations, extra bytes, tags, an unknown version, invalid UTF-8, a null group: the dispatcher gets them."""
    dice = random.Random(seed())
    request = heartbeat(dice, version) if cls is HeartbeatRequest else consumer_heartbeat(dice)
    request.group_id, request.member_id = "group", "member"
    frame = encode_request(request, version, CORRELATION_ID, "c")
    flexible = version >= 4 or cls is not HeartbeatRequest
    strange = [frame[:size] for size in range(8, len(frame))] + [frame + b"\0", frame.replace(b"group", b"gr\xffup")]
    strange.append(frame[:2] + b"\0\x09" + frame[4:])
    strange.append(frame[:8] + b"\xff\xfe" + frame[11:])  # the length of the client's name is -2
    strange.append(frame[:10] + b"\xff" + frame[11:])  # the client's name is no text
    if flexible:
        strange.append(frame[:-1] + b"\1\0\0")
        strange.append(frame[:11] + b"\1\0\0" + frame[12:])
        strange.append(frame.replace(b"\x06group", b"\0"))
        strange.append(frame.replace(b"\x06group", b"\xff\xff\xff\xff\x7fgroup"))
        strange.append(frame.replace(b"\x06group", b"\x81\x80\x02" + b"g" * 32_768))  # longer than any string
    else:
        strange.append(frame.replace(b"\0\x05group", b"\xff\xff"))
        strange.append(frame.replace(b"\0\x05group", b"\x7f\xffgroup"))
    for damaged in strange:
        rig = Rig()
        assert rig.ask(damaged) == b"" and rig.service.dispatched == [damaged], damaged
        assert not rig.service.asked, damaged


def test_heartbeats_that_the_callback_declines_are_dispatched() -> None:
    rig = Rig()
    rig.service.plain = False
    frames = [encode_request(heartbeat(random.Random(1), 4), 4, 1, "c")]
    frames.append(encode_request(consumer_heartbeat(random.Random(1)), 1, 2, "c"))
    assert rig.ask(*frames) == b"" and rig.service.dispatched == frames and len(rig.service.asked) == 2


def test_heartbeats_of_a_client_with_a_quota_are_dispatched() -> None:
    rig = Rig()
    rig.service.quick.has_quota = lambda connection, client: connection is rig.client.connection and client == "slow"
    for client_id, dispatched in (("slow", True), ("fast", False), (None, False)):
        frames = [encode_request(heartbeat(random.Random(1), version), version, 1, client_id) for version in range(5)]
        frames.append(encode_request(consumer_heartbeat(random.Random(1)), 1, 2, client_id))
        rig.ask(*frames)
        assert rig.service.dispatched == (frames if dispatched else [])
        rig.service.dispatched.clear()
        assert bool(rig.service.asked) is not dispatched
        rig = Rig() if dispatched else rig


def test_heartbeats_without_a_callback_are_dispatched() -> None:
    rig = Rig()
    frame = encode_request(heartbeat(random.Random(1), 4), 4, 1, "c")
    rig.service.quick.register_callbacks(classic=None, consumer=rig.service.consumer)
    assert rig.ask(frame) == b"" and rig.service.dispatched == [frame]


def test_answers_keep_the_order_of_the_requests() -> None:
    rig = Rig()
    fast_heartbeat = encode_request(
        HeartbeatRequest(group_id="g", member_id="m", generation_id=1), 4, CORRELATION_ID, "c"
    )
    other = b"\0\x03\0\0\0\0\0\x07rest"
    assert rig.ask(other, fast_heartbeat) == b"", "the answer before it is not there yet"
    rig.service.kept[0].send(b"first")
    rig.client.hub.pump()
    assert rig.client.take_received() == b"\0\0\0\x05first" + sized(HeartbeatResponse(), 4)


def test_heartbeats_before_authentication_are_dispatched() -> None:
    rig = Rig(Limits(authenticate=True))
    frame = encode_request(heartbeat(random.Random(1), 4), 4, 1, "c")
    assert rig.ask(frame) == b"" and rig.service.dispatched == [frame] and not rig.service.asked


def test_exception_closes_only_its_connection() -> None:
    rig = Rig()

    def broken(*_: Any) -> bool:
        raise RuntimeError("planted")

    rig.service.quick.register_callbacks(classic=broken, consumer=None)
    assert rig.ask(encode_request(heartbeat(random.Random(1), 4), 4, 1, "c")) == b""
    assert rig.client.connection.closed and not rig.service.dispatched
