"""Planted bugs of transactions are found. Each bug is paired with what finds it first: a test, or a seed.

In the long form, the runs under random faults are searched for each of them, up to 200 seeds. The bugs of the machine
alone are in `tests/unit/state/transactions`, those of the log in `tests/unit/storage`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.partition import partition as partitions
from kafkalite.errors import KafkaError
from kafkalite.server.handlers import txn_offset_commit
from kafkalite.state.effects import Effects, Now
from kafkalite.state.groups.offsets.pending import PendingOffsets
from kafkalite.state.transactions import actions, machine
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.states import EpochRelation, TransactionEvent, TransactionState, TransactionVersion
from kafkalite.testing.virtual_loop import VirtualTimeError
from tests.kit.transactions.states import Case
from tests.story.transactions.scenario import run_seed
from tests.story.transactions.test_late_requests import Kind, anomalies_of, end_txn
from tests.story.transactions.test_states import run_cases
from tests.unit.coordinators.runtime import test_requests_after_commit as after_commit

Run = Callable[[Path], object]
Bug = Callable[[pytest.MonkeyPatch], None]
FOUND = AssertionError, KafkaError, VirtualTimeError
BUG_SEEDS = range(1, 201)
TIMES = 5
DOWN_S = 3.0


def markers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Markers leave when the decision is appended."""
    patch.setattr(Effects, "ask_after_commit", lambda self, request: self.questions.append(request))


def retried_end_ends_the_next_transaction(patch: pytest.MonkeyPatch) -> None:
    """EndTxn with the previous epoch ends the open transaction (KAFKA-17754)."""
    for event, action in ((TransactionEvent.COMMIT, actions.commit), (TransactionEvent.ABORT, actions.abort)):
        key = TransactionState.ONGOING, event, EpochRelation.PREVIOUS, TransactionVersion.TV2
        patch.setitem(machine.TABLE, key, machine.TABLE[key]._replace(error=0, action=action))


def timers_lost_at_loading(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not continue the timeouts of open transactions."""
    rearm = machine.rearm

    def prepared_only(metadata: TransactionMetadata, now: Now) -> Effects:
        return Effects() if metadata.state is TransactionState.ONGOING else rearm(metadata, now)

    patch.setattr(machine, "rearm", prepared_only)


def prepared_transactions_lost_at_loading(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not send the markers of decided transactions."""
    rearm = machine.rearm

    def open_only(metadata: TransactionMetadata, now: Now) -> Effects:
        return rearm(metadata, now) if metadata.state is TransactionState.ONGOING else Effects()

    patch.setattr(machine, "rearm", open_only)


def pending_offset_kept_at_abort(patch: pytest.MonkeyPatch) -> None:
    """An abort leaves the pending offsets of the transaction."""
    end = PendingOffsets.end

    def committed_only(self: PendingOffsets, producer_id: int, *, materialise: bool) -> Any:
        return end(self, producer_id, materialise=True) if materialise else []

    patch.setattr(PendingOffsets, "end", committed_only)


def pending_offset_committed_at_abort(patch: pytest.MonkeyPatch) -> None:
    """An abort commits the pending offsets of the transaction."""
    end = PendingOffsets.end
    patch.setattr(
        PendingOffsets, "end", lambda self, producer_id, *, materialise: end(self, producer_id, materialise=True)
    )


def zombie_commits_offsets(patch: pytest.MonkeyPatch) -> None:
    """TxnOffsetCommit does not ask the coordinator of the transaction."""

    def unverified(self: txn_offset_commit.TransactionalCommit, _index: int, log: Any) -> None:
        producer_id, epoch = self._request.producer_id, self._request.producer_epoch
        verification = None
        if log.transaction_error(producer_id, epoch):
            verification = log.begin_verification(producer_id, epoch, -1, False)
        self._commit(txn_offset_commit.TransactionOfRecords(producer_id, epoch, verification))

    patch.setattr(txn_offset_commit.TransactionalCommit, "_verify", unverified)


def partition_is_not_added(patch: pytest.MonkeyPatch) -> None:
    """A batch of TV2 opens a transaction that its coordinator does not know."""
    patch.setattr(partitions, "append_to_log", _verified(partitions.append_to_log))


def _verified(append_to_log: Any) -> Any:
    def append(append: Any, validation: Any, log: Any, leadership: Any, verification: Any = None) -> Any:
        found = append_to_log(append, validation, log, leadership, verification)
        if found is not None:
            return found
        fields = int.from_bytes(append.batch[43:51], "big"), int.from_bytes(append.batch[51:53], "big"), 0, False
        return append_to_log(append, validation, log, leadership, log.begin_verification(*fields))

    return append


def no_anomalies(kind: Kind, path: Path) -> None:
    """Late requests of TV2 have no effect."""
    assert anomalies_of(path, 2, kind, TIMES) == []


def one_case(case: Case, path: Path) -> None:
    """A transaction ends when a process ends."""
    run_cases(path, [(case, DOWN_S)])


def one_seed(seed: int, path: Path) -> None:
    """A run under random faults."""
    run_seed(path, seed)


def one_request(path: Path) -> None:
    """A request of a machine leaves when its records are committed."""
    after_commit.test_request_leaves_after_the_commit_in_the_order_of_the_answers(after_commit.loaded(path))


BUGS: list[tuple[Bug, Run]] = [
    (markers_before_the_commit, one_request),
    (retried_end_ends_the_next_transaction, partial(no_anomalies, end_txn)),
    (timers_lost_at_loading, partial(one_case, Case("Ongoing", "coordinator", "kill"))),
    (prepared_transactions_lost_at_loading, partial(one_case, Case("PrepareCommit", "coordinator", "kill"))),
    (pending_offset_kept_at_abort, partial(one_case, Case("CompleteAbort", "client", "kill"))),
    (pending_offset_committed_at_abort, partial(one_seed, 6)),
    (zombie_commits_offsets, partial(one_seed, 5)),
]
RANDOM: list[Bug] = [*(bug for bug, _ in BUGS), partition_is_not_added]


@pytest.mark.parametrize(("bug", "run"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
def test_planted_bug_is_found(bug: Bug, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bug(monkeypatch)
    with pytest.raises(FOUND) as found:
        run(tmp_path)
    print(f"{bug.__name__}: {found.value}".splitlines()[0])


@pytest.mark.torture
@pytest.mark.long_form
@pytest.mark.parametrize("bug", RANDOM, ids=lambda bug: bug.__name__)
def test_random_faults_find_a_planted_bug(bug: Bug, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bug(monkeypatch)
    for seed in BUG_SEEDS:
        try:
            run_seed(tmp_path, seed)
        except FOUND as error:
            print(f"{bug.__name__}: seed {seed}: {error}".splitlines()[0])
            return
    raise AssertionError(f"{bug.__name__} was not found in {len(BUG_SEEDS)} runs")
