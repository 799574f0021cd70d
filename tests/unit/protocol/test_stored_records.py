"""Records of internal topics: there and back for every type and version, bytes by hand, and what is refused."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from kafkalite._speedups import codec
from kafkalite.errors import DecodeError, EncodeError
from kafkalite.protocol.stored import consumer_group_records, extension_records, record_types
from kafkalite.protocol.stored import group_records as groups
from kafkalite.protocol.stored import transaction_records as transactions
from kafkalite.protocol.stored.record_types import RecordTypes, StoredKey
from tests.kit.seeds import chosen_seed
from tests.oracles import codec as oracle
from tests.unit.protocol.damage import damaged
from tests.unit.protocol.values import in_all_versions, random_message, seed

GROUP = groups.OffsetCommitKey(group="g", topic="t", partition=3)
CASES = [
    (records, cls, version)
    for records in (groups.RECORDS, transactions.RECORDS)
    for cls in records.keys.values()
    for _, version in in_all_versions([cls.value_class])
]
IDS = [f"{cls.__name__}-v{version}" for _, cls, version in CASES]


@pytest.mark.parametrize(("records", "cls", "version"), CASES, ids=IDS)
def test_stored_records_round_trip(records: RecordTypes, cls: type[StoredKey], version: int) -> None:
    @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def run(rng: Any) -> None:
        key = random_message(rng, cls, 0)
        value = random_message(rng, cls.value_class, version)
        key_bytes, value_bytes = record_types.write(key, value, version)
        assert records.read_key(key_bytes) == (cls.type_id, key)
        assert value_bytes is not None
        assert records.read_value(cls.type_id, value_bytes) == value
        assert record_types.write(key, None) == (key_bytes, None)

    hypothesis_seed(chosen_seed())(run)()


def test_stored_record_types() -> None:
    assert sorted(groups.RECORDS.keys) == [*range(9), 16, 10000, 10001, 10002, 10003]
    assert sorted(transactions.RECORDS.keys) == [0]


BY_HAND = [
    # record, key, value
    (
        GROUP,
        groups.OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=16),
        "0001 0001 67 0001 74 00000003",
        "0004 0000000000000007 00000002 02 6d 0000000000000010 00",
    ),
    (
        GROUP,
        groups.OffsetCommitValue(offset=7, leader_epoch=-1, metadata="", commit_timestamp=16, topic_id=b"\x0a" * 16),
        "0001 0001 67 0001 74 00000003",
        "0004 0000000000000007 ffffffff 01 0000000000000010 01 00 10" + "0a" * 16,
    ),
    (
        GROUP,
        groups.OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=16, expire_timestamp=17),
        "0001 0001 67 0001 74 00000003",
        "0001 0000000000000007 0001 6d 0000000000000010 0000000000000011",
    ),
    (
        groups.GroupMetadataKey(group="g"),
        groups.GroupMetadataValue(
            protocol_type="consumer", generation=1, protocol=None, leader=None, current_state_timestamp=16, members=[]
        ),
        "0002 0001 67",
        "0003 0008 636f6e73756d6572 00000001 ffff ffff 0000000000000010 00000000",
    ),
    (
        consumer_group_records.ConsumerGroupMetadataKey(group_id="g"),
        consumer_group_records.ConsumerGroupMetadataValue(epoch=5, metadata_hash=-2),
        "0003 0001 67",
        "0000 00000005 01 00 08 fffffffffffffffe",
    ),
    (
        extension_records.RewindMarkKey(group_id="g", topic="t", partition=3),
        extension_records.RewindMarkValue(generation_id=9),
        "2712 0001 67 0001 74 00000003",
        "0000 00000009 00",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_hex", "value_hex"), BY_HAND)
def test_stored_record_bytes(key: Any, value: Any, key_hex: str, value_hex: str) -> None:
    assert record_types.write(key, value) == (bytes.fromhex(key_hex), bytes.fromhex(value_hex))


def test_offset_commit_with_expiry_is_written_in_version_1() -> None:
    value = groups.OffsetCommitValue(
        offset=7, leader_epoch=2, metadata="", commit_timestamp=1, expire_timestamp=2, topic_id=b"i" * 16
    )
    _, written = record_types.write(GROUP, value)
    assert written is not None
    read = groups.read_value(1, written)
    assert read == groups.OffsetCommitValue(offset=7, metadata="", commit_timestamp=1, expire_timestamp=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("number", [9, 10, 17, 9999, 10004, 32767, -1])
def test_unknown_record_type_has_no_key(number: int) -> None:
    key = number.to_bytes(2, "big", signed=True) + b"whatever"
    assert groups.read_key(key) == (number, None)
    with pytest.raises(DecodeError, match=f"record type {number} is not known"):
        groups.read_value(number, b"\0\0\0\0\0\0")


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("", "truncated"),
        ("00", "truncated"),
        ("0001", "truncated"),
        ("0001 0001 67 0001 74 00000003 00", "trailing bytes"),
    ],
)
def test_invalid_stored_keys_raise_decode_error(key: str, kind: str) -> None:
    with pytest.raises(DecodeError) as caught:
        groups.read_key(bytes.fromhex(key))
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [("", "truncated"), ("00", "truncated"), ("0005", "version"), ("ffff", "version"), ("0004 00", "truncated")],
)
def test_invalid_stored_values_raise_decode_error(value: str, kind: str) -> None:
    with pytest.raises(DecodeError) as caught:
        groups.read_value(1, bytes.fromhex(value))
    assert caught.value.kind == kind


def test_value_of_another_record_type_is_rejected() -> None:
    with pytest.raises(TypeError, match="RewindMarkValue is not a value of OffsetCommitKey"):
        record_types.write(GROUP, extension_records.RewindMarkValue(generation_id=1))
    with pytest.raises(EncodeError, match="has no version 5"):
        record_types.write(GROUP, groups.OffsetCommitValue(offset=1, metadata="", commit_timestamp=1), 5)


Member = consumer_group_records.ConsumerGroupMemberMetadataValue
MEMBER = {
    "instance_id": None,
    "rack_id": None,
    "client_id": "c",
    "client_host": "h",
    "subscribed_topic_names": [],
    "subscribed_topic_regex": None,
    "rebalance_timeout_ms": 1,
    "server_assignor": None,
}
MEMBER_BYTES = "00 00 02 63 02 68 01 00 00000001 00"
CLASSIC = [
    (None, "01 00 01 00"),
    (Member.ClassicMemberMetadata(), "00"),  # type: ignore[call-arg]
    (Member.ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=[]), "01 00 07 01 00000005 01 00"),
]


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
@pytest.mark.parametrize(("metadata", "tags"), CLASSIC)
def test_nullable_tagged_struct(engine: Any, metadata: Any, tags: str) -> None:
    """Kafka takes a struct of defaults as the default, so null is sent: as 0, for presence is a varint in a tag."""
    value = Member(**MEMBER, classic_member_metadata=metadata)
    data = bytes.fromhex(MEMBER_BYTES + tags)
    assert engine.encode(value, 0) == data
    read = engine.decode(Member, 0, data)
    assert read == value
    if metadata is not None:
        assert read.classic_member_metadata is not engine.decode(Member, 0, data).classic_member_metadata


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
@pytest.mark.parametrize(
    ("tags", "kind"),
    [
        ("01 00 01 02", "presence"),
        ("01 00 00", "truncated"),
        ("01 00 02 00 00", "tag size"),
        ("01 00 01 80", "truncated"),
    ],
)
def test_invalid_presence_byte_of_a_tagged_struct(engine: Any, tags: str, kind: str) -> None:
    with pytest.raises(DecodeError) as caught:
        engine.decode(Member, 0, bytes.fromhex(MEMBER_BYTES + tags))
    assert (caught.value.kind, caught.value.field) == (kind, "classic_member_metadata")


def fate(read: Callable[[], None]) -> str:
    """ "read", or the kind of DecodeError; anything else is a bug."""
    try:
        read()
    except DecodeError as error:
        return error.kind
    return "read"


@pytest.mark.parametrize(("records", "cls", "version"), CASES, ids=IDS)
def test_random_stored_bytes_raise_decode_error(records: RecordTypes, cls: type[StoredKey], version: int) -> None:
    """Whatever stands in an internal topic: a message that can be written again, or a DecodeError."""
    rng = random.Random(f"{seed()} {cls.__name__} {version}")
    key = random_message(rng, cls, 0)

    def read_key(data: bytes) -> None:
        _, found = records.read_key(data)
        if found is not None:
            record_types.write(found, None)

    def read_value(data: bytes) -> None:
        record_types.write(key, records.read_value(cls.type_id, data), int.from_bytes(data[:2], "big"))

    fates: Counter[str] = Counter()
    for _ in range(100):
        good_key, good_value = record_types.write(key, random_message(rng, cls.value_class, version), version)
        assert good_value is not None
        fates[fate(partial(read_key, damaged(rng, good_key)))] += 1
        fates[fate(partial(read_value, damaged(rng, good_value)))] += 1
    assert fates["read"]
    assert set(fates) <= {"read", *DecodeError.KINDS}
    assert len(fates) > 2
