"""The journal: what it keeps, what a torn tail costs, and that damage is refused with one clear line."""

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome
from kafkalite.coordination import journal
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.tree import Create, Operation, Set, Tree
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, VirtualClock
from tests.unit.coordination.kit import drive, picture, random_operations


def ignore(outcome: Outcome) -> None:
    """For answers that do not matter here."""


def file_of(*groups: list[bytes], start: Tree | None = None) -> bytes:
    """A journal whose groups of transactions were each written and synced together; bodies are of `encode_multi`."""
    tree = start or opened()
    parts, zxid = [journal.encode_snapshot(tree)], tree.zxid
    for group in groups:
        durable = zxid
        for body in group:
            zxid += 1
            parts.append(journal.record(journal.KIND_MULTI, zxid, durable, body))
    return b"".join(parts)


def opened() -> Tree:
    tree = Tree()
    tree.open_session()
    return tree


def creating(name: str, data: bytes = b"") -> bytes:
    return journal.encode_multi([Create(f"/{name}", data)], 1, 5)


def names(data: bytes) -> list[str]:
    return journal.load(data).tree.children("/")[0]


class TestReading:
    def test_a_snapshot_gives_the_same_tree(self, chance: random.Random) -> None:
        tree = Tree()
        drive(tree, chance, 100)
        loaded = journal.load(journal.encode_snapshot(tree))
        assert picture(loaded.tree) == picture(tree)
        assert (loaded.tree.zxid, loaded.tree.sessions, loaded.torn) == (tree.zxid, tree.sessions, 0)

    def test_slices_are_bounded_by_the_operations_of_transactions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A slice ends with the transaction that reaches the bound, however few the transactions are."""
        applied: list[int] = []
        multi = Tree.multi

        def counted(tree: Tree, operations: Sequence[Operation], *rest: int) -> object:
            applied.append(len(operations))
            return multi(tree, operations, *rest)

        bodies = [journal.encode_multi([Create(f"/{at}-{one}") for one in range(30)], 1, 5) for at in range(20)]
        data = file_of(bodies)
        monkeypatch.setattr(Tree, "multi", counted)
        slices = []
        for _ in journal.load_steps(data, journal.EMBEDDED_FORMAT):
            slices.append(sum(applied))
            applied.clear()
        assert max(slices) == 60 and len(slices) == 10

    def test_transactions_give_the_same_tree(self, chance: random.Random) -> None:
        tree = opened()
        bodies = []
        for now_ms in range(300):
            operations = random_operations(chance)
            try:
                tree.multi(operations, 1, now_ms)
                bodies.append(journal.encode_multi(operations, 1, now_ms))
            except CoordinationError:
                continue
        loaded = journal.load(file_of(bodies))
        assert picture(loaded.tree) == picture(tree) and loaded.tree.zxid == tree.zxid

    def test_tail_truncated_at_every_byte_keeps_complete_transactions(self) -> None:
        data = file_of([creating("a")], [creating("b", b"data")], [creating("c")])
        ends = [
            len(file_of(*groups)) for groups in ([], [[creating("a")]], [[creating("a")], [creating("b", b"data")]])
        ]
        for size in range(ends[0], len(data)):
            loaded = journal.load(data[:size])
            kept = sum(end <= size for end in ends[1:])
            assert loaded.tree.children("/")[0] == ["a", "b", "c"][:kept]
            assert loaded.size + loaded.torn == size and loaded.size == ends[kept]

    def test_tail_of_zeros_is_reported_as_torn(self) -> None:
        data = file_of([creating("a")])
        assert journal.load(data + bytes(5000)).torn == 5000

    def test_snapshot_truncated_at_any_byte_is_rejected(self) -> None:
        tree = opened()
        tree.multi([Create("/a", b"x"), Create("/a/b")], 1, 0)
        data = journal.encode_snapshot(tree)
        for size in range(len(data)):
            with pytest.raises(JournalError):
                journal.load(data[:size])

    def test_damage_in_synced_transactions_is_rejected(self) -> None:
        groups = [[creating("a", b"hello")], [creating("b")], [creating("c")]]
        data, start, end = file_of(*groups), len(file_of()), len(file_of(*groups[:2]))
        for at in range(start, end):
            damaged = bytearray(data)
            damaged[at] ^= 0x10
            with pytest.raises(JournalError, match="damaged at byte"):
                journal.load(bytes(damaged))

    def test_hole_in_the_last_write_counts_as_torn(self) -> None:
        """The pages of one write may reach the disk in any order; none of its changes was reported."""
        groups = [[creating("a")], [creating("b"), creating("c", b"hello"), creating("d")]]
        data, start, end = file_of(*groups), len(file_of(groups[0], [creating("b")])), len(file_of()) + 3 * 80
        for at in range(start, min(end, len(file_of(groups[0], groups[1][:2])))):
            damaged = bytearray(data)
            damaged[at] ^= 0x10
            assert names(bytes(damaged)) == ["a", "b"]

    def test_a_lost_transaction_that_leaves_no_hole_is_refused(self) -> None:
        data = file_of([creating("a")], [creating("b")], [creating("c")])
        first, second = len(file_of([creating("a")])), len(file_of([creating("a")], [creating("b")]))
        with pytest.raises(JournalError, match="follows"):
            journal.load(data[:first] + data[second:])

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (journal.encode_multi([Create("/a/b")], 1, 0), "cannot be applied"),
            (journal.encode_multi([Set("/a", b"")], 9, 0), "session is over"),
            (journal.TRANSACTION.pack(1, 0, 2**32 - 1), "truncated"),
            (journal.TRANSACTION.pack(1, 0, 1) + b"\x07\0\0\0\0" + journal.length_prefix(b"/a"), "unknown operation"),
            (journal.TRANSACTION.pack(1, 0, 1) + b"\x03\0\0\0\0" + journal.length_prefix(b"\xff"), "no readable path"),
            (journal.TRANSACTION.pack(1, 0, 1) + b"\x03\0\0\0\0\xff\xff\xff\xff/a", "truncated"),
            (creating("a") + b"more", "bytes after its last field"),
            (b"", "truncated"),
        ],
    )
    def test_complete_record_with_invalid_content_is_rejected(self, body: bytes, words: str) -> None:
        with pytest.raises(JournalError, match=words):
            journal.load(file_of([body]))

    def test_other_files_are_rejected(self) -> None:
        for data, words in (
            (b"", "too short"),
            (b"\0" * 100, "not a journal"),
            (b"# Kafka properties", "not a journal"),
            (journal.HEADER.pack(journal.MAGIC, 2), "format version 2 is not supported"),
            (journal.header(), "snapshot is damaged"),
            (file_of().replace(b"KLTREE", b"KLTREX"), "not a journal"),
        ):
            with pytest.raises(JournalError, match=words):
                journal.load(data)

    def test_inconsistent_snapshot_is_rejected(self) -> None:
        nodes = [
            journal.NODE.pack(1, 1, 1, 0, 0, 0, 0, 0) + journal.length_prefix(path) + journal.length_prefix(b"")
            for path in (b"/", b"/a/b")
        ]
        head, end = journal.header(), journal.COUNTS.pack(7, 0)
        records = [journal.record(journal.KIND_NODE, 1, 1, node) for node in nodes]
        with pytest.raises(JournalError, match="no parent"):
            journal.load(head + b"".join(records))
        with pytest.raises(JournalError, match="inconsistent"):
            journal.load(head + records[0] + journal.record(journal.KIND_SNAPSHOT_END, 1, 1, end))


Damage = Callable[[random.Random, bytes], bytes]


def noise(chance: random.Random, data: bytes) -> bytes:
    return chance.randbytes(chance.randint(0, 400))


def noise_behind_the_header(chance: random.Random, data: bytes) -> bytes:
    return journal.header() + noise(chance, data)


def flips(chance: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    first = chance.choice((0, len(data) - 20))  # anywhere, or in the last record
    for _ in range(chance.randint(1, 4)):
        damaged[chance.randrange(first, len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def cuts(chance: random.Random, data: bytes) -> bytes:
    start, end = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
    return data[:start] + data[end:] if chance.random() < 0.5 else data[:start]


def forged(chance: random.Random, data: bytes) -> bytes:
    """Right checksums around bodies that are not."""
    operations = random_operations(chance) if chance.random() < 0.8 else [Create("/forged")]
    body = bytearray(journal.encode_multi(operations, 1, 0))
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        body[chance.randrange(len(body))] = chance.randrange(256)
    kind, tree = chance.choice((0, 1, 2, 3, 3, 3, 3, 4, 5, 6)), journal.load(data).tree
    return data + journal.record(kind, tree.zxid + chance.choice((1, 1, 1, 0, 2)), tree.zxid, bytes(body))


@pytest.mark.fuzz
@pytest.mark.parametrize("damage", [noise, noise_behind_the_header, flips, cuts, forged])
def test_any_content_is_read_or_rejected(damage: Damage, chance: random.Random, fuzz_inputs: int) -> None:
    tree, bodies = opened(), []
    while len(bodies) < 12:
        operations = random_operations(chance)
        try:
            tree.multi(operations, 1, 0)
            bodies.append([journal.encode_multi(operations, 1, 0)])
        except CoordinationError:
            continue
    whole = file_of(*bodies)
    read = 0
    for _ in range(max(200, fuzz_inputs // 100)):
        try:
            loaded = journal.load(damage(chance, whole))
        except JournalError as error:
            assert str(error) and "\n" not in str(error)
        else:
            read += 1
            assert loaded.tree.zxid <= tree.zxid + 1
    assert read == 0 if damage in (noise, noise_behind_the_header) else read > 0


class TestFile:
    def test_acknowledged_changes_survive_a_crash_at_every_byte_of_the_tail(
        self, tmp_path: Path, chance: random.Random
    ) -> None:
        """Three writes by jobs, the last not synced: at every length the file can have, what was answered is there."""
        path, offload = str(tmp_path / "journal"), InlineOffload()
        service = EmbeddedCoordination.open(Disk(), path, VirtualClock(), offload)
        session, answered = service.connect(), []
        for number in range(6):
            session.create(f"/n{number}", chance.randbytes(20), lambda outcome: answered.append(outcome.result().path))
            if number % 2:
                offload.drain()
        synced = Path(path).stat().st_size
        received = list(answered)
        session.multi((Create("/late", b"x"), Create("/late/r")), ignore)
        data = Path(path).read_bytes()
        service.close()
        assert len(received) == 6 and len(data) > synced
        for size in range(synced, len(data) + 1):
            Path(path).write_bytes(data[:size])
            again = EmbeddedCoordination.open(Disk(), path, VirtualClock())
            assert journal.load(Path(path).read_bytes()).torn == 0, "the torn tail is gone"
            found = ["/" + name for name in again.tree.children("/")[0]]
            assert found in ([*received], sorted([*received, "/late"])), size
            assert ("/late" in found) == ("/late/r" in picture(again.tree))
            again.connect().create("/after", b"", lambda outcome: outcome.result())
            again.close()
            assert "after" in names(Path(path).read_bytes())

    def test_sessions_end_with_the_process(self, tmp_path: Path) -> None:
        path = str(tmp_path / "journal")
        service = EmbeddedCoordination.open(Disk(), path, VirtualClock())
        session = service.connect()
        session.create("/e", b"", ignore, ephemeral=True)
        session.create("/p", b"", ignore)
        former = session.session_id
        service.close()
        service = EmbeddedCoordination.open(Disk(), path, VirtualClock())
        assert service.tree.children("/")[0] == ["p"] and service.tree.sessions == {}
        assert service.connect().session_id > former
        service.close()

    def test_long_journal_is_rewritten(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kafkalite.coordination.transactions.COMPACT_BYTES", 20_000)
        path = tmp_path / "journal"
        service = EmbeddedCoordination.open(Disk(), str(path), VirtualClock())
        session = service.connect()
        session.create("/a", b"", ignore)
        for number in range(1000):
            session.set("/a", b"%d" % number, lambda outcome: outcome.result())
        assert path.stat().st_size < 25_000
        before = picture(service.tree)
        session.create("/mine", b"", ignore, ephemeral=True)
        service.close()
        service = EmbeddedCoordination.open(Disk(), str(path), VirtualClock())
        after = picture(service.tree)
        assert after["/a"] == before["/a"] and "/mine" not in after
        service.close()
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("when", [1, 2])
    @pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
    def test_compaction_without_descriptors_keeps_the_service(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, when: int
    ) -> None:
        """One change is refused, whichever call finds no descriptor; the next one compacts the journal."""
        monkeypatch.setattr("kafkalite.coordination.transactions.COMPACT_BYTES", 20_000)
        path, disk = tmp_path / "journal", FaultyDisk()
        service = EmbeddedCoordination.open(disk, str(path), VirtualClock())
        session = service.connect()
        outcomes: list[Outcome] = []
        session.create("/a", b"", outcomes.append)
        disk.fail("descriptor", error, when=when)
        for number in range(1000):
            session.set("/a", b"%d" % number, outcomes.append)
        refused = [type(outcome.error) for outcome in outcomes if outcome.error is not None]
        assert refused == [ConnectionLossError] and service.failure is None
        assert path.stat().st_size < 25_000 and list(tmp_path.iterdir()) == [path]
        disk.crash(random.Random(1))
        service.close()
        again = EmbeddedCoordination.open(Disk(), str(path), VirtualClock())
        assert again.tree.get("/a")[0] == b"999"
        again.close()

    def test_long_journal_is_rewritten_when_it_is_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "journal"
        service = EmbeddedCoordination.open(Disk(), str(path), VirtualClock())
        session = service.connect()
        session.create("/a", b"", ignore)
        for number in range(300):
            session.set("/a", b"%d" % number, ignore)
        service.close()
        size = path.stat().st_size
        monkeypatch.setattr("kafkalite.coordination.embedded.COMPACT_AT_OPEN_BYTES", 1000)
        EmbeddedCoordination.open(Disk(), str(path), VirtualClock()).close()
        assert path.stat().st_size < size / 10
        assert journal.load(path.read_bytes()).tree.get("/a")[0] == b"299"

    def test_a_damaged_file_is_refused_with_one_line_that_names_it(self, tmp_path: Path) -> None:
        path = tmp_path / "journal"
        path.write_bytes(b"something else entirely")
        with pytest.raises(JournalError, match=f"^{path}: not a journal of this broker; restore it from a backup$"):
            EmbeddedCoordination.open(Disk(), str(path), VirtualClock())
        assert path.read_bytes() == b"something else entirely"

    def test_a_missing_directory_is_an_os_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            EmbeddedCoordination.open(Disk(), str(tmp_path / "missing" / "journal"), VirtualClock())
