"""Sessions of 200 connections are renewed, and certificates replaced, while requests are open (KAFKA-19561)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite.errors import KafkaConnectionError, KafkaError
from kafkalite.net.client import ClientConnection
from kafkalite.net.sasl.scram import ScramClient, make_credential
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.broker import Broker
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.certificates import Authority
from tests.kit.server import batch, fetch_request, produce_request
from tests.story.server.test_tls_listeners import client_context, reloaded, subject

CONNECTIONS, BUSY = 200, 20  # the others are idle
SESSION_MS = 2_000
SHORT_S, LONG_S = 6.0, 60.0
PAUSE_S = 0.05
MECHANISM, USER, PASSWORD = "SCRAM-SHA-512", "alice", "correct horse"
SETTINGS = {
    "sasl.enabled.mechanisms": MECHANISM,
    f"listener.name.secure.{MECHANISM.lower()}.connections.max.reauth.ms": str(SESSION_MS),
    "auto.create.topics.enable": "true",
}
PAYLOAD = batch(bytes(30_000))


class Sessions:
    """Connections to a broker, each with a session that ends.

    Arguments:
        connect: opens a connection.
        pause: called between the requests of a connection.

    Attributes:
        ended: reasons why connections have ended.
        answered: number of responses.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[ClientConnection]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        self.ended: list[KafkaError] = []
        self.answered = 0
        self._connect = connect
        self._pause = pause
        self._connections: list[ClientConnection] = []

    async def open(self) -> None:
        """Open all connections, some at a time."""
        limit = asyncio.Semaphore(20)

        async def connect() -> None:
            async with limit:
                self._connections.append(await self._connect())

        await asyncio.gather(*(connect() for _ in range(CONNECTIONS)))

    async def load(self, stop: asyncio.Event) -> None:
        """Send small and large requests, four at a time on each busy connection."""
        await asyncio.gather(*(self._send(index, stop) for index in range(BUSY)))

    async def _send(self, index: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            requests: list[Any] = [
                MetadataRequest(topics=None),
                produce_request("t", (0, PAYLOAD)),
                fetch_request("t", (0, 0), max_bytes=100_000),
                MetadataRequest(topics=None),
            ]
            connection = self._connections[index]
            try:
                await asyncio.gather(*(connection.call(each, version_max=11) for each in requests))
            except KafkaConnectionError as error:
                self.ended.append(error)
                self._connections[index] = await self._connect()
            else:
                self.answered += len(requests)
            await self._pause()

    async def close(self) -> None:
        """Close all."""
        await asyncio.gather(*(each.close() for each in self._connections))


def add_user(running: RunningBroker) -> None:
    users = running.credentials
    assert users is not None
    users._known[MECHANISM][USER] = make_credential(MECHANISM, PASSWORD)


def connections_of(running: RunningBroker) -> set[Any]:
    """The open connections of a simulated broker."""
    drivers: Any = running.listening._drivers.values()
    return {each for hub in drivers for each in hub.connections}


def test_renewed_sessions_keep_their_connections(tmp_path: Path) -> None:
    """No connection ends, idle or with open requests."""

    async def main() -> None:
        network = MemoryNetwork(Random(1), delay_s=(0.0001, 0.002))
        protocols = {
            "listeners": "SECURE://broker:9092",
            "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SECURE",
        }
        async with SimulatedBroker(str(tmp_path), network, settings={**SETTINGS, **protocols}) as broker:
            add_user(broker.running)
            login = ScramClient(MECHANISM, USER, PASSWORD)  # one: the password is hashed once

            async def connect() -> ClientConnection:
                connection = ClientConnection("broker", 9092, sasl=login, dial=network.dial)
                await connection.connect()
                return connection

            sessions, stop = Sessions(connect, lambda: pass_time(PAUSE_S)), asyncio.Event()
            await sessions.open()
            opened = connections_of(broker.running)
            load = asyncio.ensure_future(sessions.load(stop))
            await pass_time(SHORT_S)
            stop.set()
            await load
            assert connections_of(broker.running) == opened and len(opened) == CONNECTIONS
            assert not sessions.ended and sessions.answered > 1_000, (sessions.ended[:1], sessions.answered)
            await sessions.close()

    run_virtually(main)


@pytest.mark.torture
@pytest.mark.long_form
async def test_certificates_are_replaced_meanwhile(tmp_path: Path) -> None:
    """Over TLS, for a minute: every request is answered, at the second attempt if a session was renewed too late."""
    authority = Authority(tmp_path / "authority")
    store = tmp_path / "broker.pem"
    shutil.copy(authority.issue("first").bundle(), store)
    own = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    loop = asyncio.get_running_loop()
    async with Broker(None, {**SETTINGS, **own}) as broker:
        add_user(broker.running)
        port = broker.addresses[1].port
        login, context = ScramClient(MECHANISM, USER, PASSWORD), client_context(authority)

        async def connect() -> ClientConnection:
            connection = ClientConnection("127.0.0.1", port, sasl=login, ssl=context, connect_timeout_s=60.0)
            await connection.connect()
            return connection

        async def go_on() -> None:
            """Send the next requests at once."""

        sessions, stop = Sessions(connect, go_on), asyncio.Event()
        await sessions.open()
        load = asyncio.ensure_future(sessions.load(stop))
        end, rounds = loop.time() + LONG_S, 0
        while loop.time() < end:
            rounds += 1
            pem = await asyncio.to_thread(authority.issue, f"round-{rounds}")
            shutil.copy(pem.bundle(), store)
            await reloaded(broker)
            assert await subject(f"127.0.0.1:{port}", authority) == f"round-{rounds}"
            answered = sessions.answered + 100
            while sessions.answered < answered:
                await asyncio.wait([load], timeout=SESSION_MS / 1000)
                assert not load.done()
        stop.set()
        await load
        assert len(sessions.ended) <= rounds, sessions.ended[:3]
        await sessions.close()
