"""Records of `__transaction_state`: what is written is read again, and what Kafka never writes is refused."""

from itertools import groupby
from random import Random
from typing import Any

import pytest

from kafkalite._speedups.codec.transaction_partitions import encode_partitions
from kafkalite.coordinators.runtime.loader import RecordError
from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.errors import DecodeError
from kafkalite.model import TopicPartition
from kafkalite.protocol.stored.record_types import write
from kafkalite.protocol.stored.transaction_records import TransactionLogKey, TransactionLogValue
from kafkalite.state.transactions.metadata import TransactionDeleted, TransactionMetadata
from kafkalite.state.transactions.partitions import NO_PARTITIONS, TransactionPartitions
from kafkalite.state.transactions.states import TransactionState

PARTITIONS = TransactionPartitions.of((TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)))
EMPTY = TransactionMetadata("me", 5, 3, 60_000, 1_000)
ONGOING = EMPTY._replace(state=TransactionState.ONGOING, partitions=PARTITIONS, start_ms=900, version=2)
PREPARED = ONGOING._replace(state=TransactionState.PREPARE_COMMIT, previous_producer_id=5, next_producer_id=9)
COMPLETE = PREPARED._replace(state=TransactionState.COMPLETE_COMMIT, partitions=NO_PARTITIONS)


@pytest.mark.parametrize("metadata", [EMPTY, ONGOING, PREPARED, COMPLETE], ids=lambda each: each.state.name)
def test_state_survives_in_version_1(metadata: TransactionMetadata) -> None:
    serde = TransactionRecordSerde()
    key, value = serde.encode(metadata)
    assert serde.decode(key, value) == metadata and key[:2] in serde.unordered
    assert value is not None and value[:2] == b"\x00\x01"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_partitions_are_encoded_in_order_as_by_the_codec(version: int, seed: int) -> None:
    dice = Random(seed)
    topics = [dice.choice("abé") * dice.randrange(1, 200) for _ in range(dice.randrange(1, 9))]
    most = dice.choice([3, 5_000, 2**31])
    chosen = {TopicPartition(dice.choice(topics), dice.randrange(most)) for _ in range(dice.choice([1, 200, 3_000]))}
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=[
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=[index for _, index in group])
            for topic, group in groupby(sorted(chosen), key=lambda each: each.topic)
        ],
        transaction_last_update_timestamp_ms=1_000,
        transaction_start_timestamp_ms=900,
        client_transaction_version=2 * version,
    )
    metadata = ONGOING._replace(partitions=TransactionPartitions.of(chosen), version=2 * version)
    serde = TransactionRecordSerde(lambda: version)
    encoded = serde.encode(metadata)
    assert encoded == write(TransactionLogKey(transactional_id="me"), value, version)
    assert serde.decode(*encoded) == metadata


@pytest.mark.parametrize("wrong", [("a", -1), ("a", 2**31), ("a" * 40_000, 0), (b"a", 0), ("a", "b")])
def test_wrong_partitions_are_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        encode_partitions({wrong[0]: frozenset((wrong[1],)), "b": frozenset((1,))}, True)


def test_version_0_lacks_what_transaction_version_2_needs() -> None:
    serde = TransactionRecordSerde(lambda: 0)
    key, value = serde.encode(PREPARED)
    assert value is not None and value[:2] == b"\x00\x00"
    assert serde.decode(key, value) == PREPARED._replace(previous_producer_id=-1, next_producer_id=-1, version=0)


def test_tombstone_deletes_the_id() -> None:
    serde = TransactionRecordSerde()
    key, value = serde.encode(TransactionDeleted("me"))
    assert value is None and serde.decode(key, None) == TransactionDeleted("me")


def test_last_epoch_of_a_retry_is_not_stored() -> None:
    serde = TransactionRecordSerde()
    assert serde.decode(*serde.encode(EMPTY._replace(last_producer_epoch=2))) == EMPTY


@pytest.mark.parametrize("status", [-1, 6, 7, 99])
def test_unknown_status_is_an_error(status: int) -> None:
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=1,
        transaction_timeout_ms=1,
        transaction_status=status,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
    )
    key, stored = write(TransactionLogKey(transactional_id="me"), value)
    with pytest.raises(RecordError, match=f"status {status} of 'me'"):
        TransactionRecordSerde().decode(key, stored)


def test_garbage_and_future_records_are_errors() -> None:
    serde = TransactionRecordSerde()
    key, value = serde.encode(ONGOING)
    assert value is not None
    assert serde.decode(b"\x00\x01" + key[2:], value) is None, "of an unknown type"
    for damaged in (b"", value[:-3], b"\x00\x07" + value[2:]):
        with pytest.raises(DecodeError):
            serde.decode(key, damaged)
    with pytest.raises(RecordError):
        serde.end_transaction(5, committed=True)
    with pytest.raises(TypeError):
        serde.encode(object())
