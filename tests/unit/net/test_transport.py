"""TLS through the transport driver."""

import asyncio
import gc
import weakref

import pytest

from kafkalite._speedups.storage.file import Disk, FileRegion
from kafkalite.net.client import ClientConnection
from kafkalite.net.transport import OVERFLOW_BYTES
from kafkalite.protocol.messages.metadata import MetadataRequest
from tests.unit.net.rig import Rig, both_loops, frame, read_frame, round_trip, until
from tests.unit.net.test_client import Speaker


@both_loops(drivers=["transport"])
async def test_transport_answers_requests_of_all_sizes_in_order(contexts):
    server, client = contexts
    async with Rig(ssl=server) as rig:
        reader, writer = await asyncio.open_connection(*rig.address, ssl=client)
        bodies = [bytes([i % 256]) * size for i, size in enumerate([8, 100, 20_000, 300_000, 9, 2_000_000, 8])]
        writer.write(b"".join(map(frame, bodies)))
        assert [await read_frame(reader) for _ in bodies] == bodies
        writer.close()
        await until(lambda: rig.echo.gone)


@both_loops(drivers=["transport"])
async def test_transport_reads_file_regions(contexts, tmp_path):
    server, client = contexts
    data = bytes(i % 251 for i in range(1_500_000))
    (tmp_path / "log").write_bytes(data)
    file = Disk().open(str(tmp_path / "log"), read_only=True)
    async with Rig(ssl=server) as rig:
        rig.echo.answer = lambda body: [b"head", FileRegion(file, 7, 1_400_000), b"tail"]
        reader, writer = await asyncio.open_connection(*rig.address, ssl=client)
        writer.write(frame(b"fetch---") * 4)
        for _ in range(4):
            assert await read_frame(reader) == b"head" + data[7:1_400_007] + b"tail"
        writer.close()
    file.close()


@both_loops(drivers=["transport"])
async def test_transport_stalls_at_open_replies_max_and_continues(contexts):
    server, client = contexts
    async with Rig(ssl=server, open_replies_max=3) as rig:
        rig.echo.later = lambda body: True
        reader, writer = await asyncio.open_connection(*rig.address, ssl=client)
        writer.write(frame(b"12345678" + bytes(50_000)) * 20)
        for _ in range(20):
            await until(lambda: rig.echo.open)
            assert len(rig.echo.open) <= 3
            reply, body = rig.echo.open.pop(0)
            reply.send(body[:8])
            assert await read_frame(reader) == b"12345678"
        writer.close()


@both_loops(drivers=["transport"])
async def test_plaintext_client_on_a_tls_port_is_closed(contexts):
    server, client = contexts
    async with Rig(ssl=server) as rig:
        reader, writer = await rig.open()
        writer.write(frame(b"12345678"))
        await reader.read()
        writer.close()
        assert rig.echo.connections == []
        await until(lambda: rig.listener.reactor.connections_count == 0)
        assert rig.listener.reactor.connections_of("127.0.0.1") == 0
        reader, writer = await asyncio.open_connection(*rig.address, ssl=client)
        writer.write(frame(b"12345678"))
        assert await read_frame(reader) == b"12345678"
        writer.close()


@both_loops(drivers=["transport"])
async def test_tls_client_is_served(contexts):
    server, client = contexts
    async with Rig(ssl=server) as rig:
        Speaker(rig)
        async with ClientConnection(*rig.address, ssl=client) as peer:
            assert (await peer.call(MetadataRequest(topics=[]))).controller_id == 2


@pytest.mark.parametrize("end", ["closed", "aborted", "closed by the broker"])
@both_loops(drivers=["transport"])
async def test_connection_is_freed_at_its_end_without_the_garbage_collector(contexts, end):
    """Else the collector stops the loop for 20 ms after 4,000 connections, and each one has 25 KiB until then."""
    server, client = contexts
    async with Rig(ssl=server) as rig:
        gc.collect()
        gc.disable()
        try:
            reader, writer = await asyncio.open_connection(*rig.address, ssl=client)
            writer.write(frame(b"12345678"))
            assert await read_frame(reader) == b"12345678"
            connection = weakref.ref(rig.echo.connections.pop())
            if end == "aborted":
                writer.transport.abort()
            elif end == "closed":
                writer.close()
            else:
                connection().close("by the broker")
                connection().hub.run()
                assert await reader.read() == b""
                writer.close()
            await until(lambda: rig.echo.gone)
            rig.echo.gone.clear()
            await until(lambda: connection() is None)
        finally:
            gc.enable()


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
@both_loops(drivers=["transport"])
async def test_inbox_counts_as_request_memory_and_is_bounded(contexts, with_tls):
    server, client = contexts if with_tls else (None, None)
    large = b"x" * 700_000
    async with Rig(ssl=server, all_requests_bytes_max=1_000_000, guaranteed_bytes=1) as rig:
        rig.echo.later = lambda body: len(body) == len(large)
        memory = rig.listener.reactor.memory
        reader, writer = await rig.open(client)
        writer.write(frame(large))
        await until(lambda: rig.echo.frames == 1)
        connection = rig.echo.connections[0]
        bodies = [bytes([number % 256]) * 1000 for number in range(1000)]
        writer.write(b"".join(map(frame, bodies)))
        await until(lambda: memory.denied_count == 1)
        others = [await round_trip(rig, ssl=client) for _ in range(5)]
        assert 0 < len(connection.inbox) <= OVERFLOW_BYTES
        assert memory.held_bytes == len(large) + len(connection.inbox)
        rig.echo.open.pop()[0].send(b"answer")
        assert await read_frame(reader) == b"answer"
        assert [await read_frame(reader) for _ in bodies] == bodies
        assert (memory.held_bytes, memory.denied_count, len(connection.inbox)) == (0, 0, 0)
        for each in (writer, *others):
            each.close()
