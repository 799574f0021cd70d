"""The embedded service: no change is reported before it is flushed; errors of the disk."""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.clock import Outcome
from kafkalite.coordination import journal
from kafkalite.coordination.embedded import EmbeddedCoordination, EmbeddedSession
from kafkalite.coordination.errors import ConnectionLossError, NoNodeError
from kafkalite.coordination.tree import Create, Set
from kafkalite.testing.faulty_disk import FaultyDisk as SimulatedDisk
from kafkalite.testing.virtual_clock import InlineOffload, VirtualClock
from tests.unit.coordination.kit import FaultyDisk, picture


class Bench:
    """A service on a faulty disk, with a session and all its notifications."""

    def __init__(self, path: Path, offload: InlineOffload | None) -> None:
        self.disk, self.path, self.offload = FaultyDisk(), str(path), offload
        self.service = EmbeddedCoordination.open(self.disk, self.path, VirtualClock(), offload)
        self.lost = 0
        self.session = self.connect()
        self.received: list[object] = []

    def connect(self) -> EmbeddedSession:
        session = self.service.connect(self.count_loss)
        self.run_until_idle()
        return session

    def count_loss(self) -> None:
        self.lost += 1

    def note(self, outcome: Outcome) -> None:
        self.received.append("ok" if outcome.error is None else type(outcome.error))

    def run_until_idle(self) -> None:
        if self.offload is not None:
            self.offload.drain()

    def reopened(self) -> dict[str, object]:
        self.service.close()
        self.service = EmbeddedCoordination.open(FaultyDisk(), self.path, VirtualClock())
        return {path: data for path, (data, _) in picture(self.service.tree).items()}


@pytest.fixture(params=["at once", "by jobs"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "journal", InlineOffload() if request.param == "by jobs" else None)
    yield bench
    bench.service.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "journal", InlineOffload())
    yield bench
    bench.service.close()


class TestSyncedBeforeCompletion:
    def test_answers_reads_and_events_wait_for_the_sync(self, jobs: Bench) -> None:
        assert jobs.offload is not None
        other = jobs.connect()
        other.exists("/a", jobs.note, lambda event: jobs.received.append(event.kind))
        jobs.offload.held = True
        jobs.session.create("/a", b"1", jobs.note)
        other.get("/a", lambda outcome: jobs.received.append(outcome.value[0]))
        other.delete("/missing", jobs.note)
        assert jobs.received == ["ok"], "only the first read, of what was synced"
        jobs.offload.release()
        assert jobs.received == ["ok"]
        jobs.offload.drain()
        assert jobs.received[1:4] == ["created", "ok", b"1"] and len(jobs.received) == 5

    def test_changes_during_a_job_share_the_next_one(self, jobs: Bench) -> None:
        assert jobs.offload is not None
        jobs.disk.faults.log.clear()
        jobs.offload.held = True
        for number in range(50):
            jobs.session.create(f"/n{number}", b"", jobs.note)
        jobs.offload.release()
        jobs.run_until_idle()
        assert jobs.received == ["ok"] * 50
        assert jobs.disk.faults.log == ["write", "sync"] * 2

    def test_a_change_is_synced_within_the_call_without_jobs(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path / "journal", None)
        bench.disk.faults.log.clear()
        bench.session.create("/a", b"", bench.note)
        assert bench.received == ["ok"] and bench.disk.faults.log == ["write", "sync"]
        bench.service.close()


class TestFullDisk:
    @pytest.mark.parametrize("room", [0, 1, 30])
    def test_failed_write_undoes_the_change_and_the_service_continues(self, bench: Bench, room: int) -> None:
        bench.session.create("/kept", b"1", bench.note)
        bench.run_until_idle()
        bench.disk.faults.write_room = room
        bench.session.multi((Set("/kept", b"2"), Create("/lost")), bench.note)
        bench.run_until_idle()
        assert bench.received == ["ok", ConnectionLossError] and bench.lost == 0
        assert bench.service.tree.get("/kept")[0] == b"1" and bench.service.tree.exists("/lost") is None
        bench.disk.faults.write_room = None
        bench.session.create("/after", b"", bench.note)
        bench.run_until_idle()
        assert bench.received[-1] == "ok"
        assert bench.reopened() == {"/": b"", "/kept": b"1", "/after": b""}

    def test_failed_write_undoes_later_changes(self, jobs: Bench) -> None:
        assert jobs.offload is not None
        jobs.disk.faults.write_room = 0
        jobs.offload.held = True
        for number in range(5):
            jobs.session.create(f"/n{number}", b"", jobs.note)
        jobs.session.get("/n0", jobs.note)
        jobs.offload.release()
        jobs.run_until_idle()
        assert jobs.received == [ConnectionLossError] * 5 + [NoNodeError] and jobs.lost == 0, "a read shows the tree"
        jobs.disk.faults.write_room = None
        jobs.session.create("/n0", b"", jobs.note)
        jobs.run_until_idle()
        assert jobs.received[-1] == "ok" and jobs.reopened() == {"/": b"", "/n0": b""}

    def test_start_needs_no_disk_space(self, tmp_path: Path) -> None:
        path = tmp_path / "journal"
        before = Bench(path, None)
        before.session.create("/kept", b"", before.note)
        before.session.create("/mine", b"", before.note, ephemeral=True)
        before.service.close()
        disk = FaultyDisk()
        disk.faults.write_room = 0
        received: list[object] = []
        service = EmbeddedCoordination.open(disk, str(path), VirtualClock())
        assert service.tree.exists("/mine") is None, "its session is over"
        session = service.connect()
        session.get("/kept", lambda outcome: received.append(outcome.result()[0]))
        assert received == [b""], "what is there is told"
        session.create("/new", b"", lambda outcome: received.append(type(outcome.error)))
        assert received[1:] == [ConnectionLossError] and service.failure is None
        disk.faults.write_room = None
        session.create("/new", b"1", lambda outcome: received.append(outcome.error), ephemeral=True)
        session.create("/more", b"", lambda outcome: received.append(outcome.error))
        assert received[2:] == [None, None]
        service.close()
        again = EmbeddedCoordination.open(FaultyDisk(), str(path), VirtualClock())
        assert sorted(picture(again.tree)) == ["/", "/kept", "/more"]
        again.close()


class TestKilledProcess:
    """The page cache of the machine keeps what a killed process wrote; only a flush makes it durable."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        """A journal whose last transaction was written and not flushed."""
        path = tmp_path / "journal"
        before = Bench(path, None)
        before.session.create("/kept", b"", before.note)
        zxid, flushed = before.service.tree.zxid + 1, before.service.durable_zxid
        body = journal.encode_multi((Create("/unflushed"),), before.session.session_id, 5)
        before.service.close()
        with path.open("ab") as file:
            file.write(journal.record(journal.KIND_MULTI, zxid, flushed, body))
        return str(path)

    def test_written_bytes_are_flushed_before_a_read_shows_them_or_a_record_counts_them(self, path: str) -> None:
        disk = FaultyDisk()
        service = EmbeddedCoordination.open(disk, path, VirtualClock())
        assert service.tree.exists("/unflushed") is not None
        assert "sync" in disk.faults.log and "write" not in disk.faults.log
        session = service.connect()
        session.create("/next", b"", lambda outcome: outcome.result())
        assert service.durable_zxid == service.tree.zxid
        service.close()

    def test_start_fails_where_they_cannot_be_flushed(self, path: str) -> None:
        disk = FaultyDisk()
        disk.faults.failing = {"sync"}
        with pytest.raises(OSError, match="injected"):
            EmbeddedCoordination.open(disk, path, VirtualClock())


class TestBrokenDisk:
    @pytest.mark.parametrize("failing", ["sync", "truncate"])
    def test_failed_sync_ends_the_service(self, bench: Bench, failing: str) -> None:
        bench.session.create("/kept", b"", bench.note)
        bench.run_until_idle()
        bench.disk.faults.failing = {failing}
        if failing == "truncate":
            bench.disk.faults.write_room = 5
        bench.session.create("/unsure", b"", bench.note)
        bench.run_until_idle()
        assert bench.received == ["ok", ConnectionLossError] and bench.lost == 1 and bench.session.lost
        bench.disk.faults.failing, bench.disk.faults.write_room = set(), None
        bench.service.read(lambda: None, bench.note)
        bench.service.change((Create("/no"),), 1, list, bench.note)
        assert bench.received[2:] == [ConnectionLossError] * 2
        with pytest.raises(ConnectionLossError):
            bench.service.connect()
        assert "/kept" in bench.reopened()

    @pytest.mark.parametrize("seed", range(20))
    def test_changes_after_a_failed_sync_and_a_start_survive_a_power_failure(self, tmp_path: Path, seed: int) -> None:
        disk, path, received = SimulatedDisk(), str(tmp_path / "journal"), list[Outcome]()
        service = EmbeddedCoordination.open(disk, path, VirtualClock())
        session = service.connect()
        session.create("/kept", b"", received.append)
        disk.fail("sync", errno.EIO)
        session.create("/unsure", b"", received.append)
        service.close()
        service = EmbeddedCoordination.open(disk, path, VirtualClock())
        service.connect().create("/after", b"", received.append)
        assert [type(outcome.error) for outcome in received] == [type(None), ConnectionLossError, type(None)]
        service.close()
        disk.crash(random.Random(seed))
        again = EmbeddedCoordination.open(disk, path, VirtualClock())
        assert {"kept", "after"} <= set(again.tree.children("/")[0])
        again.close()

    def test_a_session_behind_changes_that_could_not_be_kept_ends_the_service(self, jobs: Bench) -> None:
        assert jobs.offload is not None
        jobs.disk.faults.write_room = 0
        jobs.offload.held = True
        jobs.session.create("/n", b"", jobs.note)
        jobs.service.connect(jobs.count_loss)
        jobs.offload.release()
        jobs.run_until_idle()
        assert jobs.lost == 2 and jobs.service.failure is not None
