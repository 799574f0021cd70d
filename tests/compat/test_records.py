"""What a record carries comes back as it was sent: keys, values, headers, times, and nothing in their place."""

from __future__ import annotations

import time

import pytest

from tests.compat.conftest import MakeTopic
from tests.kit.clients import PYTHON_CLIENTS, Client, Record
from tests.kit.clients.model import Refused

MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
INVALID_RECORD = 87
UNKNOWN = -1
YEAR_2013_MS = 1_356_998_400_000

ODD_RECORDS = [
    Record(b"plain", b"key"),
    Record(b"no key"),
    Record(None, b"tombstone"),
    Record(b"", b""),
    Record(b"\x00\xff" * 300, b"\xc3\x28"),
    Record(b"headers", b"h", (("name", b"value"), ("name", b"twice"), ("empty", b""), ("ünïcode", b"\x00"))),
    Record(b"long key", b"k" * 70_000),
    Record(b"many headers", None, tuple((f"h{n}", str(n).encode()) for n in range(200))),
]


def test_records_with_keys_headers_and_timestamps(address: str, topic: str) -> None:
    """Every writer's odd records, read by every reader."""
    written = [record for writer in PYTHON_CLIENTS for record in writer.write(address, topic, ODD_RECORDS)]
    assert [record.offset for record in written] == list(range(len(written)))
    for reader in PYTHON_CLIENTS:
        read = reader.read(address, topic, len(written))
        assert [record.content() for record in read] == [record.content() for record in written], reader.name
        assert [record.offset for record in read] == [record.offset for record in written], reader.name


def test_a_header_without_a_value(address: str, topic: str) -> None:
    """kafka-python refuses to write one but reads it."""
    sent = [Record(b"x", headers=(("null", None), ("empty", b"")))]
    for writer in PYTHON_CLIENTS[:3]:
        writer.write(address, topic, sent)
    for reader in PYTHON_CLIENTS:
        assert [r.content() for r in reader.read(address, topic, 3)] == [r.content() for r in sent * 3], reader.name


def test_create_time_is_kept(address: str, new_topic: MakeTopic, client: Client) -> None:
    """Out of order and far in the past; each is the record's own."""
    topic = new_topic(**{"retention.ms": "-1"})
    times = [YEAR_2013_MS + hours * 3_600_000 for hours in (0, 48, 24, 48, 1)]
    client.write(address, topic, [Record(b"flight", timestamp_ms=at) for at in times])
    for reader in PYTHON_CLIENTS:
        assert [record.timestamp_ms for record in reader.read(address, topic, len(times))] == times, reader.name


def test_log_append_time_is_set_by_the_broker(address: str, new_topic: MakeTopic, client: Client) -> None:
    """With message.timestamp.type=LogAppendTime the client's time is replaced, in compressed batches too."""
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    client.write(address, topic, [Record(b"late", timestamp_ms=YEAR_2013_MS)] * 3, codec="lz4")
    after = int(time.time() * 1000)
    for reader in PYTHON_CLIENTS:
        times = {record.timestamp_ms for record in reader.read(address, topic, 3)}
        assert len(times) == 1, "one batch has one append time"
        assert before <= times.pop() <= after, reader.name


def test_timestamp_out_of_bounds_is_rejected(address: str, new_topic: MakeTopic, client: Client) -> None:
    topic = new_topic(**{"message.timestamp.before.max.ms": "1000"})
    with pytest.raises(Refused) as refusal:
        client.write(address, topic, [Record(b"old", timestamp_ms=YEAR_2013_MS)])
    assert refusal.value.code == INVALID_TIMESTAMP
    assert client.bounds(address, topic) == (0, 0), "nothing was appended"


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_record_of_one_megabyte(address: str, new_topic: MakeTopic, client: Client, codec: str) -> None:
    """A value above the default bound, on a topic that allows it."""
    topic = new_topic(**{"max.message.bytes": "2500000"})
    value = bytes(range(256)) * 8192 if codec == "none" else bytes(1 << 21)
    sent = [Record(value, b"big"), Record(b"small")]
    client.write(address, topic, sent, codec=codec, request_bytes_max=4 << 20)
    for reader in PYTHON_CLIENTS:
        read = reader.read(address, topic, 2)
        assert [record.content() for record in read] == [record.content() for record in sent], reader.name


def test_record_above_max_message_bytes_is_rejected(address: str, new_topic: MakeTopic, client: Client) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    with pytest.raises(Refused) as refusal:
        client.write(address, topic, [Record(bytes(2000))])
    assert refusal.value.code == MESSAGE_TOO_LARGE
    assert client.bounds(address, topic) == (0, 0), "nothing was appended"


def test_record_without_key_is_rejected_by_a_compacted_topic(
    address: str, new_topic: MakeTopic, client: Client
) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    client.write(address, topic, [Record(None, b"tombstone"), Record(b"value", b"key")])
    with pytest.raises(Refused) as refusal:
        client.write(address, topic, [Record(b"no key")])
    # aiokafka's table of errors ends before INVALID_RECORD.
    assert refusal.value.code == (UNKNOWN if client.name == "aiokafka" else INVALID_RECORD)
    assert client.bounds(address, topic) == (0, 2), "nothing was appended"
