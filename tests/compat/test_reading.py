"""Reading by assignment: from the start, an offset, a time, the end; and what lies outside."""

from __future__ import annotations

import pytest

from tests.compat.conftest import MakeTopic
from tests.kit.clients import EARLIEST, LATEST, PYTHON_CLIENTS, At, Client, Record

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


@pytest.fixture
def hourly(address: str, new_topic: MakeTopic) -> str:
    """A topic with 48 records, one an hour, the offset being the hour; in several batches of two codecs."""
    topic = new_topic(**{"retention.ms": "-1"})  # the records are of 2023
    for first in range(0, 48, 12):
        records = [
            Record(str(hour).encode(), timestamp_ms=START_MS + hour * HOUR_MS) for hour in range(first, first + 12)
        ]
        PYTHON_CLIENTS[0].write(address, topic, records, codec="lz4" if first % 24 else "none")
    return topic


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (EARLIEST, 0),
        (0, 0),
        (17, 17),
        (47, 47),
        (At(START_MS), 0),
        (At(START_MS + 5 * HOUR_MS), 5),
        (At(START_MS + 17 * HOUR_MS - 1), 17),
        (At(START_MS + 17 * HOUR_MS + 1), 18),
    ],
)
def test_read_from_an_offset_or_a_time(address: str, hourly: str, client: Client, start: object, first: int) -> None:
    read = client.read(address, hourly, 48 - first, start=start)
    assert [(record.offset, record.value) for record in read] == [(n, str(n).encode()) for n in range(first, 48)]


def test_bounds_and_times(address: str, hourly: str, client: Client) -> None:
    assert client.bounds(address, hourly) == (0, 48)
    assert client.find(address, hourly, START_MS + 47 * HOUR_MS) == 47
    assert client.find(address, hourly, START_MS + 48 * HOUR_MS) is None, "nothing is that late"


def test_consumer_from_the_end_gets_only_new_records(address: str, topic: str, client: Client) -> None:
    """A reader at the end waits in the broker and is woken by the next record."""
    client.write(address, topic, [Record(b"old")])
    with pytest.raises(TimeoutError):
        client.read(address, topic, 1, start=LATEST, seconds=1.0)
    client.write(address, topic, [Record(b"new")])
    assert client.read(address, topic, 1, start=1)[0].value == b"new"


def test_partitions_are_independent(address: str, new_topic: MakeTopic, client: Client) -> None:
    topic = new_topic(partitions=3)
    client.write(address, topic, [Record(str(n).encode(), partition=n % 3) for n in range(30)])
    for partition in range(3):
        read = client.read(address, topic, 10, partition=partition)
        assert [record.value for record in read] == [str(n).encode() for n in range(partition, 30, 3)]
        assert client.bounds(address, topic, partition) == (0, 10)


def test_empty_partition_returns_no_record(address: str, topic: str, client: Client) -> None:
    assert client.bounds(address, topic) == (0, 0)
    assert client.find(address, topic, 0) is None
