"""Commits in one piece on their way through a shard: in order, in the log as Kafka writes them, all or nothing."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.cluster.partition.reads import read
from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.records import batches
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit
from kafkalite.state.groups.records import OffsetCommitted
from tests.kit.packed import Partition, in_one_piece
from tests.kit.packed import read as read_request
from tests.unit.coordinators.rig import COMPACTED, NOT_HERE, Command, Rig, commit, groups, offsets_of

TOPIC_ID = b"0123456789abcdef"


def packed(group: str, offset: int, partitions: int = 1, metadata: str = "") -> Command[GroupMachine]:
    parts = [PartitionCommit("t", index, offset, -1, metadata, TOPIC_ID) for index in range(partitions)]
    wanted = in_one_piece(Commit(group, parts))
    return lambda machine, token, now: machine.offsets.commit(wanted, token, now)


def rewind(group: str, offset: int) -> Command[GroupMachine]:
    def command(machine: GroupMachine, token: Token, now: Now) -> Effects:
        return machine.rewind(group, [PartitionCommit("t", 0, offset)], token, now)

    return command


def written(rig: Rig[GroupMachine]) -> list[list[OffsetCommitted]]:
    """What is in the log, batch by batch."""
    found = read(rig.partition, 0, 1 << 20, committed_only=False)
    log = b"".join(region.read() for region in found.regions)
    decoded = [[GroupRecordSerde().decode(each.key or b"", each.value) for each in batch] for batch in batches(log)]
    return [[each for each in batch if isinstance(each, OffsetCommitted)] for batch in decoded]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig[GroupMachine]]:
    rig = Rig(tmp_path, groups)
    rig.load()
    yield rig


def test_commit_is_one_batch_with_one_record_per_partition(rig: Rig[GroupMachine]) -> None:
    assert rig.now(packed("g", 5, 3, "note")) == CommitResult(errors=(0, 0, 0))
    now_ms = rig.clock.wall_ms()
    assert written(rig) == [[OffsetCommitted("g", "t", at, 5, -1, "note", now_ms, -1, TOPIC_ID) for at in range(3)]]
    rig.restart()
    assert rig.now(offsets_of("g")) == {("t", at): 5 for at in range(3)}


def test_commit_of_a_topic_without_partitions_stores_nothing(rig: Rig[GroupMachine]) -> None:
    """Else the group would be there for ever, after its last offset."""
    topics = [topic_of("t", 0), topic_of("empty")]
    found = read_request(OffsetCommitRequest(group_id="g", member_id="", topics=topics))
    assert found is not None
    assert found.offsets.locate(0, "t", TOPIC_ID, 1) and found.offsets.locate(1, "empty", TOPIC_ID, 1)
    wanted = Commit("g", packed=found.offsets)
    assert rig.now(lambda machine, token, now: machine.offsets.commit(wanted, token, now)) == CommitResult(errors=(0,))
    machine = rig.runtime.machine(0)
    assert machine is not None and list(machine.offsets.groups()) == ["g"]
    rig.now(lambda machine, token, _now: machine.offsets.delete("g", [("t", 0)], token))
    assert list(machine.offsets.groups()) == []


def topic_of(name: str, *partitions: int) -> OffsetCommitRequest.OffsetCommitRequestTopic:
    parts = [Partition(partition_index=index, committed_offset=5) for index in partitions]
    return OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=parts)


def test_commits_of_one_loop_iteration_keep_their_order(rig: Rig[GroupMachine]) -> None:
    """Whatever stands between them, and each sees what came before it."""
    steps = [packed("g", 5), offsets_of("g"), rewind("g", 2), offsets_of("g"), commit("g", 7), packed("g", 9)]
    waiting = [rig.do(step) for step in [*steps, offsets_of("g")]]
    assert not any(each.received for each in waiting) and rig.log.log_end_offset == 0
    rig.replicas.write_pending()
    taken = CommitResult(errors=(0,))
    assert [each.received[0] for each in waiting] == [
        taken, {("t", 0): 5}, taken, {("t", 0): 2}, taken, taken, {("t", 0): 9}
    ]  # fmt: skip
    assert [[record.offset for record in batch] for batch in written(rig)] == [[5], [2], [7], [9]]
    rig.restart()
    assert rig.now(offsets_of("g")) == {("t", 0): 9}


def test_failed_write_fails_all_commits_of_the_loop_iteration(rig: Rig[GroupMachine]) -> None:
    assert rig.now(packed("g", 5)) == CommitResult(errors=(0,))
    rig.disk.fail("write", errno.ENOSPC, path=".log")
    failed = [rig.do(packed("g", 6)), rig.do(packed("h", 1, 3)), rig.do(offsets_of("g"))]
    rig.replicas.write_pending()
    assert [each.received for each in failed] == [[NOT_HERE]] * 3
    rig.work()
    assert rig.now(offsets_of("g")) == {("t", 0): 5} and rig.now(offsets_of("h")) == {}
    assert len(written(rig)) == 1


def test_written_commit_without_response_is_restored(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, config=replace(COMPACTED, flush_messages=1))
    rig.load()
    rig.sync_jobs.held = True
    waiting = rig.do(packed("g", 5, 2))
    rig.replicas.write_pending()
    assert not waiting.received and written(rig) == [] and rig.log.log_end_offset == 2
    rig.sync_jobs.release()
    rig.work()
    rig.restart()
    assert rig.now(offsets_of("g")) == {("t", 0): 5, ("t", 1): 5}


def test_commit_larger_than_a_batch_is_split(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, config=replace(COMPACTED, max_message_bytes=1_000))
    rig.load()
    assert rig.now(packed("g", 5, 40, "x" * 50)) == CommitResult(errors=(0,) * 40)
    cut = written(rig)
    assert len(cut) > 4 and [record.partition for batch in cut for record in batch] == list(range(40))
    rig.restart()
    assert rig.now(offsets_of("g")) == {("t", at): 5 for at in range(40)}


def test_rejected_partitions_do_not_affect_the_others(rig: Rig[GroupMachine]) -> None:
    """The limit of metadata is 4,096 characters."""
    parts = [PartitionCommit("t", 0, 5, metadata="x" * 4_097), PartitionCommit("t", 1, 6)]
    wanted = in_one_piece(Commit("g", parts))
    done = rig.now(lambda machine, token, now: machine.offsets.commit(wanted, token, now))
    assert done == CommitResult(errors=(12, 0))
    assert rig.now(offsets_of("g")) == {("t", 1): 6}
