"""The nodes of ZooKeeper-era groups: the bytes of Java, and errors that name the path."""

import json

import pytest

from kafkalite.coordination.znodes import consumers
from kafkalite.coordination.znodes.consumers import Registration, StreamId
from kafkalite.coordination.znodes.fields import ZnodeError

PATH = "/consumers/g/ids/g_host-1-2"


def test_registration_has_the_bytes_of_java() -> None:
    node = Registration({"t": 2}, timestamp_ms=1_700_000_000_000)
    text = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1700000000000"}'
    assert consumers.encode_registration(node) == text
    assert consumers.decode_registration(PATH, text) == node


def test_pattern_is_escaped_once() -> None:
    node = Registration({r"a\.b|c": 3}, consumers.WHITE_LIST, 1)
    data = consumers.encode_registration(node)
    assert json.loads(data)["subscription"] == {r"a\.b|c": 3}
    assert consumers.decode_registration(PATH, data) == node


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"subscription": {"t": 1}, "pattern": "other"}, "static"),
        ({"subscription": {}, "pattern": "white_list"}, "static"),
        ({"subscription": {".*": 1}, "pattern": "black_list", "timestamp": "no"}, "black_list"),
    ],
)
def test_registrations_that_java_reads(fields: dict[str, object], pattern: str) -> None:
    registration = consumers.decode_registration(PATH, json.dumps(fields).encode())
    assert registration == Registration(fields["subscription"], pattern)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"version":2,"subscription":{"t":1},"pattern":"static"}',
        b'{"version":1,"subscription":{"t":1}}',
        b'{"version":1,"subscription":{"t":0},"pattern":"static"}',
        b'{"version":1,"subscription":{"t":true},"pattern":"static"}',
        b'{"version":1,"subscription":{"t":1000000000},"pattern":"static"}',
        b'{"version":1,"subscription":["t"],"pattern":"static"}',
        b'{"version":1,"subscription":{"a":1,"b":1},"pattern":"white_list"}',
        b'{"a":"' + b"x" * 2_000_000 + b'"}',
    ],
)
def test_invalid_registration_names_its_path(data: bytes) -> None:
    with pytest.raises(ZnodeError, match=PATH) as caught:
        consumers.decode_registration(PATH, data)
    assert len(str(caught.value)) < 200


def test_owner_is_the_id_of_a_stream() -> None:
    stream = StreamId("g_my-host-1700000000000-01234567", 11)
    assert consumers.encode_owner(stream) == b"g_my-host-1700000000000-01234567-11"
    assert consumers.decode_owner("/o", consumers.encode_owner(stream)) == stream


@pytest.mark.parametrize("data", [b"", b"\xff-1", b"consumer", b"-1", b"a-", b"a-b", b"a-01", b"x" * 5000 + b"-1"])
def test_invalid_owner_names_its_path(data: bytes) -> None:
    with pytest.raises(ZnodeError, match="/o"):
        consumers.decode_owner("/o", data)


@pytest.mark.parametrize("offset", [0, 5, -1, (1 << 53) + 1, (1 << 63) - 1])
def test_offset_is_decimal_text(offset: int) -> None:
    assert consumers.decode_offset("/f", consumers.encode_offset(offset)) == offset


@pytest.mark.parametrize("data", [b"", b" 1", b"1 ", b"1.0", b"0x1", b"\xd9\xa1", b"9" * 20, b"9" * 19])
def test_invalid_offset_names_its_path(data: bytes) -> None:
    with pytest.raises(ZnodeError, match="/f"):
        consumers.decode_offset("/f", data)


def test_paths() -> None:
    assert consumers.id_path("g", "c") == "/consumers/g/ids/c"
    assert consumers.owner_path("g", "t", 3) == "/consumers/g/owners/t/3"
    assert consumers.offset_path("g", "t", 3) == "/consumers/g/offsets/t/3"


def test_names_of_partitions() -> None:
    assert [consumers.partition_of(name) for name in ("0", "12", "01", "0-1", "x", "")] == [
        0,
        12,
        None,
        None,
        None,
        None,
    ]
    assert [consumers.is_broker_partition(name) for name in ("0-1", "1", "a-1")] == [True, False, False]


@pytest.mark.parametrize("group", ["", "a/b", "..", "a\0"])
def test_groups_that_no_znode_can_have(group: str) -> None:
    with pytest.raises(ValueError, match="not the name of a znode"):
        consumers.check_group(group)
