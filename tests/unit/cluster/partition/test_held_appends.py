"""Appends that wait for a flush, for other replicas, or for their deadline, against a model that is a list."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.leader import Leader
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log
from tests.kit.seeds import seeds_of
from tests.unit.cluster.partition.test_flush import Rig
from tests.unit.cluster.partition.test_leadership import nothing, state
from tests.unit.storage.damage import batch

STEPS = 200
MINIMUM = 2
TIMEOUTS_MS = (0, 50, 890)
PAUSES_MS = (20, 60, 1_000)  # never the end of a timeout: the model needs no rounding
REPLICAS = (1, 2, 3)
NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
TIMED_OUT = KafkaErrorCode.REQUEST_TIMED_OUT
REFUSED, TOO_LATE = KafkaErrorCode.NOT_ENOUGH_REPLICAS, KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@dataclass
class OpenAppend:
    """An append without a result: the log end after its write, and the time until which it may wait."""

    name: str
    acks: int
    end: int
    deadline_ms: float


@dataclass
class Model:
    """What a leader of three replicas has to do, without a queue: every step looks at every open append."""

    isr: tuple[int, ...] = REPLICAS
    ends: dict[int, int] = field(default_factory=dict)
    own_end: int = 0
    high_watermark: int = 0
    leads: bool = True
    open: list[OpenAppend] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)

    def expire(self, now_ms: float) -> None:
        """Time has passed."""
        self._finish(TIMED_OUT, [each for each in self.open if each.acks == -1 and each.deadline_ms <= now_ms])

    def advance(self, log: Log, flushes: bool) -> None:
        """What is complete after a step."""
        if not self.leads:
            return
        self.own_end = max(self.own_end, log.recovery_point if flushes else log.log_end_offset)
        if len(self.isr) >= MINIMUM:
            others = [self.ends.get(member, -1) for member in self.isr if member != 1]
            self.high_watermark = max(self.high_watermark, min([self.own_end, *others]))
        self._finish(
            0, [each for each in self.open if each.end <= (self.own_end if each.acks == 1 else self.high_watermark)]
        )

    def change_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        if len(isr) < MINIMUM:
            self._finish(TOO_LATE, [each for each in self.open if each.acks == -1])

    def end_leadership(self) -> None:
        self.leads = False
        self._finish(NOT_LEADER, list(self.open))

    def _finish(self, error: int, appends: list[OpenAppend]) -> None:
        for append in appends:
            self.open.remove(append)
            self.results[append.name] = error


class Run:
    """A partition of three replicas and its model, and steps that are drawn by a seed."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.flushes = bool(seed % 2)
        config = replace(TopicConfig(), min_insync_replicas=MINIMUM, flush_messages=1 if self.flushes else 2**63 - 1)
        self.rig, self.model, self.epoch, self.count = Rig(path, config), Model(), 0, 0
        self.results: dict[str, int] = {}
        self.unwritten: list[OpenAppend] = []
        self.lead()

    @property
    def log(self) -> Log:
        assert self.rig.partition.log is not None
        return self.rig.partition.log

    @property
    def now_ms(self) -> float:
        return self.rig.clock.monotonic() * 1000

    def lead(self) -> None:
        self.epoch += 1
        self.rig.partition.lead(state(1, self.epoch, REPLICAS, self.model.isr), nothing)
        self.model.leads, self.model.ends = True, {}
        self.model.own_end = max(self.model.high_watermark, self.log.recovery_point)

    def append(self) -> None:
        self.count += 1
        name, acks, timeout_ms = str(self.count), self.random.choice((0, 1, -1, -1)), self.random.choice(TIMEOUTS_MS)

        def done(append: Append) -> None:
            assert name not in self.results, "finished once"
            self.results[name] = append.error

        self.rig.partition.append(Append(memoryview(batch(1)), acks, done, timeout_ms))
        if not self.model.leads:
            self.model.results[name] = NOT_LEADER
        elif acks == -1 and len(self.model.isr) < MINIMUM:
            self.model.results[name] = REFUSED
        else:
            self.unwritten.append(OpenAppend(name, acks, 0, timeout_ms))

    def write(self) -> None:
        self.rig.replicas.write_pending()
        unwritten, self.unwritten = self.unwritten, []
        for append in unwritten:
            append.end, append.deadline_ms = self.log.log_end_offset, self.now_ms + append.deadline_ms
            if append.acks == 0:
                self.model.results[append.name] = 0
            else:
                self.model.open.append(append)

    def fetch(self) -> None:
        """A follower fetches at an offset that it may have."""
        replica_id, leader = self.random.choice((2, 3)), self.rig.partition.role
        if isinstance(leader, Leader):
            offset = self.random.randint(max(0, self.model.ends.get(replica_id, 0)), self.log.log_end_offset)
            self.model.ends[replica_id] = offset
            assert leader.follower_fetched(replica_id, 1, offset, 0, round(self.now_ms)) == 0

    def change_isr(self) -> None:
        if isinstance(self.rig.partition.role, Leader):
            isr = self.random.choice(((1,), (1, 2), (1, 3), REPLICAS, REPLICAS))
            self.model.change_isr(isr)
            self.rig.partition.role.change_isr(isr)

    def change_role(self) -> None:
        self.write()
        self.model.advance(self.log, self.flushes)
        if self.model.leads and self.random.random() < 0.3:
            self.model.end_leadership()
            self.rig.partition.follow(state(2, self.epoch))
        elif not self.model.leads:
            self.lead()

    def pass_time(self) -> None:
        self.rig.clock.advance(self.random.choice(PAUSES_MS))
        self.model.expire(self.now_ms)

    def flush(self) -> None:
        self.write()
        self.rig.sync()

    def step(self) -> None:
        steps = (self.append, self.append, self.write, self.fetch, self.fetch, self.change_isr, self.change_role,
                 self.pass_time, self.flush)  # fmt: skip
        if (chosen := self.random.choice(steps)) != self.append:
            self.write()  # only appends are in the same loop iteration
            self.check()
        chosen()
        self.check()

    def check(self) -> None:
        self.model.advance(self.log, self.flushes)
        assert self.results == self.model.results
        assert self.rig.partition.high_watermark == self.model.high_watermark


@pytest.mark.parametrize("seed", seeds_of(100))
def test_held_appends_are_answered_as_in_the_model(tmp_path: Path, seed: int) -> None:
    print(f"KAFKALITE_SEED={seed}")
    run = Run(tmp_path, seed)
    for _ in range(STEPS):
        run.step()
    run.write()
    run.rig.partition.resign()
    assert len(run.results) == run.count > 20, "each append has a result"
    assert run.rig.clock.timers == 0
