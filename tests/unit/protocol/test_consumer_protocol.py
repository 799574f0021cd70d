"""Subscriptions and assignments of classic consumers, from bytes by hand and of versions yet to come."""

import pytest

from kafkalite.errors import DecodeError
from kafkalite.protocol.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    version_of,
    write,
)

Owned = ConsumerProtocolSubscription.TopicPartition
FULL = ConsumerProtocolSubscription(
    topics=["a", "b"],
    user_data=b"\x01",
    owned_partitions=[Owned(topic="a", partitions=[0, 2])],
    generation_id=4,
    rack_id="r",
)
TOPICS = "00000002 0001 61 0001 62 00000001 01"
OWNED = "00000001 0001 61 00000002 00000000 00000002"
SUBSCRIPTIONS = [
    (0, "0000" + TOPICS, {"owned_partitions": [], "generation_id": -1, "rack_id": None}),
    (1, "0001" + TOPICS + OWNED, {"generation_id": -1, "rack_id": None}),
    (2, "0002" + TOPICS + OWNED + "00000004", {"rack_id": None}),
    (3, "0003" + TOPICS + OWNED + "00000004 0001 72", {}),
]
ASSIGNMENT = ConsumerProtocolAssignment(
    assigned_partitions=[ConsumerProtocolAssignment.TopicPartition(topic="a", partitions=[1])], user_data=None
)
ASSIGNMENT_BYTES = bytes.fromhex("0003 00000001 0001 61 00000001 00000001 ffffffff")


@pytest.mark.parametrize(("version", "data", "missing"), SUBSCRIPTIONS)
def test_subscription_bytes_in_every_version(version: int, data: str, missing: dict[str, object]) -> None:
    assert write(FULL, version) == bytes.fromhex(data)
    read = read_subscription(bytes.fromhex(data))
    assert (read.topics, read.user_data) == (FULL.topics, FULL.user_data)
    for name in ("owned_partitions", "generation_id", "rack_id"):
        assert getattr(read, name) == missing.get(name, getattr(FULL, name))


@pytest.mark.parametrize("version", range(4))
def test_assignment_bytes_in_every_version(version: int) -> None:
    data = version.to_bytes(2, "big") + ASSIGNMENT_BYTES[2:]
    assert write(ASSIGNMENT, version) == data
    assert read_assignment(data) == ASSIGNMENT
    assert version_of(data) == version


def test_newer_consumer_protocol_version_is_read_as_newest_known() -> None:
    newer = bytes.fromhex(SUBSCRIPTIONS[3][1].replace("0003", "0009", 1) + "cafe")
    assert version_of(newer) == 9
    assert read_subscription(newer) == FULL
    assert read_assignment(b"\x00\x09" + ASSIGNMENT_BYTES[2:] + b"more") == ASSIGNMENT
    assert write(ASSIGNMENT, 9) == ASSIGNMENT_BYTES


def test_assignment_without_bytes_is_empty() -> None:
    assert read_assignment(b"").assigned_partitions == []
    with pytest.raises(DecodeError, match="truncated"):
        read_subscription(b"")


@pytest.mark.parametrize("version", ["0000", "0001", "0003", "0009"])
@pytest.mark.parametrize("behind", ["", "00ff"], ids=["no more fields", "unknown fields"])
def test_topics_are_read_whatever_follows_them(version: str, behind: str) -> None:
    subscription = bytes.fromhex(f"{version} 00000001 000161 ffffffff {behind}")
    assert read_subscribed_topics(subscription) == ["a"]
    with pytest.raises(DecodeError):
        read_subscribed_topics(subscription[:9])


@pytest.mark.parametrize(
    ("data", "kind"),
    [("00", "truncated"), ("ffff", "version"), ("0000 00000001", "array length"), ("0003", "truncated")],
)
def test_invalid_consumer_protocol_bytes_raise_decode_error(data: str, kind: str) -> None:
    for read in (read_subscription, read_assignment):
        with pytest.raises(DecodeError) as caught:
            read(bytes.fromhex(data))
        assert caught.value.kind == kind
