"""A leader of three replicas under random events, beside a model of the controller and of its followers.

The model applies AlterPartition as the controller does: with the right epochs, or not at all. Requests and responses
are lost or late, followers die and return with a shorter log, states reach the leader late, its process is stopped.

Invariant: when an append with acks=all is acknowledged, each member has its record: of the controller's present ISR,
and of each ISR that a request in the network would still bring about. At the end, with all faults gone, the ISR is
complete and every append is answered within 10 virtual seconds.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.cluster.isr.isr_changes import IsrChanges
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.leader import Leader
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.state.isr.partition_isr import PartitionIsr, Result
from tests.kit.seeds import seeds_of
from tests.unit.cluster.isr.scripted_controller import (
    LAG_MS,
    OWN,
    THREE,
    LeadingBroker,
    PartitionResult,
    RequestedPartition,
    TopicResults,
)
from tests.unit.storage.damage import batch

SEEDS, STEPS = 60, 500
REQUEST_ERRORS = [KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.STALE_BROKER_EPOCH]


class ModelFollower:
    """A follower: the end of its log, and its registration."""

    def __init__(self) -> None:
        self.alive = True
        self.stalled = False  # it does not fetch for a while
        self.epoch = 5
        self.end = 0
        self.fetched = 0  # by its last request, whose response it has not received yet


class Model:
    """The controller's state, the followers, and a leader under test."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = LeadingBroker(path)
        self.leader_epoch, self.partition_epoch, self.isr = 1, 7, THREE
        self.followers = {2: ModelFollower(), 3: ModelFollower()}
        self.ghosts: list[AlterPartitionRequest] = []  # given up by the leader; they may still arrive
        self.late: AlterPartitionResponse | None = None  # a result that has not reached the leader yet
        self.unknown = False  # the leader does not know a state of the controller
        self.acknowledged = self.failed = self.appended = 0

    # The controller.

    def apply(self, asked: RequestedPartition) -> PartitionResult:
        """Apply a requested ISR; returns the result."""
        error = self.error_of(asked)
        if not error and tuple(asked.new_isr) != self.isr:
            self.isr, self.partition_epoch = tuple(asked.new_isr), self.partition_epoch + 1
        return PartitionResult(
            partition_index=0,
            error_code=error,
            leader_id=OWN,
            leader_epoch=self.leader_epoch,
            isr=list(self.isr),
            partition_epoch=self.partition_epoch,
        )

    def error_of(self, asked: RequestedPartition) -> int:
        if asked.leader_epoch != self.leader_epoch:
            return KafkaErrorCode.FENCED_LEADER_EPOCH
        if tuple(asked.new_isr) == self.isr and asked.partition_epoch <= self.partition_epoch:
            return 0
        if asked.partition_epoch != self.partition_epoch:
            return KafkaErrorCode.INVALID_UPDATE_VERSION
        for member in asked.new_isr_with_epochs:
            follower = self.followers.get(member.broker_id)
            if follower is not None and not (follower.alive and member.broker_epoch in (-1, follower.epoch)):
                return KafkaErrorCode.INELIGIBLE_REPLICA
        return 0

    def response_to(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        results = [
            TopicResults(topic_id=topic.topic_id, partitions=[self.apply(each) for each in topic.partitions])
            for topic in request.topics
        ]
        return AlterPartitionResponse(error_code=0, topics=results)

    def possible(self) -> list[tuple[int, ...]]:
        """The present ISR, and those that requests in the network would bring about."""
        open_requests = [*self.ghosts]
        if self.broker.controller.in_flight and self.late is None:
            open_requests.append(self.broker.controller.requests[-1])
        asked = [each for request in open_requests for topic in request.topics for each in topic.partitions]
        return [self.isr, *(tuple(each.new_isr) for each in asked if not self.error_of(each))]

    # Events.

    def append(self) -> None:
        self.appended += 1
        partition = self.broker.partition
        partition.append(Append(memoryview(batch(1)), -1, self.answered, 60_000))
        self.broker.rig.replicas.write_pending()

    def answered(self, append: Append) -> None:
        if append.error:
            self.failed += 1
            return
        self.acknowledged += 1
        for isr in self.possible():
            for member in isr:
                follower = self.followers.get(member)
                assert follower is None or follower.end > append.base_offset, (
                    f"offset {append.base_offset} is acknowledged, broker {member} of ISR {isr} ends at {follower.end}"
                )

    def fetch(self) -> None:
        """A follower writes the response to its last fetch, and sends the next one; a response may be lost."""
        replica_id = self.random.choice((2, 3))
        follower = self.followers[replica_id]
        log = self.broker.partition.log
        assert log is not None
        if not follower.alive or follower.stalled:
            return
        if self.random.random() < 0.8:
            follower.end = max(follower.end, follower.fetched)
        self.broker.fetch(replica_id, follower.end, follower.epoch)
        follower.fetched = min(log.log_end_offset, follower.end + self.random.choice((1, 3, 100)))

    def stall(self) -> None:
        """A follower stops fetching, or continues."""
        follower = self.followers[self.random.choice((2, 3))]
        follower.stalled = not follower.stalled

    def pass_time(self) -> None:
        """Time passes; at times the process is stopped."""
        if self.random.random() < 0.03:
            self.broker.clock.stop(self.random.randrange(3 * LAG_MS))
        self.broker.pass_ms(self.random.choice((0, 10, 500, 5_000, 15_000)))

    def respond(self) -> None:
        """The request in flight ends: with its result, with an error, or without a response."""
        controller = self.broker.controller
        if not controller.in_flight:
            return
        request = controller.requests[-1]
        if self.late is not None:
            response, self.late = self.late, None
            controller.respond(self.random.choice((response, response, None)))
            return
        choice = self.random.randrange(8)
        if choice < 3:
            controller.respond(self.response_to(request))
        elif choice < 5:
            self.late = self.response_to(request)
        elif choice == 5:
            controller.reject(self.random.choice(REQUEST_ERRORS))
        elif choice == 6:
            self.ghosts.append(request)
            controller.respond(None)
        else:
            controller.apply(p0=self.random.choice((KafkaErrorCode.UNKNOWN_TOPIC_ID, -1)))

    def ghost(self) -> None:
        """A request arrives that its sender has given up."""
        if self.ghosts:
            self.response_to(self.ghosts.pop(self.random.randrange(len(self.ghosts))))

    def die(self) -> None:
        """A follower dies: it leaves the ISR in a new leader epoch, which the leader learns later."""
        replica_id = self.random.choice((2, 3))
        follower = self.followers[replica_id]
        if follower.alive:
            follower.alive = False
            if replica_id in self.isr:
                self.isr = tuple(member for member in self.isr if member != replica_id)
                self.leader_epoch += 1
                self.partition_epoch += 1
                self.unknown = True

    def start(self) -> None:
        """A dead follower registers again, perhaps after a power cut."""
        for follower in self.followers.values():
            if not follower.alive:
                follower.alive = True
                follower.epoch += 1
                follower.end = self.random.choice((follower.end, self.random.randint(0, follower.end)))
                follower.fetched = 0

    def send_state(self) -> None:
        """The controller sends its newest state, perhaps again; the leader's image has the brokers that are alive."""
        self.broker.rig.live = {each for each, follower in self.followers.items() if follower.alive}
        if self.unknown or self.random.random() < 0.2:
            self.unknown = False
            self.broker.lead(self.leader_epoch, self.partition_epoch, self.isr)

    def run(self) -> None:
        events: list[tuple[Callable[[], None], int]] = [
            (self.append, 20), (self.fetch, 50), (self.pass_time, 15), (self.respond, 15), (self.ghost, 3),
            (self.stall, 4), (self.die, 2), (self.start, 4), (self.send_state, 8),
        ]  # fmt: skip
        functions, weights = zip(*events, strict=True)
        for _ in range(STEPS):
            self.random.choices(functions, weights)[0]()

    def heal(self) -> None:
        """End all faults, and run for 10 seconds of virtual time."""
        self.ghosts.clear()
        self.start()
        self.unknown = True
        self.send_state()
        controller, log = self.broker.controller, self.broker.partition.log
        assert log is not None
        for _ in range(20):
            for replica_id, follower in self.followers.items():
                self.broker.fetch(replica_id, follower.end, follower.epoch)
                follower.end = log.log_end_offset
                if controller.in_flight:
                    response, self.late = self.late or self.response_to(controller.requests[-1]), None
                    controller.respond(response)
            self.broker.pass_ms(500)


def run_seed(path: Path, seed: int) -> Model:
    print(f"KAFKALITE_SEED={seed}")
    path.mkdir()
    model = Model(path, seed)
    model.run()
    model.heal()
    return model


def test_acknowledged_records_are_on_every_member_of_each_possible_isr(tmp_path: Path) -> None:
    totals = [0, 0, 0, 0]
    for seed in seeds_of(SEEDS):
        model = run_seed(tmp_path / str(seed), seed)
        partition, counts = model.broker.partition, model.broker.requests.counts
        assert sorted(partition.isr) == sorted(model.isr) == [1, 2, 3]
        assert model.acknowledged + model.failed == model.appended
        counted = model.acknowledged, counts.expands.value, counts.shrinks.value, counts.failed.value
        totals = [total + count for total, count in zip(totals, counted, strict=True)]
    print(totals)
    if len(seeds_of(SEEDS)) == SEEDS:
        assert min(totals) > SEEDS / 2, "too little has happened"


# Bugs that the model finds.


def forget_expected(patch: pytest.MonkeyPatch) -> None:
    """The high watermark does not wait for a follower whose addition is requested."""
    change_isr = Leader.change_isr
    patch.setattr(Leader, "change_isr", lambda self, isr, expected=(): change_isr(self, isr))
    patch.setattr(Leader, "_is_awaited", lambda *_: False)


def forget_change_with_a_known_state(patch: pytest.MonkeyPatch) -> None:
    """A state that is sent again ends a change in flight."""
    receive_state = PartitionIsr.receive_state

    def forgetful(self: PartitionIsr, committed: object) -> bool:
        self.pending = None
        return receive_state(self, committed)  # type: ignore[arg-type]

    patch.setattr(PartitionIsr, "receive_state", forgetful)
    patch.setattr(Leader, "_is_awaited", lambda *_: False)


def remove_before_the_response(patch: pytest.MonkeyPatch) -> None:
    """A follower that lags is not waited for from the request for its removal on."""
    check_lag = IsrChanges.check_lag

    def hasty(self: IsrChanges, lag_max_ms: int, now_ms: int) -> None:
        check_lag(self, lag_max_ms, now_ms)
        pending = self._isr.pending
        if pending is not None and pending.joins is None:
            self._leader.change_isr(tuple(member.broker_id for member in pending.isr))

    patch.setattr(IsrChanges, "check_lag", hasty)


def drop_change_without_a_response(patch: pytest.MonkeyPatch) -> None:
    """A change whose result is open is taken for not applied."""

    def apply_error(self: IsrChanges, change: object, error: int) -> Result:
        self._isr.pending = None
        self._leader.change_isr(self._isr.committed.isr)
        return Result.REVERTED

    patch.setattr(IsrChanges, "apply_error", apply_error)
    patch.setattr(Leader, "_is_awaited", lambda *_: False)


@pytest.mark.parametrize(
    "plant",
    [
        forget_expected,
        forget_change_with_a_known_state,
        remove_before_the_response,
        drop_change_without_a_response,
    ],
)
def test_model_finds_a_planted_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    found: list[str] = []
    for seed in range(1, 201):
        try:
            run_seed(tmp_path / str(seed), seed)
        except AssertionError as error:
            found.append(str(error))
            break
    assert found and "is acknowledged" in found[0]
