"""One bit of a file of a log directory is another one: what is read is right, or the damage is reported.

Both readers, ours and kafka-python's, check the CRC of every batch that is read.
Under the CRC both reject a flipped record, and every other batch is read. In the bytes before it, by which a
walk over headers finds its way: no crash, no reader is sent back, every other batch is read by fetches of its
offsets, and `log verify` names the place. In the last offset delta, by which it finds its way, too, and which the CRC
covers: no reader is sent back, and `log verify` names the file.
Recovery cuts at the damage above the recovery point and refuses to cut below it. The indexes that it rebuilds are
byte for byte those made by appending.
"""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import Batch, batches
from kafkalite._speedups.storage.file import Disk
from kafkalite.records import BatchError
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.recovery.recover_log import PartitionDirectory, RecoveryError, recover
from kafkalite.storage.verify.verify import verify_log
from tests.kit.logs import read_log
from tests.rigs.machine import CONFIG, Machine
from tests.rigs.model import StoredBatch, read_all
from tests.unit.records.clients import kafka_python

BATCH_LENGTH_AT = 8
UNCOVERED_BYTES = 17  # base offset, length, leader epoch, magic
LEADER_EPOCH = range(12, 16)
LAST_OFFSET_DELTA = range(23, 27)
LARGE = 1 << 20
Found = tuple[int, int, bytes]


@dataclass
class Sample:
    """A directory left cleanly, and what is in it."""

    directory: Path
    stored: list[StoredBatch]
    starts: dict[str, list[tuple[int, int]]]  # of each segment: position and size of its batches
    bases: list[int]

    @property
    def end(self) -> int:
        return self.stored[-1].last + 1


def sample(root: Path, seed: int) -> Sample:
    machine = Machine(root, random.Random(seed))
    machine.boot()
    machine.create()
    log = machine.log()
    while len(log.segments) < 3 or len(log.active.batches()) < 4:
        machine.append()
    starts = {
        names.file_name(segment.base_offset, names.LOG): [(batch.position, batch.size) for batch in segment.batches()]
        for segment in log.segments
    }
    made = Sample(Path(log.directory), read_all(log), starts, [segment.base_offset for segment in log.segments])
    machine.shutdown()
    return made


@dataclass
class Flip:
    """A copy of the sample with one bit flipped; `at`: the byte within its batch, -1 in another file."""

    made: Sample
    target: Path
    name: str
    position: int
    at: int = -1
    hurt: int = -1  # the batch, by its number
    begin: int = -1  # where it begins and ends in its file
    end: int = -1
    bit: int = 0

    def happen(self) -> None:
        """Now the bit flips, in the file that is there."""
        with open(self.target / self.name, "r+b") as file:
            file.seek(self.position)
            byte = file.read(1)
            file.seek(self.position)
            file.write(bytes([byte[0] ^ 1 << self.bit]) if byte else b"")

    def verified(self) -> bool:
        """Whether `log verify` names the file; the place, too, where the walk over headers depends on it."""
        path, said = str(self.target / self.name), verify_log(Disk(), str(self.target), clean=True)
        if 0 <= self.at < UNCOVERED_BYTES:
            return any(each.path == path and each.position in (self.begin, self.end) for each in said)
        return path in [each.path for each in said]

    @property
    def whole(self) -> list[Found]:
        return [(stored.base, stored.last, stored.data) for stored in self.made.stored]

    @property
    def others(self) -> list[Found]:
        return [each for number, each in enumerate(self.whole) if number != self.hurt]


def flip(made: Sample, target: Path, rng: random.Random) -> Flip:
    """Batches and indexes more often than the small files, and the bytes without a CRC more often than the others."""
    shutil.copytree(made.directory, target)
    files = sorted(path.name for path in made.directory.iterdir())
    name = rng.choice([*files, *[each for each in files if each.endswith(names.LOG)] * 3])
    size = (target / name).stat().st_size
    flipped = Flip(made, target, name, rng.randrange(size) if size else 0)
    if name in made.starts:
        number = rng.randrange(len(made.starts[name]))
        start, size = made.starts[name][number]
        flipped.at = rng.randrange(UNCOVERED_BYTES) if rng.random() < 0.3 else rng.randrange(size)
        flipped.position = start + flipped.at
        flipped.begin, flipped.end = start, start + size
        before = sum(len(each) for other, each in made.starts.items() if other < name)
        flipped.hurt = before + number
    flipped.bit = rng.randrange(8)
    return flipped


def read_at(log: Log, offset: int) -> Found | None:
    """The batch that a client with CRC checks gets for `offset`; None for an error."""
    regions = read_log(log, offset, 1, log.log_end_offset)
    if not isinstance(regions, list) or not regions:
        return None
    data = regions[0].read()
    try:
        (batch,) = batches(data)
        batch.check_crc()
    except (BatchError, ValueError):
        return None
    assert kafka_python.DefaultRecordBatch(data).validate_crc(), "kafka-python refuses it"
    return batch.base_offset, batch.last_offset, data


def read_through(log: Log) -> list[Found]:
    """What a client gets that reads to the end and seeks past every offset that fails."""
    found: list[Found] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        got = whole_batches(read_log(log, offset, LARGE, log.log_end_offset))
        assert all(last >= offset for _, last, _ in got), f"asked for {offset}, sent back to {got}"
        found += got
        offset = got[-1][1] + 1 if got else offset + 1
    return found


def whole_batches(regions: object) -> list[Found]:
    """The batches of an answer up to the first one that a client finds to be damaged, or cut off."""
    found: list[Found] = []
    data = memoryview(b"".join(region.read() for region in regions) if isinstance(regions, list) else b"")
    while data:
        try:
            batch = Batch(data)
            batch.check_crc()
        except (BatchError, ValueError):
            break
        found.append((batch.base_offset, batch.last_offset, bytes(data[: batch.size])))
        data = data[batch.size :]
    return found


def judge_unclean(flipped: Flip) -> None:
    """Nothing was synced: all up to the damaged batch is there, and nothing behind it that is not as it was."""
    flipped.happen()
    log, _ = recover(PartitionDirectory(Disk(), str(flipped.target), "t0", 0, CONFIG, False, 0))
    found = [(stored.base, stored.last, stored.data) for stored in read_all(log)]
    if flipped.hurt < 0:
        assert found == flipped.whole
        log.close()
        assert indexes(flipped.target) == indexes(flipped.made.directory), "not those made by appending"
        return
    if flipped.at in LEADER_EPOCH:  # the leader epoch: nothing says what it was
        assert [each[:2] for each in found] == [each[:2] for each in flipped.whole]
        return
    if flipped.at < 8 and found != flipped.whole[: flipped.hurt]:  # an offset further on: a gap, or what follows is cut
        assert found[: flipped.hurt] == flipped.whole[: flipped.hurt]
        offsets = [offset for each in found for offset in each[:2]]
        assert offsets == sorted(offsets)
        return
    assert found == flipped.whole[: flipped.hurt]
    assert [str(each) for each in verify_log(Disk(), str(flipped.target))] == []


def indexes(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (names.INDEX, names.TIME_INDEX)
    }


def judge_synced(flipped: Flip) -> None:
    """All was synced, the end unclean: nothing is cut, readers get every other batch, or an error names the file."""
    judge_start(flipped, clean=False)


def judge_clean(flipped: Flip) -> None:
    """As before, after a clean end: nothing but the ends of files is looked at."""
    judge_start(flipped, clean=True)


def judge_running(flipped: Flip) -> None:
    """A broker has the log open when the bit flips."""
    log, _ = recover(PartitionDirectory(Disk(), str(flipped.target), "t0", 0, CONFIG, True, flipped.made.end))
    flipped.happen()
    judge_reading(flipped, log, received=flipped.verified())


def judge_start(flipped: Flip, *, clean: bool) -> None:
    flipped.happen()
    received = flipped.verified()
    sizes = {path.name: path.stat().st_size for path in flipped.target.glob("*.log")}
    try:
        log, _ = recover(PartitionDirectory(Disk(), str(flipped.target), "t0", 0, CONFIG, clean, flipped.made.end))
    except RecoveryError as error:
        assert flipped.name in str(error) or flipped.hurt >= 0
        assert received, f"refused, but log verify is content: {error}"
        assert {path.name: path.stat().st_size for path in flipped.target.glob("*.log")} == sizes
        return
    assert log.log_end_offset >= flipped.made.end, "offsets would be given a second time"
    judge_reading(flipped, log, received=received)


def judge_reading(flipped: Flip, log: Log, *, received: bool) -> None:
    found = {offset: read_at(log, offset) for offset in range(flipped.made.end)}
    right = {offset: each for each in flipped.whole for offset in range(each[0], each[1] + 1)}
    if found == right:
        return
    assert received, "readers meet the damage, and log verify is content"
    assert flipped.hurt >= 0, f"{flipped.name} cost records"
    base, last, _ = flipped.whole[flipped.hurt]
    for offset, got in found.items():
        if flipped.at in LAST_OFFSET_DELTA:
            assert got is None or got[1] >= offset, f"asked for {offset}, sent back to {got[:2]}"
        elif not base <= offset <= last:
            assert got == right[offset], f"asked for {offset}, got {got and got[:2]}"
        elif flipped.at in LEADER_EPOCH:
            assert got and got[:2] == (base, last), f"asked for {offset}, got {got and got[:2]}"
        elif flipped.at < BATCH_LENGTH_AT and flipped.hurt == len(flipped.whole) - 1:
            assert got is None or got[0] > base, "a log that ends further on: nothing lies behind that says otherwise"
        else:
            assert got is None, f"the flipped batch at {base} is taken for good"
    if flipped.at not in LAST_OFFSET_DELTA and flipped.at >= BATCH_LENGTH_AT:  # a base offset goes out as it is
        others = [each for each in read_through(log) if each[0] != base]
        assert others == flipped.others


@pytest.mark.torture
@pytest.mark.parametrize("judge", [judge_unclean, judge_synced, judge_clean, judge_running])
def test_a_flipped_bit(ram: Path, seed: int, flips: int, judge: object) -> None:
    made = sample(ram / "made", seed)
    for number in range(flips):
        flipped = flip(made, ram / "flipped", random.Random(seed * 1_000_003 + number))
        try:
            judge(flipped)  # type: ignore[operator]
        except BaseException:
            print(f"flip {number}: {flipped.name} at {flipped.position}, byte {flipped.at} of batch {flipped.hurt}")
            raise
        shutil.rmtree(flipped.target)
