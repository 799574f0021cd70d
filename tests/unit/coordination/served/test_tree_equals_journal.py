"""Whatever clients send, and whatever fails, the journal on the disk holds the tree of the service.

Random clients create (ephemeral, sequence, with the longest paths), set, delete, send multis, close their sessions or
stay silent; the disk is full at times, the server dies with writes under way, and a step of a change raises.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.coordination import journal
from kafkalite.coordination.served import requests
from kafkalite.coordination.tree import PATH_LENGTH_MAX, SEQUENCE_FORMAT, SessionRecord, Tree, TreeChange
from kafkalite.coordination.zookeeper import records
from tests.unit.coordination.kit import FaultyDisk, picture
from tests.unit.coordination.served.rig import NEW, Bench, RawClient

STEPS = 400
CLIENTS_MAX = 5
COMPACT_BYTES = 4000
SUFFIX = len(SEQUENCE_FORMAT.format(0))
LENGTHS = [PATH_LENGTH_MAX + delta for delta in (-SUFFIX - 1, -SUFFIX, 1 - SUFFIX, -1, 0, 1)]
FLAGS = (0, 0, records.EPHEMERAL, records.SEQUENCE, records.EPHEMERAL | records.SEQUENCE)


def contents(tree: Tree) -> tuple[object, ...]:
    return tree.zxid, tree.bytes, picture(tree), tree.sessions, tree.session_records


class Chaos:
    """A server, its clients, and what happens to them."""

    def __init__(self, directory: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = Bench(directory, FaultyDisk(), chance.choice((None, COMPACT_BYTES)))
        self.held = 0
        self.chance = chance
        self.clients: list[RawClient] = []
        self.raises = False
        self.raised = 0
        self._journal = directory / "journal"
        monkeypatch.setattr(journal, "STEP", 2)
        for owner, name in ((TreeChange, "_create"), (TreeChange, "_delete"), (requests, "response_of")):
            monkeypatch.setattr(owner, name, self.raising(getattr(owner, name)))

    def raising(self, step: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object) -> object:
            if self.raises and self.chance.random() < 0.3:
                self.raises = False
                self.raised += 1
                raise ZeroDivisionError("planted")
            return step(*arguments)

        return run

    def path(self) -> str:
        if self.chance.random() < 0.1:
            return "/" + "x" * (self.chance.choice(LENGTHS) - 1)
        return "/" + "/".join(self.chance.choices("abc", k=self.chance.randint(1, 3)))

    def change(self) -> records.OperationRequest:
        path, data, drawn = self.path(), self.chance.randbytes(8), self.chance.random()
        if drawn < 0.6:
            return records.Create2Request(path, data, records.OPEN_ACL, self.chance.choice(FLAGS))
        if drawn < 0.75:
            return records.SetDataRequest(path, data, self.chance.choice((-1, 0)))
        return records.DeleteRequest(path, -1) if drawn < 0.9 else records.CheckVersionRequest(path, 0)

    def request(self) -> object:
        if self.chance.random() < 0.3:
            return records.MultiRequest(tuple(self.change() for _ in range(self.chance.randint(1, 4))))
        change = self.change()
        return records.ExistsRequest("/a", True) if isinstance(change, records.CheckVersionRequest) else change

    def step(self) -> None:
        if self.bench._compact_bytes is not None and self.chance.random() < 0.2:
            self.bench.tree._compact_at = 0  # the next write encodes the whole tree
        drawn = self.chance.random()
        if drawn < 0.08 or (not self.clients and drawn < 0.85):
            self.connect()
        elif drawn < 0.75:
            self.send(self.chance.choice(self.clients), self.request())
        elif drawn < 0.80:
            client = self.chance.choice(self.clients)
            self.send(client, records.CloseRequest())
            self.clients = [each for each in self.clients if each is not client]
        elif drawn < 0.85:
            self.pass_time()
        elif drawn < 0.93:
            self.bench.disk.faults.write_room = self.chance.choice((0, 20, None, None))  # type: ignore[attr-defined]
        else:
            self.die()

    def connect(self) -> None:
        client = self.bench.client(timeout_ms=self.chance.choice((1000, 60_000)))
        if client.key != NEW and len(self.clients) < CLIENTS_MAX:
            self.clients.append(client)

    def send(self, client: RawClient, request: object) -> None:
        self.raises = self.chance.random() < 0.2
        client.request(request)
        self.held += len(self.bench.tree._held) > 0
        if client.transport.closed:
            client.disconnect()
            self.clients = [each for each in self.clients if each is not client]

    def pass_time(self) -> None:
        self.raises = self.chance.random() < 0.5
        try:
            self.bench.clock.advance(1200)
        except ZeroDivisionError:
            return
        assert self.bench.server._timer is not None or not self.bench.server.sessions, "no session expires any more"

    def die(self) -> None:
        """The process ends; whether its last write is complete is drawn."""
        if self.chance.random() < 0.5:
            self.bench.offload.held = True
        else:
            self.bench.offload.drain()
        self.raises = False
        self.bench.disk.faults.write_room = None  # type: ignore[attr-defined]
        self.bench.restart()
        self.clients = []

    def check(self) -> None:
        self.raises = False
        self.bench.write()
        stored = journal.load(self._journal.read_bytes(), journal.SERVED_FORMAT).tree
        assert contents(stored) == contents(self.bench.tree.tree)
        assert set(self.bench.server.sessions) == set(stored.sessions)


@pytest.mark.parametrize("part", range(20))
def test_journal_holds_the_tree_after_random_requests_and_faults(
    tmp_path: Path, seed: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chaos = Chaos(tmp_path, random.Random(f"{seed} {part}"), monkeypatch)
    for _ in range(STEPS):
        chaos.step()
        if chaos.chance.random() < 0.5:
            chaos.check()
    chaos.check()
    assert chaos.raised > 3
    assert chaos.held > 0 or chaos.bench._compact_bytes is None, "no call waited for the encoding of the tree"
    chaos.bench.restart()
    chaos.check()
    chaos.bench.close()


def test_sequence_node_with_the_longest_path_ends_with_its_session(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    client, other = bench.client(), bench.client()
    flags = records.EPHEMERAL | records.SEQUENCE
    assert client.create("/" + "n" * (PATH_LENGTH_MAX - 1 - SUFFIX), flags) == 0
    assert client.create("/" + "n" * (PATH_LENGTH_MAX - SUFFIX), flags) == -8
    client.call(records.CloseRequest())
    assert other.create("/a") == 0
    bench.restart()
    assert list(bench.tree.tree.root.children) == ["a"]
    bench.close()


def test_sessions_expire_after_the_expiry_of_one_has_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    first, other, reader = (bench.client(timeout_ms=ms) for ms in (1000, 2000, 60_000))
    first.create("/first", records.EPHEMERAL)
    other.create("/other", records.EPHEMERAL)
    with monkeypatch.context() as patched:
        patched.setattr(TreeChange, "delete_ephemeral", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            bench.clock.advance(1000)
    bench.clock.advance(2000)
    bench.offload.drain()
    assert not reader.exists("/first") and not reader.exists("/other")
    bench.close()


def test_change_that_cannot_be_encoded_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    session = bench.tree.tree.open_session(SessionRecord(bytes(16), 1000))
    before = contents(bench.tree.tree)
    monkeypatch.setattr(journal, "encode_multi", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        bench.tree.change((), session, lambda results: results, lambda outcome: None)
    assert contents(bench.tree.tree) == before
    bench.close()


def test_service_ends_where_a_change_cannot_be_written_for_an_unknown_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    client = bench.client()
    monkeypatch.setattr(journal, "record", lambda *_: 1 // 0)
    client.request(records.Create2Request("/a", b"", records.OPEN_ACL, 0))
    assert isinstance(bench.tree.failure, ZeroDivisionError)
    assert client.transport.closed
    assert [error for error, _ in client.responses()] in ([], [-4]), "not acknowledged"
    bench.close()
