"""Metadata v1 parsed by hand: what a broker knows of its cluster, in tests and benchmarks of any broker.

Source: the protocol guide of Apache Kafka.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

BODY_OF_ALL = struct.pack(">i", -1)  # of a request for all topics
BODY_OF_NONE = struct.pack(">i", 0)


@dataclass(frozen=True)
class Image:
    """brokers: their ids; leaders: of each partition, -1 = none."""

    controller: int
    brokers: frozenset[int]
    leaders: Mapping[tuple[str, int], int]


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

    def skip_numbers(self) -> None:
        count = self.number("i")
        self._at += 4 * count


def parse(response: bytes) -> Image:
    """Parse a response to Metadata v1 without its size."""
    reader = _Reader(response)
    reader.number("i")  # the correlation id
    brokers = set()
    for _ in range(reader.number("i")):
        brokers.add(reader.number("i"))
        reader.text(), reader.number("i"), reader.text()  # host, port, rack
    controller = reader.number("i")
    leaders = {}
    for _ in range(reader.number("i")):
        reader.number("h")
        topic, _internal = reader.text(), reader.number("b")
        for _ in range(reader.number("i")):
            _error, partition, leader = reader.number("h"), reader.number("i"), reader.number("i")
            leaders[topic, partition] = leader
            reader.skip_numbers(), reader.skip_numbers()  # replicas, in-sync replicas
    return Image(controller, frozenset(brokers), leaders)
