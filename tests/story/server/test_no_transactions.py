"""Requests for transactions, which this version does not have, fail with an error that no client repeats."""

import logging

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.server.requests.no_transactions import CLIENTS_MAX
from tests.kit.server import Client, connected

TRANSACTION = 1


def init(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("version", range(6))
async def test_init_producer_id_with_a_transactional_id_fails_with_a_fatal_error(client: Client, version: int) -> None:
    answer = await client.call(init("me"), version)
    error = KafkaErrorCode(answer.error_code)
    assert (error, answer.producer_id) == (KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    assert not error.retriable and error.fatal
    assert (await client.call(init(""), version)).error_code == KafkaErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(1, 7))
async def test_find_coordinator_of_a_transactional_id_says_that_there_are_no_transactions(
    client: Client, version: int
) -> None:
    asked = FindCoordinatorRequest(key="me", coordinator_keys=["me", "you"], key_type=TRANSACTION)
    answer = await client.call(asked, version)
    found = answer.coordinators if version >= 4 else [answer]
    assert [each.error_code for each in found] == [KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * len(found)
    assert all("has no transactions" in each.error_message for each in found)


async def test_one_warning_is_logged_per_transactional_client(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(client.broker) as other:
        other.peer._core.client_id = "other"
        for _ in range(3):
            for each in (client, other):
                await each.call(FindCoordinatorRequest(key="x", coordinator_keys=["x"], key_type=TRANSACTION))
                await each.call(init("x"))
    said = warnings(caplog)
    assert len(said) == 2, said
    assert all("transactional.id 'x' is rejected: this version has no transactions" in line for line in said)
    assert "client 'other' at 127.0.0.1" in said[1]


async def test_remembered_transactional_clients_are_bounded(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(CLIENTS_MAX + 2):
        client.peer._core.client_id = f"client-{number}"
        await client.call(init("x"))
    assert len(client.broker.transactional_clients._known) == CLIENTS_MAX
    assert len(warnings(caplog)) == CLIENTS_MAX + 2
