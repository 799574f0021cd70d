"""The roles of a partition with several replicas: a test sets the progress of the followers by hand."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.cluster.partition.delayed_fetch import DelayedFetch
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.leader import Leader
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import Builder
from tests.kit.logs import read_log
from tests.unit.cluster.partition.test_flush import EVERY, GONE, STORAGE, Rig
from tests.unit.cluster.partition.test_leadership import NOT_LEADER, state
from tests.unit.storage.damage import batch

TIMED_OUT = KafkaErrorCode.REQUEST_TIMED_OUT
REFUSED, TOO_LATE = KafkaErrorCode.NOT_ENOUGH_REPLICAS, KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
TWO = replace(TopicConfig(), min_insync_replicas=2)
THREE = (1, 2, 3)


class Led:
    """A partition that this broker, 1, leads in epoch 1 with its followers."""

    def __init__(
        self, path: Path, config: TopicConfig = TWO, isr: tuple[int, ...] = THREE, replicas: tuple[int, ...] = THREE
    ) -> None:
        self.rig = Rig(path, config)
        self.partition = self.rig.partition
        self.replicas, self.isr = replicas, isr
        self.ready: list[int] = []
        self.lead(1)

    def lead(self, epoch: int) -> None:
        self.partition.lead(
            state(1, epoch, self.replicas, self.isr), lambda: self.ready.append(self.partition.high_watermark)
        )

    @property
    def leader(self) -> Leader:
        assert isinstance(self.partition.role, Leader)
        return self.partition.role

    def append(self, name: str, acks: int = -1, timeout_ms: int = 1_000, count: int = 1) -> None:
        def done(append: Append) -> None:
            self.rig.outcomes.append((name, append.error, append.base_offset))

        self.partition.append(Append(memoryview(batch(count)), acks, done, timeout_ms))

    def append_internal(self, name: str) -> None:
        def done(append: Append) -> None:
            self.rig.outcomes.append((name, append.error, append.base_offset))

        self.partition.append_internal(OwnAppend(batch(1), done))

    def written(self) -> list[tuple[str, int, int]]:
        """End the loop iteration; returns what was answered since the last time."""
        self.rig.replicas.write_pending()
        return self.rig.answers()

    def fetched(self, replica_id: int, offset: int, broker_epoch: int = 5) -> int:
        now_ms = round(self.rig.clock.monotonic() * 1000)
        return self.leader.follower_fetched(replica_id, broker_epoch, offset, 0, now_ms)


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


# What acks means.


def test_acks_all_waits_for_the_isr_and_other_acks_for_the_write(led: Led) -> None:
    for name, acks in (("none", 0), ("one", 1), ("all", -1)):
        led.append(name, acks)
    assert led.written() == [("none", 0, 0), ("one", 0, 1)]
    assert led.partition.high_watermark == 0
    led.fetched(2, 3)
    assert led.rig.answers() == []
    led.fetched(3, 3)
    assert led.rig.answers() == [("all", 0, 2)] and led.partition.high_watermark == 3


def test_acks_one_waits_for_a_required_flush_and_acks_all_for_followers_too(tmp_path: Path) -> None:
    led = Led(tmp_path, replace(TWO, flush_messages=1))
    for name, acks in (("none", 0), ("one", 1), ("all", -1)):
        led.append(name, acks)
    assert led.written() == [("none", 0, 0)]
    led.fetched(2, 3)
    led.fetched(3, 3)
    assert led.rig.answers() == [] and led.partition.high_watermark == 0, "the leader may lose what the others have"
    assert led.rig.sync() == [("one", 0, 1), ("all", 0, 2)]
    assert led.partition.high_watermark == 3


def test_flush_of_the_leader_does_not_answer_before_the_followers(tmp_path: Path) -> None:
    led = Led(tmp_path, replace(TWO, flush_messages=1))
    led.append("one", 1)
    led.append("all", -1)
    led.written()
    assert led.rig.sync() == [("one", 0, 0)]
    led.fetched(2, 2)
    led.fetched(3, 2)
    assert led.rig.answers() == [("all", 0, 1)]


def test_duplicate_batch_waits_for_the_followers_of_the_first(led: Led) -> None:
    for name in ("first", "again"):
        data = batch(1, producer_id=5, producer_epoch=0, base_sequence=0)
        led.partition.append(
            Append(memoryview(data), -1, lambda done, name=name: led.rig.outcomes.append((name, done.error, 0)))  # type: ignore[misc]
        )
        assert led.written() == []
    led.fetched(2, 1)
    led.fetched(3, 1)
    assert led.rig.answers() == [("first", 0, 0), ("again", 0, 0)]


# The high watermark.


def test_caught_up_live_replica_outside_the_isr_is_waited_for(tmp_path: Path) -> None:
    led = Led(tmp_path, isr=(1, 2))
    led.rig.live = {2, 3}
    led.fetched(2, 0)
    led.fetched(3, 0)
    led.append("all")
    led.written()
    led.fetched(2, 1)
    assert led.rig.answers() == [], "3 could not join the ISR if the high watermark always moved away"
    led.rig.clock.advance(500)
    led.rig.live = {2}
    led.fetched(2, 1)
    assert led.rig.answers() == [("all", 0, 0)], "3 has died"


def test_replica_outside_the_isr_that_lags_is_not_waited_for(tmp_path: Path) -> None:
    led = Led(tmp_path, isr=(1, 2))
    led.rig.live = {2, 3}
    led.append("old", acks=1)
    led.written()
    led.fetched(3, 0)
    led.fetched(2, 1)
    assert led.partition.high_watermark == 1


def test_expected_member_of_the_isr_is_waited_for(tmp_path: Path) -> None:
    led = Led(tmp_path, isr=(1, 2))
    led.leader.change_isr((1, 2), expected=(3,))
    led.append("all")
    led.written()
    led.fetched(2, 1)
    assert led.rig.answers() == []
    led.leader.change_isr((1, 2))
    assert led.rig.answers() == [("all", 0, 0)]


def test_high_watermark_does_not_go_back_with_a_restarted_follower(led: Led) -> None:
    led.append("all")
    led.written()
    led.fetched(2, 1)
    led.fetched(3, 1)
    assert led.fetched(2, 0, broker_epoch=6) == 0
    assert led.partition.high_watermark == 1
    assert led.fetched(2, 1, broker_epoch=5) == NOT_LEADER, "of the registration before"


def test_fetch_of_a_broker_that_is_not_assigned_is_rejected(led: Led) -> None:
    assert led.fetched(4, 0) == KafkaErrorCode.UNKNOWN_LEADER_EPOCH


def test_delayed_fetch_waits_for_the_high_watermark(led: Led) -> None:
    woken: list[int] = []
    DelayedFetch([led.partition], 1, lambda: woken.append(led.partition.high_watermark)).watch(led.rig.clock, 60)
    led.append("one", acks=1, count=2)
    led.written()
    led.fetched(2, 2)
    assert woken == []
    led.fetched(3, 1)
    assert woken == [1], "within a write"


# The minimum.


def test_append_below_the_minimum_is_rejected_before_it_is_written(tmp_path: Path) -> None:
    led = Led(tmp_path, isr=(1,))
    led.append("all")
    led.append_internal("group")
    led.append("one", acks=1)
    assert led.written() == [("all", REFUSED, -1), ("group", REFUSED, -1), ("one", 0, 0)]
    assert led.partition.high_watermark == 0, "it stops below the minimum"
    led.leader.change_isr((1, 2))
    led.fetched(2, 1)
    assert led.partition.high_watermark == 1


def test_append_that_is_held_when_the_isr_falls_below_the_minimum_fails(led: Led) -> None:
    led.append("all")
    led.append_internal("group")
    led.written()
    led.leader.change_isr((1, 2))
    assert led.rig.answers() == []
    led.leader.change_isr((1,))
    assert led.rig.answers() == [("all", TOO_LATE, -1)]
    assert led.partition.high_watermark == 0
    led.leader.change_isr((1, 2))
    led.fetched(2, 2)
    assert led.rig.answers() == [("group", 0, 1)], "the coordinator's record is committed after all"
    assert led.partition.high_watermark == 2, "the log has the batch"


def test_raised_minimum_fails_held_appends(led: Led) -> None:
    led.leader.change_isr((1, 2))
    led.append("all")
    led.written()
    led.partition.configure(replace(TWO, min_insync_replicas=3))
    assert led.rig.answers() == [("all", TOO_LATE, -1)]


def test_leader_alone_in_the_isr_commits_with_the_minimum_of_one(tmp_path: Path) -> None:
    led = Led(tmp_path, TopicConfig(), isr=(1,))
    led.append("all")
    assert led.written() == [("all", 0, 0)] and led.partition.high_watermark == 1


def test_leader_commits_nothing_while_there_are_eligible_replicas_whatever_the_minimum(tmp_path: Path) -> None:
    led = Led(tmp_path, TopicConfig())
    led.partition.lead(state(1, 2, THREE, (1,))._replace(eligible=(2,)), lambda: None)
    led.append("all")
    led.append("one", acks=1)
    assert led.written() == [("all", REFUSED, -1), ("one", 0, 0)]
    led.fetched(2, 1)
    assert led.partition.high_watermark == 0, "the eligible replica may lack the record"
    led.partition.lead(state(1, 3, THREE, (1,)), lambda: None)
    led.append("later")
    assert led.written() == [("later", 0, 1)] and led.partition.high_watermark == 2


# Deadlines.


def test_append_without_its_replicas_times_out_and_stays_in_the_log(led: Led) -> None:
    led.append("short", timeout_ms=100)
    led.append("long", timeout_ms=1_000)
    led.append_internal("group")
    assert led.written() == []
    assert led.rig.clock.timers == 1, "of the partition"
    led.rig.clock.advance(100)
    assert led.rig.answers() == [("short", TIMED_OUT, -1)]
    led.fetched(2, 3)
    led.fetched(3, 3)
    assert led.rig.answers() == [("long", 0, 1), ("group", 0, 2)]
    assert led.partition.high_watermark == 3
    led.rig.clock.advance(5_000)
    assert led.rig.answers() == [] and led.rig.clock.timers == 0


def test_append_waits_for_a_flush_until_its_deadline(tmp_path: Path) -> None:
    led = Led(tmp_path, EVERY, isr=(1,), replicas=(1,))
    led.append("all", timeout_ms=100)
    led.append("one", acks=1, timeout_ms=100)
    assert led.written() == []
    led.rig.clock.advance(100)
    assert led.rig.answers() == [("all", TIMED_OUT, -1)]
    assert led.rig.sync() == [("one", 0, 1)]


@pytest.mark.parametrize("fetch_first", [True, False])
def test_deadline_in_the_iteration_of_the_last_fetch_answers_once(led: Led, fetch_first: bool) -> None:
    led.append("all", timeout_ms=100)
    led.written()
    led.fetched(2, 1)
    led.rig.clock.call_at(0.1 if not fetch_first else 0.0999999, lambda: led.fetched(3, 1))
    led.rig.clock.advance(100)
    assert led.rig.answers() == [("all", 0 if fetch_first else TIMED_OUT, 0 if fetch_first else -1)]


def test_shorter_timeout_of_a_later_append_is_kept(led: Led) -> None:
    led.append("long", timeout_ms=1_000)
    led.written()
    led.append("short", timeout_ms=10)
    led.written()
    led.rig.clock.advance(10)
    assert led.rig.answers() == [("short", TIMED_OUT, -1)]
    led.rig.clock.advance(990)
    assert led.rig.answers() == [("long", TIMED_OUT, -1)]


# Changes of the role.


def held_for_followers(led: Led) -> None:
    led.append("append")
    led.written()


def unwritten(led: Led) -> None:
    led.append("append")


def held_for_both(led: Led) -> None:
    led.partition.configure(replace(TWO, flush_messages=1))
    held_for_followers(led)


def in_a_job(led: Led) -> None:
    """The first append is decompressed by a job, the second is queued."""
    builder = Builder()
    builder.append(0, None, bytes(500_000))
    large = memoryview(bytearray(builder.build(1)))
    led.partition.append(Append(large, -1, lambda done: led.rig.outcomes.append(("job", done.error, done.base_offset))))
    assert led.rig.jobs.waiting == 1
    led.append("append")


ENDS: dict[str, tuple[Callable[[Led], None], int]] = {
    "follower": (lambda led: led.partition.follow(state(2, 2, THREE, THREE)), NOT_LEADER),
    "no leader": (lambda led: led.partition.follow(state(-1, 2, THREE, THREE)), NOT_LEADER),
    "resigned": (lambda led: led.partition.resign(), NOT_LEADER),
    "deleted": (lambda led: led.partition.close(GONE), GONE),
    "offline": (lambda led: led.partition.close(STORAGE), STORAGE),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("wait", [unwritten, held_for_followers, held_for_both, in_a_job])
@pytest.mark.parametrize("again", [False, True])
def test_waiting_append_is_rejected_when_the_role_ends(
    led: Led, wait: Callable[[Led], None], end: str, again: bool
) -> None:
    woken: list[int] = []
    wait(led)
    DelayedFetch([led.partition], 1, lambda: woken.append(led.partition.error)).watch(led.rig.clock, 60)
    change, error = ENDS[end]
    change(led)
    assert led.rig.answers() == [("append", error, -1)] and woken == [error]
    assert led.rig.clock.timers == 0
    if again and error == NOT_LEADER:
        led.lead(3)
    assert led.rig.sync() == ([("job", error, -1)] if wait is in_a_job else [])
    assert led.written() == [], "once"


def test_append_in_a_job_is_rejected_also_if_the_partition_is_led_again(led: Led) -> None:
    in_a_job(led)
    led.partition.follow(state(2, 2, THREE, THREE))
    led.lead(3)
    led.append("later", acks=1)
    assert led.rig.answers() == [("append", NOT_LEADER, -1)]
    assert led.rig.sync() == [("job", NOT_LEADER, -1), ("later", 0, 0)]


def test_written_append_with_acks_one_succeeds_before_the_role_ends(led: Led) -> None:
    led.append("one", acks=1)
    led.partition.follow(state(2, 2, THREE, THREE))
    assert led.rig.answers() == [("one", 0, 0)]


def test_flush_of_an_earlier_leadership_moves_nothing(tmp_path: Path) -> None:
    led = Led(tmp_path, replace(TopicConfig(), flush_messages=1), isr=(1,))
    led.append("held")
    led.written()
    led.partition.follow(state(2, 2, THREE, THREE))
    led.rig.sync()
    assert led.partition.high_watermark == 0


def test_new_leader_waits_for_every_member_of_the_isr(led: Led) -> None:
    led.append("all")
    led.written()
    led.fetched(2, 1)
    led.fetched(3, 1)
    led.append("uncommitted", acks=1)
    led.written()
    led.partition.follow(state(2, 2, THREE, THREE))
    led.ready.clear()
    led.lead(3)
    assert led.partition.log is not None and led.leader.epoch_start == 2
    assert led.partition.is_behind and led.ready == [] and led.partition.high_watermark == 1
    led.fetched(2, 2)
    assert led.partition.is_behind
    led.fetched(3, 2)
    assert not led.partition.is_behind and led.ready == [2]


def test_epoch_that_ends_before_its_records_are_readable_is_announced_in_the_next_one(led: Led) -> None:
    """The coordinator of the first epoch waits for the call."""
    led.append("uncommitted", acks=1)
    led.written()
    led.partition.follow(state(2, 2, THREE, THREE))
    announced: list[int] = []
    for epoch in (3, 4):
        led.partition.lead(state(1, epoch, THREE, THREE), lambda epoch=epoch: announced.append(epoch))  # type: ignore[misc]
    assert announced == []
    led.fetched(2, 1)
    led.fetched(3, 1)
    assert announced == [3, 4]


def test_later_epoch_of_the_same_leader_keeps_held_appends(led: Led) -> None:
    led.append("held")
    led.written()
    led.fetched(2, 1)
    led.lead(2)
    assert led.rig.answers() == []
    led.fetched(3, 1)
    led.fetched(2, 1)
    assert led.rig.answers() == [("held", 0, 0)]
    assert led.ready == [0, 1], "each epoch is announced"


def test_later_epoch_does_not_count_what_followers_had_in_an_earlier_one(led: Led) -> None:
    """Another broker has led in epoch 2 while this one was paused: followers may have truncated their logs."""
    led.append("held")
    led.written()
    led.fetched(2, 1)
    led.lead(3)
    led.fetched(3, 1)
    assert led.rig.answers() == [] and led.partition.high_watermark == 0
    led.fetched(2, 0)
    assert led.rig.answers() == [] and led.partition.high_watermark == 0
    led.fetched(2, 1)
    assert led.rig.answers() == [("held", 0, 0)] and led.partition.high_watermark == 1


def test_follower_follows_the_offsets_of_its_leader(led: Led) -> None:
    led.append("one", acks=1, count=5)
    led.written()
    led.partition.follow(state(2, 2, THREE, THREE))
    role = led.partition.role
    assert isinstance(role, Follower) and role.leader == 2 and led.partition.error == NOT_LEADER
    assert role.follow_offsets(3, 0) == 0 and led.partition.high_watermark == 3
    assert role.follow_offsets(99, 2) == 0
    assert (led.partition.high_watermark, led.partition.log_start_offset) == (5, 2), "bounded by the log end"
    assert role.follow_offsets(4, 1) == 0
    assert (led.partition.high_watermark, led.partition.log_start_offset) == (4, 2), "the log start only rises"
    assert role.follow_offsets(99, 7) == KafkaErrorCode.OFFSET_OUT_OF_RANGE


def following(led: Led) -> Follower:
    led.partition.follow(state(2, 2, THREE, THREE))
    assert isinstance(led.partition.role, Follower)
    return led.partition.role


def from_leader(*base_offsets: int, epoch: int = 2) -> bytearray:
    """Batches of one record each, as another broker has written them."""
    records = bytearray()
    for base_offset in base_offsets:
        one = batch(1)
        one[:8] = base_offset.to_bytes(8)
        one[12:16] = epoch.to_bytes(4)
        records += one
    return records


def test_follower_appends_the_batches_of_its_leader(led: Led) -> None:
    role = following(led)
    received = from_leader(0, 1, 5)
    found = role.append_replicated(memoryview(received).toreadonly())
    assert (found.error, found.batches.count, found.batches.next_offset) == (0, 3, 6)
    log = led.partition.log
    assert log is not None and log.log_end_offset == 6 and led.partition.high_watermark == 0
    assert b"".join(region.read() for region in read_log(log, 0, 1 << 20, 6)) == received, "as received"  # type: ignore[union-attr]
    assert role.follow_offsets(5, 0) == 0 and led.partition.high_watermark == 5


def test_follower_keeps_the_batches_before_a_rejected_one(led: Led) -> None:
    found = following(led).append_replicated(from_leader(0, 1, 1))
    assert (found.error, found.batches.count) == (KafkaErrorCode.OFFSET_OUT_OF_RANGE, 2)
    assert led.partition.log is not None and led.partition.log.log_end_offset == 2


def test_failed_write_of_a_follower_keeps_nothing(led: Led) -> None:
    role = following(led)
    led.rig.disk.fail("write", errno.ENOSPC, path=".log")
    assert role.append_replicated(from_leader(0, 1)).error == STORAGE
    assert led.partition.log is not None and led.partition.log.log_end_offset == 0
    assert role.append_replicated(from_leader(0, 1)).error == 0


def test_exception_in_the_write_of_a_follower_leaves_the_log_as_before(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    role, log = following(led), led.partition.log
    assert log is not None
    with monkeypatch.context() as patched:
        patched.setattr("kafkalite.storage.log.log.Log.begin_epoch", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            role.append_replicated(from_leader(0))
    assert (log.queued, log.log_end_offset) == (0, 0)
    assert role.append_replicated(from_leader(0)).error == 0


def test_follower_that_leads_again_appends_behind_the_batches_of_the_other_leader(led: Led) -> None:
    role = following(led)
    role.append_replicated(from_leader(0, 1))
    led.lead(3)
    led.append("own", acks=1)
    assert led.written() == [("own", 0, 2)]
    assert led.partition.log is not None
    assert led.partition.log.epochs.entries == [(2, 0), (3, 2)]


def test_log_of_several_replicas_is_not_committed_at_its_adoption(tmp_path: Path) -> None:
    led = Led(tmp_path)
    led.append("one", acks=1)
    led.written()
    log = led.partition.log
    assert log is not None
    led.partition.resign()
    led.partition.adopt(log)
    assert led.partition.high_watermark == 0


def test_writes_without_appends_become_one_while_the_high_watermark_has_stopped(led: Led) -> None:
    for _ in range(100):
        led.append("one", acks=1)
        led.append("all", timeout_ms=0)
        led.written()
        led.rig.clock.advance(1)
    held = led.leader._held
    assert held is not None and len(held) <= 2
    led.fetched(2, 200)
    led.fetched(3, 200)
    assert led.partition.high_watermark == 200 and led.leader.is_idle
