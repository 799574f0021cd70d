"""The pytest plugin that comes with the package: a broker for the test run, and a topic for each test.

Laws: every pytest run of every user loads this module, so it imports nothing of the broker before a fixture is asked
for. Each process of pytest-xdist has a broker of its own on a free port, so tests in parallel never meet.
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
    """A broker in a thread of its own, for the whole session; any client reaches it at its `address` (host:port)."""
    from kafkalite.testing.thread import BrokerThread

    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def kafkalite_topic(kafkalite_broker: "BrokerThread", request: pytest.FixtureRequest) -> str:
    """The name of a topic that exists, has one partition and belongs to this test alone."""
    name = topic_name(request.node.name, next(_numbers))
    kafkalite_broker.create_topic(name, partitions=1)
    return name


def topic_name(test: str, number: int) -> str:
    """A legal topic name for the test named `test`; `number` makes it unique within the process."""
    # Dots are left out: Kafka warns that `a.b` and `a_b` collide in metric names.
    legal = re.sub(r"[^a-zA-Z0-9_-]+", "-", test)
    tail = f"-{number}"
    return legal[: TOPIC_NAME_MAX - len(tail)] + tail
