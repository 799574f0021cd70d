"""The port of a secured broker that clients know: it passes TLS on, and logs in for clients without it.

    python -m tests.kit.secured.front PORT BROKER_PORT CAFILE

prints `ready` and serves until its standard input ends. The first byte of a connection distinguishes TLS from Kafka's
protocol, whose frames begin with the high byte of their size.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import sys

from kafkalite.net.sasl.scram import ScramClient
from kafkalite.net.sasl.steps import Job
from perf.wire import frame
from tests.kit.secured.logins import HOST, MECHANISM, PASSWORD, USER

CHUNK = 1 << 16
HANDSHAKE_RECORD = 0x16
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class Front:
    """Connections to a broker at BROKER_PORT, whose authority is in `cafile`."""

    def __init__(self, broker_port: int, cafile: str) -> None:
        self._port = broker_port
        self._context = ssl.create_default_context(cafile=cafile)
        self._scram = ScramClient(MECHANISM, USER, PASSWORD)
        self._tasks = set[asyncio.Task[None]]()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A new connection."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(CHUNK)
            if first:
                broker_reader, broker_writer = await self._connect(first[0] == HANDSHAKE_RECORD)
                broker_writer.write(first)
                await passed_on((reader, broker_writer), (broker_reader, writer))
        except (OSError, EOFError):
            writer.transport.abort()  # the broker is gone, or the client
        finally:
            writer.close()

    async def _connect(self, is_tls: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if is_tls:
            return await asyncio.open_connection(HOST, self._port)
        reader, writer = await asyncio.open_connection(HOST, self._port, ssl=self._context)
        await self._log_in(reader, writer)
        return reader, writer

    async def _log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = struct.pack(">h", len(MECHANISM)) + MECHANISM.encode()
        await call(reader, writer, frame(SASL_HANDSHAKE, 1, 1, name, flexible=False))
        steps = await self._scram.begin(HOST)
        message = next(steps)
        try:
            while True:
                if isinstance(message, Job):
                    message = steps.send(message.run())
                    continue
                body = struct.pack(">i", len(message)) + message
                response = await call(reader, writer, frame(SASL_AUTHENTICATE, 0, 1, body, flexible=False))
                error, text_size = struct.unpack_from(">hh", response, 4)
                assert error == 0, f"the login failed with error {error}"
                message = steps.send(response[8 + max(0, text_size) + 4 :])
        except StopIteration:
            return


async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Send a request; return its response without the size."""
    writer.write(request)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def passed_on(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Pass bytes on in both directions until one of them ends."""
    tasks = [asyncio.ensure_future(copy(*way)) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for task, (_, writer) in zip(tasks, ways, strict=True):
            task.cancel()
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end of the stream."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


async def main(port: int, broker_port: int, cafile: str) -> None:
    server = await asyncio.start_server(Front(broker_port, cafile).accept, HOST, port, backlog=1024)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
