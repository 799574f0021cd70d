"""The pytest plugin of the package: a broker for the test run, and a topic for each test.

1. Every pytest run of every user loads this module, so it imports nothing of the broker before a fixture is used.
2. Each process of pytest-xdist has its own broker on a free port, so parallel tests do not affect each other.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkalite.testing.thread import BrokerThread

TOPIC_NAME_MAX = 249  # Topic.java, MAX_NAME_LENGTH
_numbers = count(1)


@pytest.fixture(scope="session")
def kafkalite_broker() -> Iterator["BrokerThread"]:
    """A broker in its own thread, for the whole session; clients connect to its `address` (HOST:PORT)."""
    from kafkalite.testing.thread import BrokerThread

    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def kafkalite_topic(kafkalite_broker: "BrokerThread", request: pytest.FixtureRequest) -> str:
    """The name of a topic with one partition that belongs to this test alone."""
    name = topic_name(request.node.name, next(_numbers))
    kafkalite_broker.create_topic(name, partitions=1)
    return name


def topic_name(test: str, number: int) -> str:
    """Return a valid topic name for the test `test`; `number` makes it unique within the process."""
    # Dots are left out: Kafka warns that `a.b` and `a_b` collide in metric names.
    legal = re.sub(r"[^a-zA-Z0-9_-]+", "-", test)
    tail = f"-{number}"
    return legal[: TOPIC_NAME_MAX - len(tail)] + tail
