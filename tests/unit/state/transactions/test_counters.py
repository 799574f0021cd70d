"""The counters of ended transactions: decisions by cause, and the time to completion."""

import pytest

from kafkalite.state.transactions.counters import TransactionCounters
from kafkalite.state.transactions.requests import InitProducerId
from kafkalite.state.transactions.states import TransactionEvent as Event
from kafkalite.state.transactions.states import TransactionState as State
from tests.unit.state.transactions.test_table import NOW, TV2, machine_in, run


@pytest.mark.parametrize(
    ("event", "counter"),
    [(Event.COMMIT, "committed"), (Event.ABORT, "aborted_by_client"), (Event.TIMEOUT, "aborted_by_timeout")],
)
def test_decisions_are_counted_by_cause(event: Event, counter: str) -> None:
    machine = machine_in(State.ONGOING, epoch=3)
    machine.counters = TransactionCounters()
    run(machine, event, (7, 3), TV2)
    counters = machine.counters
    assert {name: getattr(counters, name) for name in counters.__slots__ if getattr(counters, name)} == {counter: 1}


def test_abort_by_a_new_producer_is_counted_once() -> None:
    machine = machine_in(State.ONGOING, epoch=3)
    for _ in range(2):
        effects = machine.init_producer_id(InitProducerId("t", 60_000), "token", NOW)
        for record in effects.records:
            machine.apply(record)
    assert (machine.counters.aborted_by_fence, machine.counters.aborted_by_client) == (1, 0)


def test_time_from_decision_to_markers_is_counted() -> None:
    machine = machine_in(State.ONGOING, epoch=3)
    run(machine, Event.COMMIT, (7, 3), TV2)
    later = NOW._replace(wall_ms=NOW.wall_ms + 40)
    for now in (later, later):
        effects = machine.markers_written("t", 7, 4, now)
        for record in effects.records:
            machine.apply(record)
    counters = machine.counters
    assert (counters.completed, counters.completion_ms, counters.completion_ms_max) == (1, 40, 40)
