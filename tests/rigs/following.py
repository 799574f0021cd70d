"""A follower's partition for the rigs: batches with gaps and epochs as a leader sends them, truncations, restarts.

Of what is found at a start, in addition to `model`:
1. Offsets are missing only where the leader has sent none.
2. Epochs, producers and aborted transactions are those that the batches produce.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite._speedups.storage.recovery_scan import note_producers
from kafkalite.clock import Outcome
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.storage.log.log import Log
from tests.rigs.model import PartitionModel, StoredBatch
from tests.unit.storage.damage import batch
from tests.unit.storage.transactional import producers_of

if TYPE_CHECKING:
    from tests.rigs.machine import Machine

FOLLOWER = 4  # the partition


class FollowerModel(PartitionModel):
    """`leader_epoch`: of the batches that come next."""

    leader_epoch = 0
    gaps_until: ClassVar[int] = 0  # no segment may be missing

    @property
    def compacted(self) -> bool:
        return True  # by the leader: gaps within a segment are normal

    def restarts(self, log_start: int) -> None:
        """Said before it is done: from now on nothing of what was written is required."""
        self.written = []
        self.promised, self.start = 0, log_start

    def _in_order(self, log: Log, found: list[StoredBatch]) -> None:
        super()._in_order(log, found)
        bases = [stored.base for stored in found]
        assert bases == sorted(bases)
        for segment, following in zip(log.segments, log.segments[1:], strict=False):
            assert segment.next_offset() == following.base_offset, f"{self}: a gap before {following.base_offset}"

    def _may_be_missing(self, offset: int) -> bool:
        return True

    def _producers(self, log: Log, found: list[StoredBatch]) -> None:
        state, aborted = ProducerState(), list[tuple[int, int, int, int]]()
        for segment in log.segments:
            aborted += note_producers(segment, 0, state)
        ids = {producer.producer_id for producer in state}
        known = {key: value for key, value in producers_of(log).items() if key in ids}
        rebuilt = Rebuilt(state)
        assert known == producers_of(rebuilt), f"{self}: other producers than its batches have"  # type: ignore[arg-type]
        assert [tuple(each) for each in log.aborted_transactions(0, log.log_end_offset)] == aborted
        self._epochs(log, found)

    def _epochs(self, log: Log, found: list[StoredBatch]) -> None:
        # The first batch of each epoch, with the end of the batch before it. An epoch may begin in the gap between
        # them: a leader has begun it, or a start has kept it without its batches, and offsets have been left out since.
        expected: list[tuple[int, int, int]] = []
        end = log.log_start_offset
        for stored in found:
            epoch = int.from_bytes(stored.data[12:16], "big")
            if stored.last >= log.log_start_offset and (not expected or expected[-1][0] != epoch):
                expected.append((epoch, end, max(stored.base, log.log_start_offset)))
            end = max(end, stored.last + 1)
        entries = [entry for entry in log.epochs.entries if expected and entry[0] >= expected[0][0]]
        if entries and entries[-1][1] == log.log_end_offset:  # without batches
            entries.pop()
        assert [epoch for epoch, _ in entries] == [each[0] for each in expected], f"{self}: {entries}, {expected}"
        for (_, start), (_, end, base) in zip(entries[1:], expected[1:], strict=True):
            assert end <= start <= base, f"{self}: epochs {log.epochs.entries} instead of {expected}"

    def goes_on_from(self, log: Log) -> None:
        super().goes_on_from(log)
        self.producer_id, self.sequence = self.producer_id + 1, 0
        self.leader_epoch = max(self.leader_epoch, log.epochs.latest)


class Rebuilt:
    """The producers alone, as `producers_of` reads them."""

    def __init__(self, producers: ProducerState) -> None:
        self.producers = producers


def with_offset(data: bytes | bytearray, base: int, leader_epoch: int) -> bytes:
    patched = bytearray(data)
    struct.pack_into(">q", patched, 0, base)
    struct.pack_into(">i", patched, 12, leader_epoch)
    return bytes(patched)


def next_batch(machine: "Machine", model: FollowerModel) -> bytes:
    """A batch of a producer, with or without a transaction, or the end of its transaction."""
    machine.number += 1
    timestamp, chance = 10_000 + 10 * machine.number, machine.rng.random()
    if chance < 0.2 and model.sequence:
        kind = ControlType.ABORT if chance < 0.12 else ControlType.COMMIT
        return build_marker(Marker(kind, 0), model.producer_id, 0, timestamp)
    count = machine.rng.randint(1, 3)
    fields = {"producer_id": model.producer_id, "producer_epoch": 0, "base_sequence": model.sequence}
    model.sequence += count
    return batch(count, timestamp, 1, b"%d" % machine.number, transactional=True, **fields)


def replicate(machine: "Machine", passes: int = 1, *, first_base: int = -1) -> None:
    """Each pass appends a response of one to four batches; offsets are left out, and leader epochs change.

    `first_base`: of the first batch, by default at or above the log end.
    """
    log, model = follower(machine)
    for _ in range(passes):
        stored = list[StoredBatch]()
        end = log.log_end_offset
        for _ in range(machine.rng.randint(1, 4)):
            model.leader_epoch += machine.rng.random() < 0.15
            base = first_base if first_base >= 0 else end + machine.rng.choice([0, 0, 0, 1, 7])
            data = with_offset(next_batch(machine, model), base, model.leader_epoch)
            last = base + int.from_bytes(data[23:27], "big")
            stored.append(StoredBatch(base, last, data))
            model.sends(stored[-1])
            first_base, end = -1, last + 1
        tail = stored[0].data[: machine.rng.randrange(40)]  # an incomplete batch
        result = log.append_replicated(memoryview(b"".join(each.data for each in stored) + tail).toreadonly())
        assert (result.error, result.count) == (0, len(stored)), result.reason
        assert log.write() == 0
        model.writes(stored)


def follower(machine: "Machine") -> tuple[Log, FollowerModel]:
    """The log and the model of the partition, which is made where it is missing."""
    if not any(model.partition == FOLLOWER and not model.deleted for model in machine.models):
        machine.create(FOLLOWER)
    model = machine.model(FOLLOWER)
    assert isinstance(model, FollowerModel)
    return machine.log(FOLLOWER), model


def diverge(machine: "Machine", back: int) -> None:
    """Truncate to a batch of the last ones, as after an election; the next batches are of a later epoch."""
    log, model = follower(machine)
    if len(model.written) >= back:
        offset = model.written[-back].base
        model.truncates(offset)
        wait(machine, lambda ended: machine.manager.truncate({log: offset}, ended.append))
    log.begin_leadership(model.leader_epoch + 1)  # it led, and wrote nothing
    wait(machine, lambda ended: machine.manager.truncate({log: log.log_end_offset}, ended.append))
    assert all(offset < log.log_end_offset for _, offset in log.epochs.entries), "an epoch without batches"
    model.producer_id, model.sequence = model.producer_id + 1, 0
    model.leader_epoch = max(log.epochs.latest, 0) + machine.rng.choice([0, 2])


def restart_at(machine: "Machine", offset: int, log_start: int | None = None) -> None:
    """Begin again at the log start of the leader."""
    log, model = follower(machine)
    model.restarts(offset if log_start is None else log_start)
    wait(machine, lambda ended: machine.manager.restart_at(log, offset, ended.append, log_start_offset=log_start))
    model.producer_id, model.sequence = model.producer_id + 1, 0


def wait(machine: "Machine", begin: Callable[[list[Outcome]], object]) -> None:
    ended: list[Outcome] = []
    begin(ended)
    while not ended:
        assert machine.offload.drain()
    ended[0].result()


def replicate_and_truncate(machine: "Machine") -> None:
    """A follower whose log diverges several times, also across segments."""
    for back in (3, 9, 2):
        replicate(machine, 6)
        machine.checkpoint()
        replicate(machine, 2)
        diverge(machine, back)
        replicate(machine, 2)
    machine.checkpoint()


def replicate_and_restart(machine: "Machine") -> None:
    """A follower that restarts above its log end, within a batch, and below."""
    replicate(machine, 8)
    machine.checkpoint()
    replicate(machine, 2)
    end = machine.log(FOLLOWER).log_end_offset
    restart_at(machine, end + 50)
    replicate(machine, 3)
    machine.checkpoint()
    restart_at(machine, end + 20)
    restart_at(machine, end + 20, log_start=end + 20)
    base = end + 100
    restart_at(machine, base, log_start=base + 1)
    machine.checkpoint()
    log, model = follower(machine)
    model.sequence = 0
    first = with_offset(batch(3, 20_000 + machine.number, 1, b"within"), base, model.leader_epoch)
    stored = StoredBatch(base, base + 2, first)
    model.sends(stored)
    assert log.append_replicated(first).error == 0 and log.write() == 0
    model.writes([stored])
    replicate(machine, 4)
    machine.manager.upkeep.checkpoint_starts()
    machine.checkpoint()
    restart_at(machine, log.segments[0].base_offset)
    replicate(machine, 2)
