"""Offline checks: a valid directory violates no invariant, each damage is reported by its number."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite._speedups.records.batch_scan import scan_batches
from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.storage.file_removal import PendingRemoval, remove_batch
from kafkalite.storage.recovery.recover_log import PartitionDirectory, recover
from kafkalite.storage.retention import count_expired, mark_deleted, take_first
from kafkalite.storage.verify.verify import Violation, verify_directory, verify_log
from tests.kit.seeds import chosen_seed
from tests.unit.storage.damage import DAMAGES, filled, last_log, patch

SEED = chosen_seed()
FLIPS = 150
END = 360
TOPIC_ID = "version: 0\ntopic_id: 377HDq6gTzKDLPeUGOHV6A"
META = "version=0\nbroker.id=1\ncluster.id=377HDq6gTzKDLPeUGOHV6A\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory that was left cleanly, with one partition."""
    filled(tmp_path / "t-0").close()
    (tmp_path / "t-0/partition.metadata").write_text(TOPIC_ID)
    (tmp_path / "meta.properties").write_text(META)
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {END}\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n0\n")
    return tmp_path


def found(data: Path) -> list[Violation]:
    return verify_directory(Disk(), str(data))


def first_of(directory: Path, pattern: str) -> Path:
    return min(directory.glob(pattern))


def rename_a_segment(directory: Path) -> None:
    """The second segment begins below the end of the first."""
    path = sorted(directory.glob("*.log"))[1]
    base = int(path.stem)
    for suffix in (".log", ".index", ".timeindex"):
        path.with_suffix(suffix).rename(directory / f"{base - 3:020d}{suffix}")


def lose_a_segment(directory: Path) -> None:
    for path in directory.glob(f"{sorted(directory.glob('*.log'))[1].stem}.*"):
        path.unlink()


def move_an_epoch(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 153\n2 300\n")


def forget_an_epoch(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 300\n")


def epoch_beyond_the_end(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text(f"0\n4\n0 0\n1 150\n2 300\n3 {END + 1}\n")


def change_an_epoch_in_a_batch(directory: Path) -> None:
    patch(last_log(directory), 15, b"\x09")


def index_too_early(directory: Path) -> None:
    """An entry claims a position for an offset that lies before it: a reader would miss records."""
    path = first_of(directory, "*.index")
    _, position = struct.unpack(">ii", path.read_bytes()[:8])
    patch(path, 0, struct.pack(">ii", 2, position))


def half_an_entry(directory: Path) -> None:
    path = first_of(directory, "*.timeindex")
    path.write_bytes(path.read_bytes()[:-1])


def lose_the_last_time(directory: Path) -> None:
    path = first_of(directory, "*.timeindex")
    path.write_bytes(path.read_bytes()[:-12])


def aborted_elsewhere(directory: Path) -> None:
    (directory / f"{0:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 5, 5000, 9))


CASES: dict[str, tuple[set[int], Callable[[Path], object]]] = {
    "flipped record": ({1, 2, 6, 12}, DAMAGES["flipped record"]),
    "torn tail": ({1, 2, 6, 12}, DAMAGES["torn tail"]),
    "lost batch": ({10, 11}, DAMAGES["lost batch"]),
    "wrong offset index": ({4}, DAMAGES["wrong offset index"]),
    "wrong time index": ({6}, DAMAGES["wrong time index"]),
    "overlap": ({3, 4, 6, 17}, rename_a_segment),
    "lost segment": ({11}, lose_a_segment),
    "epoch begins later": ({7}, move_an_epoch),
    "epoch unknown": ({7}, forget_an_epoch),
    "epoch beyond the end": ({7}, epoch_beyond_the_end),
    "epoch in a batch": ({7}, change_an_epoch_in_a_batch),
    "epochs are no text": ({7}, lambda d: (d / "leader-epoch-checkpoint").write_bytes(b"\xff")),
    "index too early": ({4}, index_too_early),
    "index of another segment": ({10}, lambda d: (d / f"{777:020d}.index").write_bytes(b"")),
    "index missing": ({10}, lambda d: first_of(d, "*.index").unlink()),
    "half an entry": ({6}, half_an_entry),
    "last time missing": ({6}, lose_the_last_time),
    "aborted elsewhere": ({13}, aborted_elsewhere),
    "snapshot of garbage": ({12}, lambda d: first_of(d, "*.snapshot").write_bytes(b"garbage")),
    "snapshot beyond the end": ({12, 17}, lambda d: first_of(d, "*.snapshot").rename(d / f"{END + 1:020d}.snapshot")),
    "topic id of garbage": ({14}, lambda d: (d / "partition.metadata").write_text("hello")),
    "topic ids differ": ({10, 14}, lambda d: other_partition(d)),
    "work file": ({10}, lambda d: (d / f"{0:020d}.log.swap").write_bytes(b"")),
    "recovery point beyond the end": ({1}, lambda d: write_checkpoint(d, "recovery-point-offset-checkpoint", END + 1)),
    "log start beyond the end": ({1}, lambda d: write_checkpoint(d, "log-start-offset-checkpoint", END + 1)),
    "high watermark beyond the end": ({1}, lambda d: write_checkpoint(d, "replication-offset-checkpoint", END + 1)),
    "checkpoint of garbage": ({15}, lambda d: (d.parent / "log-start-offset-checkpoint").write_bytes(b"9")),
    "nobody's directory": ({9}, lambda d: (d.parent / "meta.properties").write_text("version=0\n")),
    "newer format": ({9}, lambda d: (d.parent / ".kafkalite-format").write_text("99\n")),
}


def write_checkpoint(directory: Path, name: str, offset: int) -> None:
    (directory.parent / name).write_text(f"0\n1\nt 0 {offset}\n")


def other_partition(directory: Path) -> None:
    (directory.parent / "t-1").mkdir()
    (directory.parent / "t-1/partition.metadata").write_text(TOPIC_ID.replace("377", "AAA"))


def test_a_good_directory_has_nothing_broken(data: Path) -> None:
    assert found(data) == []


@pytest.mark.parametrize("case", CASES)
def test_each_damage_is_reported_with_invariant_file_and_byte(data: Path, case: str) -> None:
    numbers, damage = CASES[case]
    damage(data / "t-0")
    violations = found(data)
    assert {violation.number for violation in violations} == numbers, violations
    assert all(Path(violation.path).is_relative_to(data) and violation.text for violation in violations)


def test_bad_batch_is_reported_with_its_byte_and_the_rest_is_read(data: Path) -> None:
    path = first_of(data / "t-0", "*.log")
    size = 12 + int.from_bytes(path.read_bytes()[8:12], "big")
    patch(path, 2 * size + 100, b"\xff")
    assert found(data)[:2] == [
        Violation(2, str(path), 2 * size, "wrong CRC"),
        Violation(11, str(path), 3 * size, "offsets 6 to 8 are missing before this"),
    ]


def test_the_end_of_an_epoch_that_the_cleaner_took_is_not_missed(data: Path) -> None:
    """Within a segment an epoch ends at 126, the next begins there, and the first batches of it are gone."""
    path = first_of(data / "t-0", "*.log")
    content = path.read_bytes()
    left = [batch for batch in scan_batches(content) if not 126 <= batch.base_offset < 135]
    path.write_bytes(b"".join(content[each.position : each.position + each.size] for each in left))
    position = 0
    for each in left:
        if each.base_offset >= 135:
            patch(path, position + 12, (1).to_bytes(4, "big"))
        position += each.size
    (data / "t-0/leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 126\n2 300\n")
    said = verify_log(Disk(), str(data / "t-0"), compacted=True)
    assert [each for each in said if each.number == 7] == []


@pytest.mark.parametrize("gone", [False, True], ids=["deleted", "and the segments are gone"])
def test_the_last_epoch_of_an_emptied_log_begins_at_its_end(data: Path, gone: bool) -> None:
    log, _ = recover(PartitionDirectory(Disk(), str(data / "t-0"), "t", 0, TopicConfig(retention_bytes=0), True, END))
    assert log.delete_records_before(END) == 0
    if gone:
        remove_batch(
            Disk(), [PendingRemoval(path) for path in mark_deleted(take_first(log, count_expired(log, None, END)))]
        )
        assert len(log.segments) == 1 and log.size == 0
    log.close()
    (data / "log-start-offset-checkpoint").write_text("0\n0\n" if gone else f"0\n1\nt 0 {END}\n")
    assert (data / "t-0/leader-epoch-checkpoint").read_text().endswith(f" {END}\n")
    assert found(data) == []


def test_behind_a_wrong_length_the_next_batch_is_found(data: Path) -> None:
    path = first_of(data / "t-0", "*.log")
    size = 12 + int.from_bytes(path.read_bytes()[8:12], "big")
    for byte, text in ((b"\x7f", "a batch of "), (b"\x00\x00\x02", "wrong CRC"), (b"\x80", "batch length -")):
        patch(path, 5 * size + 8, byte)
        first, second, *others = found(data)
        assert (*first[:3], first.text.startswith(text)) == (2, str(path), 5 * size, True)
        assert second == Violation(11, str(path), 6 * size, "offsets 15 to 17 are missing before this")
        assert [each for each in others if each.number != 4] == []
        patch(path, 5 * size + 8, (size - 12).to_bytes(4, "big"))


def test_batch_with_too_high_an_offset_is_reported_alone(data: Path) -> None:
    path = first_of(data / "t-0", "*.log")
    size = 12 + int.from_bytes(path.read_bytes()[8:12], "big")
    patch(path, 5 * size + 6, b"\x01")
    assert [each for each in found(data) if each.number not in (4, 6)] == [
        Violation(11, str(path), 5 * size, "offsets 15 to 270 are missing before this"),
        Violation(3, str(path), 6 * size, "offsets 18 to 20 where 274 was the next"),
        Violation(11, str(path), 6 * size, "offsets 15 to 17 are missing before this"),
    ]


def test_a_leader_epoch_that_goes_on_where_the_next_one_begins(data: Path) -> None:
    path = first_of(data / "t-0", "*.log")
    size = path.stat().st_size // 50
    (data / "t-0/leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 147\n2 300\n")
    text = "leader epoch 0 ends at 147 in the checkpoint, but offset 149 has it"
    assert found(data) == [Violation(7, str(path), 49 * size, text)]


def test_a_gap_between_two_epochs_belongs_to_none(data: Path) -> None:
    first, second = sorted((data / "t-0").glob("*.log"))[:2]
    size = first.stat().st_size // 50
    content = first.read_bytes()
    for path in (data / "t-0").glob(f"{second.stem}.*"):
        path.unlink()
    later = bytearray(content[:size])  # of the next epoch, behind a gap
    later[:8], later[12:16] = (157).to_bytes(8, "big"), (1).to_bytes(4, "big")
    first.write_bytes(content + later)
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 300\n")
    assert found(data) == []
    (data / "t-0/leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 152\n2 300\n")
    assert found(data) == []
    (data / "t-0/leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 158\n2 300\n")
    assert {each.number for each in found(data)} == {7}


def test_a_negative_leader_epoch(data: Path) -> None:
    path = first_of(data / "t-0", "*.log")
    patch(path, 12, b"\xff\xff\xff\xf7")
    assert Violation(7, str(path), 0, "leader epoch -9 is not in leader-epoch-checkpoint") in found(data)


def test_gaps_are_normal_where_the_cleaner_was(data: Path) -> None:
    lose_a_segment(data / "t-0")
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 300\n")
    assert found(data) == []


def test_a_segment_that_is_missing_above_the_cleaner_checkpoint_is_a_violation(data: Path) -> None:
    lose_a_segment(data / "t-0")
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    (violation,) = found(data)
    assert violation.number == 11 and "are missing before this segment" in violation.text


def test_after_a_crash_the_last_segment_may_lack_its_indexes(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    last_log(data / "t-0").with_suffix(".index").unlink()
    last_log(data / "t-0").with_suffix(".timeindex").write_bytes(bytes(1200))  # as Kafka takes room beforehand
    assert found(data) == []


def test_directory_without_a_segment_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    assert verify_log(Disk(), str(tmp_path / "t-0")) == [Violation(10, str(tmp_path / "t-0"), -1, "has no segment")]


@pytest.mark.parametrize("pattern", ["*.log", "*.index", "*.snapshot"])
def test_every_flipped_bit_is_reported(data: Path, pattern: str) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    chance = random.Random(f"{SEED}{pattern}")
    for _ in range(FLIPS):
        path = chance.choice(sorted((data / "t-0").glob(pattern)))
        content = path.read_bytes()
        at, bit = chance.randrange(len(content)), chance.randrange(8)
        patch(path, at, bytes([content[at] ^ 1 << bit]))
        violations = found(data)
        assert violations, f"bit {bit} of byte {at} of {path.name}"
        assert any(Path(violation.path).name == path.name for violation in violations)
        path.write_bytes(content)
    assert found(data) == []


def spoilt(content: bytes, chance: random.Random) -> bytes:
    """Cut, made of noise, of zeros or of ones, or with noise behind it."""
    size = len(content)
    kinds: list[Callable[[], bytes]] = [
        lambda: content[: chance.randrange(size)],
        lambda: chance.randbytes(chance.randrange(2 * size)),
        lambda: bytes(size),
        lambda: b"\xff" * size,
        lambda: content + chance.randbytes(chance.randrange(1, 100)),
    ]
    return chance.choice(kinds)()


def test_garbage_in_any_file_is_reported_and_raises_nothing(data: Path) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    chance = random.Random(SEED)
    (data / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {END}\n")
    (data / "t-0" / f"{0:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, 5, 9))
    (data / ".kafkalite-format").write_text("1\n")
    files = [path for path in data.rglob("*") if path.is_file() and path.name != ".kafka_cleanshutdown"]
    for _ in range(FLIPS):
        path = chance.choice(files)
        content = path.read_bytes()
        path.write_bytes(spoilt(content, chance))
        for violation in found(data):
            assert violation.number in range(1, 18) and violation.text
        path.write_bytes(content)
    assert found(data) == []
