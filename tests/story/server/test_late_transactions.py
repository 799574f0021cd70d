"""Transactions that are open for longer than `transaction.max.timeout.ms` + 5 minutes are logged once and counted."""

import logging

import pytest

from kafkalite.metrics import Registry
from kafkalite.server.running.transaction_metrics import (
    CHECK_S,
    LATE_MS,
    LateTransactions,
    register_transaction_metrics,
)
from kafkalite.state.transactions.counters import TransactionCounters
from tests.kit.server import NOW_MS, Client, batch, stopped_time
from tests.story.server.test_transactions import Writer


async def writer_of(client: Client, topic: str) -> Writer:
    """A writer of a new topic whose log exists."""
    await client.create(topic)
    await client.produce(topic, batch(b"plain"))
    return Writer(client, topic)


def late_of(client: Client) -> LateTransactions:
    """With a maximum timeout above the age of the batches of these tests."""
    broker = client.broker
    batches_ms = broker.clock.wall_ms() - NOW_MS
    return LateTransactions(broker.replicas, broker.clock, lambda: batches_ms)


async def test_late_transaction_is_logged_once_and_counted_until_it_ends(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kafkalite.transactions")
    first, second = await writer_of(client, "t"), await writer_of(client, "u")
    first.send(7, b"a")
    first.send(8, b"b")
    second.send(7, b"c")
    second.commit(7)
    time = stopped_time(client.broker)
    late = late_of(client)
    late.check()
    assert (late.count, caplog.messages) == (0, [])
    time.advance(LATE_MS + 1)
    for _ in range(2):
        late.check()
        (line,) = caplog.messages
        assert line.startswith("t-0: the transaction of producer 7 epoch 0 from offset 1 on has had no batch for ")
        assert "`kafkalite transaction find-hanging --topic t:0`" in line
        assert late.count == 1
    first.abort(7)
    late.check()
    assert late.count == 1 and "producer 8" in caplog.messages[1], "the next one is the oldest"
    first.abort(8)
    late.check()
    assert (late.count, len(caplog.messages)) == (0, 2)


async def test_checks_repeat(client: Client) -> None:
    (await writer_of(client, "t")).send(7, b"a")
    time = stopped_time(client.broker)
    late = late_of(client)
    late.start()
    for _ in range(2):
        time.advance(CHECK_S * 1000)
    assert late.count == 0
    time.advance(LATE_MS)
    assert late.count == 1


def test_metrics_read_the_counters_of_the_coordinator() -> None:
    registry, counters = Registry(), TransactionCounters()
    found: list[TransactionCounters] = []
    late = LateTransactions((), None, int)  # type: ignore[arg-type]
    register_transaction_metrics(registry, late, lambda: found[0] if found else None, lambda: 3)

    def values() -> dict[str, float]:
        return {
            f"{family.name}{dict(labels) or ''}": member.value
            for family in registry.walk()
            for labels, member in family.members.items()
        }

    assert sum(values().values()) == 3, "there is no coordinator"
    counters.committed, counters.aborted_by_timeout, counters.completion_ms = 5, 2, 70
    late.count = 1
    found.append(counters)
    assert {name: value for name, value in values().items() if value} == {
        "kafkalite_transactions_committed": 5,
        "kafkalite_transactions_aborted{'cause': 'timeout'}": 2,
        "kafkalite_transaction_completion_ms": 70,
        "kafkalite_transaction_verification_failures": 3,
        "kafkalite_partitions_with_late_transactions": 1,
    }
