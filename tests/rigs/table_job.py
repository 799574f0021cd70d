"""A query that copies partitions to a table, as Spark runs it, without Spark; and what must be true of the table.

The checkpoint is a log of planned batches, which survives every crash. A planned batch is repeated with the same
offsets until it is complete. `verify_visible` and `verify_complete` read the files of the table, not its code.
"""

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pyspark_kafkalite.tables import Batch, CommittedRange, DataFile, ManifestTable
from pyspark_kafkalite.tables.locations import find
from pyspark_kafkalite.tables.model import Replacement, batch_name, dead_letter_name

from tests.rigs.table_disk import CrashingDisk

PARTITIONS = 3
FIRST_OFFSET = 10

Planned = tuple[tuple[int, int, int], ...]  # partition, start, end
WriteFile = Callable[[CrashingDisk, Path, Planned], None]


class Checkpoint:
    """What Spark keeps: the planned batches and how many of them are complete."""

    def __init__(self, ends: dict[int, int], resumes: int | None = None) -> None:
        self.query_id = uuid.uuid4().hex
        self.planned: list[Planned] = []
        self.complete = 0
        self.ends = ends
        self.resumes = resumes

    def next_batch(self, rng: random.Random) -> int:
        """The batch to run: an incomplete one again, or a new one."""
        if self.complete == len(self.planned):
            chosen = [each for each in sorted(self.ends) if rng.random() < 0.7] or [0]
            batch = tuple((each, self.ends[each], self.ends[each] + rng.randrange(1, 9)) for each in chosen)
            self.planned.append(batch)
            self.ends.update({partition: end for partition, _, end in batch})
        return self.complete


class Attempt(NamedTuple):
    file: DataFile
    ranges: tuple[CommittedRange, ...]


def write_text(disk: CrashingDisk, path: Path, ranges: Planned) -> None:
    """Write a file that only `rows_of_text` reads: the table does not read Parquet."""
    disk.write(path, json.dumps(ranges).encode())
    disk.flush_directory(path.parent)


def rows_of_text(paths: Iterable[Path]) -> Counter[tuple[int, int]]:
    """How often each row is in the files."""
    return Counter(row for path in paths for row in rows_in(path.read_bytes()))


@lru_cache(maxsize=1 << 10)  # each file is read at each step of the disk
def rows_in(content: bytes) -> tuple[tuple[int, int], ...]:
    """Partition and offset of each row of a file."""
    return tuple((partition, at) for partition, start, end in json.loads(content) for at in range(start, end))


def split(batch: Planned, rng: random.Random) -> list[Planned]:
    """The tasks of a batch: a partition may have two splits, and a task several partitions."""
    splits = []
    for partition, start, end in batch:
        middle = rng.randrange(start, end)
        splits += (
            [(partition, start, middle), (partition, middle, end)] if middle > start else [(partition, start, end)]
        )
    rng.shuffle(splits)
    tasks: list[list[tuple[int, int, int]]] = [[] for _ in range(rng.randrange(1, 4))]
    for each in splits:
        rng.choice(tasks).append(each)
    return [tuple(sorted(each)) for each in tasks if each]


def write(
    table: ManifestTable, disk: CrashingDisk, ranges: Planned, write_file: WriteFile = write_text, batch: str = "0-"
) -> Attempt:
    """Run one task of a batch."""
    path = Path(table.attempts, f"part-{batch}-{uuid.uuid4().hex}.parquet")
    write_file(disk, path, ranges)
    rows = sum(end - start for _, start, end in ranges)
    committed = tuple(
        CommittedRange("orders", each, start, end, end - start, start, end) for each, start, end in ranges
    )
    return Attempt(DataFile(path.name, path.stat().st_size, rows), committed)


def batch_of(checkpoint: Checkpoint, batch_id: int, attempts: list[Attempt]) -> Batch:
    """What `foreachBatch` commits; in every other batch of several tasks, the last one has only dead letters."""
    dead = attempts[-1:] if len(attempts) > 1 and batch_id % 2 else []
    letters = tuple(each.file._replace(name=dead_letter_name(each.file.name)) for each in dead)
    return Batch(
        checkpoint.query_id,
        batch_id,
        tuple(each for attempt in attempts for each in attempt.ranges),
        tuple(attempt.file for attempt in attempts if attempt not in dead),
        checkpoint.resumes,
        dead_letters=letters,
        dead_rows=sum(each.rows for each in letters),
    )


def run_batch(
    table: ManifestTable,
    disk: CrashingDisk,
    checkpoint: Checkpoint,
    rng: random.Random,
    write_file: WriteFile = write_text,
) -> None:
    """Plan a batch, write its files and commit it."""
    batch_id = checkpoint.next_batch(rng)
    tasks, name = split(checkpoint.planned[batch_id], rng), batch_name(checkpoint.query_id, batch_id)
    if rng.random() < 0.3:
        write(table, disk, tasks[0], write_file, name)  # an attempt that failed later, or a speculative one
    attempts = [write(table, disk, each, write_file, name) for each in tasks]
    table.commit(batch_of(checkpoint, batch_id, attempts))
    checkpoint.complete += 1


def compact(table: ManifestTable, disk: CrashingDisk, rng: random.Random, starting: Callable[[], object]) -> None:
    """Replace some files by one with the same rows.

    Arguments:
        starting: is called between the check of the new file and its commit.
    """
    with table.compacting():
        table.remove_replaced(0)
        files = [each for each in table.state().files.values() if rng.random() < 0.7]
        if len(files) < 2:
            return
        reader = {each.name: find(Path(table.location), each.name) for each in files}
        spans = [span for path in reader.values() for span in json.loads(path.read_bytes())]
        path = Path(table.compactions, f"part-{uuid.uuid4().hex}.parquet")
        write_text(disk, path, tuple(tuple(span) for span in spans))
        file = DataFile(path.name, path.stat().st_size, sum(each.rows for each in files))
        starting()
        table.replace(Replacement((file,), tuple(reader)))


def visible(root: Path) -> list[Path]:
    """What a plain reader of the directory reads, and what a reader of the dead letters reads."""
    return sorted([*root.glob("*.parquet"), *root.glob("_dead_letters/*.parquet")])


def committed(root: Path) -> list[str]:
    """Names of the files of all commits."""
    return [name for path in sorted((root / "_commits").glob("*.json")) for name in files_in(path.read_bytes())]


@lru_cache(maxsize=1 << 10)
def files_in(content: bytes) -> tuple[str, ...]:
    """Names of the files of a commit."""
    commit = json.loads(content)
    return tuple(Path(each["name"]).name for each in commit["files"] + commit["dead_letters"])


def verify_visible(root: Path) -> None:
    """No uncommitted and no duplicated row is visible."""
    names = [each.name for each in visible(root)]
    assert set(names) <= set(committed(root)), "a file is visible before its commit"
    rows = rows_of_text(visible(root))
    assert all(count == 1 for count in rows.values()), "a row is visible twice"


def verify_manifest(root: Path) -> None:
    """A reader of the commits sees each offset of the table once, at every moment."""
    table = ManifestTable(root, create=False)
    state = table.state()
    rows = rows_of_text(find(root, name) for name in (*state.files, *state.dead_letters))
    expected = {(each.partition, at) for each, end in state.ends.items() for at in range(FIRST_OFFSET, end)}
    assert rows == Counter(expected), f"missing {Counter(expected) - rows}, additional {rows - Counter(expected)}"


def verify_complete(root: Path, ends: dict[int, int]) -> None:
    """Each offset is visible once; nothing else is left."""
    rows = rows_of_text(visible(root))
    expected = Counter((partition, at) for partition, end in ends.items() for at in range(FIRST_OFFSET, end))
    assert rows == expected, f"missing {expected - rows}, additional {rows - expected}"
    assert list((root / "_attempts").iterdir()) == [], "an attempt is left"
    if (root / "_compactions").is_dir():
        assert [each.name for each in (root / "_compactions").iterdir()] == ["lock"], "a file of a compaction is left"
