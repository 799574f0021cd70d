"""Against aiokafka and kafka-python: uncompressed the same bytes, compressed each reads the other's."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from tests.kit.record_engines import CODECS, SIZE_MAX
from tests.kit.seeds import chosen_seed
from tests.unit.records.clients import aiokafka_compiled, aiokafka_records, kafka_python

EXAMPLES = 60
NULLABLE = st.none() | st.binary(max_size=300) | st.sampled_from([b"", b"x" * 20_000])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
RECORD = st.tuples(
    st.integers(0, 2**47) | st.sampled_from([0, 2**53]),
    NULLABLE,
    NULLABLE,
    st.lists(st.tuples(NAMES, NULLABLE), max_size=3),
)
RECORDS = st.lists(RECORD, min_size=1, max_size=80)
PRODUCER = st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), st.booleans())


def aiokafka_build(records: Any, codec: int, producer: Any, builder_class: Any = None) -> bytes:
    builder_class = builder_class or aiokafka_records.DefaultRecordBatchBuilder
    builder = builder_class(2, codec, producer[3], *producer[:3], 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def kafka_python_build(records: Any, codec: int, producer: Any) -> bytes:
    builder = kafka_python.DefaultRecordBatchBuilder(2, codec, producer[3], *producer[:3], 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def aiokafka_pure(records: Any, codec: int, producer: Any) -> bytes:
    return aiokafka_build(records, codec, producer, aiokafka_records._DefaultRecordBatchBuilderPy)


WRITERS: dict[str, Callable[..., bytes]] = {
    "aiokafka": aiokafka_build,
    "aiokafka-pure": aiokafka_pure,
    "kafka-python": kafka_python_build,
}
LEADER_EPOCHS = {kafka_python_build: 0}  # outside the CRC, and overwritten by every broker; all others write -1
READERS = {
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "aiokafka-pure": aiokafka_records._DefaultRecordBatchPy,
    "kafka-python": kafka_python.DefaultRecordBatch,
}
BY_WRITER = pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
BY_READER = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
BY_CODEC = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def our_build(engine: Any, records: Any, codec: int, producer: Any, leader_epoch: int = -1) -> bytes:
    builder = engine.Builder()
    for record in records:
        builder.append(*record)
    producer_id, producer_epoch, base_sequence, transactional = producer
    data: bytes = builder.build(
        codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        leader_epoch=leader_epoch,
    )
    return data


def values(records: Any) -> list[Any]:
    return [(r.offset, r.timestamp, r.key, r.value, [tuple(header) for header in r.headers]) for r in records]


def for_all(check: Callable[[Any, Any], None]) -> None:
    """Run the check on records and producer fields from hypothesis; KAFKALITE_SEED replays."""
    run = given(RECORDS, PRODUCER)(check)
    run = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))(run)
    hypothesis_seed(chosen_seed())(run)()


def test_aiokafka_uses_its_compiled_records() -> None:
    assert aiokafka_records.DefaultRecordBatchBuilder is aiokafka_compiled.DefaultRecordBatchBuilder


@BY_WRITER
def test_builder_writes_the_bytes_of_other_clients(engine: Any, writer: Callable[..., bytes]) -> None:
    def check(records: Any, producer: Any) -> None:
        ours = our_build(engine, records, 0, producer, LEADER_EPOCHS.get(writer, -1))
        assert ours == writer(records, 0, producer)

    for_all(check)


@BY_READER
@BY_CODEC
def test_other_clients_read_built_batches(engine: Any, reader: Any, codec: int) -> None:
    def check(records: Any, producer: Any) -> None:
        batch = reader(our_build(engine, records, codec, producer))
        assert batch.validate_crc()
        expected = [(i, t, k, v, headers) for i, (t, k, v, headers) in enumerate(records)]
        assert values(batch) == expected

    for_all(check)


@BY_WRITER
@BY_CODEC
def test_batches_of_other_clients_are_read(engine: Any, writer: Callable[..., bytes], codec: int) -> None:
    def check(records: Any, producer: Any) -> None:
        data = writer(records, codec, producer)
        batch = engine.Batch(data)
        batch.check_crc()
        expected = [(i, t, k, v, headers) for i, (t, k, v, headers) in enumerate(records)]
        assert values(batch) == expected
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional) == producer
        found = engine.validate_batch(data, compacted=False, size_max=SIZE_MAX * 64)
        ordinary = producer[0] < 0 or producer[2] >= 0
        assert (found.error == 0, found.records_count) == (ordinary, len(records))

    for_all(check)
