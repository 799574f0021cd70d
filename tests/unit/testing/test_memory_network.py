"""Connections in memory behave as those of asyncio, and fail as a test demands."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from kafkalite.testing.memory_network import HIGH_WATER_BYTES, WINDOW_BYTES, MemoryNetwork
from kafkalite.testing.virtual_loop import VirtualTimeError, pass_time, run_virtually


class Half(asyncio.Protocol):
    """Keeps what it receives, with the times."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.data = bytearray()
        self.pieces = 0
        self.paused = False
        self.eof_at: float | None = None
        self.lost: list[tuple[float, Exception | None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def eof_received(self) -> bool:
        self.eof_at = asyncio.get_running_loop().time()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append((asyncio.get_running_loop().time(), error))

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


Scenario = Callable[[MemoryNetwork, Half, Half], Awaitable[None]]


def connected(scenario: Scenario, **options: object) -> None:
    async def main() -> None:
        network = MemoryNetwork(Random(1), **options)  # type: ignore[arg-type]
        server, client = Half(), Half()
        network.listen(lambda: server, "broker", 9092)
        await network.dial(lambda: client, "broker", 9092, None)
        await scenario(network, client, server)

    run_virtually(main)


def test_fragments_with_random_delays_arrive_in_order() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        for each in range(100):
            client.transport.write(bytes([each]) * 50)
        assert not server.data, "nothing arrives inside write"
        await pass_time(1.0)
        assert server.data == b"".join(bytes([each]) * 50 for each in range(100)) and server.pieces > 10

    connected(scenario, delay_s=(0.0, 0.1), fragment_bytes=20)


def test_writer_is_paused_while_the_peer_does_not_read() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        server.transport.pause_reading()
        client.transport.write(bytes(WINDOW_BYTES + HIGH_WATER_BYTES))
        assert not client.paused
        client.transport.write(b"x")
        assert client.paused and client.transport.get_write_buffer_size() == HIGH_WATER_BYTES + 1
        await pass_time(10.0)
        assert not server.data and client.paused
        server.transport.resume_reading()
        await pass_time(1.0)
        assert len(server.data) == WINDOW_BYTES + HIGH_WATER_BYTES + 1 and not client.paused

    connected(scenario)


def test_close_delivers_what_was_written_and_ends_both_sides() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        client.transport.write(b"last")
        client.transport.close()
        client.transport.write(b"ignored")
        await pass_time(1.0)
        assert server.data == b"last" and server.eof_at is not None
        assert [error for _, error in client.lost + server.lost] == [None, None]

    connected(scenario)


def test_close_waits_for_a_peer_that_does_not_read_and_abort_does_not() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        server.transport.pause_reading()
        client.transport.write(bytes(WINDOW_BYTES + 1))
        client.transport.close()
        await pass_time(10.0)
        assert client.transport.is_closing() and not client.lost
        client.transport.abort()
        await pass_time(0.0)
        assert [error for _, error in client.lost] == [None]
        assert isinstance(server.lost[0][1], ConnectionResetError)

    connected(scenario)


def test_reset_loses_bytes_in_transit() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        client.transport.write(b"lost")
        assert network.reset("broker", 9092) == 1
        await pass_time(1.0)
        assert not server.data and network.reset("broker", 9092) == 0
        assert all(isinstance(error, ConnectionResetError) for _, error in client.lost + server.lost)

    connected(scenario)


def test_write_to_a_closed_peer_resets_the_connection() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        server.transport.close()
        client.transport.write(b"too late")
        await pass_time(1.0)
        assert [error for _, error in server.lost] == [None]
        assert len(client.lost) == 1

    connected(scenario)


def test_stall_holds_back_bytes_and_new_connections() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        network.stall("broker", 9092, 3.0)
        client.transport.write(b"held")
        dialing = asyncio.ensure_future(network.dial(Half, "broker", 9092, None))
        await pass_time(2.9)
        assert not server.data and not dialing.done()
        await pass_time(0.2)
        assert server.data == b"held" and dialing.done()

    connected(scenario)


def test_paused_host_receives_nothing_and_what_it_has_sent_arrives() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        server.transport.write(b"sent before")
        network.pause("broker")
        client.transport.write(b"received later")
        dialing = asyncio.ensure_future(network.dial(Half, "broker", 9092, None))
        await pass_time(3.0)
        assert client.data == b"sent before" and not server.data and not dialing.done()
        network.resume("broker")
        await pass_time(0.1)
        assert server.data == b"received later" and dialing.done()

    connected(scenario)


def test_paused_host_notices_the_end_of_a_connection_later() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        network.pause("broker")
        client.transport.abort()
        await pass_time(3.0)
        assert client.lost and not server.lost
        network.resume("broker")
        await pass_time(0.1)
        assert len(server.lost) == 1

    connected(scenario)


def test_one_direction_is_held_back_from_a_chosen_write_on() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        begun: list[float] = []
        loop = asyncio.get_running_loop()
        hold = network.hold_next("client", "broker", b"late", lambda: begun.append(loop.time()))
        client.transport.write(b"early,")
        await pass_time(1.0)
        assert server.data == b"early," and not begun
        client.transport.write(b"is late,")
        client.transport.write(b"later")
        server.transport.write(b"late, but in the other direction")
        await pass_time(1.0)
        assert server.data == b"early," and client.data and len(begun) == 1
        hold.release()
        await pass_time(1.0)
        assert server.data == b"early,is late,later" and not network.holds

    connected(scenario)


def test_a_hold_that_is_released_or_whose_connection_ends_holds_nothing_back() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        network.hold_next("client", "broker", b"x", lambda: None).release()
        client.transport.write(b"x")
        await pass_time(1.0)
        assert server.data == b"x" and not network.holds
        hold = network.hold_next("client", "broker", b"x", lambda: None)
        client.transport.write(b"x")
        network.reset("broker", 9092)
        hold.release()
        await pass_time(1.0)
        assert server.data == b"x" and len(server.lost) == 1

    connected(scenario)


def test_responses_to_some_hosts_are_held_back() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        assert network.hold_responses("unknown", 9092, ["client"])() is None
        network.hold_responses("broker", 9092, ["other"])
        server.transport.write(b"one,")
        await pass_time(1.0)
        release = network.hold_responses("broker", 9092, ["client"])
        client.transport.write(b"request")
        server.transport.write(b"two")
        await pass_time(1.0)
        assert (client.data, server.data) == (b"one,", b"request")
        release()
        await pass_time(1.0)
        assert client.data == b"one,two"

    connected(scenario)


def test_refused_and_unknown_addresses() -> None:
    async def scenario(network: MemoryNetwork, client: Half, server: Half) -> None:
        network.refuse("broker", 9092)
        for port in (9092, 1):
            with pytest.raises(ConnectionRefusedError):
                await network.dial(Half, "broker", port, None)
        network.accept("broker", 9092)
        await network.dial(Half, "broker", 9092, None)
        with pytest.raises(OSError, match="in use"):
            network.listen(Half, "broker", 9092)

    connected(scenario)


def test_code_that_waits_for_ever_and_lost_exceptions_fail_a_virtual_run() -> None:
    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def fails() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await pass_time(1.0)

    with pytest.raises(VirtualTimeError, match="for ever"):
        run_virtually(waits)
    with pytest.raises(VirtualTimeError) as caught:
        run_virtually(fails)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_pass_time_is_for_virtual_time_only() -> None:
    with pytest.raises(VirtualTimeError, match="await an event"):
        await pass_time(1.0)
