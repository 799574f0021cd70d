"""Offsets of transactions in the log of a group shard: batches of their producers, markers, and their replay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.callbacks import Completion
from kafkalite.coordinators.group.service import GroupService
from kafkalite.coordinators.runtime.partition_writer import TransactionOfRecords
from kafkalite.coordinators.runtime.shard import Command
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.records import Batch, batches
from kafkalite.records.control import ControlType, TransactionMarker, read_marker
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit, TopicFetch
from kafkalite.state.groups.records import OffsetCommitted, TransactionalOffset, TransactionEnded
from kafkalite.storage.log.log import Log
from tests.kit.logs import read_log
from tests.unit.coordinators.rig import Answered, Rig, commit, groups

ACCEPTED = CommitResult(errors=(0,))
PENDING = (-1, Error.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig[GroupMachine]]:
    rig = Rig(tmp_path, groups)
    rig.load()
    yield rig


def commit_in(rig: Rig[GroupMachine], producer_id: int, offset: int, epoch: int = 0, group: str = "g") -> object:
    """Commit an offset in a transaction; the result."""
    wanted = Commit(group, [PartitionCommit("t", 0, offset)], producer_id=producer_id)
    waiting = Answered()
    command: Command[GroupMachine] = lambda machine, token, now: machine.offsets.commit(wanted, token, now)  # noqa: E731
    GroupService(rig.runtime).commit_in_transaction(group, command, transaction_of(rig, producer_id, epoch), waiting)
    rig.replicas.write_pending()
    return waiting.received[0]


def transaction_of(rig: Rig[GroupMachine], producer_id: int, epoch: int = 0) -> TransactionOfRecords:
    """The transaction of a producer, whose coordinator has confirmed it."""
    log = opened(rig)
    if not log.transaction_error(producer_id, epoch):
        return TransactionOfRecords(producer_id, epoch)
    return TransactionOfRecords(producer_id, epoch, log.begin_verification(producer_id, epoch, -1, True))


def opened(rig: Rig[GroupMachine]) -> Log:
    if rig.partition.log is None:
        rig.partition.open(lambda error: None)
    assert rig.partition.log is not None
    return rig.partition.log


def end(rig: Rig[GroupMachine], producer_id: int, *, committed: bool, epoch: int = 0) -> object:
    """Write a marker; the result."""
    results: list[object] = []
    marker = TransactionMarker(producer_id, epoch, committed, coordinator_epoch=4)
    GroupService(rig.runtime).end_transaction(0, marker, Completion(results.append, results.append))
    rig.replicas.write_pending()
    return results[0]


def stable(group: str = "g") -> Command[GroupMachine]:
    """A query of the offset of partition 0, with the error of an offset that is not stable."""

    def command(machine: GroupMachine, token: Token, _now: Now) -> Effects:
        (found,) = machine.offsets.fetch(group, [TopicFetch("t", [0])], require_stable=True)
        effects = Effects()
        effects.answer(token, (found.offset, found.error))
        return effects

    return command


def log_of(rig: Rig[GroupMachine]) -> list[Batch]:
    regions = read_log(rig.log, 0, 1 << 20, rig.log.log_end_offset)
    assert isinstance(regions, list)
    return list(batches(b"".join(region.read() for region in regions)))


def test_commit_of_a_transaction_is_a_batch_of_its_producer(rig: Rig[GroupMachine]) -> None:
    assert commit_in(rig, 7, 5, epoch=3) == ACCEPTED
    (batch,) = log_of(rig)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, -1)
    assert batch.transactional and not batch.control
    assert rig.log.last_stable_offset(rig.partition.high_watermark) == 0
    assert rig.now(stable()) == PENDING


@pytest.mark.parametrize("committed", [True, False])
def test_marker_ends_pending_offsets_and_is_a_control_batch(rig: Rig[GroupMachine], committed: bool) -> None:
    commit_in(rig, 7, 5)
    assert end(rig, 7, committed=committed) == 0
    assert rig.now(stable()) == ((5, 0) if committed else (-1, 0))
    _, batch = log_of(rig)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.control) == (7, 0, -1, True)
    marker = read_marker(batch.records()[0])
    assert marker == (ControlType.COMMIT if committed else ControlType.ABORT, 4)
    assert rig.log.last_stable_offset(rig.partition.high_watermark) == rig.log.log_end_offset


@pytest.mark.parametrize("committed", [True, False])
def test_replay_has_the_same_offsets(rig: Rig[GroupMachine], committed: bool) -> None:
    rig.now(commit("g", 1))
    commit_in(rig, 7, 5)
    commit_in(rig, 8, 6)
    rig.restart()
    assert rig.now(stable()) == PENDING
    end(rig, 7, committed=committed)
    end(rig, 8, committed=False)
    rig.restart()
    assert rig.now(stable()) == ((5, 0) if committed else (1, 0))


def test_marker_is_in_one_step_with_the_records_around_it(rig: Rig[GroupMachine]) -> None:
    """One command with records of two transactions, a marker, and records of no transaction: a batch for each."""
    offset = OffsetCommitted("g", "t", 0, 5, -1, "", 1)
    ended = TransactionEnded(7, True, 0, 4)

    def command(_machine: GroupMachine, token: Token, _now: Now) -> Effects:
        other = TransactionalOffset(8, offset._replace(offset=6))
        effects = Effects(records=[offset, TransactionalOffset(7, offset), other, ended, offset._replace(partition=1)])
        effects.answer(token, None)
        return effects

    waiting = Answered()
    rig.runtime.submit(0, command, waiting, transaction=transaction_of(rig, 7))
    rig.replicas.write_pending()
    assert waiting.received == [None]
    assert [(each.producer_id, each.control) for each in log_of(rig)] == [
        (-1, False), (7, False), (8, False), (7, True), (-1, False),
    ]  # fmt: skip


def test_marker_without_pending_offsets_changes_nothing(rig: Rig[GroupMachine]) -> None:
    rig.now(commit("g", 1))
    commit_in(rig, 7, 5)
    assert end(rig, 9, committed=True) == 0
    assert rig.now(stable()) == PENDING


def test_marker_for_a_shard_elsewhere_fails(rig: Rig[GroupMachine]) -> None:
    rig.runtime.resigned(0)
    assert end(rig, 7, committed=True) == Error.NOT_COORDINATOR


def test_failed_marker_keeps_pending_offsets(rig: Rig[GroupMachine]) -> None:
    commit_in(rig, 7, 5)
    rig.disk.fail("write", 5)
    assert end(rig, 7, committed=False) == Error.NOT_COORDINATOR
    rig.recover()
    assert rig.now(stable()) == PENDING
    assert end(rig, 7, committed=True) == 0
    assert rig.now(stable()) == (5, 0)


def test_commit_behind_a_marker_that_waits_opens_no_transaction(rig: Rig[GroupMachine]) -> None:
    """While appends wait, the log still has the transaction that a marker among them ends."""
    commit_in(rig, 7, 5)
    rig.partition.pause(lambda: None)
    ended, late = Answered(), Answered()
    GroupService(rig.runtime).end_transaction(0, TransactionMarker(7, 0, True, 4), ended)
    command: Command[GroupMachine] = committing(Commit("g", [PartitionCommit("t", 0, 9)], producer_id=7))
    GroupService(rig.runtime).commit_in_transaction("g", command, transaction_of(rig, 7), late)
    rig.partition.resume()
    assert ended.received == late.received == [Error.COORDINATOR_LOAD_IN_PROGRESS]
    assert end(rig, 7, committed=True) == 0
    assert rig.log.producers.open_transactions() == []
    assert rig.now(stable()) == (5, 0)


@pytest.mark.parametrize(("epoch", "error"), [(0, Error.INVALID_PRODUCER_EPOCH), (1, Error.INVALID_TXN_STATE)])
def test_rejected_commit_fails_alone(rig: Rig[GroupMachine], epoch: int, error: int) -> None:
    """The marker of an epoch ends the transaction; the shard keeps its machine."""
    commit_in(rig, 7, 5)
    old = transaction_of(rig, 7)
    end(rig, 7, committed=True, epoch=1)
    machine, late = rig.runtime.machine(0), Answered()
    command: Command[GroupMachine] = committing(Commit("g", [PartitionCommit("t", 0, 9)], producer_id=7))
    GroupService(rig.runtime).commit_in_transaction("g", command, old._replace(epoch=epoch), late)
    assert late.received == [error]
    assert rig.runtime.machine(0) is machine
    assert rig.now(stable()) == (5, 0)


def committing(wanted: Commit) -> Command[GroupMachine]:
    return lambda machine, token, now: machine.offsets.commit(wanted, token, now)
