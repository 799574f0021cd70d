"""One bit of a file of a log directory is another one: what is read is right, or the damage is told.

Both readers, ours and kafka-python's, check the CRC of every batch that is read.
Under the CRC neither takes a flipped record for good, and every other batch is read. In the bytes by which a walk over
headers finds its way, most of which no CRC covers: no crash, nobody is sent back, and `log verify` names the file.
Recovery cuts at the damage above the recovery point and refuses to cut below it.
"""

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalite._speedups.batches import batches
from kafkalite._speedups.file import Disk
from kafkalite.records import BatchError
from kafkalite.storage import names
from kafkalite.storage.log import Log
from kafkalite.storage.recovery import Place, RecoveryError, recover
from kafkalite.storage.verify import verify_log
from tests.rigs.machine import CONFIG, Machine
from tests.rigs.model import Placed, read_all
from tests.unit.records.clients import kafka_python

UNCOVERED_BYTES = 17  # base offset, length, leader epoch, magic
MISLEADING = {*range(17), *range(23, 27)}  # by these and the last offset delta a walk over headers finds its way
Found = tuple[int, int, bytes]


@dataclass
class Sample:
    """A directory left cleanly, and what is in it."""

    directory: Path
    placed: list[Placed]
    starts: dict[str, list[tuple[int, int]]]  # of each segment: position and size of its batches
    bases: list[int]

    @property
    def end(self) -> int:
        return self.placed[-1].last + 1


def sample(root: Path, seed: int) -> Sample:
    machine = Machine(root, random.Random(seed))
    machine.boot()
    machine.create()
    log = machine.log()
    while len(log.segments) < 3 or len(log.active.batches()) < 4:
        machine.append()
    starts = {
        names.file_name(segment.base_offset, names.LOG): [(place[0], place[1]) for place in segment.batches()]
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

    def verified(self) -> bool:
        """Whether `log verify` names the file."""
        return str(self.target / self.name) in [each.path for each in verify_log(Disk(), str(self.target), clean=True)]

    @property
    def whole(self) -> list[Found]:
        return [(placed.base, placed.last, placed.data) for placed in self.made.placed]

    @property
    def others(self) -> list[Found]:
        return [each for number, each in enumerate(self.whole) if number != self.hurt]


def flip(made: Sample, target: Path, rng: random.Random) -> Flip:
    """Batches and indexes more often than the small files, and the bytes without a CRC more often than the others."""
    target.mkdir()
    files = sorted(path.name for path in made.directory.iterdir())
    name = rng.choice([*files, *[each for each in files if each.endswith(names.LOG)] * 3])
    for each in files:
        if each != name:
            os.link(made.directory / each, target / each)
    data = bytearray((made.directory / name).read_bytes())
    flipped = Flip(made, target, name, rng.randrange(len(data)) if data else 0)
    if name in made.starts:
        number = rng.randrange(len(made.starts[name]))
        start, size = made.starts[name][number]
        flipped.at = rng.randrange(UNCOVERED_BYTES) if rng.random() < 0.3 else rng.randrange(size)
        flipped.position = start + flipped.at
        before = sum(len(each) for other, each in made.starts.items() if other < name)
        flipped.hurt = before + number
    if data:
        data[flipped.position] ^= 1 << rng.randrange(8)
    (target / name).write_bytes(data)
    return flipped


def read_at(log: Log, offset: int) -> Found | None:
    """The batch that a client gets who asks for `offset` and checks the CRC; None where it is told of damage."""
    regions = log.read(offset, 1, log.log_end_offset)
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


def judge_unclean(flipped: Flip) -> None:
    """Nothing was synced: all up to the damaged batch is there, and nothing behind it that is not as it was."""
    log, _ = recover(Place(Disk(), str(flipped.target), "t0", 0, CONFIG, False, 0))
    found = [(placed.base, placed.last, placed.data) for placed in read_all(log)]
    if flipped.hurt < 0:
        assert found == flipped.whole
        return
    if 12 <= flipped.at < 16:  # the leader epoch: nothing says what it was
        assert [each[:2] for each in found] == [each[:2] for each in flipped.whole]
        return
    if flipped.at < 8 and found != flipped.whole[: flipped.hurt]:  # an offset further on: a gap, or what follows is cut
        assert found[: flipped.hurt] == flipped.whole[: flipped.hurt]
        offsets = [offset for each in found for offset in each[:2]]
        assert offsets == sorted(offsets)
        return
    assert found == flipped.whole[: flipped.hurt]
    assert [str(each) for each in verify_log(Disk(), str(flipped.target))] == []


def judge_synced(flipped: Flip) -> None:
    """All was synced, the end unclean: nothing is cut, readers get every other batch, or somebody names the file."""
    told = flipped.verified()
    sizes = {path.name: path.stat().st_size for path in flipped.target.glob("*.log")}
    try:
        log, _ = recover(Place(Disk(), str(flipped.target), "t0", 0, CONFIG, False, flipped.made.end))
    except RecoveryError as error:
        assert flipped.name in str(error) or flipped.hurt >= 0
        assert told, f"refused, but log verify is content: {error}"
        assert {path.name: path.stat().st_size for path in flipped.target.glob("*.log")} == sizes
        return
    found = {offset: read_at(log, offset) for offset in range(flipped.made.end)}
    right = {offset: each for each in flipped.whole for offset in range(each[0], each[1] + 1)}
    if found == right:
        return
    assert told, "readers meet the damage, and log verify is content"
    assert flipped.hurt >= 0, f"{flipped.name} cost records"
    base, last, _ = flipped.whole[flipped.hurt]
    for offset, got in found.items():
        if flipped.at in MISLEADING:
            assert got is None or got[1] >= offset, f"asked for {offset}, sent back to {got[:2]}"
        elif not base <= offset <= last:
            assert got == right[offset], f"asked for {offset}, got {got and got[:2]}"
        else:
            assert got is None, f"the flipped batch at {base} is taken for good"


@pytest.mark.torture
@pytest.mark.parametrize("judge", [judge_unclean, judge_synced])
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
