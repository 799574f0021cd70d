"""Transactions that are open for longer than `transaction.max.timeout.ms` + 5 minutes are logged once and counted."""

import logging

import pytest

from kafkalite.cluster.topics.internal_topics import TRANSACTION_STATE
from kafkalite.metrics import Registry
from kafkalite.server.running.transaction_metrics import (
    CHECK_S,
    LATE_MS,
    LateTransactions,
)
from tests.kit.server import Client, batch, stopped_time
from tests.story.server.test_transactions import Writer


async def writer_of(client: Client, topic: str) -> Writer:
    """A writer of a new topic whose log exists."""
    await client.create(topic)
    await client.produce(topic, batch(b"plain"))
    return Writer(client, topic)


def late_of(client: Client) -> LateTransactions:
    """With a maximum timeout of 0; the timestamps of the batches, years ago, do not count."""
    return LateTransactions(client.broker.replicas, client.broker.clock, lambda: 0)


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
        assert line.startswith("t-0: the transaction of producer 7 epoch 0 from offset 1 on has been open for ")
        assert "`kafkalite transaction find-hanging --topic t:0`" in line
        assert late.count == 1
    first.abort(7)
    late.check()
    assert late.count == 0, "the next one is the oldest now"
    time.advance(LATE_MS + 1)
    late.check()
    assert late.count == 1 and "producer 8" in caplog.messages[1]
    first.abort(8)
    late.check()
    assert (late.count, len(caplog.messages)) == (0, 2)


async def test_checks_repeat(client: Client) -> None:
    (await writer_of(client, "t")).send(7, b"a")
    time, registry = stopped_time(client.broker), Registry()
    late_of(client).start(registry)
    (family,) = registry.walk()
    (gauge,) = family.members.values()
    assert gauge.value == 0
    for _ in range(round(LATE_MS / CHECK_S / 1000) + 2):
        time.advance(CHECK_S * 1000)
    assert gauge.value == 1


async def test_metrics_count_the_transactions_of_the_coordinator(client: Client) -> None:
    broker = client.broker

    def values() -> dict[str, float]:
        return {
            family.name + "".join(f"{{{key}={value}}}" for key, value in labels): member.value
            for family in broker.metrics.walk()
            for labels, member in family.members.items()
            if "transaction" in family.name
        }

    assert values() == {}, "there is no coordinator"
    coordinator = broker.coordinator_of(TRANSACTION_STATE.name)
    counters = coordinator.counters  # type: ignore[attr-defined]
    counters.committed, counters.aborted_by_timeout, counters.completion_ms = 5, 2, 70
    assert {name: value for name, value in values().items() if value} == {
        "kafkalite_transactions_committed": 5,
        "kafkalite_transactions_aborted{cause=timeout}": 2,
        "kafkalite_transaction_completion_ms": 70,
    }
    broker.replicas.transaction_checks.failures = 3  # type: ignore[attr-defined]
    assert values()["kafkalite_transaction_verification_failures"] == 3
