"""What the three kinds of acknowledgement promise, and what an idempotent producer leaves in the log."""

from __future__ import annotations

import pytest

from tests.compat.disk import batches_on_disk
from tests.kit.brokers import Broker, wait_until
from tests.kit.clients import PYTHON_CLIENTS, Client, Record


def numbered(count: int) -> list[Record]:
    return [Record(str(n).encode(), partition=0) for n in range(count)]


@pytest.mark.parametrize("acks", ["1", "all"])
def test_acknowledged_at_its_offset(address: str, topic: str, client: Client, acks: str) -> None:
    written = client.write(address, topic, numbered(500), acks=acks)
    assert [record.offset for record in written] == list(range(500))
    assert [record.value for record in client.read(address, topic, 500)] == [record.value for record in written]


def test_without_acknowledgement(address: str, topic: str, client: Client) -> None:
    """acks=0: no answer comes, the records do."""
    client.write(address, topic, numbered(500), acks="0")
    wait_until(lambda: client.bounds(address, topic) == (0, 500), "500 records sent with acks=0")
    assert [record.value for record in client.read(address, topic, 500)] == [r.value for r in numbered(500)]


def test_idempotent_batches_are_numbered(broker: Broker, topic: str, client: Client) -> None:
    """One producer id per producer, sequences without a gap."""
    written = client.write(broker.address, topic, numbered(300), idempotent=True)
    assert [record.offset for record in written] == list(range(300))
    batches = batches_on_disk(broker.log_dir(topic), topic)
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


def test_two_idempotent_producers_have_two_ids(broker: Broker, topic: str) -> None:
    for client in (*PYTHON_CLIENTS, *PYTHON_CLIENTS):
        client.write(broker.address, topic, numbered(1), idempotent=True)
    ids = [batch.producer_id for batch in batches_on_disk(broker.log_dir(topic), topic)]
    assert len(set(ids)) == len(ids) == 2 * len(PYTHON_CLIENTS)
