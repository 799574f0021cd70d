"""A TCP proxy that reads Kafka's frames and hangs up when the broker has appended but the client has no response.

Rule: a chosen answer to a Produce is taken from the broker and dropped, then both connections are cut. An idempotent
producer must send the batch again, and the broker must answer it a second time with the offset of the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from random import Random
from types import TracebackType
from typing import Any

from kafkalite._speedups.codec import decode, read_request_header, read_response_header
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.records import Batch

PRODUCE = ProduceRequest.api_key
Sequenced = tuple[Any, int, int, int, int]  # topic, partition, producer id, epoch, base sequence


class CuttingProxy:
    """Between 127.0.0.1:`port` and a broker; an async context manager.

    Arguments:
        broker_port: where the broker listens.
        random: which answers are cut.
        share: of the Produce answers that are cut.
    """

    def __init__(self, broker_port: int, random: Random, share: float, port: int = 0) -> None:
        self.port = port
        self.cuts = 0
        self.answered_again = 0  # batches that were answered without error, and had been before
        self.unanswered = 0  # batches whose connection ended before their answer; they may be appended
        self.answered = asyncio.Event()  # set by each answer to a Produce
        self.wrong: list[str] = []  # to be asserted to be empty
        self.last_error: OSError | None = None
        self._broker_port = broker_port
        self._closed = False
        self._random = random
        self._share = share
        self._appended: dict[Sequenced, int] = {}
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        connections = list(self._connections)
        self.hang_up()
        await asyncio.gather(*connections, return_exceptions=True)
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """From now on nothing comes through, until `resume`."""
        self._closed = True
        for connection, writer in self._connections.items():
            writer.transport.abort()
            connection.cancel()

    def resume(self) -> None:
        """Take connections again."""
        self._closed = False

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections[connection] = writer
        connection.add_done_callback(self._ended)  # also of one that is cancelled before its first step

    def _ended(self, connection: asyncio.Task[None]) -> None:
        self._connections.pop(connection).transport.abort()
        error = None if connection.cancelled() else connection.exception()
        if isinstance(error, OSError):
            self.last_error = error  # the broker is gone: the client comes again
        elif error is not None:
            self.wrong.append(f"a connection ended with {error!r}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        asked: deque[tuple[int, int, list[Sequenced]]] = deque()
        ways = [
            asyncio.create_task(self._forth(reader, broker_writer, asked)),
            asyncio.create_task(self._back(broker_reader, writer, asked)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            broker_writer.transport.abort()
            for way in ways:
                way.cancel()
            outcomes = await asyncio.gather(*ways, return_exceptions=True)
            self.unanswered += sum(len(sequenced) for _, _, sequenced in asked)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | EOFError):
                raise outcome

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[Any]) -> None:
        while True:
            frame = await _frame(reader)
            header = read_request_header(frame)
            sequenced: list[Sequenced] = []
            if header.api_key == PRODUCE:
                sequenced = list(_sequenced(decode(ProduceRequest, header.api_version, header.body)))
            asked.append((header.api_key, header.api_version, sequenced))
            writer.writelines((len(frame).to_bytes(4, "big"), frame))
            await writer.drain()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[Any]) -> None:
        while True:
            frame = await _frame(reader)
            api_key, version, sequenced = asked.popleft()
            if api_key == PRODUCE:
                self._note(sequenced, version, frame)
                self.answered.set()
                if self._random.random() < self._share:
                    self.cuts += 1
                    return
            writer.writelines((len(frame).to_bytes(4, "big"), frame))
            await writer.drain()

    def _note(self, sequenced: list[Sequenced], version: int, frame: bytes) -> None:
        _, body = read_response_header(ProduceResponse, version, frame)
        answer = decode(ProduceResponse, version, body)
        parts = {  # Apache Kafka's response has another order than the request
            (topic.name or topic.topic_id, part.index): part
            for topic in answer.responses
            for part in topic.partition_responses
        }
        for batch in sequenced:
            part = parts[batch[0], batch[1]]
            if part.error_code:
                continue
            first = self._appended.get(batch)
            if first is None:
                self._appended[batch] = part.base_offset
                continue
            self.answered_again += 1
            if first != part.base_offset:
                self.wrong.append(f"{batch} answered with {part.base_offset}, at first with {first}")


def _sequenced(request: Any) -> Iterator[Sequenced]:
    for topic in request.topic_data:
        for part in topic.partition_data:
            batch = Batch(part.records)
            yield topic.name or topic.topic_id, part.index, batch.producer_id, batch.producer_epoch, batch.base_sequence


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
