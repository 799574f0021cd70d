"""Committed offsets: who may commit, what is fetched, transactions, expiry, deletion, and their memory."""

import gc
import tracemalloc
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import ZERO_UUID
from kafkalite.state.effects import Effects, Now, SetTimer
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.requests import Join, Leave, LeaveOf, Sync
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.offsets.manager import (
    Commit,
    CommitResult,
    OffsetDeleteResult,
    OffsetManager,
    OffsetSettings,
    PartitionCommit,
    TopicFetch,
)
from kafkalite.state.groups.records import (
    ClassicGroupMetadata,
    OffsetCommitted,
    OffsetDeleted,
    TransactionEnded,
)
from tests.kit.isolated import killable

RETENTION_MS = 1_000_000
WALL_MS = 1_700_000_000_000
ID = bytes(range(16))


class Seen(NamedTuple):
    offset: int
    error: int = 0


class Story:
    """Offsets beside classic groups, with a log to replay."""

    def __init__(self) -> None:
        self.ms = 0
        self.log: list[Any] = []
        self.classic = ClassicGroups(
            ClassicSettings(initial_delay_ms=0, topics_of=lambda raw: frozenset([raw.decode()]))
        )
        assert list(self.classic.start_timers(self.now)) == []
        self.offsets = OffsetManager(OffsetSettings(RETENTION_MS, metadata_max=10), self.classic.groups)

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    def do(self, effects: Effects) -> object:
        for record in effects.records:
            self.apply(record)
        return effects.answers[-1].result if effects.answers else None

    def apply(self, record: Any) -> None:
        self.log.append(record)
        (self.classic if isinstance(record, ClassicGroupMetadata) else self.offsets).apply(record)

    def commit(self, offset: int, partition: int = 0, **changes: Any) -> object:
        part = PartitionCommit("orders", partition, offset, 3, "m", ID)
        request = Commit("g", [part])._replace(**changes)
        return self.do(self.offsets.commit(request, 1, self.now))

    def fetch(self, partition: int = 0, *, stable: bool = False, group: str = "g") -> Seen:
        (found,) = self.offsets.fetch(group, [TopicFetch("orders", [partition])], require_stable=stable)
        return Seen(found.offset, found.error)

    def member(self) -> str:
        """One member of generation 1 that reads "orders"; the group is Stable."""
        request = Join("g", "", "1", "consumer", (("range", b"orders"),), 10_000, 10_000, "c", "h", None, False)
        self.do(self.classic.join(request, "j", self.now))
        self.do(self.classic.fire_timer(("classic", "g", "join"), self.now))
        self.do(self.classic.sync(Sync("g", "c-1", 1, {"c-1": b"all"}), "s", self.now))
        return "c-1"

    def leave(self) -> None:
        self.do(self.classic.leave(Leave("g", (LeaveOf("c-1"),)), "l", self.now))

    def expire(self) -> tuple[list[OffsetDeleted], bool]:
        return self.offsets.expire("g", self.now.wall_ms)


def test_committed_offset_is_fetched() -> None:
    story = Story()
    assert story.commit(7) == CommitResult(errors=(0,))
    assert story.log == [OffsetCommitted("g", "orders", 0, 7, 3, "m", WALL_MS, -1, ID)]
    (found,) = story.offsets.fetch("g", [TopicFetch("orders", [0])], require_stable=False)
    assert (found.offset, found.leader_epoch, found.metadata, found.topic_id) == (7, 3, "m", ID)
    assert story.offsets.fetch("g", None, require_stable=True) == [found]


def test_fetch_of_unknown_group_partition_or_topic_returns_no_offset() -> None:
    story = Story()
    story.commit(7)
    assert story.fetch(group="other") == story.fetch(partition=1) == Seen(-1)
    assert story.offsets.fetch("other", None, require_stable=False) == []


def test_recreated_topic_has_no_offsets() -> None:
    story = Story()
    story.commit(7)
    (found,) = story.offsets.fetch("g", [TopicFetch("orders", [0], bytes(reversed(ID)))], require_stable=False)
    assert found.offset == -1
    (found,) = story.offsets.fetch("g", [TopicFetch("orders", [0], ZERO_UUID)], require_stable=False)
    assert found.offset == 7


def test_too_long_metadata_rejects_only_its_partition() -> None:
    story = Story()
    parts = [PartitionCommit("orders", 0, 1, metadata="x" * 11), PartitionCommit("orders", 1, 2, metadata="x" * 10)]
    assert story.commit(0, partitions=parts) == CommitResult(errors=(Error.OFFSET_METADATA_TOO_LARGE, 0))
    assert [story.fetch(0), story.fetch(1)] == [Seen(-1), Seen(2)]


def test_only_members_of_the_generation_commit() -> None:
    story = Story()
    one = story.member()
    assert story.commit(1, member_id=one, generation=1) == CommitResult(errors=(0,))
    assert story.commit(2, member_id=one, generation=0) == CommitResult(Error.ILLEGAL_GENERATION)
    assert story.commit(2, member_id="zombie", generation=1) == CommitResult(Error.UNKNOWN_MEMBER_ID)
    assert story.commit(2) == CommitResult(Error.UNKNOWN_MEMBER_ID), "the group has members"
    story.leave()
    assert story.commit(3) == CommitResult(errors=(0,)), "now it is empty"
    assert story.fetch() == Seen(3)


def test_commit_of_a_member_of_an_unknown_group_is_rejected() -> None:
    story = Story()
    assert story.commit(1, member_id="m", generation=4) == CommitResult(Error.GROUP_ID_NOT_FOUND)
    story.commit(1)
    assert story.commit(1, member_id="m", generation=4) == CommitResult(Error.UNKNOWN_MEMBER_ID)


def test_a_commit_keeps_the_session_alive() -> None:
    story = Story()
    one = story.member()
    story.ms = 5_000
    story.commit(1, member_id=one, generation=1)
    story.ms = 10_000
    timer = ("classic", "g", "session", one)
    assert story.classic.fire_timer(timer, story.now) == Effects(timers=[SetTimer(timer, 15_000)])
    story.ms = 15_000
    assert story.do(story.classic.fire_timer(timer, story.now)) is None
    assert story.commit(2, member_id=one, generation=1) == CommitResult(Error.UNKNOWN_MEMBER_ID)


def test_a_pending_offset_is_seen_after_its_marker() -> None:
    story = Story()
    story.commit(1)
    assert story.commit(5, producer_id=9) == CommitResult(errors=(0,))
    assert story.fetch() == Seen(1)
    assert story.fetch(stable=True) == Seen(-1, Error.UNSTABLE_OFFSET_COMMIT)
    story.apply(TransactionEnded(9, committed=True))
    assert story.fetch(stable=True) == Seen(5)


def test_an_aborted_offset_is_never_seen() -> None:
    story = Story()
    story.commit(5, producer_id=9)
    story.apply(TransactionEnded(9, committed=False))
    assert story.fetch(stable=True) == Seen(-1)
    assert "g" not in story.offsets


def test_the_later_commit_wins_whichever_transaction_ends_first() -> None:
    story = Story()
    story.commit(1, producer_id=1)
    story.commit(2, producer_id=2)
    story.apply(TransactionEnded(2, committed=True))
    assert story.fetch(stable=True).error == Error.UNSTABLE_OFFSET_COMMIT, "the first one is still open"
    story.apply(TransactionEnded(1, committed=True))
    assert story.fetch(stable=True) == Seen(2)
    story.commit(3, producer_id=1)
    story.commit(4)
    story.apply(TransactionEnded(1, committed=True))
    assert story.fetch(stable=True) == Seen(4), "a plain commit came after it"


def test_a_transaction_needs_a_group_name_but_no_membership() -> None:
    story = Story()
    story.member()
    assert story.commit(1, group="", producer_id=1) == CommitResult(Error.INVALID_GROUP_ID)
    assert story.commit(1, producer_id=1) == CommitResult(errors=(0,))
    assert story.commit(1, producer_id=1, member_id="x", generation=1) == CommitResult(Error.UNKNOWN_MEMBER_ID)


def test_offsets_that_a_member_needs_are_not_deleted() -> None:
    story = Story()
    story.commit(1)
    story.member()
    others = [PartitionCommit("other", 0, 1)]
    story.commit(1, member_id="c-1", generation=1, partitions=others)
    answer = story.do(story.offsets.delete("g", [("orders", 0), ("other", 0), ("other", 1)], 1))
    assert answer == OffsetDeleteResult(errors=(Error.GROUP_SUBSCRIBED_TO_TOPIC, 0, 0))
    assert story.log[-1] == OffsetDeleted("g", "other", 0), "no tombstone for what is not there"
    assert story.fetch() == Seen(1)
    nobody = story.do(story.offsets.delete("nobody", [("orders", 0)], 1))
    assert nobody == OffsetDeleteResult(Error.GROUP_ID_NOT_FOUND)


def test_a_simple_group_expires_from_each_commit() -> None:
    story = Story()
    story.commit(1, partition=0)
    story.ms = 1
    story.commit(1, partition=1)
    story.ms = RETENTION_MS
    assert story.expire() == ([OffsetDeleted("g", "orders", 0)], False)
    story.ms += 1
    assert story.expire() == ([OffsetDeleted("g", "orders", 0), OffsetDeleted("g", "orders", 1)], True)


def test_an_empty_group_expires_from_the_moment_it_became_empty() -> None:
    story = Story()
    story.commit(1)
    story.member()
    story.ms = RETENTION_MS * 3
    assert story.expire() == ([], False), "its member reads the topic"
    story.leave()
    story.ms += RETENTION_MS - 1
    assert story.expire() == ([], False)
    story.ms += 1
    assert story.expire() == ([OffsetDeleted("g", "orders", 0)], True)


def test_topics_that_a_stable_group_no_longer_reads_expire() -> None:
    story = Story()
    story.commit(1, partitions=[PartitionCommit("old", 0, 1), PartitionCommit("orders", 0, 1)])
    story.member()
    story.ms = RETENTION_MS
    assert story.expire() == ([OffsetDeleted("g", "old", 0)], False)


def test_an_old_client_sets_its_own_expiry() -> None:
    story = Story()
    story.commit(1, retention_ms=500)
    assert isinstance(record := story.log[-1], OffsetCommitted) and record.expire_timestamp_ms == WALL_MS + 500
    story.ms = 499
    assert story.expire() == ([], False)
    story.ms = 500
    assert story.expire() == ([OffsetDeleted("g", "orders", 0)], True)


def test_expiry_beyond_int64_is_limited() -> None:
    story = Story()
    story.commit(1, retention_ms=2**63 - 1)
    assert isinstance(record := story.log[-1], OffsetCommitted) and record.expire_timestamp_ms == 2**63 - 1
    story.ms = 10 * RETENTION_MS
    assert story.expire() == ([], False)


def test_a_pending_offset_keeps_its_partition_and_group() -> None:
    story = Story()
    story.commit(1)
    story.commit(2, producer_id=9)
    story.ms = RETENTION_MS
    assert story.expire() == ([], False)


def test_deleting_a_topic_or_a_group_deletes_its_offsets() -> None:
    story = Story()
    story.commit(
        1, partitions=[PartitionCommit("orders", 1, 1), PartitionCommit("orders", 0, 1), PartitionCommit("other", 0, 1)]
    )
    story.commit(1, group="h", producer_id=9)
    assert story.offsets.readers("orders") == ["g", "h"] and story.offsets.readers("none") == []
    tombstones = [each for group in ("g", "h") for each in story.offsets.topic_deleted(group, "orders")]
    assert tombstones == [("g", "orders", 0), ("g", "orders", 1), ("h", "orders", 0)]
    assert story.offsets.delete_all("g") == [*tombstones[:2], ("g", "other", 0)]
    for tombstone in [*tombstones, *story.offsets.delete_all("g")]:
        story.apply(tombstone)
    assert len(story.offsets) == 0
    story.apply(TransactionEnded(9, committed=True))
    assert len(story.offsets) == 0 and list(story.offsets.groups()) == []


def test_replay_gives_the_same_offsets() -> None:
    story = Story()
    story.commit(1)
    story.commit(2, producer_id=1)
    story.commit(3, partition=1)
    story.apply(TransactionEnded(1, committed=True))
    again = OffsetManager(story.offsets.settings, story.classic.groups)
    for record in story.log:
        again.apply(record)
    assert again.fetch("g", None, require_stable=True) == story.offsets.fetch("g", None, require_stable=True)


def test_an_offset_takes_little_memory() -> None:
    found = memory_per_offset(10_000)
    print(f"{found:.0f} bytes per group offset")
    assert found <= 400


@killable  # its process has no threads of other tests, whose memory would count
def memory_per_offset(groups: int) -> float:
    """Groups that had members once: 10 partitions each, every string and number fresh, as they come from the wire."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        story = Story()
        for index in range(groups):
            name = f"group-{index:06}"
            story.classic.apply(ClassicGroupMetadata(name, "consumer", 3, None, None, WALL_MS + index, ()))
            for partition in range(10):
                topic = "".join(["orders-of-", "the-shop"])
                offset, committed_ms, topic_id = 10**6 + index, WALL_MS + index, bytes(bytearray(ID))
                story.offsets.apply(OffsetCommitted(name, topic, partition, offset, 5, "", committed_ms, -1, topic_id))
        del topic, name, offset, committed_ms, topic_id
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(story.offsets) == groups * 10
    return taken / (groups * 10)
