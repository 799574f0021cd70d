"""aiokafka's interface raises its errors of missing rights within transactions, and the producer continues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafkalite_sdk.compat.aiokafka import AIOKafkaProducer, TopicPartition, errors

from kafkalite.errors import TransactionAbortedError
from kafkalite.testing.secured import SecuredBroker

USER = "alice"
OFFSETS = {TopicPartition("orders", 0): 0}


@pytest.fixture
def broker() -> Iterator[SecuredBroker]:
    with SecuredBroker(users={USER: "a secret"}, acls=[]) as running:
        running.create_topic("orders")
        running.allow(USER, "write", topic="orders")
        running.allow(USER, "write", transactional_id="loader")
        yield running


def producer(broker: SecuredBroker) -> AIOKafkaProducer:
    settings = broker.client_settings()
    return AIOKafkaProducer(
        bootstrap_servers=broker.address,
        transactional_id="loader",
        security_protocol=settings["security_protocol"],
        sasl_mechanism=settings["sasl_mechanism"],
        sasl_plain_username=USER,
        sasl_plain_password="a secret",
    )


async def test_offsets_of_a_denied_group_fail_with_the_error_of_the_group(broker: SecuredBroker) -> None:
    async with producer(broker) as client:
        await client.begin_transaction()
        with pytest.raises(errors.GroupAuthorizationFailedError, match="--group billing"):
            await client.send_offsets_to_transaction(OFFSETS, "billing")
        with pytest.raises(errors.GroupAuthorizationFailedError):
            await client.commit_transaction()
        await client.abort_transaction()
        broker.allow(USER, "read", group="billing", topic="orders")
        async with client.transaction():
            await client.send_and_wait("orders", b"value")
            await client.send_offsets_to_transaction(OFFSETS, "billing")


async def test_a_block_of_a_transaction_raises_the_error_of_the_group(broker: SecuredBroker) -> None:
    async with producer(broker) as client:
        with pytest.raises(errors.GroupAuthorizationFailedError):
            async with client.transaction():
                await client.send_offsets_to_transaction(OFFSETS, "billing")
        with pytest.raises(errors.GroupAuthorizationFailedError):
            async with client.transaction():
                with pytest.raises(errors.GroupAuthorizationFailedError):
                    await client.send_offsets_to_transaction(OFFSETS, "billing")


async def test_an_abort_for_another_reason_stays_a_transaction_aborted_error(broker: SecuredBroker) -> None:
    async with producer(broker) as client:
        await client.begin_transaction()
        client._producer._transactions().machine.fail(errors.KafkaError("a batch has expired"))
        with pytest.raises(TransactionAbortedError, match="a batch has expired"):
            await client.commit_transaction()
