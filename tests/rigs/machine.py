"""A machine with one broker's logs: it is worked with, stops at any step of its disk, and is started again.

Two ends: a kill (the page cache survives) and a power cut (see `kafkalite.testing.power_loss`). After each the judge
compares what is found with the model, and the machine goes on.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome
from kafkalite.config.topic import TopicConfig
from kafkalite.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from kafkalite.storage.compaction.cleaner import CleanerConfig, LogCleaner
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_closing import MANY_FILES
from kafkalite.storage.manager import LogManager
from kafkalite.storage.verify.verify import verify_directory, verify_log
from kafkalite.testing.faulty_disk import Crash, FaultyDisk
from kafkalite.testing.virtual_clock import START_WALL_MS, InlineOffload, SeededRandom, VirtualClock
from tests.rigs.compacted import CompactedModel, batch_of
from tests.rigs.following import FOLLOWER, FollowerModel
from tests.rigs.model import PartitionModel, StoredBatch
from tests.unit.storage.damage import batch, made

US = Identity("a2Fma2FsaXRlLXRlc3RzMQ", 1)
CONFIG = replace(
    TopicConfig(), segment_bytes=700, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=1_000
)
COMPACT = replace(CONFIG, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01, delete_retention_ms=2_000)
COMPACTED = {2: COMPACT, 3: replace(COMPACT, cleanup_policy=("compact", "delete"))}  # by partition
CLEANER = CleanerConfig(dedupe_buffer_size=4_096, io_buffer_size=65_536, backoff_ms=500)


def topic_of(partition: int) -> str:
    return f"t{partition}"


@dataclass
class Machine:
    """`root`: the log directory; `config` counts for every topic but those of `COMPACTED`."""

    root: Path
    rng: random.Random
    config: TopicConfig = CONFIG
    models: list[PartitionModel] = field(default_factory=list)
    disk: FaultyDisk = field(default_factory=FaultyDisk)
    epoch: int = 0
    number: int = 0
    stops: int = 0

    # Start and end.

    def boot(self) -> None:
        """Start what `Broker.start` starts of the storage."""
        self.clock = VirtualClock(self.clock.wall_ms() if hasattr(self, "clock") else START_WALL_MS)
        self.offload = InlineOffload()
        self.cleaning = InlineOffload()
        self.cleaning.held = True  # its jobs are done one by one, by `clean`
        self.manager = self.new_manager()
        self.manager.many_files = self.rng.choice([0, MANY_FILES])  # a clean end syncs all at once, or file after file
        self.manager.lock()
        self.manager.claim(US)
        self.before_load()
        self.loaded = self.manager.load(self.config_of, 1)
        for topic, partition in list(self.manager.created):  # as their first append does
            self.manager.open_created(topic, partition, self.config_of(topic))
        self.offload.drain()
        self.cleaner = self.manager.cleaner = LogCleaner(
            self.manager, self.clock, self.cleaning, SeededRandom(2), CLEANER
        )
        self.cleaner.start(self.high_watermark_of)
        self.epoch += 1

    @property
    def paths(self) -> list[str]:
        """The log directories."""
        return [str(self.root)]

    def new_manager(self) -> LogManager:
        return LogManager(self.disk, self.paths, self.clock, self.offload, SeededRandom(1))

    def before_load(self) -> None:
        """What a start does with the claimed log directories."""

    def config_of(self, topic: str) -> TopicConfig:
        return next((config for partition, config in COMPACTED.items() if topic_of(partition) == topic), self.config)

    def high_watermark_of(self, log: Log) -> int:
        """What the cleaner may touch."""
        model = self.model(log.partition)
        assert isinstance(model, CompactedModel), "only compacted logs are looked at"
        return model.looked_at(log)

    def shutdown(self) -> None:
        """End cleanly, in the order of `Broker.stop`: what the cleaner does is aborted, and ends."""
        self.cleaner.close()
        self.finish_cleaning()
        self.manager.close()
        self.manager.unlock()
        for model in self.models:
            if (log := self.find(model)) is not None:
                model.promises(log.log_end_offset)

    def restart(self) -> None:
        """End cleanly and start again."""
        self.shutdown()
        for path, loaded in zip(self.paths, self.loaded, strict=True):
            said = verify_directory(Disk(), path, compacted=self.compacted)
            assert [str(each) for each in said if each.path not in loaded.rejected] == []
        self.boot()
        self.leave_unknown_alone()

    @property
    def compacted(self) -> bool:
        return any(model.compacted for model in self.models)

    # Work.

    def create(self, partition: int = 0) -> None:
        """Make a partition, each of a topic of its own; also again after it was deleted."""
        topic = topic_of(partition)
        kind = CompactedModel if partition in COMPACTED else FollowerModel if partition == FOLLOWER else PartitionModel
        model = kind(topic, partition, self.rng.randbytes(16))
        self.models.append(model)
        path = self.manager.directories()[0]
        made(self.manager, self.offload, path, topic, partition, model.topic_id, self.config_of(topic))
        self.manager.topic_ids[topic, partition] = model.topic_id
        model.created = not self.disk.crashed  # a job that ended with the process is seen only when it is drained

    def log(self, partition: int = 0) -> Log:
        log = self.manager.find(topic_of(partition), partition)
        assert log is not None
        return log

    def model(self, partition: int = 0) -> PartitionModel:
        """The one that is not deleted."""
        (model,) = [each for each in self.models if each.partition == partition and not each.deleted]
        return model

    def find(self, model: PartitionModel) -> Log | None:
        key = (model.topic, model.partition)
        return self.manager.find(*key) if self.manager.topic_ids.get(key) == model.topic_id else None

    def append(self, passes: int = 1, partition: int = 0) -> None:
        """Each pass writes one to three batches of one to three records."""
        for _ in range(passes):
            self.write([self.rng.randint(1, 3) for _ in range(self.rng.randint(1, 3))], partition)

    def write(self, counts: list[int], partition: int = 0) -> None:
        model, log = self.model(partition), self.log(partition)
        made, stored = [], []
        for count in counts:
            self.number += 1
            made.append(self.batch(model, count))
            base = log.append(made[-1], None, self.epoch)
            assert base == log.next_offset - count, f"{model}: append answers {base}"
            model.sequence += count
            stored.append(StoredBatch(base, base + count - 1, bytes(made[-1])))
            model.sends(stored[-1])
        assert log.write() == 0
        model.writes(stored)
        if isinstance(model, CompactedModel):  # some followers are behind
            model.high_watermark = max(model.high_watermark, log.log_end_offset - self.rng.choice([0, 0, 5, 15]))

    def batch(self, model: PartitionModel, count: int) -> bytearray:
        timestamp = 10_000 + 10 * self.number + self.rng.randint(-50, 50)
        fields = {"producer_id": model.producer_id, "producer_epoch": 0, "base_sequence": model.sequence}
        if model.compacted:
            return batch_of(self.rng, timestamp, count, self.number, **fields)
        return batch(count, timestamp, 1, b"%d" % self.number, **fields)

    def checkpoint(self) -> None:
        self.manager.upkeep.checkpoint()
        self.offload.drain()
        assert self.manager.is_online(self.manager.directories()[0])

    def truncate(self, back: int = 4, partition: int = 0) -> None:
        """Drop the last `back` batches, as a follower that diverged."""
        model, log = self.model(partition), self.log(partition)
        if len(model.written) <= back:
            return
        offset = model.written[-back].base
        if isinstance(model, CompactedModel):  # what is below the high watermark is never taken back
            offset = min((each.base for each in model.written if each.base >= model.high_watermark), default=-1)
        if offset < log.log_start_offset:
            return
        model.truncates(offset)
        ended: list[Outcome] = []
        self.manager.truncate({log: offset}, ended.append)
        while not ended:
            assert self.offload.drain()
        ended[0].result()
        model.producer_id, model.sequence = model.producer_id + 1, 0
        self.epoch += 1

    def delete_records(self, partition: int = 0) -> None:
        """Move the log start into the middle, and let retention take what is below."""
        model, log = self.model(partition), self.log(partition)
        offset = (log.log_start_offset + log.log_end_offset) // 2
        model.starts_at(offset)
        assert log.delete_records_before(offset) == 0
        self.retention()

    def retention(self) -> None:
        self.manager.upkeep.check_retention(lambda log: log.log_end_offset)
        self.offload.drain()
        self.clock.advance(1_001)
        self.offload.drain()

    def clean(self, partition: int, jobs: int | None = None) -> None:
        """Let the cleaner look, and do so many of its jobs one by one; None: all, until it finds nothing more."""
        self.clock.advance(CLEANER.backoff_ms)
        self.offload.drain()  # the dirty segments are flushed first
        while self.cleaning.waiting and jobs != 0:
            self.cleaning.release()
            self.cleaning.held = True
            if jobs == 1 and self.rng.random() < 0.5:
                return  # the job is done, and no completion has run
            self.cleaning.drain()
            self.offload.drain()
            jobs = None if jobs is None else jobs - 1
        if jobs is None:
            assert self.cleaner.uncleanable == {}
            log = self.log(partition)
            due = [other for other in self.manager.all() if self.cleaner.due(other) is not None]
            assert not due and not self.cleaner.is_busy(log), "there is more to clean"

    def finish_cleaning(self) -> None:
        """Let what was aborted end, and checkpoints be written."""
        self.cleaning.release()
        self.cleaning.drain()
        self.cleaning.held = True

    def delete(self, partition: int = 0) -> None:
        """Delete the partition; its files go after the delay."""
        log = self.log(partition)
        self.model(partition).deleted = True
        self.manager.delete(log)
        self.finish_cleaning()
        self.clock.advance(1_001)
        self.offload.drain()

    # The unexpected end.

    def stop(self, *, power_cut: bool, torn: bool | None = None) -> None:
        """Kill the process, or cut the power; whatever the dead one had promised counts."""
        for model in self.models:
            log = self.manager.find(model.topic, model.partition) if hasattr(self, "manager") else None
            if log is not None and self.manager.topic_ids.get((model.topic, model.partition)) == model.topic_id:
                model.promises(log.recovery_point)
        self.disk.crashed = True
        if hasattr(self, "manager"):
            self.manager.unlock()
        if power_cut:
            self.disk.crash(self.rng, torn=torn)
        self.stops += 1
        self.disk = FaultyDisk()

    def judge(self, *, power_cut: bool) -> None:
        """After a start: everything found is what it must be; go on from there."""
        assert [loaded.error for loaded in self.loaded if loaded.error is not None] == []
        for model in list(self.models):
            log = self.find(model)
            if log is None:
                self.models.remove(model)
                refused = [loaded.rejected for loaded in self.loaded]
                assert model.deleted or not model.created, f"{model} is gone; refused: {refused}"
                continue
            if isinstance(model, CompactedModel):
                clean_until = read_offsets(Disk(), os.path.join(log.root, CLEANER_OFFSETS))
                model.clean_until = clean_until.get((model.topic, model.partition), 0)
            model.judge(log, power_cut=power_cut)
            said = verify_log(
                Disk(),
                log.directory,
                compacted=model.compacted,
                gaps_until=model.gaps_until,
                log_start_offset=min(model.start, log.log_end_offset),
            )
            assert [str(each) for each in said] == []
            model.deleted, model.created = False, True
            model.goes_on_from(log)
        self.leave_unknown_alone()

    def leave_unknown_alone(self) -> None:
        """An unknown directory is a partition whose creation was interrupted: no start uses it."""
        known = [self.find(model) for model in self.models]
        for log in [log for log in self.manager.all() if log not in known]:
            assert log.size == 0, f"{log.directory}: nobody's records"
            self.manager.leave_alone(log)

    def ends(
        self,
        work: Callable[["Machine"], None],
        *,
        power_cut: bool,
        stop_at: int | None,
        starts_until: Sequence[int] = (),
    ) -> bool:
        """Do the work until step `stop_at` of the disk, stop, and start again; return whether it ended before.

        `starts_until`: the steps at which the first starts after that are stopped, too.
        """
        self.disk.stop_at = stop_at
        try:
            work(self)
            self.disk.stop_at = None
            return True
        except Crash:
            self.stop(power_cut=power_cut)
        for step in starts_until:
            self.disk.stop_at = step
            try:
                self.boot()
                break
            except Crash:
                self.stop(power_cut=power_cut)
        else:
            self.boot()
        self.disk.stop_at = None
        self.judge(power_cut=power_cut)
        return False


AnyMachine = TypeVar("AnyMachine", bound=Machine)


def crash_at_every_step(
    begin: Callable[[int], AnyMachine],
    work: Callable[[Any], None],
    finish: Callable[[AnyMachine], None],
    *,
    power_cut: bool,
    steps: range,
) -> None:
    """Stop at each of these steps of the work, on a new machine each time, until the work ends before the step.

    Arguments:
        begin: returns the machine for a step.
        finish: lets the machine go on after the judge.
        power_cut: whether the power ends, or the process.
        steps: of the disk, more than the work has.
    """
    for step in steps:
        machine = begin(step)
        ended = machine.ends(work, power_cut=power_cut, stop_at=machine.disk.steps + step)
        finish(machine)
        if ended:
            print(f"{work.__name__}: {step} steps")
            return
    raise AssertionError("the work does not end")
