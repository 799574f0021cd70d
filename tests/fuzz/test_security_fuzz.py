"""Damaged input of what protects a broker: frames of a login, ACLs in the tree, keys and certificates of listeners.

Each is accepted, or rejected with one error. `--fuzz-inputs` gives each test a tenth of its inputs.
"""

from __future__ import annotations

import logging
import random
import ssl
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.codec import encode_request
from kafkalite._speedups.net.framing import Limits
from kafkalite.cluster.acls.nodes import decode
from kafkalite.config.jaas import MODULES
from kafkalite.config.security import KeyStore
from kafkalite.coordination.znodes.acls import decode_extended_change, decode_literal_change
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.model import Principal
from kafkalite.net.key_stores import load_key
from kafkalite.net.memory_transport import MemoryHub
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkalite.protocol.schema import Request
from kafkalite.server.broker import Broker
from kafkalite.testing.virtual_clock import InlineOffload, VirtualClock
from tests.fuzz.test_sasl_fuzz import count_of
from tests.kit.certificates import Authority
from tests.kit.leaks import bounded_memory
from tests.kit.seeds import chosen_seed
from tests.unit.protocol.damage import damaged

pytestmark = pytest.mark.fuzz
LOGINS = {Principal("User", name): f"\0{name}\0correct horse".encode() for name in ("alice", "bob")}
LOGIN_BYTES_MAX = 4096
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULES["PLAIN"]} required user_alice="correct horse" '
    'user_bob="correct horse";',
    "connection.failed.authentication.delay.ms": "0",
}
ACLS = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
    b'{"principal":"User:bob","permissionType":"Deny","operation":"DescribeConfigs","host":"10.0.0.1"}]}'
)
CHANGE = b'{"version":1,"resourceType":"TOPIC","name":"orders","patternType":"PREFIXED"}'


def seeded() -> random.Random:
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    return random.Random(seed)


def frame(request: Request, version: int) -> bytes:
    found = encode_request(request, version, 7, "fuzz")
    return len(found).to_bytes(4, "big") + found


def conversations() -> list[list[bytes]]:
    """Frames of logins: right and wrong ones, twice, as another user, out of order, too large, and requests before."""
    alice, bob = LOGINS.values()
    plain = [frame(SaslHandshakeRequest(mechanism="PLAIN"), version) for version in (0, 1)]
    scram = frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    right, other, first, wrong = (
        frame(SaslAuthenticateRequest(auth_bytes=each), 2)
        for each in (alice, bob, b"n,,n=alice,r=abc", b"\0alice\0wrong\0\0")
    )
    raw = len(alice).to_bytes(4, "big") + alice
    large = frame(SaslAuthenticateRequest(auth_bytes=bytes(LOGIN_BYTES_MAX + 1)), 2)
    versions, metadata = frame(ApiVersionsRequest(), 0), frame(MetadataRequest(topics=[]), 9)
    return [
        [versions, plain[1], right, metadata],
        [plain[0], raw, metadata],
        [scram, first, right],
        [plain[1], wrong, right, metadata],
        [plain[1], plain[1], right],
        [plain[1], right, plain[1], other, metadata],
        [metadata, plain[1], right],
        [right, plain[1], large, right],
    ]


async def test_damaged_frames_before_and_during_a_login(fuzz_inputs: int, caplog: pytest.LogCaptureFixture) -> None:
    """A connection is authenticated with the whole password and as the first user, or not at all."""
    rng, talks, accepted = seeded(), conversations(), 0
    async with Broker(settings=SETTINGS) as broker:
        hub = MemoryHub(service_of(broker), Limits(authenticate=True, login_bytes_max=LOGIN_BYTES_MAX))
        clock = virtual_logins(hub.service)
        with bounded_memory():
            for _ in range(count_of(fuzz_inputs)):
                frames = list(rng.choice(talks))
                hurt = rng.randrange(len(frames))
                frames[hurt] = damaged(rng, frames[hurt])
                accepted += talk(hub, clock, frames)
        assert accepted
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def talk(hub: MemoryHub, clock: VirtualClock, frames: list[bytes]) -> bool:
    """Send frames on a new connection; whether it is authenticated at the end."""
    client = hub.connect("SASL_PLAINTEXT")
    for each in frames:
        client.send(each)
        clock.advance(0)  # results of jobs, and failures
        hub.pump()
    connection = client.connection
    authenticated = bool(connection.authenticated and connection.principal is not None)
    if authenticated:
        whole = [user for user, login in LOGINS.items() for each in frames if login in each]
        assert connection.principal in whole[:1], frames
    client.close()
    return authenticated


def service_of(broker: Broker) -> Any:
    """What serves the connections of a broker."""
    drivers: Any = broker.running.listening._drivers
    return drivers["SASL_PLAINTEXT"].reactor.service


def virtual_logins(service: Any) -> VirtualClock:
    """Let logins of a service follow a virtual clock, without threads."""
    clock, listeners = VirtualClock(), service._authentication._listeners
    for name, each in listeners.items():
        listeners[name] = each._replace(clock=clock, offload=InlineOffload(clock.call_soon))
    return clock


def test_damaged_acls_of_the_tree(fuzz_inputs: int) -> None:
    rng, outcomes = seeded(), set[bool]()
    decoders = (decode, ACLS), (decode_extended_change, CHANGE), (decode_literal_change, b"Topic:a")
    with bounded_memory():
        for _ in range(count_of(fuzz_inputs)):
            for decoder, data in decoders:
                try:
                    outcomes.add(bool(decoder("/kafka-acl/Topic/orders", damaged(rng, data))))
                except ZnodeError:
                    outcomes.add(False)
    assert outcomes == {False, True}


def test_damaged_keys_and_certificates_of_a_listener(fuzz_inputs: int, tmp_path: Path) -> None:
    """Texts of PEM, and files that cannot be decoded."""
    rng, outcomes = seeded(), set[str]()
    pem = Authority(tmp_path).issue("broker")
    good, context = pem.key.read_bytes() + pem.cert.read_bytes(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with bounded_memory():
        for _ in range(count_of(fuzz_inputs)):
            text = damaged(rng, good).decode("utf-8", "replace")
            store = KeyStore(type="PEM", location=None, password=None, key_password=None, key=text, chain="")
            try:
                load_key(context, store, "")
                outcomes.add("accepted")
            except ValueError as error:
                assert "PRIVATE" not in str(error) and "\n" not in str(error), error
                outcomes.add("rejected")
    assert outcomes == {"accepted", "rejected"}
