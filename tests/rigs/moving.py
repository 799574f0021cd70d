"""A machine with three log directories, whose partitions are moved between them while they are worked with."""

from pathlib import Path

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import names
from kafkalite.storage.checkpoints import read_topic_id
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_move.interrupted_moves import InterruptedMove, finish_interrupted
from kafkalite.storage.manager import LogManager
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom
from tests.rigs.machine import Machine

DIRECTORIES = 3


class MovingMachine(Machine):
    """A machine whose copies are done job by job, by `copy`, and whose swaps are done step by step, by `swap`."""

    @property
    def paths(self) -> list[str]:
        return [str(self.root / f"d{number}") for number in range(DIRECTORIES)]

    def new_manager(self) -> LogManager:
        self.copies = InlineOffload()
        self.copies.held = True
        return LogManager(self.disk, self.paths, self.clock, self.offload, SeededRandom(self.stops), copies=self.copies)

    def before_load(self) -> None:
        self.manager.interrupted = finish_interrupted(self.disk, self.manager, SeededRandom(self.stops + 1_000))

    def boot(self) -> None:
        super().boot()
        for again in self.manager.interrupted:
            self.move_again(again)

    def move_again(self, again: InterruptedMove) -> None:
        log = self.manager.find(*again.key)
        if log is not None:
            self.begin_move(log, again.target)

    def begin_move(self, log: Log, target: str) -> None:
        topic_id = self.manager.topic_ids[log.topic, log.partition]
        assert topic_id is not None
        self.manager.mover.begin(log, target, topic_id, lambda error: None)

    def move(self, partition: int = 0) -> None:
        """Begin to move a partition to the next log directory, unless it is being moved."""
        log = self.log(partition)
        if self.manager.mover.cancel((log.topic, log.partition)):
            number = self.paths.index(log.root)
            self.begin_move(log, self.paths[(number + 1) % DIRECTORIES])

    def copy(self, jobs: int = 1_000) -> None:
        """Do so many jobs of the copies, and what of the swaps follows."""
        while jobs and self.copies.waiting:
            self.copies.release()
            self.copies.held = True
            self.copies.drain()
            self.offload.drain()
            jobs -= 1

    def write(self, counts: list[int], partition: int = 0) -> None:
        """Append; after a swap that waits, as the appends of a partition do."""
        while self.log(partition).moving:
            assert self.offload.drain(), "the swap does not end"
        super().write(counts, partition)

    def shutdown(self) -> None:
        self.manager.mover.close()
        self.copies.release()
        self.copies.drain()
        super().shutdown()

    def directories_of(self, partition: int = 0) -> dict[str, list[str]]:
        """The directories of a partition by the type of their names, over all log directories."""
        found: dict[str, list[str]] = {"current": [], "future": [], "deleted": [], "stray": []}
        for path in map(Path, self.paths):
            for each in path.iterdir():
                if names.parse_directory_name(each.name) == (f"t{partition}", partition):
                    found["current"].append(str(each))
                for kind, suffix in (("future", "-future"), ("deleted", "-delete"), ("stray", "-stray")):
                    if each.name.startswith(f"t{partition}-{partition}.") and each.name.endswith(suffix):
                        found[kind].append(str(each))
        return found

    def judge(self, *, power_cut: bool) -> None:
        super().judge(power_cut=power_cut)
        for model in self.models:
            found = self.directories_of(model.partition)
            assert len(found["current"]) <= 1, f"{model}: {found}"
            for stray in found["stray"]:  # the copy of an earlier, deleted topic, whose new name a power cut took
                assert read_topic_id(Disk(), stray) != model.topic_id, f"{model}: {found}"

    def finish_moves(self) -> None:
        """Every move ends, and nothing of it is left."""
        self.copy()
        assert not self.manager.moves
        self.clock.advance(1_001)
        self.offload.drain()
        for model in self.models:
            found = self.directories_of(model.partition)
            log = self.find(model)
            assert log is None or (found["current"], found["future"], found["deleted"]) == ([log.directory], [], [])
            assert Disk().exists(found["current"][0])
