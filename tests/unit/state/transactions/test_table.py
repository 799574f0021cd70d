"""Each row of the table of transactions: the error, or the state, id and epoch that follow."""

import gc
import resource
import time
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.effects import ENVIRONMENT, Effects, Now
from kafkalite.state.transactions import actions
from kafkalite.state.transactions.machine import STEP_IDS, TransactionMachine
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.partitions import TransactionPartitions
from kafkalite.state.transactions.requests import (
    AddPartitions,
    AllocateProducerId,
    EndTransaction,
    InitProducerId,
    ProducerId,
    VerifyPartitions,
)
from kafkalite.state.transactions.states import EpochRelation, TransactionState, TransactionVersion
from kafkalite.state.transactions.states import TransactionEvent as Event
from kafkalite.state.transactions.table import RULES, TABLE, expand_rules

State = TransactionState
SERDE = TransactionRecordSerde()
TV1, TV2 = TransactionVersion
PARTITION = TopicPartition("flights", 0)
NOW = Now(1_000, 1_000_000)
GIVEN = {
    EpochRelation.NOT_GIVEN: (-1, -1),
    EpochRelation.CURRENT: (7, 0),
    EpochRelation.NEWER: (7, 1),
    EpochRelation.PREVIOUS_ID: (6, 32766),
    EpochRelation.OTHER_ID: (5, 0),
}
CLIENT = (Event.INIT, Event.ADD, Event.VERIFY, Event.COMMIT, Event.ABORT)


def answers_of(effects: Effects) -> list[object]:
    return [answer.result for answer in effects.answers if answer.token is not ENVIRONMENT]


def asked_after_commit(effects: Effects) -> list[object]:
    return [answer.result for answer in effects.answers if answer.token is ENVIRONMENT]


def machine_in(state: TransactionState, epoch: int = 0, version: TransactionVersion = TV2) -> TransactionMachine:
    """A machine with the id `t` in a state, after an overflow if its epoch is 0."""
    machine = TransactionMachine(level=lambda: version)
    is_open = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    partitions = TransactionPartitions.of([PARTITION] if is_open else [])
    metadata = TransactionMetadata("t", 7, epoch, 60_000, 900_000, state, partitions, 990_000, 6)
    last = epoch - 1 if epoch else 32766
    machine.apply(metadata._replace(last_producer_epoch=last, version=version if version is TV2 else 0))
    return machine


def run(machine: TransactionMachine, event: Event, producer: tuple[int, int], version: TransactionVersion) -> Effects:
    """Run one event and apply its records."""
    effects = effects_of(machine, event, producer, version)
    for record in effects.records:
        machine.apply(record)
    return effects


def effects_of(machine: TransactionMachine, event: Event, at: tuple[int, int], version: TransactionVersion) -> Effects:
    if event is Event.INIT:
        return machine.init_producer_id(InitProducerId("t", 60_000, *at), "token", NOW)
    if event is Event.ADD:
        return machine.add_partitions(AddPartitions("t", *at, frozenset({PARTITION}), version), "token", NOW)
    if event is Event.VERIFY:
        return machine.verify_partitions(VerifyPartitions("t", *at, frozenset({PARTITION})), "token", NOW)
    if event is Event.MARKERS_WRITTEN:
        return machine.markers_written("t", *at, NOW)
    if event is Event.TIMEOUT:
        return machine.fire_timer(("transaction", "t"), NOW)
    if event is Event.EXPIRED:
        return machine.fire_timer(("expiry",), Now(1_000, 10**12))
    return machine.end_transaction(EndTransaction("t", *at, event is Event.COMMIT, version), "token", NOW)


def error_of(effects: Effects) -> int:
    result: Any = answers_of(effects)[0]
    if isinstance(result, ProducerId):
        return result.error
    return max(result.values()) if isinstance(result, dict) else int(result)


def test_the_table_has_every_combination() -> None:
    given = set(EpochRelation) - {EpochRelation.NOT_GIVEN}
    none = {EpochRelation.NOT_GIVEN}
    relations = {Event.INIT: none | given, Event.TIMEOUT: none, Event.EXPIRED: none}
    expected = {
        key for event in Event for key in product(State, [event], relations.get(event, given), TransactionVersion)
    }
    assert set(TABLE) == expected


def test_each_row_names_its_source() -> None:
    assert all(row.source for row in TABLE.values())
    assert all((row.action is None) == bool(row.error) for row in TABLE.values())


def test_two_rules_for_a_combination_are_refused() -> None:
    with pytest.raises(ValueError, match="two rules"):
        expand_rules(RULES + RULES[:1])


@pytest.mark.parametrize("key", list(TABLE), ids=str)
def test_row(key: tuple[State, Event, EpochRelation, TransactionVersion]) -> None:
    state, event, relation, version = key
    epoch = 0 if relation in (EpochRelation.PREVIOUS_ID, EpochRelation.NEWER) else 10
    producer = GIVEN.get(relation, (7, 9 if relation is EpochRelation.PREVIOUS else 3))
    if relation is EpochRelation.CURRENT:
        producer = (7, 10)
    row = TABLE[key]
    machine = machine_in(state, epoch, version)
    effects = run(machine, event, producer, version)
    if row.error:
        assert not effects.records
        assert error_of(effects) == row.error
        return
    expected: dict[object, tuple[State | None, int]] = {
        actions.fence: (State.PREPARE_ABORT, epoch + 1),
        actions.start_session: (State.EMPTY, epoch + 1),
        actions.repeat_session: (State.EMPTY, epoch),
        actions.begin: (State.ONGOING, epoch),
        actions.commit: (State.PREPARE_COMMIT, epoch + (version is TV2)),
        actions.abort: (State.PREPARE_ABORT, epoch + (version is TV2)),
        actions.complete: (State(state + 2), epoch) if state < State.COMPLETE_COMMIT else (None, 0),
        actions.expire: (None, 0),
    }
    after = machine.transactions.get("t")
    want = expected.get(row.action, (state, epoch))
    assert (after and (after.state, after.producer_epoch)) == (want if want[0] is not None else None)
    assert bool(asked_after_commit(effects)) == (row.action in (actions.fence, actions.commit, actions.abort))
    assert len(answers_of(effects)) == (event in CLIENT)


def test_a_fence_is_answered_with_concurrent_transactions_and_the_retry_increments_once() -> None:
    machine = machine_in(State.ONGOING, 10)
    assert error_of(run(machine, Event.INIT, (-1, -1), TV2)) == Error.CONCURRENT_TRANSACTIONS
    assert error_of(run(machine, Event.INIT, (-1, -1), TV2)) == Error.CONCURRENT_TRANSACTIONS
    run(machine, Event.MARKERS_WRITTEN, (7, 11), TV2)
    assert answers_of(run(machine, Event.INIT, (-1, -1), TV2))[0] == ProducerId(Error.NONE, 7, 12)


@pytest.mark.parametrize("event", [Event.COMMIT, Event.ABORT, Event.INIT, Event.TIMEOUT], ids=str)
def test_an_overflow_leads_to_a_new_producer_id(event: Event) -> None:
    """The same sequence as shouldRotateProducerIdWhenInitPidFencesOngoingTxnAtEpochOverflowBoundaryTV2."""
    machine = machine_in(State.ONGOING, 32766)
    effects = run(machine, event, (7, 32766), TV2)
    assert effects.questions == [AllocateProducerId("t")]
    assert not effects.records
    assert error_of(effects_of(machine, Event.ADD, (7, 32766), TV2)) == Error.CONCURRENT_TRANSACTIONS
    effects = machine.producer_id_allocated("t", 8, NOW)
    machine.apply(effects.records[0])
    prepared = machine.transactions["t"]
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, 32767, 8)
    run(machine, Event.MARKERS_WRITTEN, (7, 32767), TV2)
    done = machine.transactions["t"]
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id, done.next_producer_id) == (8, 0, 7, -1)
    retried = Event.COMMIT if event is Event.COMMIT else Event.ABORT
    assert answers_of(run(machine, retried, (7, 32766), TV2))[0] == ProducerId(Error.NONE, 8, 0)
    assert answers_of(run(machine, Event.INIT, (7, 32766), TV2))[0] == ProducerId(Error.NONE, 8, 0)


@pytest.mark.parametrize("version", [TV1, TV2], ids=str)
def test_a_stored_epoch_32767_is_repaired(version: TransactionVersion) -> None:
    """KAFKA-20090: the markers repeat the epoch, with TV1; then the producer id is new."""
    machine = machine_in(State.ONGOING, 32767, version)
    effects = run(machine, Event.TIMEOUT, (-1, -1), version)
    if version is TV2:
        effects = machine.producer_id_allocated("t", 8, NOW)
        machine.apply(effects.records[0])
    markers: Any = asked_after_commit(effects)[0]
    assert markers.version is TV1
    run(machine, Event.MARKERS_WRITTEN, (7, 32767), version)
    if version is TV1:
        run(machine, Event.INIT, (-1, -1), version)
        machine.apply(machine.producer_id_allocated("t", 8, NOW).records[0])
    assert (machine.transactions["t"].producer_id, machine.transactions["t"].producer_epoch) == (8, 0)


def test_a_failed_allocation_fails_the_request_and_repeats_a_timeout() -> None:
    machine = machine_in(State.ONGOING, 32766)
    run(machine, Event.COMMIT, (7, 32766), TV2)
    assert error_of(machine.producer_id_failed("t", Error.COORDINATOR_NOT_AVAILABLE, NOW)) == 15
    run(machine, Event.TIMEOUT, (-1, -1), TV2)
    assert machine.producer_id_failed("t", Error.COORDINATOR_NOT_AVAILABLE, NOW).timers[0].name == ("transaction", "t")


def test_loading_continues_the_timeout_and_the_markers() -> None:
    ongoing, prepared = machine_in(State.ONGOING), machine_in(State.PREPARE_COMMIT)
    timers: list[Any] = [timer for effects in ongoing.start_timers(NOW) for timer in effects.timers]
    assert timers[-1].at_ms == NOW.ms + 50_000
    assert [each for effects in prepared.start_timers(NOW) for each in asked_after_commit(effects)]


@pytest.mark.parametrize("version", [TV1, TV2], ids=str)
@pytest.mark.parametrize("event", [Event.ADD, Event.VERIFY, Event.COMMIT, Event.ABORT, Event.INIT], ids=str)
def test_requests_while_a_producer_id_is_awaited(event: Event, version: TransactionVersion) -> None:
    """What is compared before the pending transition: TransactionCoordinator.scala, KAFKA-18464."""
    machine = machine_in(State.ONGOING, 32766, version)
    machine.end_transaction(EndTransaction("t", 7, 32766, True, TV2), "token", NOW)
    is_end = event in (Event.COMMIT, Event.ABORT)
    concurrent = event in (Event.INIT, Event.ADD) or (is_end and version is TV2)
    other_id = error_of(effects_of(machine, event, (5, 32766), version))
    assert other_id == (Error.CONCURRENT_TRANSACTIONS if concurrent else Error.INVALID_PRODUCER_ID_MAPPING)
    older = error_of(effects_of(machine, event, (7, 3), version))
    assert older == (Error.CONCURRENT_TRANSACTIONS if concurrent else Error.PRODUCER_FENCED)
    current = error_of(effects_of(machine, event, (7, 32766), version))
    assert current == (Error.NONE if event is Event.VERIFY else Error.CONCURRENT_TRANSACTIONS)


def test_a_request_of_an_unknown_id_is_answered_while_the_id_is_created() -> None:
    machine = TransactionMachine()
    assert run(machine, Event.INIT, (-1, -1), TV2).questions == [AllocateProducerId("t")]
    assert error_of(run(machine, Event.INIT, (-1, -1), TV2)) == Error.CONCURRENT_TRANSACTIONS
    for event in (Event.ADD, Event.VERIFY, Event.COMMIT, Event.ABORT):
        assert error_of(run(machine, event, (7, 0), TV2)) == Error.INVALID_PRODUCER_ID_MAPPING


def test_the_next_producer_id_may_be_used_before_the_markers_are_written() -> None:
    """After an overflow the client has the next id, while the record still has the old one: the client waits."""
    machine = machine_in(State.ONGOING, 32766)
    machine.end_transaction(EndTransaction("t", 7, 32766, True, TV2), "token", NOW)
    effects = machine.producer_id_allocated("t", 8, NOW)
    machine.apply(effects.records[0])
    assert answers_of(effects) == [ProducerId(Error.NONE, 8, 0)]
    for event in (Event.ADD, Event.COMMIT, Event.ABORT, Event.INIT):
        assert error_of(run(machine, event, (8, 0), TV2)) == Error.CONCURRENT_TRANSACTIONS
    run(machine, Event.MARKERS_WRITTEN, (7, 32767), TV2)
    assert error_of(run(machine, Event.ADD, (8, 0), TV2)) == Error.NONE


def expired_ids(machine: TransactionMachine, now: Now) -> list[list[Any]]:
    """The tombstones of each batch of one run of the expiry."""
    batches: list[list[Any]] = []
    while True:
        effects = machine.fire_timer(("expiry",), now)
        batches.append(effects.records)
        for record in effects.records:
            machine.apply(record)
        timer: Any = effects.timers[-1]
        if timer.at_ms > now.ms:
            return batches


def test_the_expiry_checks_a_bounded_number_of_ids_at_a_time() -> None:
    machine = TransactionMachine()
    for number in range(2_500):
        updated_ms = 0 if number % 2 else 10**12
        machine.apply(TransactionMetadata(f"t-{number}", number, 0, 60_000, updated_ms))
    batches = expired_ids(machine, Now(1_000, 10**12))
    assert [len(each) for each in batches] == [500, 500, 250]
    assert len(machine.transactions) == 1_250
    assert expired_ids(machine, Now(2_000, 10**12)) == [[], []]


@pytest.mark.parametrize("count", [0, 1, STEP_IDS - 1, STEP_IDS, STEP_IDS + 1, 2 * STEP_IDS])
def test_a_run_of_the_expiry_ends(count: int) -> None:
    machine = TransactionMachine()
    for number in range(count):
        machine.apply(TransactionMetadata(f"t-{number}", number, 0, 60_000, 10**12))
    assert len(expired_ids(machine, Now(1_000, 10**12))) == max(1, -(-count // STEP_IDS))


def test_tombstones_of_long_ids_are_written_in_several_batches() -> None:
    machine = TransactionMachine()
    for number in range(20):
        machine.apply(TransactionMetadata(f"{number:030000d}", number, 0, 60_000, 0))
    batches = expired_ids(machine, Now(1_000, 10**12))
    assert [len(each) for each in batches if each] == [4] * 5
    assert not machine.transactions


def test_an_idle_id_needs_at_most_600_bytes(record_property) -> None:
    machine, count = TransactionMachine(), 5_000
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            producer_id, at_ms = 10_000 + number, 1_700_000_000_000 + number
            record = TransactionMetadata(f"flights-processor-{number:07d}", producer_id, 300, 60_000, at_ms)
            record = record._replace(state=State.COMPLETE_COMMIT, start_ms=at_ms - 1, version=2)
            record = record._replace(previous_producer_id=producer_id)
            machine.apply(SERDE.decode(*SERDE.encode(record)))
        del record
        used = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    record_property("summary", f"memory of an idle transactional id: {used:.0f} bytes")
    assert used <= 600


@pytest.mark.torture
@pytest.mark.long_form
def test_a_million_ids_are_kept_and_expire_in_short_steps(record_property: Callable[[str, object], None]) -> None:
    """A client that never repeats an id costs 600 bytes for each until it expires, and delays no other one."""
    machine, count = TransactionMachine(), 1_000_000
    before = resident_bytes()
    for number in range(count):
        record = TransactionMetadata(f"flights-processor-{number:07d}", 10_000 + number, 300, 60_000, number)
        machine.apply(record._replace(state=State.COMPLETE_COMMIT, start_ms=number, version=2))
    used = (resident_bytes() - before) / count
    gc.collect()
    gc.freeze()  # as a broker does after a load
    longest, steps = 0.0, 0
    try:
        while machine.transactions:
            begin = time.thread_time()
            effects = machine.fire_timer(("expiry",), Now(1_000, 10**12))
            for each in effects.records:
                machine.apply(each)
            longest, steps = max(longest, time.thread_time() - begin), steps + 1
    finally:
        gc.unfreeze()
    record_property("summary", f"{used:.0f} bytes per id; {steps} steps, the longest {longest * 1000:.1f} ms")
    assert used <= 700, "600 and the fragments of the allocator"
    assert steps >= count // STEP_IDS


def resident_bytes() -> int:
    """The memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("timeout_ms", [-(2**31), -1, 0, 900_001, 2**31 - 1])
def test_timeouts_out_of_range_are_refused(timeout_ms: int) -> None:
    effects = TransactionMachine().init_producer_id(InitProducerId("t", timeout_ms), "token", NOW)
    assert error_of(effects) == Error.INVALID_TRANSACTION_TIMEOUT
