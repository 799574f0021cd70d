"""Transaction markers: byte for byte as Kafka writes them, and what else control records may hold."""

import struct

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from kafkalite.records import Batch, BatchError
from kafkalite.records.control import ControlType, Marker, build_marker, control_type, read_marker
from tests.kit.record_engines import SIZE_MAX, C, build
from tests.unit.records.clients import kafka_python

THEIRS = {ControlType.ABORT: ABORT_MARKER, ControlType.COMMIT: COMMIT_MARKER}


@pytest.mark.parametrize("kind", ControlType)
def test_transaction_marker_round_trip(kind: ControlType) -> None:
    data = build_marker(Marker(kind, 12), producer_id=77, producer_epoch=3, timestamp=5000)
    batch = Batch(data)
    batch.check_crc()
    assert (batch.control, batch.transactional, batch.codec, len(batch)) == (True, True, 0, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, -1)
    (record,) = batch
    assert (record.timestamp, record.key, record.value) == (
        5000,
        struct.pack(">hh", 0, kind),
        struct.pack(">hi", 0, 12),
    )
    assert read_marker(record) == Marker(kind, 12)


@pytest.mark.parametrize("kind", ControlType)
def test_clients_read_transaction_markers(kind: ControlType) -> None:
    data = build_marker(Marker(kind, 12), producer_id=77, producer_epoch=3, timestamp=5000)
    (record,) = Batch(data)
    assert ControlRecord.parse(record.key) == THEIRS[kind]
    theirs = kafka_python.DefaultRecordBatch(data)
    assert theirs.is_control_batch
    assert theirs.validate_crc()
    assert [each.value for each in theirs] == [record.value]


def test_control_batch_is_valid_for_the_broker_only() -> None:
    data = build_marker(Marker(ControlType.ABORT, 1), producer_id=1, producer_epoch=0, timestamp=1)
    assert C.validate_batch(data, compacted=False, size_max=SIZE_MAX).error == 87
    assert C.validate_batch(data, compacted=True, size_max=SIZE_MAX, control_allowed=True).error == 0


def read(key: bytes | None, value: bytes | None) -> Marker | None:
    (record,) = Batch(build((1, key, value), control=True))
    return read_marker(record)


def test_kraft_control_records_are_no_markers() -> None:
    assert read(struct.pack(">hh", 0, 2), b"leader change") is None
    (record,) = Batch(build((1, struct.pack(">hh", 0, 6), b"voters"), control=True))
    assert control_type(record) == 6


def test_marker_of_a_later_version_may_be_longer() -> None:
    key, value = struct.pack(">hhi", 1, 1, 99), struct.pack(">hii", 1, 5, 99)
    assert read(key, value) == Marker(ControlType.COMMIT, 5)


MALFORMED = {
    "no key": (None, b""),
    "short key": (b"\x00\x00\x00", b""),
    "negative key version": (struct.pack(">hh", -1, 0), struct.pack(">hi", 0, 1)),
    "no value": (struct.pack(">hh", 0, 0), None),
    "short value": (struct.pack(">hh", 0, 0), b"\x00\x00"),
    "negative value version": (struct.pack(">hh", 0, 0), struct.pack(">hi", -1, 1)),
}


@pytest.mark.parametrize(("key", "value"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_markers_raise_invalid_record(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BatchError) as raised:
        read(key, value)
    assert raised.value.code == 87
