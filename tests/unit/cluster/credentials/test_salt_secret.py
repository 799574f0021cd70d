"""The secret for the salts of unknown SCRAM users: one for all brokers of a cluster, created once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.credentials.salt_secret import SECRET_BYTES, read_or_create_secret
from kafkalite.cluster.credentials.store import ScramCredentials
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError
from kafkalite.coordination.znodes import SCRAM_SECRET, ZnodeError
from kafkalite.net.sasl.scram_messages import parse_server_first
from kafkalite.server.authentication.mechanisms import mechanisms_of
from kafkalite.testing.virtual_clock import SeededRandom
from tests.unit.cluster.controller.kit import Service

NAMES = "SCRAM-SHA-256", "SCRAM-SHA-512"
CONFIG = BrokerConfig(
    {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": ",".join(NAMES)}
)


class Raced:
    """A session whose first read finds no node, although another broker creates it meanwhile."""

    def __init__(self, service: Service, secret: bytes) -> None:
        self._session = service.connect()
        self._service = service
        self._secret: bytes | None = secret

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get(self, path: str, then: Any) -> None:
        self._session.get(path, then)
        if self._secret is not None:
            secret, self._secret = self._secret, None
            self._service.write(path, secret)


class Unreachable:
    def get(self, path: str, then: Any) -> None:
        then(Outcome(error=ConnectionLossError(path)))


def secret_of(session: Any, seed: int = 1) -> bytes:
    return asyncio.run(read_or_create_secret(session, SeededRandom(seed)))


def started(service: Service, seed: int) -> ScramCredentials:
    """The credentials of a broker after its start."""
    users = ScramCredentials()
    asyncio.run(users.load(service.connect(), SeededRandom(seed)))
    return users


def salt(users: ScramCredentials, name: str, user: str) -> bytes:
    """The salt that a broker shows for a user without a credential."""
    (server,) = [
        each
        for each in mechanisms_of(CONFIG.sasl_settings("SASL_PLAINTEXT"), users, lambda: CONFIG, None, None)
        if each.name == name
    ]
    answer = next(server.begin(f"n,,n={user},r=nonce".encode()))
    assert isinstance(answer, bytes)
    return parse_server_first(answer).salt


def test_brokers_of_a_cluster_show_one_salt_also_after_a_restart() -> None:
    """Before, each start of each broker had a salt of its own, so two answers showed that a user does not exist."""
    service = Service()
    brokers = [started(service, seed) for seed in (1, 2, 3)]
    for name in NAMES:
        assert len({salt(users, name, "nobody") for users in brokers}) == 1
    shown = [salt(brokers[0], name, user) for name in NAMES for user in ("nobody", "other")]
    assert len({*shown}) == 4, "as the salts of known users differ"
    assert salt(started(Service(), 2), NAMES[0], "nobody") != shown[0], "another cluster"


def test_secret_is_created_once() -> None:
    service = Service()
    secret = secret_of(service.connect())
    assert len(secret) == SECRET_BYTES and service.data(SCRAM_SECRET) == secret
    assert secret_of(service.connect(), 2) == secret


def test_secret_of_the_broker_that_was_first_is_used() -> None:
    service, other = Service(), bytes(range(SECRET_BYTES))
    assert secret_of(Raced(service, other)) == other == service.data(SCRAM_SECRET)


def test_node_of_another_length_is_refused() -> None:
    service = Service()
    service.write(SCRAM_SECRET, b"short")
    with pytest.raises(ZnodeError, match="/kafkalite/scram_secret: 5 bytes, expected 32; delete the node"):
        secret_of(service.connect())


def test_start_without_the_coordination_service_fails() -> None:
    with pytest.raises(CoordinationError):
        secret_of(Unreachable())
