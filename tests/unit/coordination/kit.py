"""Random transactions, a picture of a tree to compare, and a disk that fails on demand."""

import errno
import random

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.tree import Check, Create, Delete, Operation, Set, Stat, Tree

NAMES = ("a", "b", "c")


def picture(tree: Tree) -> dict[str, tuple[bytes, Stat]]:
    """Everything in a tree but its zxid."""
    return {path: (node.data, node.stat()) for path, node in tree.walk()}


def random_path(chance: random.Random) -> str:
    return "/" + "/".join(chance.choices(NAMES, k=chance.randint(1, 3)))


def random_operation(chance: random.Random) -> Operation:
    path, data, version = random_path(chance), chance.randbytes(chance.randint(0, 40)), chance.choice((-1, -1, 0, 1))
    kind = chance.random()
    if kind < 0.5:
        return Create(path, data, chance.random() < 0.1, chance.random() < 0.2)
    if kind < 0.75:
        return Set(path, data, version)
    return Delete(path, version) if kind < 0.9 else Check(path, version)


def random_operations(chance: random.Random) -> list[Operation]:
    return [random_operation(chance) for _ in range(chance.randint(1, 4))]


def drive(tree: Tree, chance: random.Random, count: int) -> int:
    """Do random transactions until `count` have succeeded; returns how many failed."""
    session, done, failed = tree.open_session(), 0, 0
    while done < count:
        try:
            tree.multi(random_operations(chance), session, done)
            done += 1
        except CoordinationError:
            failed += 1
    return failed


class Faults:
    """What fails next: `write_room` bytes are written before a write fails, `sync` and `truncate` fail at all."""

    def __init__(self) -> None:
        self.write_room: int | None = None
        self.failing: set[str] = set()
        self.log: list[str] = []


class FaultyFile(File):
    faults: Faults

    def before(self, operation: str, offset: int, size: int) -> int:
        self.faults.log.append(operation)
        if operation in self.faults.failing:
            raise OSError(errno.EIO, "injected", self.path)
        if operation == "write" and self.faults.write_room is not None:
            return min(size, self.faults.write_room)
        return size


class FaultyDisk(Disk):
    """A disk whose files obey `faults`."""

    def __init__(self) -> None:
        self.faults = Faults()

    def make_file(self, path: str, fd: int) -> File:
        file = FaultyFile(path, fd)
        file.faults = self.faults
        return file
