"""Random histories keep the invariants of transactions, and planted bugs violate one of them.

Each history prints its seed; `KAFKALITE_SEED=n` repeats it alone.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.state.effects import Effects, Now, answer_only
from kafkalite.state.transactions import actions, machine
from kafkalite.state.transactions.machine import TransactionMachine
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.requests import ProducerId
from kafkalite.state.transactions.states import EpochRelation, TransactionEvent, TransactionState, TransactionVersion
from kafkalite.state.transactions.step import TransactionRow
from kafkalite.state.transactions.table import TABLE
from tests.kit.seeds import seeds_of
from tests.unit.state.transactions import history
from tests.unit.state.transactions.history import History

State = TransactionState
TV1, TV2 = TransactionVersion
HISTORIES, STEPS = 60, 400
BUG_SEEDS = range(1, 201)
Bug = Callable[[pytest.MonkeyPatch], None]


def run(seed: int) -> None:
    try:
        History(seed).run(STEPS)
    except BaseException:
        print(f"KAFKALITE_SEED={seed}")
        raise


def test_random_histories_keep_the_invariants() -> None:
    for seed in seeds_of(HISTORIES):
        run(seed)


@pytest.mark.torture
@pytest.mark.long_form
def test_many_random_histories_keep_the_invariants() -> None:
    for seed in seeds_of(5_000):
        run(seed)


def repeated_end_ends_the_next_transaction(patch: pytest.MonkeyPatch) -> None:
    """A retry of EndTxn is carried out in the transaction that has begun meanwhile."""
    for event, action in ((TransactionEvent.COMMIT, actions.commit), (TransactionEvent.ABORT, actions.abort)):
        patch.setitem(TABLE, (State.ONGOING, event, EpochRelation.PREVIOUS, TV2), TransactionRow(0, action, "bug"))


def timers_lost_at_loading(patch: pytest.MonkeyPatch) -> None:
    """An open transaction has no timeout after a failover."""
    replace_rearm(patch, State.ONGOING)


def markers_lost_at_loading(patch: pytest.MonkeyPatch) -> None:
    """A prepared transaction is not completed after a failover."""
    replace_rearm(patch, State.PREPARE_ABORT)


def replace_rearm(patch: pytest.MonkeyPatch, forgotten: TransactionState) -> None:
    right = machine.rearm

    def rearm(metadata: TransactionMetadata, now: Now) -> Effects:
        return Effects() if metadata.state is forgotten else right(metadata, now)

    patch.setattr(machine, "rearm", rearm)


def next_id_lost_at_failover(patch: pytest.MonkeyPatch) -> None:
    """The record does not store the next producer id (KAFKA-20310)."""
    forget(patch, next_producer_id=-1)


def previous_id_lost_at_failover(patch: pytest.MonkeyPatch) -> None:
    """The record does not store the previous producer id (KAFKA-20310)."""
    forget(patch, previous_producer_id=-1)


def forget(patch: pytest.MonkeyPatch, **lost: int) -> None:
    right = history.stored
    values: Any = lost
    replayed = TransactionMachine.apply

    def replay(self: History) -> TransactionMachine:
        new = TransactionMachine(history.SETTINGS, lambda: self.level)
        for record in self.log:
            found = right(record)
            replayed(new, found._replace(**values) if isinstance(found, TransactionMetadata) else found)
        return new

    patch.setattr(History, "replay", replay)


def unknown_transaction_is_answered_as_aborted(patch: pytest.MonkeyPatch) -> None:
    """EndTxn for an unknown transactional id succeeds."""
    right = TransactionMachine.end_transaction

    def end(self: TransactionMachine, request: Any, token: Any, now: Now) -> Effects:
        known = request.transactional_id in self.transactions or request.commit
        return right(self, request, token, now) if known else answer_only(token, ProducerId(0))

    patch.setattr(TransactionMachine, "end_transaction", end)


def markers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Markers leave at the append of the decision."""
    right = History.do

    def do(self: History, effects: Effects) -> None:
        early = [each for each in effects.answers if each.token is history.ENVIRONMENT]
        effects.answers = [each for each in effects.answers if each.token is not history.ENVIRONMENT]
        right(self, effects)
        self._answer(early)

    patch.setattr(History, "do", do)


def fence_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A timeout, or the InitProducerId of another producer, aborts without a new epoch."""

    def fence(step: Any) -> None:
        actions.fence(step)
        if step.effects.records:
            step.effects.records[-1] = step.effects.records[-1]._replace(producer_epoch=step.metadata.producer_epoch)

    replace_action(patch, actions.fence, fence)


def open_transaction_expires(patch: pytest.MonkeyPatch) -> None:
    """The expiry removes an id whose transaction is prepared."""
    for state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT):
        for version in (TV1, TV2):
            key = state, TransactionEvent.EXPIRED, EpochRelation.NOT_GIVEN, version
            patch.setitem(TABLE, key, TransactionRow(0, actions.expire, "bug"))
    patch.setattr(history, "SETTINGS", history.SETTINGS._replace(expiration_ms=5_000, expiry_interval_ms=5_000))


def repeated_session_increments_again(patch: pytest.MonkeyPatch) -> None:
    """A retry of InitProducerId (KIP-360) begins another session."""
    replace_action(patch, actions.repeat_session, actions.start_session)


def epoch_overflows(patch: pytest.MonkeyPatch) -> None:
    """There is no next producer id at epoch 32766."""
    patch.setattr(TransactionMetadata, "is_exhausted", property(lambda _self: False))


def aborted_instead_of_committed(patch: pytest.MonkeyPatch) -> None:
    """The completion after a failover forgets the outcome."""
    right = actions.markers_of
    patch.setattr(actions, "markers_of", lambda prepared: right(prepared)._replace(commit=False))


def replace_action(patch: pytest.MonkeyPatch, action: Any, replacement: Any) -> None:
    for key, row in TABLE.items():
        if row.action is action:
            patch.setitem(TABLE, key, row._replace(action=replacement))


@pytest.mark.parametrize(
    "bug",
    [
        repeated_end_ends_the_next_transaction,
        timers_lost_at_loading,
        markers_lost_at_loading,
        next_id_lost_at_failover,
        previous_id_lost_at_failover,
        unknown_transaction_is_answered_as_aborted,
        markers_before_the_commit,
        fence_keeps_the_epoch,
        open_transaction_expires,
        repeated_session_increments_again,
        epoch_overflows,
        aborted_instead_of_committed,
    ],
)
def test_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in BUG_SEEDS:
        try:
            History(seed).run(STEPS)
        except (AssertionError, KeyError) as error:
            print(f"{bug.__name__}: seed {seed}: {error}".splitlines()[0])
            return
    pytest.fail(f"{bug.__name__} was not detected in {len(BUG_SEEDS)} histories")
