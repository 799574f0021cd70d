"""What a listener with SASL serves before, during and after a login; every case over a socket.

The named CVEs are those that a broker of Apache Kafka had; each test fails on a copy of the defect.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafkalite._speedups.codec import decode, encode_request, read_response_header
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.errors import AuthenticationError
from kafkalite.model import Principal
from kafkalite.net.sasl import scram
from kafkalite.net.sasl.plain import PlainClient
from kafkalite.net.sasl.scram import ScramClient, make_credential
from kafkalite.net.sasl.steps import ClientMechanism, Job
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkalite.protocol.schema import Request, response_class
from kafkalite.server.authentication import login as login_module
from kafkalite.server.broker import Broker
from tests.kit.server import connected

USER, PASSWORD, OTHER = "alice", "correct horse", "bob"
FAILED, UNSUPPORTED, ILLEGAL = 58, 33, 34
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required user_{USER}="{PASSWORD}" user_{OTHER}="{PASSWORD}";'
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{PREFIX}plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "0",
}
ANSWER_S = 60.0


class Wire:
    """A connection that sends what it is asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def call(self, request: Request, version: int) -> Any:
        frame = await self.frame(encode_request(request, version, 7, "wire"))
        _, body = read_response_header(response_class(type(request)), version, frame)
        return decode(response_class(type(request)), version, body)

    async def frame(self, frame: bytes) -> bytes:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)
        async with asyncio.timeout(ANSWER_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def select(self, mechanism: str, version: int = 1) -> int:
        return int((await self.call(SaslHandshakeRequest(mechanism=mechanism), version)).error_code)

    async def log_in(self, client: ClientMechanism, version: int = 2) -> Any:
        """Select the mechanism and exchange its messages; returns the last response."""
        assert await self.select(client.name) == 0
        steps = await client.begin("localhost")
        answer, message = None, next(steps)
        try:
            while True:
                while isinstance(message, Job):
                    message = steps.send(message.run())
                answer = await self.call(SaslAuthenticateRequest(auth_bytes=message), version)
                if answer.error_code:
                    return answer
                message = steps.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; False if bytes arrive instead."""
        async with asyncio.timeout(ANSWER_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    async def closes(self, call: Any) -> bool:
        """Whether the broker closes the connection without a response."""
        try:
            await call
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return True
        return False


@asynccontextmanager
async def dialled(broker: Broker) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.addresses[0].port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def started(**settings: str) -> AsyncIterator[Broker]:
    async with Broker(settings={**SETTINGS, **settings}) as broker:
        assert broker.running.credentials is not None
        broker.running.credentials.apply(USER, {})
        broker.running.credentials._known["SCRAM-SHA-256"][USER] = make_credential("SCRAM-SHA-256", PASSWORD)
        yield broker


@asynccontextmanager
async def wire(**settings: str) -> AsyncIterator[Wire]:
    async with started(**settings) as broker, dialled(broker) as found:
        yield found


def only_connections(broker: Broker) -> list[Any]:
    """The open connections of all listeners."""
    drivers: Any = broker.running.listening._drivers.values()
    return [each for driver in drivers for each in driver.reactor.connections()]


def plain(user: str = USER, password: str = PASSWORD) -> PlainClient:
    return PlainClient(user, password)


def names(answer: Any) -> set[int]:
    return {each.api_key for each in answer.api_keys}


METADATA = (MetadataRequest(topics=None), 9)
VERSIONS = (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)


async def test_only_versions_and_handshake_before_the_login() -> None:
    async with started() as broker:
        for request, version in (METADATA, (SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 1)):
            async with dialled(broker) as client:
                assert names(await client.call(*VERSIONS)) >= {17, 36}
                assert await client.closes(client.call(request, version))


async def test_only_messages_of_the_login_after_the_handshake() -> None:
    async with started() as broker:
        for request, version in (METADATA, VERSIONS, (SaslHandshakeRequest(mechanism="PLAIN"), 1)):
            async with dialled(broker) as client:
                assert await client.select("PLAIN") == 0
                assert await client.closes(client.call(request, version))


async def test_connection_is_freed_at_its_end_without_the_garbage_collector() -> None:
    """Garbage of 4,000 connections stops the loop for 20 ms, as beside a storm of wrong logins."""
    async with started() as broker:
        gc.collect()
        gc.disable()
        try:
            for password in (PASSWORD, "wrong"):
                async with dialled(broker) as client:
                    error = (await client.log_in(plain(password=password))).error_code
                    ends = client.is_closed() if error else client.closes(client.frame(b"not a request"))
                    assert await ends
            assert [each for each in gc.get_objects() if isinstance(each, login_module.Login)] == []
        finally:
            gc.enable()


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("client", [plain(), ScramClient("SCRAM-SHA-256", USER, PASSWORD)], ids=["plain", "scram"])
async def test_login_opens_the_connection_to_all_requests(version: int, client: ClientMechanism) -> None:
    async with started() as broker, dialled(broker) as found:
        answer = await found.log_in(client, version)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert (await found.call(*METADATA)).brokers
        (connection,) = only_connections(broker)
        assert connection.principal == Principal("User", USER) and connection.authenticated


async def test_handshake_of_version_0_is_followed_by_frames_without_a_header() -> None:
    async with wire() as client:
        assert await client.select("PLAIN", version=0) == 0
        assert await client.frame(f"\0{USER}\0{PASSWORD}".encode()) == b""
        assert (await client.call(*METADATA)).brokers


async def test_failure_without_a_header_closes_the_connection() -> None:
    async with started() as broker:
        for message in (b"\0a\0b", b"\1", b"\0" * 9):
            async with dialled(broker) as client:
                assert await client.select("PLAIN", version=0) == 0
                assert await client.closes(client.frame(message))


@pytest.mark.parametrize(
    "mechanism",
    ["GSSAPI", "SCRAM-SHA-512", "plain", "\n" * 300],
    ids=["gssapi", "not enabled", "lower case", "garbage"],
)
async def test_unknown_mechanism_is_answered_with_the_offered_ones(mechanism: str) -> None:
    async with wire() as client:
        answer = await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert (answer.error_code, answer.mechanisms) == (UNSUPPORTED, ["PLAIN", "SCRAM-SHA-256"])
        assert await client.is_closed()


async def test_plaintext_listener_answers_a_handshake_with_illegal_sasl_state() -> None:
    async with started() as broker, connected(broker.running, "127.0.0.1") as _none:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.addresses[1].port)
        client = Wire(reader, writer)
        assert await client.select("PLAIN") == ILLEGAL
        assert (await client.call(SaslAuthenticateRequest(auth_bytes=b"x"), 2)).error_code == ILLEGAL
        assert (await client.call(*METADATA)).brokers
        writer.close()


async def test_message_outside_a_login_is_answered_with_illegal_sasl_state() -> None:
    async with wire() as client:
        await client.log_in(plain())
        assert (await client.call(SaslAuthenticateRequest(auth_bytes=b"x"), 2)).error_code == ILLEGAL
        assert (await client.call(*METADATA)).brokers


async def test_memory_before_the_login_is_bounded_cve_2022_34917() -> None:
    """A frame above the limit of the listener is rejected by its size, before its bytes are received."""
    limits = {"sasl.server.max.receive.size": "8192", f"{PREFIX}sasl.server.max.receive.size": "4096"}
    async with started(**limits) as broker:
        async with dialled(broker) as client:
            client.writer.write((4097).to_bytes(4, "big"))
            assert await client.is_closed()
        async with dialled(broker) as client:
            await client.log_in(plain())
            big = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * 200)] * 100)
            assert (await client.call(big, 9)).brokers


def test_limit_before_the_login_is_that_of_kafka() -> None:
    assert BrokerConfig().sasl_server_max_receive_size == 524_288


async def test_user_cannot_choose_another_principal_cve_2017_12610() -> None:
    async with started() as broker:
        async with dialled(broker) as client:
            await client.select("PLAIN")
            message = f"{OTHER}\0{USER}\0{PASSWORD}".encode()
            assert (await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)).error_code == FAILED
            assert await client.is_closed()
        async with dialled(broker) as client:
            await client.select("SCRAM-SHA-256")
            message = f"n,a={OTHER},n={USER},r=abc".encode()
            assert (await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)).error_code == FAILED


async def test_nonce_of_the_last_scram_message_is_compared_cve_2024_56128() -> None:
    """A proof over another nonce than the broker's: an attacker who knows an earlier exchange could repeat it."""

    class Replayed(ScramClient):
        def _steps(self) -> Any:
            steps = super()._steps()
            answer = yield next(steps)
            found = steps.send(answer.replace(b",s=", b"x,s="))  # signs a nonce of its own
            while isinstance(found, Job):
                found = steps.send(found.run())
            yield found

    async with wire() as client:
        answer = await client.log_in(Replayed("SCRAM-SHA-256", USER, PASSWORD))
        assert answer.error_code == FAILED


async def test_secrets_are_compared_in_constant_time_cve_2021_38153(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a comparison byte by byte. Each login that reaches a comparison uses `hmac.compare_digest`."""
    compared: list[int] = []
    compare: Callable[[Any, Any], bool] = hmac.compare_digest

    def counted(left: Any, right: Any) -> bool:
        compared.append(len(left))
        return compare(left, right)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    async with started() as broker:
        for user in (USER, "unknown"):
            for client in (plain(user, "wrong"), ScramClient("SCRAM-SHA-256", user, "wrong")):
                compared.clear()
                async with dialled(broker) as found:
                    assert (await found.log_in(client)).error_code == FAILED
                assert compared, (user, client)
    assert scram.hmac is hmac


@pytest.mark.parametrize(
    "client",
    [plain("unknown"), plain(USER, "wrong one"), ScramClient("SCRAM-SHA-256", USER, "wrong one")],
    ids=["unknown user", "password", "scram"],
)
async def test_failures_have_one_text_and_the_log_has_the_reason(
    client: ClientMechanism, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire() as found:
        answer = await found.log_in(client)
        assert await found.is_closed()
    assert answer.error_code == FAILED
    assert answer.error_message == f"Authentication failed due to invalid credentials with SASL mechanism {client.name}"
    name = USER if client.name != "PLAIN" or "unknown" not in repr(client) else "unknown"
    assert f"invalid user name or password, user {name!r}" in caplog.text and "wrong one" not in caplog.text


async def test_log_has_the_name_of_a_rejected_user_bounded_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    name = "a\nb\x1b[2J" + "c" * 200
    async with started() as broker:
        for client in (plain(name), ScramClient("SCRAM-SHA-256", name, PASSWORD)):
            async with dialled(broker) as found:
                assert (await found.log_in(client)).error_code == FAILED
    lines = [each.getMessage() for each in caplog.records if each.name == login_module.LOGGER.name]
    assert [line.partition(", user ")[2] for line in lines] == [repr(name[:80])]
    assert not any(character in line for line in lines for character in "\n\x1b") and PASSWORD not in caplog.text


async def test_guesses_of_many_users_have_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Each reason has a line a minute in each of 16 groups of names, so one guessed user hides few others."""
    async with started() as broker:
        for number in range(40):
            async with dialled(broker) as client:
                assert (await client.log_in(plain(f"user-{number}"))).error_code == FAILED
    lines = sum(each.name == login_module.LOGGER.name for each in caplog.records)
    assert 5 < lines <= login_module.USER_GROUPS


async def test_repeated_failures_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with started() as broker:
        for _ in range(5):
            async with dialled(broker) as client:
                assert (await client.log_in(plain("unknown"))).error_code == FAILED
    assert sum(each.name == login_module.LOGGER.name for each in caplog.records) == 1


async def test_failure_is_delayed_and_others_are_served_meanwhile() -> None:
    settings = {"connection.failed.authentication.delay.ms": "700"}
    async with started(**settings) as broker, dialled(broker) as client, dialled(broker) as other:
        began = time.monotonic()
        failed = asyncio.ensure_future(client.log_in(plain("unknown")))
        await other.log_in(plain())
        assert (await other.call(*METADATA)).brokers
        assert (await failed).error_code == FAILED
        assert time.monotonic() - began >= 0.7


async def test_requests_behind_a_failed_login_are_never_served(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafkalite.requests")
    async with wire(**{"connection.failed.authentication.delay.ms": "50"}) as client:
        await client.select("PLAIN")
        for request, version in ((SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2), METADATA):
            frame = encode_request(request, version, 8, "wire")
            client.writer.write(len(frame).to_bytes(4, "big") + frame)
        async with asyncio.timeout(ANSWER_S):
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            await client.reader.readexactly(size)
        assert await client.is_closed()
    assert "Metadata" not in caplog.text


async def test_session_is_renewed_by_the_same_user_and_mechanism() -> None:
    async with wire(**{f"{PREFIX}plain.connections.max.reauth.ms": "600000"}) as client:
        for _ in range(3):
            assert 0 < (await client.log_in(plain())).session_lifetime_ms <= 600_000
            assert (await client.call(*METADATA)).brokers


async def test_other_user_cannot_renew_a_session() -> None:
    async with wire() as client:
        await client.log_in(plain())
        answer = await client.log_in(plain(OTHER))
        assert answer.error_code == FAILED and await client.is_closed()


async def test_other_mechanism_cannot_renew_a_session() -> None:
    """Planted bug: the mechanism changes when a connection authenticates again."""
    async with wire() as client:
        await client.log_in(plain())
        answer = await client.log_in(ScramClient("SCRAM-SHA-256", USER, PASSWORD))
        assert answer.error_code == FAILED and await client.is_closed()


async def test_requests_during_a_renewal_close_the_connection() -> None:
    async with wire() as client:
        await client.log_in(plain())
        assert await client.select("PLAIN") == 0
        assert await client.closes(client.call(*METADATA))


@pytest.mark.parametrize("quick", [False, True], ids=["metadata", "heartbeat"])
async def test_request_after_the_session_closes_the_connection(quick: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Heartbeats are answered before the dispatcher, and must end with the session, too."""
    beat = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
    async with wire(**{f"{PREFIX}connections.max.reauth.ms": "200"}) as client:
        assert (await client.log_in(plain())).session_lifetime_ms == 200
        async with asyncio.timeout(ANSWER_S):
            while not await client.closes(client.call(beat, 4) if quick else client.call(*METADATA)):
                await asyncio.sleep(0)
    assert "the session has expired" in caplog.text


async def test_expired_session_can_be_renewed() -> None:
    async with started(**{f"{PREFIX}connections.max.reauth.ms": "200"}) as broker, dialled(broker) as client:
        await client.log_in(plain())
        (connection,) = only_connections(broker)
        async with asyncio.timeout(ANSWER_S):
            while connection.authenticated:
                await asyncio.sleep(0)
        assert (await client.log_in(plain())).error_code == 0
        assert connection.authenticated


async def test_no_secret_in_logs_configs_errors_and_texts_cve_2026_33558(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with started() as broker:
        async with dialled(broker) as client:
            await client.log_in(plain())
            resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=4, resource_name=str(broker.running.broker_id), configuration_keys=None
            )
            described = await client.call(DescribeConfigsRequest(resources=[resource]), 4)
        async with dialled(broker) as client:
            await client.log_in(plain(USER, "another password"))
        config = broker.running.config
        texts = [
            repr(config),
            repr(config.listener_security("SASL_PLAINTEXT")),
            repr(config.sasl_settings("SASL_PLAINTEXT")),
            str(described),
            caplog.text,
        ]
        texts += [repr(broker.running.credentials), repr(plain()), repr(make_credential("SCRAM-SHA-256", PASSWORD))]
    for text in texts:
        assert PASSWORD not in text and "another password" not in text
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({**SETTINGS, f"{PREFIX}plain.sasl.jaas.config": JAAS.replace(";", "")})
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
        "os.system",
    ],
)
def test_no_class_of_a_configuration_is_loaded_cve_2023_25194_2025_27818(module: str) -> None:
    """Only the login module of the mechanism is accepted, by its exact name."""
    with pytest.raises(ConfigError, match="the login module is"):
        BrokerConfig({**SETTINGS, f"{PREFIX}plain.sasl.jaas.config": JAAS.replace(MODULE, module)})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI .Kerberos. is not supported"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "is no SASL mechanism of this broker"),
        ({"sasl.enabled.mechanisms": ""}, "is no SASL mechanism of this broker"),
        ({f"{PREFIX}plain.sasl.jaas.config": f"{MODULE} required;"}, "PLAIN has no user"),
        ({f"{PREFIX}plain.sasl.jaas.config": f"{MODULE} required a=b {MODULE} required;"}, "one login module"),
        ({f"{PREFIX}plain.sasl.jaas.config": f'{MODULE} required user_a="b" user_a="c";'}, "occurs twice"),
        ({f"{PREFIX}connections.max.reauth.ms": "-1"}, "listener.name.sasl_plaintext.connections.max.reauth.ms"),
        ({"listener.name.other.plain.sasl.jaas.config": JAAS}, "there is no listener other"),
        ({"sasl.jaas.config": JAAS}, "write listener.name.NAME.MECHANISM.sasl.jaas.config"),
        ({f"{PREFIX}plain.sasl.server.callback.handler.class": "x.Y"}, "is not supported"),
    ],
)
def test_wrong_settings_are_one_error(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        BrokerConfig({**SETTINGS, **settings})
    assert PASSWORD not in str(caught.value)


def test_jaas_texts_are_read_as_by_java() -> None:
    text = f'{MODULE} Required // a comment\n user_a="x \\"y\\" \\\\ z" /* b */ username=broker password="p;=";'
    security = BrokerConfig({**SETTINGS, f"{PREFIX}plain.sasl.jaas.config": text}).sasl_settings("SASL_PLAINTEXT")
    assert security.plain_users() == {"a": 'x "y" \\ z'}
    options = security.logins["PLAIN"].options
    assert (options["username"], options["password"]) == ("broker", "p;=")


def test_authentication_errors_of_mechanisms_have_no_secret() -> None:
    assert PASSWORD not in repr(AuthenticationError("invalid user name or password"))


async def test_connection_above_the_limit_of_its_principal_is_closed_after_the_login() -> None:
    limit = {"kafkalite.principal.max.connections": "1", "super.users": "User:bob"}
    async with started(**limit) as broker, dialled(broker) as first, dialled(broker) as second:
        assert (await first.log_in(plain())).error_code == 0
        assert await second.closes(second.log_in(plain()))
        assert (await first.log_in(plain())).error_code == 0, "a renewed session is the same connection"
        async with dialled(broker) as third, dialled(broker) as fourth:
            assert (await third.log_in(plain(OTHER))).error_code == 0, "super users have no limit"
            assert (await fourth.log_in(plain(OTHER))).error_code == 0
        first.writer.close()
        await first.writer.wait_closed()
        async with asyncio.timeout(ANSWER_S):
            while len(only_connections(broker)) > 0:
                await asyncio.sleep(0)
        async with dialled(broker) as fifth:
            assert (await fifth.log_in(plain())).error_code == 0
            limits = broker.running.dispatcher.limits
            assert limits is not None and limits._connections is not None
            assert limits._connections.count(Principal("User", USER)) == 1


async def test_share_of_the_request_memory_belongs_to_the_principal_of_the_login() -> None:
    limit = {"kafkalite.principal.max.queued.request.bytes": "1000", "super.users": "User:bob"}
    async with started(**limit) as broker, dialled(broker) as first, dialled(broker) as second:
        limits = broker.running.dispatcher.limits
        assert limits is not None and limits._memory is not None and not len(limits._memory)
        assert (await first.log_in(plain())).error_code == 0
        assert (await first.log_in(plain())).error_code == 0, "a renewed session is the same connection"
        share = limits._memory.share_of(Principal("User", USER))
        assert share is not None and (share.connections_count, share.limit) == (1, 1000)
        assert (await second.log_in(plain(OTHER))).error_code == 0
        assert len(limits._memory) == 1, "super users have no limit"
        first.writer.close()
        await first.writer.wait_closed()
        async with asyncio.timeout(ANSWER_S):
            while len(limits._memory):
                await asyncio.sleep(0)
