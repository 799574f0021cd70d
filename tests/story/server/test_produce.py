"""Tests Produce: what is appended, what is rejected, and the order of responses."""

import gzip
import logging
from collections.abc import Callable

import lz4.frame
import pytest

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.records import Builder, batches
from tests.kit.record_engines import with_records
from tests.kit.server import (
    ALL,
    GZIP,
    LZ4,
    NONE,
    NOW_MS,
    SNAPPY,
    ZSTD,
    Client,
    Hub,
    Wire,
    batch,
    compressible,
    fetch_request,
    fetched,
    idempotent,
    outcomes,
    produce_request,
    running,
)


@pytest.mark.parametrize("version", range(3, 14))
async def test_produce_in_every_version_returns_the_base_offset(client: Client, version: int) -> None:
    await client.create("t")
    assert (await client.produce("t", batch(b"a", b"b"), version=version)).base_offset == 0
    again = await client.produce("t", batch(b"c"), version=version, acks=1)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 2, -1)
    assert again.log_start_offset == (0 if version >= 5 else -1)
    assert await client.read("t") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
async def test_batch_is_stored_unchanged(client: Client, codec: int) -> None:
    await client.create("t")
    sent = batch(*[b"value"] * 100, codec=codec)
    assert (await client.produce("t", sent)).error_code == 0
    answer = await client.call(fetch_request("t", (0, 0)), 12)
    stored = bytes(fetched(answer)["t", 0].records)
    assert stored[21:] == sent[21:]  # from the CRC on; base offset and leader epoch stand before it


UNREADABLE_LZ4 = {
    "linked blocks": lambda data: lz4.frame.compress(data, block_linked=True),
    "two frames": lambda data: (
        lz4.frame.compress(data[:500], block_linked=False) + lz4.frame.compress(data[500:], block_linked=False)
    ),
}


@pytest.mark.parametrize("compress", UNREADABLE_LZ4.values(), ids=UNREADABLE_LZ4)
async def test_lz4_that_java_or_librdkafka_cannot_read_is_rejected(
    client: Client, compress: Callable[[bytes], bytes]
) -> None:
    await client.create("t")
    plain = batch(*[b"value %d" % number * 100 for number in range(100)])  # more than one block of 64 KiB
    packed = with_records(compress(plain[61:]), 100, attributes=LZ4)
    rejected = await client.produce("t", packed)
    assert rejected.error_code == KafkaErrorCode.INVALID_RECORD
    assert (await client.offset("t", -1)).offset == 0, "the end of the log"
    accepted = with_records(lz4.frame.compress(plain[61:], block_linked=False), 100, attributes=LZ4)
    assert (await client.produce("t", accepted)).error_code == 0


async def test_gzip_with_padding_is_appended_and_read(client: Client) -> None:
    await client.create("t")
    padded = with_records(gzip.compress(batch(b"a", b"b")[61:]) + bytes(512), 2, attributes=GZIP)
    assert (await client.produce("t", padded)).error_code == 0
    assert await client.read("t") == [b"a", b"b"]


async def test_acks_0_appends_without_response(client: Client, wire: Wire) -> None:
    await client.create("t")
    await client.produce("t", batch(b"first"))
    wire.send((produce_request("t", (0, batch(b"second")), acks=0), 12), silent=True)
    wire.send((produce_request("t", (0, batch(b"third")), acks=1), 12))
    assert outcomes(await wire.answer())[0].base_offset == 2
    assert await client.read("t") == [b"first", b"second", b"third"]


async def test_an_error_with_acks_0_closes_the_connection(client: Client) -> None:
    with pytest.raises(KafkaConnectionError):
        request = produce_request(bytes(15) + b"\1", (0, batch(b"x")), acks=0)
        client.peer.send(request, lambda: None, lambda error: None)
        await client.create("t")


async def test_log_append_time_is_written_into_the_batch(client: Client) -> None:
    await client.create("t", message_timestamp_type="LogAppendTime")
    found = await client.produce("t", batch(b"a", timestamp=1))
    assert found.error_code == 0 and found.log_append_time_ms > NOW_MS
    answer = await client.call(fetch_request("t", (0, 0)), 12)
    (stored,) = batches(fetched(answer)["t", 0].records)
    stored.check_crc()
    assert stored.log_append_time and stored.max_timestamp == found.log_append_time_ms
    assert [record.timestamp for record in stored] == [found.log_append_time_ms]


@pytest.mark.parametrize(
    ("name", "codec"), [("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD), ("uncompressed", NONE)]
)
@pytest.mark.parametrize("sent_as", [NONE, LZ4])
async def test_batch_is_recompressed_to_the_topics_compression_type(
    client: Client, name: str, codec: int, sent_as: int
) -> None:
    await client.create("t", compression_type=name)
    values = [b"value %d" % at for at in range(50)]
    found = await client.produce("t", batch(*values, codec=sent_as))
    assert (found.error_code, found.base_offset) == (0, 0)
    assert (await client.produce("t", batch(b"more", codec=sent_as))).base_offset == 50
    answer = await client.call(fetch_request("t", (0, 0)), 12)
    stored = batches(fetched(answer)["t", 0].records)
    for each in stored:
        each.check_crc()
    assert {each.codec for each in stored} == {codec}
    assert await client.read("t") == [*values, b"more"]


async def test_recompressed_batch_above_the_limit_is_too_large(client: Client) -> None:
    await client.create("t", compression_type="uncompressed", max_message_bytes="1000")
    small = batch(b"x" * 5000, codec=GZIP)
    assert len(small) < 1000
    assert (await client.produce("t", small)).error_code == KafkaErrorCode.MESSAGE_TOO_LARGE
    assert await client.read("t") == []


async def test_timestamps_outside_the_limits_are_rejected(client: Client) -> None:
    await client.create("t", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    old = await client.produce("t", batch(b"x", timestamp=1000))
    assert old.error_code == KafkaErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in old.record_errors] == [0]
    far = await client.produce("t", batch(b"x", timestamp=2**42))
    assert far.error_code == KafkaErrorCode.INVALID_TIMESTAMP
    assert await client.read("t") == []


async def test_batch_above_max_message_bytes_is_too_large(client: Client) -> None:
    await client.create("t", max_message_bytes="500")
    assert (await client.produce("t", batch(b"x" * 600))).error_code == KafkaErrorCode.MESSAGE_TOO_LARGE
    assert (await client.produce("t", batch(b"x" * 100))).base_offset == 0


async def test_min_insync_replicas_above_the_number_of_replicas_counts_as_that_number(client: Client) -> None:
    """As in Kafka 4.x (Partition.effectiveMinIsr): one replica accepts acks=all whatever the setting is."""
    await client.create("t", min_insync_replicas="2")
    for acks in (ALL, 1):
        assert (await client.produce("t", batch(b"x"), acks=acks)).error_code == 0
    partition = client.broker.replicas.partition("t", b"", 0, by_id=False)
    assert not isinstance(partition, int)
    partition.isr = ()
    refused = await client.produce("t", batch(b"x"))
    assert refused.error_code == KafkaErrorCode.NOT_ENOUGH_REPLICAS


async def test_produce_to_unknown_partitions_fails(client: Client) -> None:
    await client.create("t")
    for topic, partition in (("nowhere", 0), ("t", 1), ("t", -1)):
        found = await client.produce(topic, batch(b"x"), partition=partition)
        assert (found.error_code, found.base_offset) == (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    (found,) = outcomes(await client.call(produce_request(bytes(15) + b"\1", (0, batch(b"x"))), 13))
    assert found.error_code == KafkaErrorCode.UNKNOWN_TOPIC_ID
    assert "nowhere" not in client.broker.image.topics


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, KafkaErrorCode.INVALID_RECORD),
        (b"", KafkaErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), KafkaErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1] + b"\0\0", None),
        (batch(b"a")[:16] + b"\1" + batch(b"a")[17:], KafkaErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1] + b"X", KafkaErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 10, None),
    ],
    ids=["null", "empty", "two batches", "wrong length", "magic 1", "wrong CRC", "no header"],
)
async def test_bad_batches_append_nothing(client: Client, records: bytes | None, error: int | None) -> None:
    await client.create("t")
    for _ in range(2):  # with and without a log
        found = await client.produce("t", records)
        assert found.error_code == error if error is not None else found.error_code in (2, 87)
        assert found.base_offset == -1 and found.error_message
        await client.produce("t", batch(b"good"))
    assert await client.read("t") == [b"good", b"good"]


async def test_compacted_topic_rejects_records_without_key(client: Client) -> None:
    await client.create("t", cleanup_policy="compact")
    found = await client.produce("t", batch(b"a", key=None))
    assert found.error_code == KafkaErrorCode.INVALID_RECORD and found.record_errors[0].batch_index == 0
    assert (await client.produce("t", batch(b"a"))).error_code == 0


async def test_zstd_needs_version_7(client: Client) -> None:
    await client.create("t")
    for version in (3, 6):
        found = await client.produce("t", batch(b"x", codec=ZSTD), version=version)
        assert found.error_code == KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await client.produce("t", batch(b"x", codec=ZSTD), version=7)).base_offset == 0


@pytest.mark.parametrize("acks", [2, -2])
async def test_invalid_acks_are_rejected(client: Client, acks: int) -> None:
    await client.create("t")
    assert (await client.produce("t", batch(b"x"), acks=acks)).error_code == KafkaErrorCode.INVALID_REQUIRED_ACKS


async def test_rejected_partition_does_not_delay_the_others(client: Client) -> None:
    await client.create("t", partitions=3)
    parts = [(0, batch(b"a")), (1, b"rubbish"), (2, batch(b"c")), (9, batch(b"d"))]
    found = outcomes(await client.call(produce_request("t", *parts), 12))
    assert [part.index for part in found] == [0, 1, 2, 9]
    assert [bool(part.error_code) for part in found] == [False, True, False, True]
    assert [await client.read("t", index) for index in range(3)] == [[b"a"], [], [b"c"]]


# Idempotent producers.


async def test_duplicate_batch_returns_its_first_offset(client: Client) -> None:
    await client.create("t")
    for sequence in range(6):
        assert (await client.produce("t", idempotent(b"%d" % sequence, sequence=sequence))).base_offset == sequence
    for sequence in range(1, 6):
        again = await client.produce("t", idempotent(b"%d" % sequence, sequence=sequence))
        assert (again.error_code, again.base_offset) == (0, sequence)
    assert len(await client.read("t")) == 6


async def test_sequence_gap_is_rejected(client: Client) -> None:
    await client.create("t")
    await client.produce("t", idempotent(b"0", sequence=0))
    gap = await client.produce("t", idempotent(b"2", sequence=2))
    assert gap.error_code == KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.produce("t", idempotent(b"1", sequence=1))).base_offset == 1
    older = await client.produce("t", idempotent(b"2", sequence=2, epoch=-1 + 1, producer=8))
    assert older.error_code == 0  # an unknown producer may begin anywhere


async def test_older_producer_epoch_is_fenced(client: Client) -> None:
    await client.create("t")
    await client.produce("t", idempotent(b"0", sequence=0, epoch=3))
    found = await client.produce("t", idempotent(b"1", sequence=1, epoch=2))
    assert found.error_code == KafkaErrorCode.INVALID_PRODUCER_EPOCH


async def test_duplicate_batch_within_one_loop_iteration(client: Client, wire: Wire) -> None:
    await client.create("t")
    await client.produce("t", batch(b"open"))
    same = produce_request("t", (0, idempotent(b"x", sequence=0)))
    wire.send((same, 12), (same, 12))
    assert [outcomes(answer)[0].base_offset for answer in wire.answers()] == [1, 1]
    assert await client.read("t") == [b"open", b"x"]


# Order.


async def test_appends_queue_while_the_log_is_opened(client: Client, hub: Hub) -> None:
    await client.create("t")
    wires = [Wire(hub) for _ in range(3)]
    for at, wire in enumerate(wires):
        wire.send((produce_request("t", (0, batch(b"%d" % at)), acks=ALL if at else 1), 12))
    assert all(wire.answers() == [] for wire in wires)
    assert [outcomes(await wire.answer())[0].base_offset for wire in wires] == [0, 1, 2]
    assert await client.read("t") == [b"0", b"1", b"2"]


async def test_large_compressed_batch_keeps_its_order_before_small_ones(client: Client, hub: Hub) -> None:
    await client.create("t", max_message_bytes="10000000")
    await client.produce("t", batch(b"open"))
    wires = [Wire(hub) for _ in range(3)]
    wires[0].send((produce_request("t", (0, compressible(2_000_000, LZ4))), 12))
    wires[1].send((produce_request("t", (0, batch(b"small"))), 12))
    wires[2].send((produce_request("t", (0, compressible(300_000, GZIP))), 12))
    assert all(wire.answers() == [] for wire in wires)
    assert [outcomes(await wire.answer())[0].base_offset for wire in wires] == [1, 2, 3]
    assert (await client.produce("t", batch(b"last"))).base_offset == 4


async def test_appends_of_one_loop_iteration_are_one_write(client: Client, wire: Wire) -> None:
    await client.create("t")
    await client.produce("t", batch(b"open"))
    partition = client.broker.replicas.partition("t", b"", 0, by_id=False)
    assert not isinstance(partition, int)
    wire.send(*[(produce_request("t", (0, batch(b"%d" % at))), 12) for at in range(50)])
    assert [outcomes(answer)[0].base_offset for answer in wire.answers()] == list(range(1, 51))
    assert partition.high_watermark == 51


# Requests that cannot be answered.


@pytest.mark.parametrize("version", [0, 1, 2, 14])
async def test_unsupported_version_closes_the_connection_with_one_log_line(
    client: Client, hub: Hub, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kafkalite.server"):
        for _ in range(3):
            wire = Wire(hub)
            wire.send_bytes(
                b"\0\0\0\x0e" + b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff" + b"\0\0\0\0"
            )
            assert wire.closed and wire.answers() == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_malformed_body_closes_the_connection(
    client: Client, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.send_bytes(b"\0\0\0\x0c" + b"\0\0" + b"\0\x03" + b"\0\0\0\1" + b"\xff\xff" + b"\0\x09")
    assert wire.closed and "does not parse" in caplog.text


def transactional(*values: bytes) -> bytes:
    builder = Builder()
    for value in values:
        builder.append(1, None, value)
    return builder.build(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)


async def test_transactional_batch_of_an_unknown_transaction_is_rejected(client: Client) -> None:
    await client.create("t")
    for transactional_id, code in (
        ("me", KafkaErrorCode.NOT_ENOUGH_REPLICAS),
        (None, KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ):
        request = produce_request("t", (0, transactional(b"x")), transactional_id=transactional_id)
        (found,) = outcomes(await client.call(request, 12))
        assert found.error_code == code
    assert await client.read("t") == []


async def test_transactional_id_without_transactional_batches_is_accepted(client: Client) -> None:
    await client.create("t")
    (found,) = outcomes(await client.call(produce_request("t", (0, batch(b"x")), transactional_id="me"), 12))
    assert (found.error_code, await client.read("t")) == (0, [b"x"])


async def test_full_queue_of_small_produce_requests_loses_no_record() -> None:
    async with running() as client:
        await client.create("t", partitions=2)
        hub = Hub(client.broker)
        wire = Wire(hub)
        for at in range(200):
            wire.send((produce_request("t", (at % 2, idempotent(b"%d" % at, sequence=at // 2))), 12))
        offsets = [outcomes(await wire.answer())[0].base_offset for _ in range(200)]
        assert offsets == [at // 2 for at in range(200)]


async def test_batches_beyond_the_loop_budget_keep_their_order(client: Client, hub: Hub) -> None:
    await client.create("t", partitions=2)
    wire = Wire(hub)
    numbers = range(40)
    zeros = [batch(*[b"%d" % number] * 600, bytes(900_000), codec=GZIP) for number in numbers]
    small = [batch(b"%d" % number) for number in numbers]
    for each in zip(zeros, small, strict=True):
        wire.send((produce_request("t", (0, each[0]), (1, each[0])), 12), (produce_request("t", (0, each[1])), 12))
    found = [part.base_offset for _ in range(2 * len(numbers)) for part in outcomes(await wire.answer())]
    large, one = found[0::3], found[2::3]
    assert large == [602 * number for number in numbers] and one == [602 * number + 601 for number in numbers]
