"""Metadata v1 parsed by hand: what a broker knows of its cluster, in tests and benchmarks of any broker.

Source: the protocol guide of Apache Kafka.
"""

import struct
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

BODY_OF_ALL = struct.pack(">i", -1)  # of a request for all topics
BODY_OF_NONE = struct.pack(">i", 0)


@dataclass(frozen=True)
class Image:
    """ports: of the brokers, by id; leaders: of each partition, -1 = none; in_sync: its in-sync replicas."""

    controller: int
    ports: Mapping[int, int]
    leaders: Mapping[tuple[str, int], int]
    in_sync: Mapping[tuple[str, int], Sequence[int]]

    @property
    def brokers(self) -> Set[int]:
        """Ids of the brokers."""
        return self.ports.keys()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, code: str) -> int:
        value: int = struct.unpack_from(f">{code}", self._data, self._at)[0]
        self._at += struct.calcsize(f">{code}")
        return value

    def text(self) -> str:
        size = max(self.number("h"), 0)  # -1 = null
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def numbers(self) -> Sequence[int]:
        count = self.number("i")
        self._at += 4 * count
        return struct.unpack_from(f">{count}i", self._data, self._at - 4 * count)


def parse(response: bytes) -> Image:
    """Parse a response to Metadata v1 without its size."""
    reader = _Reader(response)
    reader.number("i")  # the correlation id
    ports = {}
    for _ in range(reader.number("i")):
        broker_id, _host = reader.number("i"), reader.text()
        ports[broker_id], _rack = reader.number("i"), reader.text()
    controller = reader.number("i")
    leaders, in_sync = {}, {}
    for _ in range(reader.number("i")):
        reader.number("h")
        topic, _internal = reader.text(), reader.number("b")
        for _ in range(reader.number("i")):
            _error, partition, leader = reader.number("h"), reader.number("i"), reader.number("i")
            leaders[topic, partition] = leader
            _replicas, in_sync[topic, partition] = reader.numbers(), reader.numbers()
    return Image(controller, ports, leaders, in_sync)
