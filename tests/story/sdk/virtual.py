"""Tests of the SDK against a scripted broker in virtual time: deadlines are exact and take no real time."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from random import Random

from kafkalite_sdk.client.environment import Environment

from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.virtual_loop import VirtualLoop, pass_time, run_virtually, virtual_wall_ms
from tests.kit.scripted_broker import ScriptedBroker

Test = Callable[[ScriptedBroker, Environment], Awaitable[None]]


def virtually(nodes: int = 1) -> Callable[[Test], Callable[[], None]]:
    """Run a test in virtual time with a scripted broker and the environment of a client; nothing may be left after it.

    Arguments:
        nodes: number of brokers of the cluster.
    """

    def decorate(test: Test) -> Callable[[], None]:
        async def main() -> None:
            network = MemoryNetwork()
            async with ScriptedBroker(nodes, network) as broker:
                await test(broker, Environment(dial=network.dial, random=Random(1), wall_ms=virtual_wall_ms))
            await pass_time(1.0)  # the ends of the last connections arrive
            check_nothing_left()

        @functools.wraps(test)
        def run() -> None:
            run_virtually(main)

        run.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        return run

    return decorate


def check_nothing_left() -> None:
    """Check that the running loop has no other task and no timer."""
    loop = asyncio.get_running_loop()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks are left: {left}"
    assert isinstance(loop, VirtualLoop)
    assert not loop.pending_timers, f"timers are left: {loop.pending_timers}"


class Stopwatch:
    """Measures the time of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    @property
    def seconds(self) -> float:
        """Seconds since the creation."""
        return self._loop.time() - self._began
