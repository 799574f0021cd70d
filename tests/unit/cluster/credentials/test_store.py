"""A login of a user that does not exist shows the number of iterations that most users have."""

from __future__ import annotations

import pytest

from kafkalite.cluster.credentials.store import ScramCredentials
from kafkalite.cluster.credentials.texts import encode_credential
from kafkalite.config.broker import BrokerConfig
from kafkalite.net.sasl.scram import ITERATIONS_MIN, ScramCredential
from kafkalite.net.sasl.scram_messages import parse_server_first
from kafkalite.net.sasl.steps import ServerMechanism
from kafkalite.server.authentication.mechanisms import mechanisms_of

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
CONFIG = BrokerConfig(
    {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": SHA_512}
)


def text(iterations: int) -> str:
    return encode_credential(ScramCredential(b"salt of the test", iterations, bytes(64), bytes(64)))


def users_with(*iterations: int) -> ScramCredentials:
    """Return users 0, 1 and so on with these numbers of iterations."""
    found = ScramCredentials()
    for number, each in enumerate(iterations):
        found.apply(str(number), {SHA_512: text(each)})
    return found


def shown_iterations(server: ServerMechanism, user: str) -> int:
    answer = next(server.begin(f"n,,n={user},r=nonce".encode()))
    assert isinstance(answer, bytes)
    return parse_server_first(answer).iterations


@pytest.mark.parametrize(
    ("iterations", "usual"),
    [((), ITERATIONS_MIN), ((8192,), 8192), ((4096, 8192, 8192), 8192), ((8192, 4096), 8192), ((1000,), 4096)],
)
def test_usual_iterations_are_those_of_most_users(iterations: tuple[int, ...], usual: int) -> None:
    users = users_with(*iterations)
    assert users.usual_iterations(SHA_512) == usual
    assert users.usual_iterations(SHA_256) == ITERATIONS_MIN


def test_usual_iterations_follow_changes_of_users() -> None:
    users = users_with(4096, 4096, 8192)
    users.change("0", {SHA_512: text(8192)})
    assert users.usual_iterations(SHA_512) == 8192
    users.change("0", {SHA_512: None})
    users.change("2", {SHA_512: None})
    assert users.usual_iterations(SHA_512) == 4096
    users.apply("1", None)
    assert users.usual_iterations(SHA_512) == ITERATIONS_MIN
    assert not users.users()


def test_unknown_user_shows_the_iterations_of_most_users() -> None:
    """A constant number named the users that exist: those with another one."""
    users = users_with(8192, 8192)
    (server,) = mechanisms_of(CONFIG.sasl_settings("SASL_PLAINTEXT"), users, lambda: CONFIG, None, None)
    assert shown_iterations(server, "0") == shown_iterations(server, "unknown") == 8192
    for name in ("0", "1"):
        users.change(name, {SHA_512: text(16_384)})
    assert shown_iterations(server, "0") == shown_iterations(server, "unknown") == 16_384
