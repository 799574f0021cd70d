"""Brokers of one machine with `kafkalite.coordination.directory`, and the deaths of the process that serves it."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkalite.cli.main import main
from kafkalite.clock import LoopClock, SystemRandom
from kafkalite.coordination.served.coordination import SERVERS
from kafkalite.coordination.served.local_socket import dial_directory
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession, connect_zookeeper
from kafkalite.server.broker import Broker, StartError
from kafkalite.storage import manager
from kafkalite.storage.recovery.load_logs import load_directories
from tests.kit.coordination_process import SESSION_MS
from tests.unit.coordination.served.test_failover import completed, on_loop

KILLS, SESSIONS = 20, 5


def broker(directory: Path, number: int, **settings: object) -> Broker:
    shared = {"kafkalite.coordination.directory": str(directory / "shared"), "broker.id": number}
    return Broker(directory / str(number), settings={**shared, **settings})


async def ids_of(directory: Path) -> list[str]:
    """The registered brokers."""
    clock = LoopClock(asyncio.get_running_loop())
    session = await Visitor(directory / "shared", clock).connect()
    names: list[str] = (await completed(lambda then: session.children("/brokers/ids", then)))[0]
    await completed(session.close)
    clock.close()
    return names


class Visitor:
    """A client of the directory that never serves it; counts what happens to its session."""

    def __init__(self, path: Path, clock: LoopClock) -> None:
        self._dial = partial(dial_directory, str(path))
        self._clock = clock
        self.resumed: asyncio.Queue[None] = asyncio.Queue()
        self.lost = 0
        self.session: ZooKeeperSession

    async def connect(self) -> ZooKeeperSession:
        self.session = await completed(
            lambda then: connect_zookeeper(
                SERVERS, SESSION_MS, then, dial=self._dial, clock=self._clock, random=SystemRandom(),
                on_lost=self._count_loss, on_resumed=lambda: self.resumed.put_nowait(None),
            )
        )  # fmt: skip
        return self.session

    def _count_loss(self) -> None:
        self.lost += 1
        self.resumed.put_nowait(None)  # a wait for it ends, too


@on_loop
async def test_brokers_of_one_machine_form_a_cluster_and_one_follows_the_other(tmp_path: Path) -> None:
    async with broker(tmp_path, 2) as second:
        async with broker(tmp_path, 1):
            assert await ids_of(tmp_path) == ["1", "2"]
            await second.stop()  # the broker that serves the directory
            assert await ids_of(tmp_path) == ["1"]
        async with broker(tmp_path, 2):
            assert await ids_of(tmp_path) == ["2"]


@on_loop
async def test_broker_that_recovers_its_logs_serves_the_tree_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two brokers that start after a power failure, each recovers while the other one does."""
    recovering, end = threading.Semaphore(0), threading.Event()

    def recover_slowly(*arguments: Any) -> Any:
        recovering.release()
        end.wait()
        return load_directories(*arguments)

    monkeypatch.setattr(manager, "load_directories", recover_slowly)
    brokers = [broker(tmp_path, number) for number in (1, 2)]
    starts = [asyncio.ensure_future(each.start()) for each in brokers]
    for _ in brokers:
        await asyncio.to_thread(recovering.acquire)
    end.set()
    await asyncio.gather(*starts)
    assert await ids_of(tmp_path) == ["1", "2"]
    for each in brokers:
        await each.stop()


@on_loop
async def test_zk_tree_shows_the_tree_of_a_directory(tmp_path: Path) -> None:
    def tree(*args: str) -> str:
        return CliRunner().invoke(main, ["zk", "tree", *args], prog_name="kafkalite").output

    shared = str(tmp_path / "shared")
    assert "no process serves the directory" in await asyncio.to_thread(tree, shared, "--timeout", "0.5")
    async with broker(tmp_path, 1):
        assert "/brokers/ids/1 " in await asyncio.to_thread(tree, shared, "/brokers/ids")
        (tmp_path / "shared").chmod(0o777)
        refusal = await asyncio.to_thread(tree, shared, "--timeout", "0.5")
        assert f"({shared}: its mode is 0777, other users have access" in refusal


@on_loop
async def test_a_directory_of_another_coordination_is_refused(tmp_path: Path) -> None:
    async with broker(tmp_path, 1):
        pass
    alone = Broker(tmp_path / "1", settings={"broker.id": 1})
    with pytest.raises(StartError, match=r"set zookeeper\.connect or kafkalite\.coordination\.directory if"):
        await alone.start()
    async with Broker(tmp_path / "2"):
        pass
    with pytest.raises(StartError, match=r"unset kafkalite\.coordination\.directory, .*`kafkalite cluster adopt`"):
        await broker(tmp_path, 2).start()
    elsewhere = str(tmp_path / "elsewhere")
    with pytest.raises(StartError, match=r"restore the tree, or correct kafkalite\.coordination\.directory"):
        await broker(tmp_path, 1, **{"kafkalite.coordination.directory": elsewhere}).start()


@pytest.mark.timeout(180)
def test_no_session_is_lost_when_the_serving_process_is_killed(tmp_path: Path) -> None:
    """20 times, with three processes that can serve; a change that was acknowledged is kept."""
    asyncio.run(kill_repeatedly(tmp_path / "shared"))


async def kill_repeatedly(path: Path) -> None:
    serving: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
    running: set[asyncio.subprocess.Process] = set()
    readers = []

    async def start() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.kit.coordination_process", str(path), stdout=asyncio.subprocess.PIPE
        )
        running.add(process)
        readers.append(asyncio.create_task(report(process)))

    async def report(process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while await process.stdout.readline():
            serving.put_nowait(process)

    clock = LoopClock(asyncio.get_running_loop())
    try:
        for _ in range(3):
            await start()
        first = await serving.get()
        visitors = [Visitor(path, clock) for _ in range(SESSIONS)]
        sessions = [await visitor.connect() for visitor in visitors]
        ids = [session.session_id for session in sessions]
        for number, session in enumerate(sessions):
            await completed(lambda then, n=number, s=session: s.create(f"/{n}", b"", then, ephemeral=True))  # type: ignore[misc]
        for number in range(KILLS):
            await completed(lambda then, n=number: sessions[0].create(f"/kept-{n}", b"", then))  # type: ignore[misc]
            first.kill()
            await first.wait()
            running.discard(first)
            await asyncio.gather(*(visitor.resumed.get() for visitor in visitors))
            assert [visitor.lost for visitor in visitors] == [0] * SESSIONS
            first = await serving.get()
            await start()
        assert [session.session_id for session in sessions] == ids
        names = (await completed(lambda then: sessions[0].children("/", then)))[0]
        assert set(names) >= {f"{number}" for number in range(SESSIONS)} | {f"kept-{n}" for n in range(KILLS)}
        for session in sessions:
            await completed(session.close)
    finally:
        for process in running:
            process.kill()
            await process.wait()
        await asyncio.gather(*readers)
        clock.close()
