"""The session over TLS and TCP, on asyncio and uvloop: against the fake server."""

import asyncio
import ssl
from collections.abc import Callable

import pytest
import uvloop

from kafkalite.clock import LoopClock, Outcome, SystemRandom
from kafkalite.coordination.zookeeper.session import ZooKeeperSession, connect_zookeeper
from kafkalite.net.client.connection import dial
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


async def connect(address: str, context: ssl.SSLContext | None, results: Results) -> ZooKeeperSession:
    clock = LoopClock(asyncio.get_running_loop())
    return connect_zookeeper(
        address, 6000, results.then, dial=dial, clock=clock, random=SystemRandom(), ssl=context
    )  # fmt: skip


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_session_over_sockets(
    authority: Authority, secure: bool, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        loop, results = asyncio.get_running_loop(), Results()
        fake = FakeZooKeeper(LoopClock(loop))
        server_context = authority.server_context(authority.issue("server")) if secure else None
        server = await loop.create_server(fake.accept, "127.0.0.1", 0, ssl=server_context)
        port = server.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cafile=str(authority.cert)) if secure else None
        session = await connect(f"localhost:{port}", context, results)
        await results.get(1)
        for number in range(1000):
            session.create(f"/{number}", bytes(100), results.then)
        session.children("/", results.then)
        session.close(results.then)
        outcomes = await results.get(1003)
        assert [each.error for each in outcomes] == [None] * 1003
        assert len(outcomes[1001].value[0]) == 1000
        server.close()
        await server.wait_closed()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_untrusted_certificate_is_named_in_the_log(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    """The session waits: an operator may correct the certificate of the server."""

    async def main() -> None:
        loop, results = asyncio.get_running_loop(), Results()
        fake = FakeZooKeeper(LoopClock(loop))
        attempts = asyncio.Event()

        async def counting_dial(*arguments: object) -> None:
            attempts.set()
            await dial(*arguments)  # type: ignore[arg-type]

        server_context = authority.server_context(authority.issue("other", "DNS:elsewhere"))
        server = await loop.create_server(fake.accept, "127.0.0.1", 0, ssl=server_context)
        port = server.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cafile=str(authority.cert))
        session = connect_zookeeper(
            f"localhost:{port}", 6000, results.then, dial=counting_dial, clock=LoopClock(loop), random=SystemRandom(),
            ssl=context,
        )  # fmt: skip
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(2):  # the second attempt begins after the failure of the first
                await attempts.wait()
                attempts.clear()
        session.close(lambda outcome: None)
        server.close()
        await server.wait_closed()
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text and fake.connects == []

    asyncio.run(main())
