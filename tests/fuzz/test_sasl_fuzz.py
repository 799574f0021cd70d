"""Damaged SASL messages and certificates: each is accepted or rejected with one error, at once."""

import asyncio
import random
from contextlib import suppress

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.jaas import MODULES, LoginModule, parse_jaas
from kafkalite.config.keys import ConfigError
from kafkalite.errors import AuthenticationError
from kafkalite.net.certificates import validities
from kafkalite.net.sasl.oauthbearer import OAuthBearerServer, TokenRejection
from kafkalite.net.sasl.plain import PlainServer
from kafkalite.net.sasl.scram import ScramClient, ScramServer, make_credential
from kafkalite.net.sasl.steps import Authenticated, Job
from kafkalite.net.sasl.token_keys import parse_keys
from kafkalite.net.sasl.token_validation import TokenValidator
from kafkalite.net.sasl.tokens import check_token, expiry_of
from kafkalite.server.authentication.exchange import Answer, SaslServer
from tests.kit.certificates import Authority
from tests.kit.leaks import bounded_memory
from tests.kit.seeds import chosen_seed
from tests.kit.tokens import USER, Issuer, claims
from tests.unit.protocol.damage import damaged

GOOD = {
    "PLAIN": b"\0alice\0secret",
    "SCRAM-SHA-256": b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL",
    "OAUTHBEARER": b"n,a=alice,\x01auth=Bearer abc.def\x01org=1\x01\x01",
}


SHORT_RUN = 200_000  # `--fuzz-inputs` of `make test`


def mechanisms():
    credential = make_credential("SCRAM-SHA-256", "secret")
    return [
        PlainServer(lambda user, password: False),
        ScramServer("SCRAM-SHA-256", {"alice": credential}.get, lambda: "3rfcNHYJY1ZVvWVs7j"),
        OAuthBearerServer(lambda token, extensions: None if len(token) % 2 else Authenticated("alice")),
    ]


def answer(server, message):
    found = server.authenticate(message)
    while isinstance(found, Job):
        found = server.job_done(found.run())
    assert isinstance(found, Answer)
    return found


def count_of(fuzz_inputs):
    """How many inputs of a sort are damaged: a tenth in a long run; else so many that each outcome is among them."""
    return fuzz_inputs // 10 if fuzz_inputs > SHORT_RUN else 500


@pytest.mark.fuzz
def test_damaged_messages_of_clients_and_brokers(fuzz_inputs):
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    rng, offered, outcomes = random.Random(seed), mechanisms(), set()
    with bounded_memory():
        for _ in range(count_of(fuzz_inputs)):
            name = rng.choice(list(GOOD))
            server = SaslServer(offered, lambda: 0.0)
            server.handshake(name)
            first = answer(server, damaged(rng, GOOD[name]))
            outcomes.add((name, "first", first.error_code))
            if not first.error_code and server.authenticating:
                final = damaged(rng, b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=" + b"A" * 43 + b"=")
                outcomes.add((name, "final", answer(server, final).error_code))
    assert {("SCRAM-SHA-256", "first", 0), ("SCRAM-SHA-256", "final", 58), ("OAUTHBEARER", "first", 0)} <= outcomes
    assert ("PLAIN", "first", 0) not in outcomes and ("SCRAM-SHA-256", "final", 0) not in outcomes
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", lambda: "abc")
    accepted, loop = 0, asyncio.new_event_loop()
    with bounded_memory():
        for _ in range(count_of(fuzz_inputs)):
            steps = loop.run_until_complete(client.begin("broker"))
            steps.send(None)
            try:
                accepted += isinstance(steps.send(damaged(rng, b"r=abcdef,s=c2FsdHNhbHQ=,i=4096")), Job)
            except AuthenticationError:
                continue
    loop.close()
    assert accepted


@pytest.mark.fuzz
def test_damaged_tokens_and_certificates(fuzz_inputs, tmp_path):
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    rng = random.Random(seed)
    pem = Authority(tmp_path).cert.read_bytes()
    token, found = b"eyJhbGciOiJub25lIn0.eyJleHAiOiAxNzAwMDAwMDAwfQ.c2ln", 0
    with bounded_memory():
        for _ in range(count_of(fuzz_inputs)):
            text = damaged(rng, token).decode("latin-1")
            found += expiry_of(text) is not None if text.isascii() else 0
            with suppress(AuthenticationError):
                check_token(text, 0.0)
            try:
                found += len(validities(damaged(rng, pem)))
            except ValueError:
                continue
    assert found


@pytest.mark.fuzz
def test_damaged_signed_tokens_and_keys(fuzz_inputs, tmp_path):
    """A token with another byte in header, claims or signature is never accepted."""
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    rng, issuer = random.Random(seed), Issuer()
    settings = {"listeners": "SASL_PLAINTEXT://h:9092,PLAINTEXT://h:9093", **issuer.publish(tmp_path / "keys.json")}
    config = BrokerConfig(settings).listener_security("SASL_PLAINTEXT")
    validator, now = TokenValidator(config.oauthbearer, lambda: now), claims()["iat"]
    validator.keys = parse_keys(issuer.document())
    token = issuer.token()
    kept = {json_of(token): validator(token, {})}
    with bounded_memory():
        for at in range(count_of(fuzz_inputs)):
            text = damaged(rng, token.encode()).decode("latin-1")
            found = validator(text, {})
            assert isinstance(found, TokenRejection) or found == kept.get(json_of(text)), text
            if at % 5:
                continue  # keys cost more than tokens
            with suppress(ValueError):
                validator.keys = parse_keys(damaged(rng, issuer.document())) or validator.keys
            validator.keys = parse_keys(issuer.document())
    assert kept[json_of(token)].name == USER


@pytest.mark.fuzz
def test_damaged_jaas_texts(fuzz_inputs):
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    rng, modules = random.Random(seed), set()
    jaas = f'{MODULES["PLAIN"]} required user_alice="a \\" b" /* c */ user_bob=\'d\'; // e'
    with bounded_memory():
        for _ in range(count_of(fuzz_inputs)):
            with suppress(ConfigError):
                modules.add(type(parse_jaas("key", damaged(rng, jaas.encode()).decode("latin-1"), "PLAIN")))
    assert modules == {LoginModule}


def json_of(token):
    """Header and claims as they are decoded: the last digit of base64 may have bits without effect."""
    parts = token.split(".")
    return tuple(each.rstrip("=") for each in parts[:2])
