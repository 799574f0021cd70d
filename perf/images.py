"""What brokers of a cluster know of it, as Metadata v1 returns it. Source: the protocol guide of Apache Kafka."""

import struct
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from socket import socket

from perf.brokers.base import Running
from perf.checks import VerificationError
from perf.wire import call, connect, frame

METADATA_OF_ALL = frame(3, 1, 1, struct.pack(">i", -1), flexible=False)
PAUSE_S = 0.005
WAIT_S = 60.0


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


def image(broker: Running) -> Image:
    """Ask a broker."""
    with connect(broker.host, broker.port) as connection:
        return parse(call(connection, METADATA_OF_ALL))


def wait_for(brokers: Mapping[int, Running], condition: Callable[[Image], bool]) -> dict[int, float]:
    """Wait until the images of all brokers fulfil a condition.

    They are asked one after the other, with a pause of 5 ms.

    Returns: the value of time.monotonic() when the first response of each broker did that was as desired.
    Raises VerificationError after 60 s.
    """
    reached: dict[int, float] = {}
    deadline = time.monotonic() + WAIT_S
    with ExitStack() as stack:
        waiting: dict[int, socket] = {
            each: stack.enter_context(connect(broker.host, broker.port)) for each, broker in brokers.items()
        }
        while waiting:
            for broker_id, connection in list(waiting.items()):
                if condition(parse(call(connection, METADATA_OF_ALL))):
                    reached[broker_id] = time.monotonic()
                    del waiting[broker_id]
            if time.monotonic() > deadline:
                raise VerificationError(f"the images of brokers {sorted(waiting)} are not as expected after {WAIT_S} s")
            time.sleep(PAUSE_S)  # a broker sends no event for a new image
    return reached
