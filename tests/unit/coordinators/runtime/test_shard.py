"""Commands, appends and responses of a shard: in order, committed, and not lost between two incarnations."""

import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.slicing import Slicer
from kafkalite.state.effects import Effects, Now, TimerName, Token
from kafkalite.state.groups.classic.requests import Heartbeat, Join, Joined, Sync
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import CommitResult
from kafkalite.state.groups.records import OffsetCommitted
from tests.kit.costly_clock import CostlyClock
from tests.unit.coordinators.rig import (
    COMPACTED,
    LOADING,
    NOT_HERE,
    Answered,
    Rig,
    commit,
    groups,
    offsets_of,
    warnings,
)
from tests.unit.protocol.values import seed

TAKEN = CommitResult(errors=(0,))
STORAGE = KafkaErrorCode.KAFKA_STORAGE_ERROR


class Ticking:
    """A machine of timers: each command sets or cancels some, each one that fires is written down."""

    def __init__(self) -> None:
        self.fired: list[tuple[str, int]] = []
        self.is_active = True

    def apply(self, record: object) -> None: ...

    def start_timers(self, now: Now) -> Iterator[Effects]:
        effects = Effects()
        effects.set_timer(("loaded",), now.ms + 10)
        yield effects

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        self.fired.append((name[0], now.ms))
        return Effects(records=[OffsetCommitted("g", name[0], 0, now.ms, -1, "", 0)])

    def ended(self) -> None:
        self.is_active = False


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig[GroupMachine]]:
    rig = Rig(tmp_path, groups)
    rig.load()
    yield rig


def test_commit_responds_once_it_is_written(rig: Rig[GroupMachine]) -> None:
    waiting = rig.do(commit("g", 5))
    assert not waiting.received and rig.log.log_end_offset == 0
    rig.replicas.write_pending()
    assert waiting.received == [TAKEN] and rig.log.log_end_offset == 1
    assert rig.now(offsets_of("g")) == {("t", 0): 5}


def test_commit_responds_after_fsync_with_flush_messages_1(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, config=replace(COMPACTED, flush_messages=1))
    rig.load()
    rig.sync_jobs.held = True
    first, second = rig.do(commit("g", 5)), rig.do(offsets_of("g"))
    rig.replicas.write_pending()
    assert not first.received and not second.received and rig.log.log_end_offset == 1
    rig.sync_jobs.release()
    rig.work()
    assert first.received == [TAKEN] and second.received == [{("t", 0): 5}]


def test_commit_beyond_the_timeout_fails_and_is_stored_later(tmp_path: Path) -> None:
    """One timer looks after all: who came later has his own time, also the one who came after that."""
    flushed = replace(COMPACTED, flush_messages=1)
    rig = Rig(tmp_path, groups, config=flushed, settings={"offsets.commit.timeout.ms": "1000"})
    rig.load()
    rig.sync_jobs.held = True
    first, seen = rig.do(commit("g", 5)), rig.do(offsets_of("g"))
    rig.replicas.write_pending()
    rig.clock.advance(600)
    second = rig.do(commit("h", 7))
    rig.replicas.write_pending()
    rig.clock.advance(399)
    assert not first.received
    rig.clock.advance(1)
    late = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
    assert first.received == seen.received == [late] and not second.received
    third = rig.do(offsets_of("h"))
    rig.clock.advance(600)
    assert second.received == third.received == [late]
    rig.sync_jobs.release()
    rig.work()
    assert rig.now(offsets_of("g")) == {("t", 0): 5} and rig.now(commit("g", 6)) == TAKEN
    rig.clock.advance(10_000)
    assert rig.now(offsets_of("g")) == {("t", 0): 6}


def test_query_responds_after_the_records_it_saw_are_committed(rig: Rig[GroupMachine]) -> None:
    order: list[str] = []
    received = [OrderedAnswer(order, name) for name in ("commit", "read", "commit again")]
    rig.runtime.submit(0, commit("g", 5), received[0])
    rig.runtime.submit(0, offsets_of("g"), received[1])
    rig.runtime.submit(0, commit("g", 6), received[2])
    assert order == []
    rig.replicas.write_pending()
    assert order == ["commit", "read", "commit again"] and received[1].received == [{("t", 0): 5}]


class OrderedAnswer(Answered):
    def __init__(self, order: list[str], name: str) -> None:
        super().__init__()
        self.order = order
        self.name = name

    def answer(self, result: object) -> None:
        super().answer(result)
        self.order.append(self.name)


def test_failed_write_fails_pending_requests_and_replays_the_log(
    rig: Rig[GroupMachine], caplog: pytest.LogCaptureFixture
) -> None:
    assert rig.now(commit("g", 5)) == TAKEN
    delayed = rig.do(join("members"))
    rig.clock.advance(2_999)
    rig.disk.fail("write", errno.ENOSPC, path=".log")
    failed, behind = rig.do(commit("g", 6)), rig.do(offsets_of("g"))
    rig.replicas.write_pending()
    assert failed.received == behind.received == delayed.received == [NOT_HERE]
    assert rig.do(offsets_of("g")).received == [LOADING]
    assert any("KAFKA_STORAGE_ERROR" in line for line in warnings(caplog))
    rig.work()
    assert rig.now(offsets_of("g")) == {("t", 0): 5}
    assert rig.now(commit("g", 7)) == TAKEN
    assert rig.now(offsets_of("g")) == {("t", 0): 7}


def test_replay_waits_for_the_last_append_of_the_previous_incarnation(tmp_path: Path) -> None:
    """What was written before the failure is in the log, and must be in the next life."""
    rig = Rig(tmp_path, groups, config=replace(COMPACTED, flush_messages=1))
    rig.load()
    rig.sync_jobs.held = True
    written = rig.do(commit("g", 5))
    rig.replicas.write_pending()
    rig.disk.fail("write", errno.ENOSPC, path=".log")
    failed = rig.do(commit("h", 6))
    rig.replicas.write_pending()
    assert written.received == failed.received == [NOT_HERE]
    rig.recover()
    assert rig.do(offsets_of("g")).received == [LOADING]
    rig.sync_jobs.release()
    rig.work()
    rig.sync_jobs.held = False
    assert rig.now(offsets_of("g")) == {("t", 0): 5} and rig.now(offsets_of("h")) == {}


def test_unreadable_log_is_reported_and_retried(rig: Rig[GroupMachine]) -> None:
    rig.offline("", OSError())
    assert rig.now(commit("g", 5)) == NOT_HERE
    assert rig.do(commit("g", 5)).received == [NOT_HERE]
    rig.partition.error = 0
    rig.recover()
    assert rig.now(offsets_of("g")) == {}


def test_appends_that_fail_for_the_same_reason_are_logged_once_a_minute(
    rig: Rig[GroupMachine], caplog: pytest.LogCaptureFixture
) -> None:
    assert rig.now(commit("g", 5)) == TAKEN
    rig.disk.fail("write", errno.ENOSPC, path=".log", repeat=True)

    def lines_after(attempts: int) -> int:
        caplog.clear()
        for _ in range(attempts):
            rig.now(commit("g", 6))
            rig.clock.advance(1_000)
            rig.work()
        return sum("an append failed with KAFKA_STORAGE_ERROR" in each for each in caplog.messages)

    assert lines_after(30) == 1
    assert lines_after(60) == 1, "the next minute"


def test_full_disk_is_retried_with_a_delay(rig: Rig[GroupMachine]) -> None:
    assert rig.now(commit("g", 5)) == TAKEN
    rig.disk.fail("write", errno.ENOSPC, path=".log", repeat=True)
    reads = rig.disk.counts["read"]
    for _ in range(50):
        assert rig.now(commit("g", 6)) == NOT_HERE  # or has no machine
        rig.clock.advance(100)
        rig.work()
    assert rig.disk.counts["read"] - reads < 50
    rig.disk.heal()
    rig.recover()
    assert rig.now(offsets_of("g")) == {("t", 0): 5} and rig.now(commit("g", 7)) == TAKEN


class Crowded(Ticking):
    """A machine with the sessions of 1,000 members."""

    def start_timers(self, now: Now) -> Iterator[Effects]:
        for share in range(10):
            effects = Effects()
            for at in range(100):
                effects.set_timer((f"member{share * 100 + at}",), now.ms + 500)
            yield effects


def test_sessions_of_many_members_are_started_in_slices(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Crowded)
    rig.slicer = Slicer(CostlyClock(rig.clock), lambda _callback, error: rig.raised.append(error), budget_s=0.0015)
    rig.runtime = rig.new_runtime()
    rig.load()
    assert rig.do(set_timers()).received == [LOADING], "the machine is not asked before all its sessions have begun"
    for _ in range(100):
        rig.clock.advance(1)
        if rig.runtime.machine(0) is not None:
            break
    assert rig.clock.timers < 1_000, "timers are set in slices, too"
    assert rig.do(set_timers(member998=1_600, member999=None)).received == [None]
    machine = rig.runtime.machine(0)
    assert machine is not None
    rig.clock.advance(699)
    assert sorted(name for name, _ in machine.fired) == sorted(f"member{at}" for at in range(998))
    rig.clock.advance(1_000)
    assert machine.fired[-1][0] == "member998" and len(machine.fired) == 999
    assert rig.raised == []


def test_shard_without_sessions_is_ready_while_the_slicer_is_busy(tmp_path: Path) -> None:
    """A first commit creates the topic of the groups, and must find its shard loaded."""
    rig = Rig(tmp_path, Ticking)
    rig.slicer = Slicer(CostlyClock(rig.clock), lambda _callback, error: rig.raised.append(error), budget_s=0.0015)
    rig.runtime = rig.new_runtime()
    rig.slicer.run((None for _ in range(1_000)), lambda _outcome: None)
    rig.load()
    assert rig.do(set_timers()).received == [None]
    assert rig.raised == []


def test_shard_that_is_closed_while_sessions_are_started_starts_no_more(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Crowded)
    rig.slicer = Slicer(CostlyClock(rig.clock), lambda _callback, error: rig.raised.append(error), budget_s=0.0015)
    rig.runtime = rig.new_runtime()
    rig.load()
    rig.runtime.close()
    assert rig.do(set_timers()).received == [NOT_HERE]
    rig.clock.advance(1_000)
    assert rig.runtime.machine(0) is None and rig.clock.timers == 0


class Stillborn(Ticking):
    """A machine that fails when it is loaded."""

    created = 0

    def start_timers(self, now: Now) -> Iterator[Effects]:
        Stillborn.created += 1
        raise RuntimeError("a bug")


def test_machine_that_fails_to_start_is_retried_with_a_delay(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Stillborn)
    rig.load()
    assert rig.do(set_timers()).received == [NOT_HERE]
    rig.clock.advance(1_000)
    assert Stillborn.created == 2 and [str(error) for error in rig.raised] == ["a bug", "a bug"]
    rig.runtime.close()
    assert rig.clock.timers == 0


def test_command_that_raises_ends_only_its_incarnation(rig: Rig[GroupMachine]) -> None:
    assert rig.now(commit("g", 5)) == TAKEN
    delayed, raised = rig.do(join("members")), Answered()

    def broken(_machine: GroupMachine, _token: Token, _now: Now) -> Effects:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        rig.runtime.submit(0, broken, raised)
    assert raised.received == [KafkaErrorCode.UNKNOWN_SERVER_ERROR]
    rig.replicas.write_pending()
    rig.work()
    assert delayed.received == [NOT_HERE]
    assert rig.now(offsets_of("g")) == {("t", 0): 5}


def test_record_that_cannot_be_encoded_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Ticking)
    rig.load()
    waiting = Answered()

    def strange(_machine: Ticking, token: Token, now: Now) -> Effects:
        effects = Effects(records=[OffsetCommitted("g", "t", 0, 1, -1, "", now.wall_ms), object()])
        effects.answer(token, None)
        return effects

    with pytest.raises(TypeError, match="object"):
        rig.runtime.submit(0, strange, waiting)
    rig.recover()
    assert waiting.received == [KafkaErrorCode.UNKNOWN_SERVER_ERROR] and rig.log.next_offset == 0
    assert rig.now(set_timers(one=50)) is None


def test_large_commit_is_split_into_batches_with_one_response(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, config=replace(COMPACTED, max_message_bytes=2_000))
    rig.load()
    assert rig.now(commit("g", 5, partitions=300)) == CommitResult(errors=(0,) * 300)
    rig.restart()
    assert rig.now(offsets_of("g")) == {("t", index): 5 for index in range(300)}


# timers


def set_timers(**at_ms: int | None) -> Any:
    def command(_machine: Ticking, token: Token, _now: Now) -> Effects:
        effects = Effects()
        for name, at in at_ms.items():
            if at is None:
                effects.cancel_timer((name,))
            else:
                effects.set_timer((name,), at)
        effects.answer(token, None)
        return effects

    return command


def test_timers_fire_on_time_and_write_their_records(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Ticking)
    rig.load()
    machine = rig.runtime.machine(0)
    assert machine is not None
    rig.now(set_timers(one=50, two=20, three=30))
    rig.now(set_timers(one=15, three=None, four=None))
    rig.clock.advance(100)
    assert machine.fired == [("loaded", 10), ("one", 15), ("two", 20)]
    assert rig.log.log_end_offset == 3
    rig.runtime.close()


def test_timers_end_with_their_incarnation(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Ticking)
    rig.load()
    old = rig.runtime.machine(0)
    rig.now(set_timers(one=50, two=60))
    rig.disk.fail("write", errno.EIO, path=".log")
    rig.clock.advance(10)  # its append fails
    rig.work()
    assert rig.runtime.machine(0) is None
    rig.clock.advance(1_000)
    new = rig.runtime.machine(0)
    assert old is not None and new is not None and new is not old and old.fired == [("loaded", 10)]
    assert new.is_active and not old.is_active
    rig.clock.advance(100)
    assert old.fired == [("loaded", 10)] and new.fired == [("loaded", 1_020)]
    rig.runtime.close()
    assert rig.clock.timers == 0 and not new.is_active


# stop


def test_close_fails_pending_requests(rig: Rig[GroupMachine]) -> None:
    delayed, behind = rig.do(join("members")), rig.do(commit("g", 5))
    rig.runtime.close()
    assert delayed.received == behind.received == [NOT_HERE]
    rig.replicas.write_pending()
    assert rig.do(commit("g", 6)).received == [NOT_HERE]
    assert rig.clock.timers == 0


# members, over the whole stack


def join(group: str, member_id: str = "") -> Any:
    request = Join(group, member_id, "fresh", "consumer", (("range", b""),), 10_000, 10_000, "c", "h", None, False)
    return lambda machine, token, now: machine.registry.join(request, token, now)


def test_member_joins_after_the_initial_delay_and_survives_a_restart(rig: Rig[GroupMachine]) -> None:
    joining = rig.do(join("members"))
    rig.replicas.write_pending()
    assert not joining.received
    rig.clock.advance(3_000)
    rig.work()
    (joined,) = joining.received
    assert isinstance(joined, Joined) and joined.generation == 1
    sync = Sync("members", joined.member_id, 1, {joined.member_id: b"all"}, None, "consumer", "range")
    assert rig.now(lambda machine, token, now: machine.classic.sync(sync, token, now)).assignment == b"all"
    rig.restart()
    fast_heartbeat = Heartbeat("members", joined.member_id, 1)
    assert rig.now(lambda machine, token, now: machine.classic.heartbeat(fast_heartbeat, token, now)).error == 0
    rig.clock.advance(10_001)
    rig.work()
    assert rig.now(lambda machine, token, now: machine.classic.heartbeat(fast_heartbeat, token, now)).error != 0


@pytest.mark.parametrize("flush_messages", [1, 3, 2**63 - 1])
def test_acknowledged_commits_survive_every_failure(tmp_path: Path, flush_messages: int) -> None:
    """Random commits, reads and deletions with writes that fail: an acknowledged commit is never undone."""
    rng = random.Random(f"{seed()} {flush_messages}")
    rig = Rig(tmp_path, groups, config=replace(COMPACTED, flush_messages=flush_messages))
    rig.load()
    known: dict[str, int] = {}  # by group, as acknowledged
    unsure: dict[str, set[int | None]] = {}  # what a failed command may have left
    failures = 0
    for step in range(400):
        if rng.random() < 0.1:
            rig.disk.fail("write", rng.choice((errno.ENOSPC, errno.EIO)), when=rng.randint(1, 3), path=".log")
        commits = [(f"g{rng.randrange(4)}", step * 10 + at) for at in range(rng.randint(1, 3))]
        waiting = [(group, offset, rig.do(commit(group, offset))) for group, offset in commits]
        rig.replicas.write_pending()
        rig.work()
        for group, offset, one in waiting:
            if one.received == [TAKEN]:
                known[group] = offset
                unsure.pop(group, None)
            else:
                assert one.received[0] in (NOT_HERE, LOADING)
                failures += 1
                unsure.setdefault(group, set()).add(offset)
        if rng.random() < 0.1:
            rig.disk.heal()
            rig.restart()
        rig.recover()
        for group, offset in known.items():
            seen = rig.now(offsets_of(group))[("t", 0)]
            assert seen == offset or seen in unsure.get(group, ()), (group, step)
    assert failures > 10


def test_committed_machine_is_none_while_a_record_is_uncommitted(rig: Rig[GroupMachine]) -> None:
    """A heartbeat on its short way is answered at once, so an answer before it must have left."""
    assert rig.runtime.committed_machine("g") is rig.runtime.machine(0)
    waiting = rig.do(commit("g", 5))
    assert not waiting.received and rig.runtime.committed_machine("g") is None
    rig.replicas.write_pending()
    assert waiting.received and rig.runtime.committed_machine("g") is rig.runtime.machine(0)
    rig.runtime.close()
    assert rig.runtime.committed_machine("g") is None
