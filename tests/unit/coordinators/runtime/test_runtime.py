"""Where a group belongs, the topic that is made on first use, and what happens to groups without a request."""

from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from kafkalite._speedups.wire.java_hash import java_hash
from kafkalite.cluster.changes import Refusal
from kafkalite.coordinators.group.housekeeping import GroupHousekeeping
from kafkalite.coordinators.runtime.shard import Command
from kafkalite.errors import KafkaErrorCode
from kafkalite.slicing import Slicer
from kafkalite.state.groups.consumer.requests import Topic
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit
from kafkalite.state.groups.registered.requests import RegisterConsumer
from tests.kit.costly_clock import CostlyClock
from tests.kit.work import calls_in
from tests.unit.coordinators.rig import NOT_HERE, Answered, Rig, TopicsNow, commit, groups, offsets_of, warnings


def upkeep_of(rig: Rig[GroupMachine]) -> GroupHousekeeping:
    return GroupHousekeeping(rig.runtime, rig.clock, rig.config, rig.slicer)


def raise_again(_callback: object, error: BaseException) -> None:
    raise error


TAKEN = CommitResult(errors=(0,))
NOT_AVAILABLE = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


# The hashes are Java's: "...".hashCode()
@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1_906_497_762),
        ("Zürich ✓ 𝄞", -1_398_177_095),
        ("polygenelubricants", 0),  # -2**31, which has no absolute value
        ("AaAaBB", 1_952_508_096),
    ],
)
def test_group_hash_equals_java_string_hash(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_internal_topic_is_created_once_on_first_use(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, partitions=0, settings={"offsets.topic.num.partitions": "5"})
    rig.load()
    received: list[int] = []
    assert list(rig.runtime.partitions()) == [] and rig.runtime.partition_for("g") == 103 % 5
    rig.runtime.ensure_topic(received.append)
    committing = rig.do(commit("g", 5), rig.runtime.partition_for("g"))
    assert received == [] and not committing.received and len(rig.topics.asked) == 1
    rig.topics.run_until_idle()
    assert received == [0] and committing.received == [TAKEN] and list(rig.runtime.partitions()) == [0, 1, 2, 3, 4]
    rig.runtime.ensure_topic(received.append)
    assert received == [0, 0] and not rig.topics.asked
    assert rig.now(offsets_of("g"), rig.runtime.partition_for("g")) == {("t", 0): 5}


def test_failed_creation_of_the_internal_topic_is_logged_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path, groups, partitions=0, settings={"offsets.topic.num.partitions": "1"})
    committing = rig.do(commit("g", 5))
    rig.topics.asked.pop()(Refusal(KafkaErrorCode.INVALID_REPLICATION_FACTOR, "too few"))
    assert committing.received == [NOT_AVAILABLE] and "too few" in warnings(caplog)[-1]
    again = rig.do(commit("g", 5))
    rig.topics.run_until_idle()
    assert again.received == [TAKEN]


def test_requests_that_wait_for_the_internal_topic_continue_in_slices_and_in_order(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, partitions=0, settings={"offsets.topic.num.partitions": "1"})
    rig.slicer = Slicer(CostlyClock(rig.clock), lambda _callback, error: rig.raised.append(error), budget_s=0.004)
    order: list[int] = []

    def submit(number: int) -> None:
        answered = rig.do(commit("g", number))
        rig.runtime.ensure_topic(lambda error: order.append(number if not error and answered.received else -1))

    for number in range(20):
        submit(number)
    rig.topics.run_until_idle()
    assert 0 < len(order) < 10  # the budget of one loop iteration
    submit(20)
    assert 20 not in order
    rig.clock.advance(1_000)
    assert order == list(range(21))
    assert rig.now(offsets_of("g")) == {("t", 0): 20}


def test_a_waiting_request_that_raises_does_not_stop_the_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, partitions=0, settings={"offsets.topic.num.partitions": "1"})
    received: list[int] = []

    def fail(_error: int) -> None:
        raise ZeroDivisionError

    for then in (received.append, fail, received.append):
        rig.runtime.ensure_topic(then)
    rig.topics.run_until_idle()
    assert received == [0, 0]
    assert [type(error) for error in rig.raised] == [ZeroDivisionError]


def test_close_during_creation_of_the_internal_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, partitions=0, settings={"offsets.topic.num.partitions": "1"})
    committing, received = rig.do(commit("g", 5)), list[int]()
    rig.runtime.close()
    assert committing.received == [NOT_AVAILABLE]
    rig.topics.run_until_idle()
    rig.runtime.ensure_topic(received.append)
    assert received == [NOT_AVAILABLE] and rig.do(commit("g", 5)).received == [NOT_HERE]
    assert list(rig.runtime.partitions()) == []


# upkeep


@pytest.fixture
def rig(tmp_path: Path) -> Rig[GroupMachine]:
    settings = {"offsets.retention.minutes": str(60), "offsets.retention.check.interval.ms": str(HOUR_MS)}
    rig = Rig(tmp_path, groups, settings=settings, partitions=2)
    rig.load()
    return rig


def test_offsets_expire_without_new_commits(rig: Rig[GroupMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalite.coordinators.group.housekeeping.OFFSETS_AT_ONCE", 12)  # of one group for each shard
    upkeep = upkeep_of(rig)
    upkeep.start()
    for at in range(10):
        assert rig.now(commit(f"g{at}", 5), at % 2) == TAKEN
    rig.clock.advance(WEEK_MS - HOUR_MS)
    for at in range(4):
        assert rig.now(commit(f"g{at}", 6), at % 2) == TAKEN
    rig.clock.advance(2 * HOUR_MS)
    rig.work()
    left = {at for at in range(10) if rig.now(offsets_of(f"g{at}"), at % 2)}
    assert left == {0, 1, 2, 3}
    rig.restart()
    assert {at for at in range(10) if rig.now(offsets_of(f"g{at}"), at % 2)} == left
    upkeep.close()
    rig.runtime.close()
    assert rig.clock.timers == 0


def test_clock_jump_expires_no_offset(rig: Rig[GroupMachine], caplog: pytest.LogCaptureFixture) -> None:
    """The clock jump pauses expiration for an hour; then the offsets expire."""
    upkeep = upkeep_of(rig)
    upkeep.start()
    assert rig.now(commit("g", 5)) == TAKEN
    rig.clock.jump_wall(2 * WEEK_MS)
    rig.clock.advance(HOUR_MS)
    assert rig.now(offsets_of("g")) == {("t", 0): 5} and "the wall clock jumped" in warnings(caplog)[-1]
    rig.clock.advance(HOUR_MS)
    rig.work()
    assert rig.now(offsets_of("g")) == {}
    upkeep.close()


def test_topic_deletion_during_load_deletes_its_offsets(rig: Rig[GroupMachine]) -> None:
    upkeep = upkeep_of(rig)
    for shard in (0, 1):
        assert rig.now(commit("g", 5), shard) == TAKEN
        assert rig.now(commit("g", 7, topic="other"), shard) == TAKEN
    upkeep.topic_gone("t")
    assert rig.now(offsets_of("g")) == {("other", 0): 7}
    rig.restart()
    assert rig.now(offsets_of("g")) == {("other", 0): 7}
    rig.runtime.close()
    rig.runtime = rig.new_runtime()
    rig.offload.held = True
    rig.runtime.create_shards()
    upkeep_of(rig).topic_gone("other")
    rig.offload.release()
    rig.work()
    assert rig.now(offsets_of("g"), 0) == rig.now(offsets_of("g"), 1) == {}


def test_topic_deletion_deletes_offsets_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are served between slices; commits for a recreated topic of the same name stay."""
    monkeypatch.setattr("kafkalite.coordinators.group.housekeeping.OFFSETS_AT_ONCE", 3)
    topics = TopicsNow()
    rig = Rig(tmp_path, partial(groups, topics))
    rig.load()
    for group in ("a", "b", "c"):
        assert rig.now(commit(group, 5, partitions=2)) == CommitResult(errors=(0, 0))
        assert rig.now(commit(group, 7, topic="other")) == TAKEN
    upkeep_of(rig).topic_gone("t")
    machine = rig.runtime.machine(0)
    assert machine is not None and len(machine.offsets) == 6, "three of nine have gone"
    topics["t"] = Topic(b"another topic id", "t", 1)
    anew = [PartitionCommit("t", 0, 9, topic_id=b"another topic id")]
    received = rig.do(lambda machine, token, now: machine.offsets.commit(Commit("c", anew), token, now))
    rig.replicas.write_pending()
    assert received.received == [TAKEN] and len(machine.offsets) == 6, "what was there under the old id is taken over"
    rig.work()
    left = {group: rig.now(offsets_of(group)) for group in ("a", "b", "c")}
    assert left == {"a": {("other", 0): 7}, "b": {("other", 0): 7}, "c": {("other", 0): 7, ("t", 0): 9}}


def test_failed_offset_deletion_is_repeated_after_replay(rig: Rig[GroupMachine]) -> None:
    upkeep = upkeep_of(rig)
    for group in ("a", "b"):
        assert rig.now(commit(group, 5)) == TAKEN
    rig.disk.fail("write", 28, path=".log")
    upkeep.topic_gone("t")
    rig.work()
    rig.clock.advance(1_000)
    rig.work()
    assert rig.now(offsets_of("a")) == rig.now(offsets_of("b")) == {}


def delete_topics(upkeep: GroupHousekeeping, names: Collection[str]) -> None:
    for name in names:
        upkeep.topic_gone(name)


def test_topic_deletion_visits_only_groups_with_its_offsets(tmp_path: Path) -> None:
    """The work is counted in calls: it must not grow with groups that have no offset of the topics."""
    work = []
    for others in (10, 300):
        rig = Rig(tmp_path / str(others), groups)
        rig.load()
        for at in range(others):
            assert rig.now(commit(f"other{at}", 5, topic="kept")) == TAKEN
        assert rig.now(commit("g", 5)) == TAKEN
        work.append(calls_in(partial(delete_topics, upkeep_of(rig), ("t", "u", "v"))))
        assert rig.now(offsets_of("g")) == {}
    assert work[1] < 1.2 * work[0]


def registering(group: str, topic: str) -> Command[GroupMachine]:
    request = RegisterConsumer(group, "consumer", (topic,), frozenset(), 10_000, 10_000, "client", "host")
    return lambda machine, token, now: machine.registry.register(request, token, now)


def test_topic_change_visits_only_registered_groups_that_read_it(tmp_path: Path) -> None:
    """The work is counted in calls: it must not grow with registered groups that read other topics."""
    work = []
    for others in (10, 300):
        rig = Rig(tmp_path / str(others), partial(groups, TopicsNow(read=Topic(bytes(16), "read", 1))))
        rig.load()
        for at in range(others):
            rig.now(registering(f"other{at}", "kept"))
        rig.now(registering("g", "read"))
        upkeep = upkeep_of(rig)
        work.append(calls_in(partial(upkeep.topic_changed, "read")))
    assert work[1] < 1.2 * work[0]


def test_topics_deleted_during_a_notification_are_processed_together(rig: Rig[GroupMachine]) -> None:
    """2,000 topics of one request once cost 2,000 walks over all shards."""
    assert rig.now(commit("g", 5, topic="b")) == TAKEN
    clock = CostlyClock(rig.clock)
    upkeep = GroupHousekeeping(rig.runtime, rig.clock, rig.config, Slicer(clock, raise_again, budget_s=0.001))
    machine = rig.runtime.machine(0)
    assert machine is not None
    changes: list[Collection[str]] = []
    machine.consumers.topics_changed = lambda names: changes.append(names) or ()  # type: ignore[method-assign]
    for name in ("a", "b", "c"):
        upkeep.topic_gone(name)
    rig.clock.advance(1_000)
    rig.work()
    assert [sorted(names) for names in changes] == [["a"], ["b", "c"]]
    assert rig.now(offsets_of("g")) == {}


def test_expiration_continues_after_a_replay(rig: Rig[GroupMachine]) -> None:
    upkeep = upkeep_of(rig)
    upkeep.start()
    assert rig.now(commit("g", 5)) == TAKEN
    rig.clock.advance(WEEK_MS - 1)
    rig.disk.fail("write", 28, path=".log")
    rig.clock.advance(1 + HOUR_MS)
    rig.work()
    assert rig.now(offsets_of("g")) == {("t", 0): 5}
    rig.clock.advance(HOUR_MS)
    rig.work()
    assert rig.now(offsets_of("g")) == {}
    waiting = Answered()
    rig.runtime.submit(0, commit("g", 6), waiting)
    upkeep.close()
    rig.runtime.close()
    assert waiting.received == [NOT_HERE] and rig.clock.timers == 0
