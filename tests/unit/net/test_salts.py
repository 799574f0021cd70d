"""Salts of SCRAM credentials have the form of Apache Kafka for all clients and names."""

import re
from collections.abc import Callable

import pytest
from kafkalite_sdk.admin.users import NewCredential, ScramMechanism, UserMechanism, _upsertion

from kafkalite.net.sasl.salts import derived_salt
from kafkalite.net.sasl.scram import ScramServer, make_credential
from kafkalite.net.sasl.scram_messages import parse_server_first

MECHANISM = "SCRAM-SHA-256"
COUNT = 100


def of_unknown_names(extension: str) -> list[bytes]:
    server = ScramServer(MECHANISM, {}.get)
    offers = (next(server.begin(f"n,,n=user-{at},r=nonce{extension}".encode())) for at in range(COUNT))
    return [parse_server_first(each).salt for each in offers if isinstance(each, bytes)]


def of_admin() -> list[bytes]:
    key, new = UserMechanism("alice", ScramMechanism.SCRAM_SHA_256), NewCredential("secret", 4096)
    return [_upsertion(key, new).salt for _ in range(COUNT)]


@pytest.mark.parametrize(
    "salts",
    [
        lambda: of_unknown_names(""),
        lambda: of_unknown_names(",tokenauth=true"),
        lambda: [make_credential(MECHANISM, "secret").salt for _ in range(COUNT)],
        of_admin,
    ],
    ids=["unknown users", "unknown tokens", "users of the offline command", "users of admin clients"],
)
def test_salts_have_one_form(salts: Callable[[], list[bytes]]) -> None:
    """Before, unknown users had 16 bytes, users of kafkalite 16 or 24, and users of Kafka's tools up to 26 digits."""
    found = salts()
    assert len({*found}) == COUNT
    assert {len(each) for each in found} >= {25, 26}
    for each in found:
        assert re.fullmatch(rb"[1-9a-z][0-9a-z]{18,25}", each) and int(each, 36) < 1 << 130, each


def test_salt_of_a_digest() -> None:
    """As BigInteger.toString(36) of Java."""
    assert derived_salt(bytes(32)) == b"0"
    assert derived_salt((36**3 + 35).to_bytes(32, "big")) == b"100z"
    for size in (17, 32, 64):
        assert derived_salt(b"\xff" * size) == b"1omfro7zwmumr3umxudzyj6scf"
