"""The SDK and the command line use TLS and SASL on Apache Kafka 4.4.

Every mechanism, every wrong setting, sessions that are renewed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from base64 import urlsafe_b64encode
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafkalite_sdk import Consumer, Producer

from kafkalite.cli.main import main
from kafkalite.errors import AuthenticationError, KafkaConnectionError, KafkaError, SslAuthenticationError
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from tests.kit import aiokafka_examples, jvm
from tests.kit.certificates import Authority
from tests.kit.secure_kafka import (
    PASSWORD,
    UNICODE_PASSWORD,
    UNICODE_USER,
    USER,
    SecureKafka,
    create_users,
)

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("secure kafka"),
]
START_S_MAX = 45.0  # less than the default deadline of `start`


def unsecured_token(lifetime_s: float) -> str:
    """A JSON Web Token without a signature, which Kafka's default validator accepts."""
    now = time.time()
    claims = {"sub": USER, "iat": now - 60, "exp": now + lifetime_s}
    parts = (urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in ({"alg": "none"}, claims))
    return ".".join([*parts, ""])


async def token() -> str:
    return unsecured_token(3600.0)


@pytest.fixture(scope="module")
def kafka(secured_kafka: SecureKafka) -> SecureKafka:
    asyncio.run(_prepare(secured_kafka.plaintext))
    return secured_kafka


async def _prepare(address: str) -> None:
    await create_users(address)
    host, port = address.split(":")
    topic = CreateTopicsRequest.CreatableTopic
    topics = [
        topic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        for name in ("orders", "renewed")
    ]
    async with ClientConnection(host, int(port)) as connection:
        answer = await connection.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    assert [each.error_code for each in answer.topics] == [0, 0]


def tls(kafka: SecureKafka) -> dict[str, Any]:
    return {"security_protocol": "SSL", "ssl_cafile": str(kafka.authority.cert)}


def sasl(mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    return {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}


def sasl_ssl(kafka: SecureKafka, **more: Any) -> dict[str, Any]:
    return {**tls(kafka), "security_protocol": "SASL_SSL", **more}


def oauth(kafka: SecureKafka, get_token: Any = token) -> dict[str, Any]:
    return sasl_ssl(kafka, sasl_mechanism="OAUTHBEARER", sasl_token=get_token)


async def send_and_read(address: str, options: dict[str, Any], count: int = 100) -> None:
    """Send records and read them back."""
    async with Producer(address, **options) as producer:
        sent = await producer.send_many(("orders", b"%d" % each) for each in range(count))
        positions = {(each.topic, each.partition): each.offset for each in reversed(sent)}
    async with Consumer(address, **options) as consumer:
        consumer.assign(list(positions))
        for (topic, partition), offset in positions.items():
            consumer.seek((topic, partition), offset)
        values: set[bytes | None] = set()
        while len(values) < count:
            values |= {each.value for each in await consumer.poll(timeout=10.0)}
    assert values == {b"%d" % each for each in range(count)}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_mechanism_over_tls(kafka: SecureKafka, mechanism: str) -> None:
    options = oauth(kafka) if mechanism == "OAUTHBEARER" else sasl_ssl(kafka, **sasl(mechanism))
    asyncio.run(send_and_read(kafka.sasl_ssl, options))


def test_sasl_without_tls(kafka: SecureKafka) -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", **sasl("SCRAM-SHA-256")}
    asyncio.run(send_and_read(kafka.sasl_plaintext, options))


def test_names_and_passwords_are_not_prepared(kafka: SecureKafka) -> None:
    """Kafka hashes the password as it is: a client that applied SASLprep would be rejected."""
    options = sasl_ssl(kafka, **sasl("SCRAM-SHA-512", UNICODE_USER, UNICODE_PASSWORD))
    asyncio.run(send_and_read(kafka.sasl_ssl, options))


def test_certificate_for_another_host_is_accepted_without_check_hostname(kafka: SecureKafka) -> None:
    asyncio.run(send_and_read(kafka.named, {**tls(kafka), "ssl_check_hostname": False}))


def test_certificate_of_the_client(kafka: SecureKafka) -> None:
    pem = kafka.authority.issue("client", password="secret")
    options = {**tls(kafka), "ssl_certfile": pem.cert, "ssl_keyfile": pem.key, "ssl_password": "secret"}
    asyncio.run(send_and_read(kafka.mutual, options))


def test_renewed_certificate_is_used_for_the_next_connection(kafka: SecureKafka, tmp_path: Path) -> None:
    async def main() -> None:
        foreign = Authority(tmp_path / "foreign", "another authority").issue("client")
        cert, key = tmp_path / "client.pem", tmp_path / "client.key"
        shutil.copy(foreign.cert, cert)
        shutil.copy(foreign.key, key)
        producer = Producer(kafka.mutual, **tls(kafka), ssl_certfile=cert, ssl_keyfile=key)
        with pytest.raises(KafkaError):
            await producer.start()
        trusted = kafka.authority.issue("renewed")
        shutil.copy(trusted.cert, cert)
        shutil.copy(trusted.key, key)
        async with producer:
            await producer.send("orders", b"value")

    asyncio.run(main())


Case = tuple[str, dict[str, Any], type[KafkaError], str]
"""Address, settings, error and its text."""


def wrong_certificates(kafka: SecureKafka, folder: Path) -> dict[str, Case]:
    foreign = Authority(folder / "foreign", "another authority")
    certificate = foreign.issue("client")
    return {
        "host name": (
            kafka.named,
            tls(kafka),
            SslAuthenticationError,
            "is not for 127.0.0.1 .*connect with a name of the certificate",
        ),
        "issuer": (
            kafka.tls,
            {**tls(kafka), "ssl_cafile": foreign.cert},
            SslAuthenticationError,
            "issuer of the broker's certificate is not trusted .*set ssl_cafile",
        ),
        "expired certificate": (kafka.expired, tls(kafka), SslAuthenticationError, "has expired; renew it"),
        "no client certificate": (kafka.mutual, tls(kafka), SslAuthenticationError, "set ssl_certfile and ssl_keyfile"),
        "foreign client certificate": (
            kafka.mutual,
            {**tls(kafka), "ssl_certfile": certificate.cert, "ssl_keyfile": certificate.key},
            SslAuthenticationError,
            "set ssl_certfile and ssl_keyfile",
        ),
    }


def wrong_credentials(kafka: SecureKafka) -> dict[str, Case]:
    async def malformed() -> str:
        return unsecured_token(3600.0).replace(".", "x.", 1)  # the header is no JSON

    return {
        "password": (
            kafka.sasl_ssl,
            sasl_ssl(kafka, **sasl("SCRAM-SHA-512", USER, "wrong")),
            AuthenticationError,
            "rejected the credentials of SCRAM-SHA-512: .*; check the sasl_",
        ),
        "password of PLAIN": (
            kafka.sasl_ssl,
            sasl_ssl(kafka, **sasl("PLAIN", USER, "wrong")),
            AuthenticationError,
            "rejected the credentials of PLAIN: .*; check the sasl_",
        ),
        "user": (
            kafka.sasl_ssl,
            sasl_ssl(kafka, **sasl("SCRAM-SHA-256", "nobody", "wrong")),
            AuthenticationError,
            "rejected the credentials of SCRAM-SHA-256",
        ),
        "token": (
            kafka.sasl_ssl,
            oauth(kafka, malformed),
            AuthenticationError,
            "rejected the credentials of OAUTHBEARER",
        ),
        "mechanism": (
            kafka.sasl_ssl,
            sasl_ssl(kafka, sasl_mechanism=Unknown()),
            AuthenticationError,
            "does not offer the SASL mechanism UNKNOWN, it offers .*PLAIN.*SCRAM-SHA-512; change sasl_mechanism",
        ),
    }


def wrong_ports(kafka: SecureKafka) -> dict[str, Case]:
    return {
        "TLS on a plaintext port": (
            kafka.plaintext,
            tls(kafka),
            KafkaConnectionError,
            'if the listener does not use TLS, set security_protocol to "PLAINTEXT"',
        ),
        "plaintext on a TLS port": (
            kafka.tls,
            {},
            SslAuthenticationError,
            "the listener expects TLS: set security_prot",
        ),
        "SASL on a TLS port": (
            kafka.tls,
            sasl_ssl(kafka, **sasl("PLAIN")),
            AuthenticationError,
            'does not use SASL; set security_protocol to "PLAINTEXT" or "SSL"',
        ),
        "no SASL on a SASL port": (
            kafka.sasl_plaintext,
            {},
            KafkaConnectionError,
            r"does the listener require SASL \(security_protocol\)",
        ),
    }


class Unknown:
    name = "UNKNOWN"

    async def begin(self, host: str) -> Any:
        return (each for each in ())


@pytest.mark.parametrize(
    "name",
    [
        *("host name", "issuer", "expired certificate", "no client certificate", "foreign client certificate"),
        *("password", "password of PLAIN", "user", "token", "mechanism"),
        *("TLS on a plaintext port", "plaintext on a TLS port", "SASL on a TLS port", "no SASL on a SASL port"),
    ],
)
def test_wrong_setting_is_one_clear_error_of_start(kafka: SecureKafka, name: str, tmp_path: Path) -> None:
    cases = {**wrong_certificates(kafka, tmp_path), **wrong_credentials(kafka), **wrong_ports(kafka)}
    address, options, error, text = cases[name]

    async def main() -> None:
        async with asyncio.timeout(START_S_MAX):
            with pytest.raises(error, match=text) as raised:
                await Producer(address, **options).start()
        assert address in str(raised.value) and "wrong" not in str(raised.value).replace(name, "")

    asyncio.run(main())


def test_sessions_are_renewed_under_load_without_loss_or_duplicate(kafka: SecureKafka) -> None:
    """Ten sessions of 1.5 s: every record is in the log once, in order, and no connection was lost."""
    options = sasl_ssl(kafka, **sasl("SCRAM-SHA-512"))
    sent: list[int] = [0, 0]

    async def produce(producer: Producer, ends_at: float) -> None:
        while time.monotonic() < ends_at:
            for partition in (0, 1):
                producer.send("renewed", b"%d" % sent[partition], partition=partition)
                sent[partition] += 1
            await producer.drain()
            await asyncio.sleep(0)
        await producer.flush()

    async def main() -> list[list[int]]:
        values: list[list[int]] = [[], []]
        async with Producer(kafka.renewed, **options) as producer, Consumer(kafka.renewed, **options) as consumer:
            consumer.assign([("renewed", 0), ("renewed", 1)])
            consumer.seek_to_beginning()
            load = asyncio.create_task(produce(producer, time.monotonic() + 15.0))
            while not load.done() or sum(map(len, values)) < sum(sent):
                for record in await consumer.poll(timeout=1.0):
                    values[record.partition].append(int(record.value))
            await load
        return values

    assert asyncio.run(main()) == [list(range(count)) for count in sent]
    assert min(sent) > 100


def test_idle_connection_outlives_its_session(kafka: SecureKafka) -> None:
    async def main() -> None:
        renewed = asyncio.Event()

        async def counted() -> str:
            renewed.set()
            return await token()

        async with Producer(kafka.renewed, **oauth(kafka, counted)) as producer, asyncio.timeout(60.0):
            await producer.send("orders", b"value")
            channels = list(producer._client._running.channels.data_channels())
            connections = [channel.connection for channel in channels]
            for _ in range(4):  # nothing is sent meanwhile; the broker would end an expired session
                renewed.clear()
                await renewed.wait()
            await producer.send("orders", b"value")
            assert [channel.connection for channel in channels] == connections

    asyncio.run(main())


def test_token_that_expires_is_obtained_again(kafka: SecureKafka) -> None:
    calls = []

    async def short() -> str:
        calls.append(time.time())
        return unsecured_token(5.0)

    async def main() -> None:
        async with asyncio.timeout(120), Producer(kafka.sasl_ssl, **oauth(kafka, short)) as producer:
            while len(calls) < 3:
                await producer.send("orders", b"value")
            await producer.send("orders", b"value")

    asyncio.run(main())


def run_command(config: dict[str, str], folder: Path, *args: str) -> tuple[int, str, str]:
    """Run a command with a client configuration file. Return its exit code, output and errors."""
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    done = CliRunner().invoke(main, [*args, "--client-config", str(file)])
    return done.exit_code, done.stdout, done.stderr


def client_config(kafka: SecureKafka) -> dict[str, str]:
    """The settings of a user of Java's clients, with certificates as PEM."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": kafka.sasl_ssl,
        "security.protocol": "SASL_SSL",
        "ssl.cafile": str(kafka.authority.cert),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
    }


def test_commands_over_tls_and_scram(kafka: SecureKafka, tmp_path: Path) -> None:
    run = partial(run_command, client_config(kafka), tmp_path)
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    assert run("topic", "create", "lines") == (0, "created lines with 1 partition(s)\n", "")
    assert "lines" in [line.split()[0] for line in run("topic", "list")[1].splitlines()]
    assert run("produce", "lines", "--file", str(file)) == (0, "", "sent 2 record(s) to lines\n")
    assert run("consume", "lines", "-e") == (0, "one\ntwo\n", "")
    assert run("consume", "lines", "-e", "-n", "2", "--group", "readers") == (0, "one\ntwo\n", "")


@pytest.mark.parametrize("name", ["password", "issuer", "plaintext port"])
def test_wrong_setting_of_a_command_is_one_line(kafka: SecureKafka, name: str, tmp_path: Path) -> None:
    config = client_config(kafka)
    jaas = config["sasl.jaas.config"].replace(PASSWORD, "wrong one")
    foreign = Authority(tmp_path / "foreign", "another authority")
    changed, text = {
        "password": ({"sasl.jaas.config": jaas}, "rejected the credentials of SCRAM-SHA-512"),
        "issuer": ({"ssl.cafile": str(foreign.cert)}, "issuer of the broker's certificate is not trusted"),
        "plaintext port": (
            {"bootstrap.servers": kafka.plaintext},
            'if the listener does not use TLS, set security.protocol to "PLAINTEXT"',
        ),
    }[name]
    config |= changed
    for args in (("topic", "list"), ("produce", "orders", "--file", __file__)):
        code, output, errors = run_command(config, tmp_path, *args)
        assert (code, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.startswith("kafkalite: ") and config["bootstrap.servers"] in errors and text in errors
        assert "wrong one" not in errors


@pytest.mark.parametrize("module", ["aiokafka", "kafkalite_sdk.compat.aiokafka"], ids=["aiokafka", "compat"])
def test_programs_for_aiokafka_with_tls(kafka: SecureKafka, module: str) -> None:
    arguments = (kafka.tls, module.replace(".", "-"), str(kafka.authority.cert))
    assert asyncio.run(aiokafka_examples.found_by(module, *arguments)) == aiokafka_examples.EXPECTED_WITH_TLS
