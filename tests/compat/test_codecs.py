"""Every writer with every codec into ONE partition, read whole by every reader: all pairs in one log."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.compat.conftest import MakeTopic
from tests.compat.disk import batches_on_disk
from tests.kit.brokers import Broker
from tests.kit.clients import PYTHON_CLIENTS, Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_EACH = 40


def lines(writer: str, codec: str) -> list[Record]:
    """Compressible records that name their writer and codec."""
    return [
        Record(f"{writer} {codec} {n} ".encode() * 20, f"{codec}-{n}".encode(), (("codec", codec.encode()),))
        for n in range(RECORDS_EACH)
    ]


def test_all_writers_codecs_and_readers(broker: Broker, topic: str) -> None:
    written: list[Record] = []
    for writer in PYTHON_CLIENTS:
        for codec in CODECS:
            written += writer.write(broker.address, topic, lines(writer.name, codec), codec=codec)
    assert [record.offset for record in written] == list(range(len(written)))
    for reader in PYTHON_CLIENTS:
        read = reader.read(broker.address, topic, len(written))
        assert [(r.offset, r.content()) for r in read] == [(r.offset, r.content()) for r in written], reader.name
    kept = Counter()
    for batch in batches_on_disk(broker.log_dir(topic), topic):
        kept[batch.codec] += batch.records_count
    assert kept == {codec: RECORDS_EACH * len(PYTHON_CLIENTS) for codec in CODECS}, "each codec reached the log"


@pytest.mark.parametrize("kept_as", CODECS[1:])
def test_topic_with_its_own_compression_type(broker: Broker, new_topic: MakeTopic, kept_as: str) -> None:
    """compression.type other than producer: the broker writes the log in that codec, whatever arrives."""
    topic = new_topic(**{"compression.type": kept_as})
    written: list[Record] = []
    for writer, codec in zip(PYTHON_CLIENTS, ("none", "lz4", "gzip", "zstd"), strict=True):
        written += writer.write(broker.address, topic, lines(writer.name, codec), codec=codec)
    for reader in PYTHON_CLIENTS:
        read = reader.read(broker.address, topic, len(written))
        assert [(r.offset, r.content()) for r in read] == [(r.offset, r.content()) for r in written], reader.name
    assert {batch.codec for batch in batches_on_disk(broker.log_dir(topic), topic)} == {kept_as}


def test_topic_that_stores_uncompressed(broker: Broker, new_topic: MakeTopic) -> None:
    """compression.type=uncompressed: compressed batches are unpacked before they are kept."""
    topic = new_topic(**{"compression.type": "uncompressed"})
    for writer in PYTHON_CLIENTS:
        writer.write(broker.address, topic, lines(writer.name, "lz4"), codec="lz4")
    read = PYTHON_CLIENTS[0].read(broker.address, topic, RECORDS_EACH * len(PYTHON_CLIENTS))
    assert [r.content() for r in read] == [r.content() for w in PYTHON_CLIENTS for r in lines(w.name, "lz4")]
    assert {batch.codec for batch in batches_on_disk(broker.log_dir(topic), topic)} == {"none"}
