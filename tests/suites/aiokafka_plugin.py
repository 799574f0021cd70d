"""A pytest plugin for aiokafka's own tests, with `kafkalite_sdk.compat.aiokafka` in aiokafka's place.

It takes the place of their conftest.py, which needs Docker: the fixtures connect the tests with the broker of
`KAFKALITE_SUITE_ADDRESS`. The tests prepare topics with internals of aiokafka's client; `Client` does so here. Other
internal modules of aiokafka are replaced by mocks, as the tests import names of them; tests that use them are left out
(`aiokafka_tests.py`).
"""

import asyncio
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.topic_partitions import wait_for_topic
from kafkalite_sdk.compat import aiokafka
from kafkalite_sdk.compat.aiokafka.consumer.internals import SubscriptionState

from tests.kit.secured import sdk_client  # noqa: F401 - clients log in to a secured broker
from tests.suites.aiokafka_tests import LEFT_OUT, TLS
from tests.suites.listeners import TLS_PORT

HOST, _, PORT = os.environ["KAFKALITE_SUITE_ADDRESS"].rpartition(":")
TIMEOUT_S = 30.0


class Mocks(MetaPathFinder, Loader):
    """Finds internal modules of aiokafka, whose names are all mocks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith("aiokafka.") else None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = lambda name: mock.MagicMock(name=f"{module.__name__}.{name}")  # type: ignore[method-assign]


class Client:
    """What aiokafka's tests use of `AIOKafkaClient`: it creates topics, and knows their names.

    Arguments:
        bootstrap_servers: addresses.
        owner: the producer or consumer whose client this is; None = a producer of its own.
    """

    def __init__(self, *, bootstrap_servers: Any = (), owner: Any = None, **_: object) -> None:
        self._owner = owner or aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers)
        self._topics: set[str] = set()
        self.cluster = self

    @property
    def _client(self) -> ClusterClient:
        engine = getattr(self._owner, "_producer", None) or self._owner._driver.client
        return getattr(engine, "_client", engine)  # type: ignore[no-any-return]

    async def bootstrap(self) -> None:
        await self._owner.start()

    async def close(self) -> None:
        await self._owner.stop()

    async def _wait_on_metadata(self, topic: str) -> None:
        await wait_for_topic(self._client, topic, TIMEOUT_S)

    def add_topic(self, topic: str) -> None:
        self._topics.add(topic)

    async def force_metadata_update(self) -> bool:
        for topic in self._topics:
            await self._wait_on_metadata(topic)
        return True

    def topics(self) -> set[str]:
        driver = getattr(self._owner, "_driver", None)
        known = None if driver is None or driver.group is None else driver.group.membership._core.topics.all_names
        return set(self._client.view.topics) | (known or frozenset())


async def wait_for_assignment(subscription: Any) -> None:
    """Wait until the group is stable, and the member has partitions."""
    driver = subscription._driver
    for _ in range(10):
        await asyncio.sleep(0)  # a call of unsubscribe has its effect
    while not driver.assignment() or driver.group.membership.state != "stable":
        driver.work()
        await driver.wait(driver.now() + 0.1)


def replace_internals() -> None:
    """Let the tests find what they need of aiokafka's internals."""
    aiokafka.install()
    sys.meta_path.insert(0, Mocks())
    modules: Any = sys.modules
    modules["aiokafka.client"].AIOKafkaClient = Client
    modules["aiokafka.consumer"].fetcher = import_module("aiokafka.consumer.fetcher")
    for each, name in ((aiokafka.AIOKafkaProducer, "client"), (aiokafka.AIOKafkaConsumer, "_client")):
        prop = cached_property(lambda owner: Client(owner=owner))
        setattr(each, name, prop)
        prop.__set_name__(each, name)
    SubscriptionState.wait_for_assignment = wait_for_assignment  # type: ignore[attr-defined]
    aiokafka.AIOKafkaProducer._sender = mock.MagicMock()  # type: ignore[attr-defined]
    aiokafka.AIOKafkaConsumer._fetcher = mock.MagicMock()  # type: ignore[attr-defined]
    ClusterClient.cluster = property(lambda client: mock.Mock(_brokers=client.view.brokers))  # type: ignore[attr-defined]


replace_internals()


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    cls: Any = request.cls
    cls.loop = loop
    cls.kafka_host, cls.kafka_port = HOST, int(PORT)
    cls.hosts = [f"{HOST}:{PORT}"]
    cls.kafka_version = "3.9.0"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of internals, and those of TLS without a listener for them."""
    names = {name for name, reason in LEFT_OUT.items() if reason is not TLS or TLS_PORT not in os.environ}
    left_out = [item for item in items if item.originalname in names]  # type: ignore[attr-defined]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    for item in items:
        if hasattr(item.cls, "count_fetch_requests"):  # type: ignore[attr-defined]
            item.cls.count_fetch_requests = lambda *_: nullcontext()  # type: ignore[attr-defined]
