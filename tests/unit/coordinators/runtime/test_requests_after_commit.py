"""Requests of a machine to its environment leave after the commit; a new leader epoch loads a shard again."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.coordinators.runtime.shard import Command
from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import Builder
from kafkalite.state.effects import Effects, Now, TimerName, Token, answer_only
from kafkalite.state.groups.records import OffsetCommitted
from kafkalite.state.transactions.metadata import TransactionMetadata
from tests.unit.coordinators.rig import COMPACTED, LOADING, NOT_HERE, Answered, Rig, warnings

DECIDED = "decided"
LATE = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE


class Asking:
    """Each record is a decision; the machine asks for its consequence after the commit, and again after loading."""

    def __init__(self) -> None:
        self.decisions: list[str] = []
        self.refused = ""

    def apply(self, record: OffsetCommitted) -> None:
        if record.topic == "damaged":
            raise ValueError("damaged")
        self.decisions.append(record.topic)

    def start_timers(self, now: Now) -> Iterator[Effects]:
        for each in self.decisions:
            effects = Effects()
            effects.set_timer((each,), now.ms + 1_000)
            effects.ask_after_commit(each)
            yield effects

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        return Effects()

    def ended(self) -> None: ...


def record_of(what: str) -> OffsetCommitted:
    return OffsetCommitted("g", what, 0, 5, -1, "", 0)


def decide(what: str) -> Command[Asking]:
    def command(_machine: Asking, token: Token, _now: Now) -> Effects:
        effects = Effects(records=[record_of(what)])
        effects.answer(token, DECIDED)
        effects.ask_after_commit(what)
        return effects

    return command


def do_nothing(_machine: Asking, token: Token, _now: Now) -> Effects:
    return answer_only(token, None)


class AskingRig(Rig[Asking]):
    def __init__(self, path: Path, **options: Any) -> None:
        self.asked: list[str] = []
        super().__init__(path, Asking, **options)

    def new_runtime(self) -> Any:
        runtime = super().new_runtime()
        runtime.ask = lambda partition, request: self.asked.append(request)
        return runtime


class StrictSerde(GroupRecordSerde):
    skips_unreadable = False


def loaded(path: Path) -> AskingRig:
    """A shard whose commits wait for a flush."""
    rig = AskingRig(path, config=replace(COMPACTED, flush_messages=1), settings={"offsets.commit.timeout.ms": "1000"})
    rig.load()
    return rig


@pytest.fixture
def rig(tmp_path: Path) -> AskingRig:
    return loaded(tmp_path)


def test_request_leaves_after_the_commit_in_the_order_of_the_answers(rig: AskingRig) -> None:
    rig.sync_jobs.held = True
    waiting = [rig.do(decide("a")), rig.do(do_nothing), rig.do(decide("b"))]
    rig.replicas.write_pending()
    assert rig.asked == [] and not any(each.received for each in waiting)
    rig.sync_jobs.release()
    rig.work()
    assert rig.asked == ["a", "b"] and [each.received for each in waiting] == [[DECIDED], [None], [DECIDED]]


def test_commit_timeout_drops_answers_but_no_requests(rig: AskingRig) -> None:
    rig.sync_jobs.held = True
    waiting = rig.do(decide("a"))
    rig.replicas.write_pending()
    rig.clock.advance(1_000)
    assert waiting.received == [LATE] and rig.asked == []
    rig.sync_jobs.release()
    rig.work()
    assert rig.asked == ["a"]


def test_request_of_a_failed_append_is_dropped(rig: AskingRig) -> None:
    rig.disk.fail("write", errno.ENOSPC, path=".log")
    waiting = rig.do(decide("a"))
    rig.replicas.write_pending()
    rig.recover()
    assert rig.asked == [] and isinstance(waiting.received[0], KafkaErrorCode)
    assert rig.now(decide("b")) == DECIDED and rig.asked == ["b"]


def test_requests_of_the_start_follow_the_replay(rig: AskingRig) -> None:
    for at in range(250):
        assert rig.now(decide(f"{at}")) == DECIDED
    before, rig.asked = rig.asked, []
    rig.restart()
    assert sorted(rig.asked) == sorted(before) and rig.clock.timers == 250
    rig.runtime.close()
    assert rig.clock.timers == 0


def test_requests_of_the_start_end_with_the_incarnation(rig: AskingRig) -> None:
    assert rig.now(decide("a")) == DECIDED
    rig.asked = []
    rig.runtime.close()
    rig.runtime = rig.new_runtime()
    rig.runtime.ask = lambda partition, request: rig.runtime.close()
    rig.load()
    assert rig.do(do_nothing).received == [NOT_HERE]


# leader epochs


class EpochRig(AskingRig):
    """Its `epochs` are those of the runtime when a machine was created."""

    reload_on_new_epoch = True

    def __init__(self, directory: Path) -> None:
        self.epochs: list[int] = []
        super().__init__(directory)

    def new_machine(self) -> Any:
        self.epochs.append(self.runtime.leader_epoch(0))
        return super().new_machine()

    def lead(self, epoch: int) -> None:
        self.partition.lead(PartitionImage((1,), (1,), 1, epoch), lambda: None)
        self.runtime.elected(self.partition)


def test_new_leader_epoch_loads_again(tmp_path: Path) -> None:
    rig = EpochRig(tmp_path)
    rig.lead(5)
    rig.work()
    assert rig.now(decide("a")) == DECIDED
    rig.lead(5)
    rig.work()
    assert rig.epochs == [5]
    rig.asked = []
    waiting = rig.do(decide("b"))
    rig.lead(7)
    assert waiting.received in ([LOADING], [DECIDED])
    rig.work()
    assert rig.epochs == [5, 7] and set(rig.asked) >= {"a"}
    assert rig.now(do_nothing) is None


def test_new_epoch_during_a_load_begins_again(tmp_path: Path) -> None:
    rig = EpochRig(tmp_path)
    rig.lead(5)
    rig.work()
    assert rig.now(decide("a")) == DECIDED
    rig.runtime.close()
    rig.runtime, rig.epochs, rig.asked = rig.new_runtime(), [], []
    rig.offload.held = True
    rig.lead(5)
    rig.lead(6)
    rig.offload.release()
    rig.work()
    assert rig.epochs == [5, 6] and rig.asked == ["a"]


def test_new_epoch_changes_nothing_for_groups(tmp_path: Path) -> None:
    rig = EpochRig(tmp_path)
    rig.reload_on_new_epoch = False
    rig.runtime = rig.new_runtime()
    rig.lead(5)
    rig.work()
    waiting = rig.do(decide("a"))
    rig.lead(6)
    rig.work()
    assert rig.epochs == [5] and waiting.received == [DECIDED]


# records that cannot be read


def strict(tmp_path: Path) -> AskingRig:
    rig = AskingRig(tmp_path)
    rig.serde = StrictSerde()
    rig.runtime = rig.new_runtime()
    return rig


def put(rig: AskingRig, key: bytes | None, value: bytes) -> None:
    def done(append: Append) -> None:
        assert not append.error

    builder = Builder()
    builder.append(1, key, value)
    rig.partition.append_internal(OwnAppend(bytearray(builder.build(0)), done))
    rig.replicas.write_pending()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"\x7f\x00future", b"", "offset 0: record of unknown type 32512"),
        (b"\x00\x01\x00", b"", "offset 0: record of type 1 ("),
        (None, b"", "offset 0: record without a key"),
        (*GroupRecordSerde().encode(record_of("damaged")), "offset 0 cannot be applied: ValueError('damaged')"),
    ],
    ids=["unknown type", "garbage", "no key", "not applicable"],
)
def test_unreadable_record_fails_the_loading(
    tmp_path: Path, key: bytes | None, value: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = strict(tmp_path)
    put(rig, key, value)
    rig.load()
    assert rig.do(do_nothing).received == [NOT_HERE]
    (line,) = warnings(caplog)
    assert line.startswith(f"__consumer_offsets-0: load failed: {reason}")


def test_future_version_of_a_transactional_id_fails_the_loading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the record, a prepared transaction could be forgotten."""
    rig = AskingRig(tmp_path)
    rig.serde = serde = TransactionRecordSerde()
    rig.runtime = rig.new_runtime()
    key, value = serde.encode(TransactionMetadata("me", 5, 3, 60_000, 1_000))
    assert value is not None
    put(rig, key, b"\x00\x07" + value[2:])
    rig.load()
    assert rig.do(do_nothing).received == [NOT_HERE]
    (line,) = warnings(caplog)
    assert line.startswith("__consumer_offsets-0: load failed: offset 0: record of type 0 (")


def test_answered_tokens_are_unaffected_by_requests(rig: AskingRig) -> None:
    """A completion that has failed with its incarnation is no request."""
    rig.sync_jobs.held = True
    waiting = Answered()
    rig.runtime.submit(0, decide("a"), waiting)
    rig.replicas.write_pending()
    rig.runtime.close()
    rig.sync_jobs.release()
    rig.work()
    assert waiting.received == [NOT_HERE] and rig.asked == []
