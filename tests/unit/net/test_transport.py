"""TLS through the transport driver."""

import asyncio
import ssl
import subprocess

import pytest

from kafkalite._speedups.file import Disk, FileRegion
from kafkalite.net.peer import Peer
from kafkalite.protocol.messages.metadata import MetadataRequest
from tests.unit.net.rig import Rig, both_loops, frame, read_frame, until
from tests.unit.net.test_peer import Speaker


@pytest.fixture(scope="session")
def contexts(tmp_path_factory):
    """A server and a client context around a certificate that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost "
        "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cafile=str(folder / "cert.pem"))


@both_loops(drivers=["transport"])
async def test_requests_of_all_sizes_come_back_in_order(contexts):
    server, client = contexts
    async with Rig(ssl=server) as rig:
        reader, writer = await asyncio.open_connection(*rig.address, ssl=client)
        bodies = [bytes([i % 256]) * size for i, size in enumerate([8, 100, 20_000, 300_000, 9, 2_000_000, 8])]
        writer.write(b"".join(map(frame, bodies)))
        assert [await read_frame(reader) for _ in bodies] == bodies
        writer.close()
        await until(lambda: rig.echo.gone)


@both_loops(drivers=["transport"])
async def test_file_regions_are_read(contexts, tmp_path):
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
async def test_many_open_replies_stall_and_go_on(contexts):
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
async def test_a_plaintext_client_on_a_tls_port_is_only_closed(contexts):
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
async def test_a_peer_speaks_tls(contexts):
    server, client = contexts
    async with Rig(ssl=server) as rig:
        Speaker(rig)
        async with Peer(*rig.address, ssl=client) as peer:
            assert (await peer.call(MetadataRequest(topics=[]))).controller_id == 2
