"""A cluster client and a scripted cluster in virtual time; after each story nothing of the client may be left."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.settings import ClientSettings, parse_bootstrap

from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.virtual_loop import VirtualLoop, run_virtually, virtual_wall_ms
from tests.kit.scripted_broker import ScriptedBroker

SEED = 7


class Story:
    """A scripted cluster and clients of it.

    Attributes:
        network: in memory.
        broker: the cluster.
    """

    def __init__(self, nodes: int, seed: int = SEED) -> None:
        self.random = Random(seed)
        self.network = MemoryNetwork(self.random, delay_s=(0.0005, 0.001))
        self.broker = ScriptedBroker(nodes, network=self.network)

    def expect_failures(self) -> None:
        """The story lets callbacks of the client fail."""
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def new_client(self, bootstrap: str | None = None, **settings: Any) -> ClusterClient:
        addresses = parse_bootstrap(bootstrap or self.broker.bootstrap)
        environment = Environment(dial=self.network.dial, random=self.random, wall_ms=virtual_wall_ms)
        return ClusterClient(ClientSettings(addresses, **settings), environment)

    @asynccontextmanager
    async def client(self, bootstrap: str | None = None, **settings: Any):
        client = self.new_client(bootstrap, **settings)
        await client.start()
        try:
            yield client
        finally:
            await client.close()


class Ends:
    """Records how requests end: `answer` and `fail` for the requests that are submitted."""

    def __init__(self) -> None:
        self.ends: list[Any] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def end(self, result: Any) -> None:
        self.ends.append(result)
        for count, future in self._waiting:
            if len(self.ends) >= count and not future.done():
                future.set_result(None)

    async def reached(self, count: int) -> list[Any]:
        """Wait for this number of ends."""
        if len(self.ends) < count:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((count, future))
            await future
        return self.ends


async def metadata_when(client: ClusterClient, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds after a metadata response."""
    reached = asyncio.get_running_loop().create_future()

    def check(_changes: object) -> None:
        if condition() and not reached.done():
            reached.set_result(None)

    client.on_metadata.append(check)
    try:
        if not condition():
            await reached
    finally:
        client.on_metadata.remove(check)


def story(
    nodes: int = 1, make: Callable[[int], Story] = Story
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run an async test in virtual time with a `Story`; afterwards no task and no timer is left."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **named: Any) -> None:
            async def main() -> None:
                world = make(nodes)
                async with world.broker:
                    await test(world, *args, **named)
                loop = asyncio.get_running_loop()
                assert isinstance(loop, VirtualLoop)
                for _ in range(3):  # iterations in which connections report their end
                    await asyncio.sleep(0)
                assert asyncio.all_tasks() == {asyncio.current_task()}
                foreign = ("MemoryTransport", "FetchWait")  # of the network and of the broker
                timers = [str(each) for each in loop.pending_timers]
                assert [each for each in timers if not any(name in each for name in foreign)] == []

            run_virtually(main)

        signature = inspect.signature(test)
        # Without the world, for which pytest would look for a fixture.
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=list(signature.parameters.values())[1:]
        )
        return run

    return decorate


async def outcome(awaitable: Awaitable[Any]) -> Any:
    """Return the result or the exception."""
    (result,) = await asyncio.gather(awaitable, return_exceptions=True)
    return result
