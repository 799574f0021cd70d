"""The session over TLS and TCP, on asyncio and uvloop: against the fake server."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvloop

from kafkalite.clock import LoopClock, Outcome, SystemRandom
from kafkalite.coordination.errors import TlsError
from kafkalite.coordination.zookeeper.access import Access
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession, connect_zookeeper
from kafkalite.net.client.connection import Dial, dial
from kafkalite.net.tls import FixedContext
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from tests.kit.certificates import Authority

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


class Results:
    """Outcomes, and an event of each."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._arrived = asyncio.Event()

    def then(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._arrived.set()

    async def get(self, count: int) -> list[Outcome]:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.outcomes) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.outcomes


async def connect(
    address: str, context: ssl.SSLContext | None, results: Results, connecting: Dial = dial
) -> ZooKeeperSession:
    clock = LoopClock(asyncio.get_running_loop())
    access = Access(tls=None if context is None else FixedContext(context))
    return connect_zookeeper(
        address, 6000, results.then, dial=connecting, clock=clock, random=SystemRandom(), access=access
    )


async def listen(fake: FakeZooKeeper, context: ssl.SSLContext | None, port: int = 0) -> asyncio.Server:
    return await asyncio.get_running_loop().create_server(fake.accept, "127.0.0.1", port, ssl=context)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def end(*servers: asyncio.Server) -> None:
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_session_over_sockets(
    authority: Authority, secure: bool, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        loop, results = asyncio.get_running_loop(), Results()
        fake = FakeZooKeeper(LoopClock(loop))
        server_context = authority.server_context(authority.issue("server")) if secure else None
        server = await listen(fake, server_context)
        context = ssl.create_default_context(cafile=str(authority.cert)) if secure else None
        session = await connect(f"localhost:{port_of(server)}", context, results)
        await results.get(1)
        for number in range(1000):
            session.create(f"/{number}", bytes(100), results.then)
        session.children("/", results.then)
        session.close(results.then)
        outcomes = await results.get(1003)
        assert [each.error for each in outcomes] == [None] * 1003
        assert len(outcomes[1001].value[0]) == 1000
        await end(server)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_a_certificate_that_is_not_trusted_ends_the_first_attempt(authority: Authority) -> None:
    async def main() -> None:
        results, fake = Results(), FakeZooKeeper(LoopClock(asyncio.get_running_loop()))
        server = await listen(fake, authority.server_context(authority.issue("other", "DNS:elsewhere")))
        context = ssl.create_default_context(cafile=str(authority.cert))
        session = await connect(f"localhost:{port_of(server)}", context, results)
        (outcome,) = await results.get(1)
        assert isinstance(outcome.error, TlsError) and session.lost
        assert "the certificate of the server is not accepted: Hostname mismatch" in str(outcome.error)
        assert fake.connects == []
        await end(server)

    asyncio.run(main())


@contextmanager
def rejecting(context: ssl.SSLContext) -> Iterator[int]:
    """A server that requires a certificate, in a thread; its port. asyncio's servers close without TLS's alert."""

    def serve() -> None:
        while True:
            try:
                accepted = listening.accept()[0]
            except OSError:  # the end of the test
                return
            with context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as secure:
                with suppress(ssl.SSLError):
                    secure.do_handshake()
                secure.shutdown(socket.SHUT_WR)
                while secure.recv(4096):  # a connection that is closed before is reset, and the alert may be lost
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_server_that_requires_a_certificate_ends_the_first_attempt(
    authority: Authority, version: ssl.TLSVersion, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """With TLS 1.3 the rejection arrives after the handshake of the client."""

    async def main(port: int) -> None:
        results = Results()
        context = ssl.create_default_context(cafile=str(authority.cert))
        session = await connect(f"localhost:{port}", context, results)
        (outcome,) = await results.get(1)
        assert isinstance(outcome.error, TlsError) and session.lost, outcome
        assert "the TLS handshake has failed: " in str(outcome.error)

    server_context = authority.server_context(authority.issue("strict"), clients=True)
    server_context.minimum_version = server_context.maximum_version = version
    with rejecting(server_context) as port, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(port))


def test_one_server_with_a_wrong_certificate_is_passed_over(authority: Authority) -> None:
    async def main() -> None:
        results, fake = Results(), FakeZooKeeper(LoopClock(asyncio.get_running_loop()))
        wrong = [await listen(fake, authority.server_context(authority.issue("other", "DNS:elsewhere"))) for _ in "ab"]
        right = await listen(fake, authority.server_context(authority.issue("server")))
        context = ssl.create_default_context(cafile=str(authority.cert))
        servers = ",".join(f"localhost:{port_of(each)}" for each in (*wrong, right))
        session = await connect(servers, context, results)
        assert (await results.get(1))[0].value is session
        session.close(results.then)
        await results.get(2)
        await end(right, *wrong)

    asyncio.run(main())


def test_an_established_session_waits_for_a_correct_certificate(authority: Authority) -> None:
    """Its server gets a wrong certificate meanwhile."""

    async def main() -> None:
        results, rejected = Results(), asyncio.Event()

        async def watched_dial(*arguments: Any) -> None:
            try:
                await dial(*arguments)
            except ssl.SSLCertVerificationError:
                rejected.set()
                raise

        fake = FakeZooKeeper(LoopClock(asyncio.get_running_loop()))
        server = await listen(fake, authority.server_context(authority.issue("server")))
        port = port_of(server)
        context = ssl.create_default_context(cafile=str(authority.cert))
        session = await connect(f"localhost:{port}", context, results, watched_dial)
        await results.get(1)
        server.close()
        for each in fake.sessions.values():
            assert each.connection is not None
            each.connection.transport.abort()
        wrong = await listen(fake, authority.server_context(authority.issue("other", "DNS:elsewhere")), port)
        session.exists("/", results.then)
        for _ in range(2):  # the second attempt begins after the failure of the first
            async with asyncio.timeout(DEADLINE_S):
                await rejected.wait()
            rejected.clear()
        assert session.suspended and len(results.outcomes) == 1
        await end(server, wrong)
        right = await listen(fake, authority.server_context(authority.issue("server")), port)
        assert (await results.get(2))[1].error is None
        session.close(results.then)
        await results.get(3)
        await end(right)

    asyncio.run(main())
