"""Random changes of partitions, and the sessions of two followers: a model visits every partition with every fetch.

1. After each response a follower knows the high watermark and log start of every partition in its session where no
   records are left for it.
2. A fetch visits a partition only if the request names it, if it has changed since its last visit, if records were left
   for the follower, or while the follower is not in the ISR.
3. The leader considers a follower caught up exactly when one whose fetches visit all partitions would be.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.server.handlers.replica_fetch import ReplicaFetch
from kafkalite.state.isr.replica_progress import ReplicaProgress
from kafkalite.state.replica_sessions import ReplicaPartition
from kafkalite.testing.virtual_clock import VirtualClock
from tests.kit.scripted_follower import LEADER, ScriptedFollower, hosted, lead
from tests.kit.seeds import seeds_of
from tests.kit.server import Hub, Wire, batch, produce_request, running, stopped_time

PARTITIONS = 6
FOLLOWERS = (8, 9)
STEPS = 120
SEEDS = 12
LAGS_MS = (0, 150, 400, 900)
Change = tuple[object, ...]


class ModelFollower:
    """A scripted follower with what it has, and the progress that a leader knows that visits all partitions."""

    def __init__(self, world: "World", replica_id: int) -> None:
        self.world = world
        self.id = replica_id
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.starts = dict.fromkeys(range(PARTITIONS), 0)
        self.twins = {index: ReplicaProgress() for index in range(PARTITIONS)}
        self.connect()

    def connect(self) -> None:
        self.peer = ScriptedFollower(self.world.hub, self.world.broker, self.id)
        self.sent: dict[int, tuple[int, int]] = {}
        self.seen: dict[int, Change] = {}  # by the last visit
        self.behind: set[int] = set()  # after the last visit

    def fetch(self) -> None:
        """Fetch, without a wait, and use the response: all of it, or nothing of some partitions."""
        state = {index: (self.ends[index], self.starts[index]) for index in self.wanted()}
        named = [index for index, each in state.items() if self.sent.get(index) != each]
        forgotten = [("t", index) for index in self.sent if index not in state]
        parts = [("t", index, self.ends[index]) for index in named]
        world = self.world
        world.allowed = {id(self): set(named) | self.due(state)}
        world.fetching = self
        request = self.peer.request(*parts, forgotten=forgotten, max_wait_ms=0)
        for topic in request.topics:
            topic.partitions[0].log_start_offset = self.starts[topic.partitions[0].partition]
        self.peer.wire.send((request, self.peer.version))
        world.hub.pump()
        response = self.peer.received()
        assert response is not None and response.error_code == 0
        self.sent = state if response.session_id else {}
        self.record(state)
        self.use(self.peer.parts(response), set(state))

    def wanted(self) -> list[int]:
        """The partitions that it fetches: some are left out for a time."""
        return [index for index in range(PARTITIONS) if (index + self.world.step // 30) % 5]

    def due(self, state: dict[int, tuple[int, int]]) -> set[int]:
        """The partitions that a fetch may visit without being named."""
        changed = {index for index in state if self.world.change(index) != self.seen.get(index)}
        outside = {index for index in state if self.id not in self.world.partitions[index].isr}
        return changed | outside | self.behind

    def record(self, state: dict[int, tuple[int, int]]) -> None:
        for index, (end, start) in state.items():
            log_end = self.world.log_end(index)
            if end < self.world.partitions[index].log_start_offset:  # out of range
                continue
            assert self.twins[index].record_fetch(self.peer.broker_epoch, end, start, log_end, self.world.now_ms)

    def use(self, parts: dict[tuple[str, int], Any], wanted: set[int]) -> None:
        peer, world = self.peer, self.world
        for index in wanted:
            data = parts.get(("t", index))
            if data is not None and data.error_code:
                assert data.error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE
                self.ends[index] = self.starts[index] = world.partitions[index].log_start_offset
                continue
            has_records = data is not None and bool(data.records)
            if not has_records:
                known = peer.watermarks.get(("t", index)), peer.log_starts.get(("t", index))
                partition = world.partitions[index]
                assert known == (partition.high_watermark, partition.log_start_offset), index
                assert self.ends[index] == world.log_end(index), "nothing is held back"
            elif world.random.random() < 0.8:
                self.ends[index] = peer.ends["t", index]
                self.starts[index] = max(self.starts[index], data.log_start_offset)
            if not has_records and data is not None:
                self.starts[index] = max(self.starts[index], data.log_start_offset)


class World:
    """A leader of some partitions, and its followers."""

    def __init__(self, broker: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        self.hub = Hub(broker)
        self.clock: VirtualClock = stopped_time(broker)
        self.wire = Wire(self.hub)
        self.step = 0
        self.partitions: list[Partition] = [hosted(broker, "t", index) for index in range(PARTITIONS)]
        self.allowed: dict[int, set[int]] = {}
        self.fetching: ModelFollower | None = None
        self.visits = 0
        self.followers: list[ModelFollower] = []
        self.isr_version = dict.fromkeys(range(PARTITIONS), 0)
        self.followers = [ModelFollower(self, each) for each in FOLLOWERS]
        for index in range(PARTITIONS):
            self.lead(index)

    @property
    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def log_end(self, index: int) -> int:
        log = self.partitions[index].log
        return 0 if log is None else log.log_end_offset

    def change(self, index: int) -> Change:
        """What a follower may have to learn of a partition."""
        partition = self.partitions[index]
        offsets = self.log_end(index), partition.high_watermark, partition.log_start_offset
        return (*offsets, partition.leader_epoch, self.isr_version[index])

    def visited(self, part: ReplicaPartition) -> None:
        follower = self.fetching
        assert follower is not None and part.session.replica_id == follower.id
        assert part.partition in self.allowed[id(follower)], f"{part.partition} was not marked"
        self.visits += 1

    def visit_ended(self, part: ReplicaPartition) -> None:
        assert self.fetching is not None
        index = part.partition
        self.fetching.seen[index] = self.change(index)
        behind = self.fetching.behind
        (behind.add if part.fetch_offset < self.log_end(index) else behind.discard)(index)

    # Steps.

    def lead(self, index: int) -> None:
        leader = lead(self.partitions[index], FOLLOWERS)
        for follower in self.followers:
            for progress in (leader.followers[follower.id], follower.twins[index]):
                progress.begin_epoch(self.log_end(index), self.now_ms, in_sync=True)

    def produce(self) -> None:
        indexes = self.random.sample(range(PARTITIONS), self.random.randint(1, 3))
        self.wire.send((produce_request("t", *((index, batch(b"value")) for index in indexes), acks=1), 12))
        self.hub.pump()
        self.wire.answers()

    def change_isr(self, index: int) -> None:
        leader = self.partitions[index].role
        assert isinstance(leader, Leader)
        self.isr_version[index] += 1
        leader.change_isr((LEADER, *self.random.sample(FOLLOWERS, self.random.randint(0, 2))))

    def run_step(self) -> None:
        self.step += 1
        self.clock.advance(self.random.choice((0, 10, 100, 300)))
        choice, index = self.random.random(), self.random.randrange(PARTITIONS)
        partition, follower = self.partitions[index], self.random.choice(self.followers)
        if choice < 0.3:
            self.produce()
        elif choice < 0.85:
            follower.fetch()
        elif choice < 0.9:
            assert partition.delete_records_before(partition.high_watermark) == 0
        elif choice < 0.93:
            self.lead(index)
        elif choice < 0.97:
            self.change_isr(index)
        else:
            follower.peer.wire.hang_up()
            self.hub.pump()
            follower.connect()
        self.compare_progress()

    def compare_progress(self) -> None:
        for follower in self.followers:
            for index, twin in follower.twins.items():
                leader, end = self.partitions[index].role, self.log_end(index)
                assert isinstance(leader, Leader)
                found = leader.followers[follower.id]
                for lag_ms in LAGS_MS:
                    expected = twin.is_caught_up(end, self.now_ms, lag_ms)
                    assert found.is_caught_up(end, self.now_ms, lag_ms) == expected, (follower.id, index, lag_ms)


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[World]]:
    """The world whose visits are checked."""
    worlds: list[World] = []
    visit = ReplicaFetch._visit

    def watched(self: ReplicaFetch, part: ReplicaPartition, *args: Any) -> Any:
        worlds[-1].visited(part)
        found = visit(self, part, *args)
        worlds[-1].visit_ended(part)
        return found

    monkeypatch.setattr(ReplicaFetch, "_visit", watched)
    yield worlds


@pytest.mark.parametrize("seed", seeds_of(SEEDS))
async def test_changes_reach_each_session_and_nothing_else_is_visited(observed: list[World], seed: int) -> None:
    print(f"KAFKALITE_SEED={seed}")
    async with running() as client:
        await client.create("t", partitions=PARTITIONS)
        for index in range(PARTITIONS):  # its files are created by jobs
            await client.produce("t", batch(b"first"), partition=index)
        observed.append(world := World(client.broker, seed))
        for _ in range(STEPS):
            world.run_step()
        for follower in world.followers:
            follower.fetch()
        assert world.visits > STEPS / 2
