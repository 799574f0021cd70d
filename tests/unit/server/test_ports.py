"""The broker takes time, random numbers, threads, disk and sockets from its ports alone."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import kafkalite
from kafkalite.coordination.errors import NoAuthError
from kafkalite.coordination.tree import Operation, Result, Tree
from kafkalite.coordination.zookeeper.opening import SessionOpening
from kafkalite.server.process.ports import connect_zookeeper
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.zookeeper_proxy import REQUEST, RESPONSE, Fault, Stage
from tests.unit.coordination.zookeeper.rig import HOST, PORT, TIMEOUT_MS, Rig

PACKAGE = Path(kafkalite.__file__).parent
PACKAGES = ("server", "cluster", "coordinators", "coordination", "storage", "state")
CREATED = re.compile(
    r"\b(time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|sleep)\(|os\.urandom\(|import random\b|uuid\.uuid4\(|"
    r"Thread\(|ThreadPoolExecutor\(|socket\.socket\(|LoopClock\(|SystemRandom\(|ThreadOffload\(|Disk\(\)|Listener\()"
)
KNOWN = {
    "coordination/served/local_socket.py: socket.socket(",  # a Unix socket between processes of one machine
    "server/process/resources.py: Disk()",  # of a broker without a disk in its ports
    "server/process/sd_notify.py: socket.socket(",  # used by `serve` alone
    "storage/recovery/load_logs.py: ThreadPoolExecutor(",  # joined within the call
    "storage/recovery/load_logs.py: time.monotonic(",  # for a log line
}


def test_broker_creates_no_clock_random_thread_disk_or_socket() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for package in PACKAGES
        for path in (PACKAGE / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith(("class ", "#"))
        for match in CREATED.finditer(line)
        if "def " not in line
    }
    assert found == KNOWN


def open_session(rig: Rig, chroot: str, key: tuple[int, bytes] | None = None) -> SessionOpening:
    """Begin to open a session; its outcome and its loss are logged."""
    return connect_zookeeper(
        f"{HOST}:{PORT}{chroot}", TIMEOUT_MS, rig.note("connected"),
        dial=rig.network.dial, clock=rig.clock, random=rig.random,
        on_lost=lambda: rig.log.append("lost"), on_suspended=lambda: None, on_resumed=lambda: None,
        in_flight_max=10, key=key,
    )  # fmt: skip


class ClosedTree(Tree):
    """A tree whose nodes this session may not change."""

    def multi(self, operations: Sequence[Operation], *_rest: object, **_named: object) -> list[Result]:
        raise NoAuthError(operations[0].path)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_session_without_permission_for_its_chroot_is_not_left_open(earlier: bool) -> None:
    """That of an earlier process only loses its connection."""

    async def main() -> None:
        rig = Rig()
        rig.server.tree = ClosedTree()
        key = rig.server.open_session(TIMEOUT_MS) if earlier else None
        open_session(rig, "/a", None if key is None else (key.session_id, key.password))
        assert await rig.events_within(0.1) == [("connected", NoAuthError)]
        assert len(rig.server.sessions) == earlier
        assert all(each.connection is None for each in rig.server.sessions.values())

    run_virtually(main)


@pytest.mark.parametrize("stage", [(REQUEST, "Create2Request"), (RESPONSE, "Create2Request")])
@pytest.mark.parametrize("expired", [False, True])
def test_chroot_is_created_although_connections_break(stage: Stage, expired: bool) -> None:
    """`then` is called once with a usable session, and a session that is lost before is not reported."""

    async def main() -> None:
        rig = Rig()
        rig.proxy.break_at(*stage, Fault.FIN)
        open_session(rig, "/a/b")
        await pass_time(0.05)
        assert rig.take() == [], "it waits"
        if expired:
            (session_id,) = rig.server.sessions
            rig.server.expire(session_id)
        assert await rig.events_within(2.0) == [("connected", "session")]
        assert rig.server.tree.exists("/a/b") is not None
        for session_id in list(rig.server.sessions):
            rig.server.expire(session_id)
        assert await rig.events_within(2.0) == ["lost"]

    run_virtually(main)


def test_a_stopped_opening_attempts_nothing_any_more() -> None:
    async def main() -> None:
        rig = Rig()
        rig.proxy.refusing = True
        opening = open_session(rig, "/a")
        await pass_time(1.0)
        opening.stop()
        rig.proxy.refusing = False
        assert await rig.events_within(100.0) == [] and rig.server.connects == []

    run_virtually(main)
