"""A simulated broker ends like a process, and continues with its data in the same event loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from kafkalite.errors import KafkaConnectionError
from kafkalite.net.client import ClientConnection
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.virtual_loop import VirtualLoop, pass_time, run_virtually
from tests.kit.server import Client, batch, outcomes, produce_request

NAMED = 12


def dialled(network: MemoryNetwork) -> ClientConnection:
    return ClientConnection("broker", 9092, dial=network.dial)


async def filled(broker: SimulatedBroker, network: MemoryNetwork) -> ClientConnection:
    """An open connection after three acknowledged batches."""
    connection = dialled(network)
    await connection.connect()
    client = Client(broker.running, connection)
    await client.create("orders", partitions=1)
    for each in range(3):
        answer = await connection.call(produce_request("orders", (0, batch(b"%d" % each))), version_max=NAMED)
        assert outcomes(answer)[0].error_code == 0
    return connection


async def values(broker: SimulatedBroker, network: MemoryNetwork) -> list[bytes | None]:
    async with dialled(network) as connection:
        return await Client(broker.running, connection).read("orders")


@pytest.mark.parametrize("end", [SimulatedBroker.kill, SimulatedBroker.cut_power], ids=["kill", "power"])
@pytest.mark.parametrize("flush", [1, None])
def test_acknowledged_records_survive(
    tmp_path: Path, end: Callable[[SimulatedBroker], object], flush: int | None
) -> None:
    async def main(seed: int) -> list[bytes | None]:
        network = MemoryNetwork(Random(seed))
        settings = {"log.flush.interval.messages": flush} if flush else {}
        async with SimulatedBroker(str(tmp_path / f"{seed}"), network, seed=seed, settings=settings) as broker:
            connection = await filled(broker, network)
            end(broker)
            with pytest.raises(RuntimeError, match=r"broker.start"):
                _ = broker.running
            with pytest.raises(ConnectionRefusedError):
                await network.dial(asyncio.Protocol, "broker", 9092, None)
            assert connection.closed
            await pass_time(100.0)
            await broker.start()
            return await values(broker, network)

    kept = [run_virtually(lambda seed=seed: main(seed))[0] for seed in range(5)]
    everything = [b"0", b"1", b"2"]
    if end is SimulatedBroker.kill or flush:
        assert kept == [everything] * 5
    else:
        assert all(each == everything[: len(each)] for each in kept) and kept != [everything] * 5


def test_open_calls_of_a_killed_broker_fail_and_nothing_of_it_runs_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        network = MemoryNetwork(Random(1), delay_s=(0.01, 0.02))
        broker = SimulatedBroker(str(tmp_path), network)
        await broker.start()
        connection = await filled(broker, network)
        open_call = connection.call(produce_request("orders", (0, batch(b"open"))), version_max=NAMED)
        await pass_time(0.005)
        broker.kill()
        with pytest.raises(KafkaConnectionError):
            await open_call
        await pass_time(0.0)
        assert not loop.pending_timers
        await broker.start()
        assert await values(broker, network) == [b"0", b"1", b"2"]
        await broker.stop()
        await pass_time(1.0)  # the ends of the streams arrive
        assert not loop.pending_timers and not network.servers

    run_virtually(main)


def test_paused_broker_responds_after_the_pause(tmp_path: Path) -> None:
    """As a process between SIGSTOP and SIGCONT: requests wait, and timers are late."""

    async def main() -> None:
        network, fired = MemoryNetwork(Random(1)), []
        loop = asyncio.get_running_loop()
        async with SimulatedBroker(str(tmp_path), network) as broker:
            connection = await filled(broker, network)
            clock = broker.running.clock
            clock.call_at(clock.monotonic() + 1.0, lambda: fired.append(loop.time()))
            clock.call_at(clock.monotonic() + 2.0, lambda: fired.append(-1.0)).cancel()
            broker.pause()
            open_call = connection.call(produce_request("orders", (0, batch(b"open"))), version_max=NAMED)
            await pass_time(5.0)
            assert not open_call.done() and not fired
            began = loop.time()
            broker.resume()
            await open_call
            assert fired == [began]
            assert await values(broker, network) == [b"0", b"1", b"2", b"open"]

    run_virtually(main)


def test_jobs_of_a_slow_disk_run_before_their_outcomes_are_applied(tmp_path: Path) -> None:
    """A power failure in front of the job loses what it would have flushed."""

    async def main(after_s: float, seed: int) -> tuple[bool, bool]:
        network = MemoryNetwork(Random(1))
        settings, directory = {"log.flush.interval.messages": 1}, str(tmp_path / f"{after_s}-{seed}")
        async with SimulatedBroker(directory, network, seed=seed, settings=settings) as broker:
            connection = await filled(broker, network)
            broker.slow_jobs(1.0)
            open_call = connection.call(produce_request("orders", (0, batch(b"slow"))), version_max=NAMED)
            await pass_time(after_s)
            answered = open_call.done()
            broker.cut_power()
            with suppress(KafkaConnectionError):
                await open_call
            await broker.start()
            return answered, (await values(broker, network))[3:] == [b"slow"]

    def found(after_s: float) -> set[tuple[bool, bool]]:
        return {run_virtually(lambda seed=seed: main(after_s, seed))[0] for seed in range(5)}

    assert (False, False) in found(0.4)
    assert found(0.6) == {(False, True)}
    assert found(1.1) == {(True, True)}
