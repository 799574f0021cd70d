"""The fixtures `kafkalite_async_*` for the library that runs async tests: pytest-asyncio or anyio.

A client of the SDK belongs to the event loop that starts it, so its fixture runs in the loop of the test. Each library
recognises its own fixtures, and pytest-asyncio has a loop for each scope: there is one set of fixtures for each. The
public fixtures of the plugin select the set of the test.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kafkalite_sdk import Consumer, Producer

    from kafkalite.testing.thread import BrokerThread

LOOP_SCOPES = ("function", "class", "module", "package", "session")  # of pytest-asyncio
Start = Callable[..., Any]
Decorated = Callable[[Callable[..., AsyncIterator[Any]]], object]


@asynccontextmanager
async def started_producers(address: str, settings: Mapping[str, Any]) -> AsyncIterator[Start]:
    """A function of further settings that starts a producer; all are closed at the end."""
    from kafkalite_sdk import Producer

    async with AsyncExitStack() as producers:

        async def start(**given: Any) -> "Producer[Any, Any]":
            client: Producer[Any, Any] = Producer(address, **{**settings, **given})
            return await producers.enter_async_context(client)

        yield start


@asynccontextmanager
async def started_consumers(address: str, settings: Mapping[str, Any]) -> AsyncIterator[Start]:
    """A function of topics and further settings that starts a consumer; all are closed at the end."""
    from kafkalite_sdk import Consumer

    async with AsyncExitStack() as consumers:

        async def start(*topics: str, **given: Any) -> "Consumer[Any, Any]":
            client: Consumer[Any, Any] = Consumer(address, **{**settings, **given})
            if topics:
                client.subscribe(topics)
            return await consumers.enter_async_context(client)

        yield start


def new_fixtures(
    decorator: Callable[..., Decorated], runner: str, marked: Callable[[Any], Mapping[str, Any]]
) -> ModuleType:
    """Return a plugin with the fixtures of one event loop.

    Arguments:
        decorator: declares a fixture of the library.
        runner: name of the library, and of the scope of the loop, in the names of the fixtures.
        marked: returns the arguments of the marker of a test.
    """

    @decorator(name=f"_kafkalite_{runner}_producer_factory")
    async def producer_factory(
        kafkalite_broker: "BrokerThread", request: pytest.FixtureRequest
    ) -> AsyncIterator[Start]:
        settings = {**kafkalite_broker.client_settings(), **(marked(request.node).get("producer") or {})}
        async with started_producers(kafkalite_broker.address, settings) as start:
            yield start

    @decorator(name=f"_kafkalite_{runner}_producer")
    async def producer(kafkalite_broker: "BrokerThread", request: pytest.FixtureRequest) -> AsyncIterator[Any]:
        settings = {**kafkalite_broker.client_settings(), **(marked(request.node).get("producer") or {})}
        async with started_producers(kafkalite_broker.address, settings) as start:
            yield await start()

    @decorator(name=f"_kafkalite_{runner}_consumer_factory")
    async def consumer_factory(
        kafkalite_broker: "BrokerThread", _kafkalite_consumer_options: dict[str, Any]
    ) -> AsyncIterator[Start]:
        async with started_consumers(kafkalite_broker.address, _kafkalite_consumer_options) as start:
            yield start

    @decorator(name=f"_kafkalite_{runner}_consumer")
    async def consumer(
        kafkalite_broker: "BrokerThread", _kafkalite_consumer_options: dict[str, Any], kafkalite_topic: str
    ) -> AsyncIterator[Any]:
        async with started_consumers(kafkalite_broker.address, _kafkalite_consumer_options) as start:
            yield await start(kafkalite_topic)

    plugin = ModuleType(f"kafkalite_{runner}_fixtures")
    vars(plugin).update(
        producer_factory=producer_factory, producer=producer, consumer_factory=consumer_factory, consumer=consumer
    )
    return plugin
