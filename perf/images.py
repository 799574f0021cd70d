"""What brokers of a cluster know of it, as Metadata v1 returns it."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from socket import socket

from perf.brokers.base import Running
from perf.errors import VerificationError
from perf.wire import call, connect, frame
from tests.kit.metadata_v1 import BODY_OF_ALL, Image, parse

METADATA_OF_ALL = frame(3, 1, 1, BODY_OF_ALL, flexible=False)
PAUSE_S = 0.04  # a response of 2,000 partitions costs both sides some 10 ms
WAIT_S = 60.0


def image(broker: Running) -> Image:
    """Ask a broker."""
    with connect(broker.host, broker.port) as connection:
        return parse(call(connection, METADATA_OF_ALL))


def in_sync(found: Image, topic: str, replicas: int) -> int:
    """Return the number of partitions of a topic with a leader and so many in-sync replicas."""
    return sum(
        name == topic and found.leaders[name, number] > 0 and len(members) == replicas
        for (name, number), members in found.in_sync.items()
    )


def wait_for(brokers: Mapping[int, Running], condition: Callable[[Image], bool]) -> dict[int, float]:
    """Wait until the images of all brokers fulfil a condition.

    They are asked one after the other, with a pause of 40 ms, so that an election has most of the processors.

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
