"""Clients authenticate with SASL: first, again before their sessions expire, and without success."""

import asyncio
import functools
import logging
from typing import Any

import pytest
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.security import parse_security
from kafkalite_sdk.client.topic_partitions import wait_for_topic
from kafkalite_sdk.columns import ColumnReader
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.producer.producer import Producer

from kafkalite.errors import AuthenticationError, KafkaConnectionError, KafkaErrorCode, error_class
from kafkalite.net.sasl.oauthbearer import OAuthBearerServer
from kafkalite.net.sasl.plain import PlainServer
from kafkalite.net.sasl.scram import ScramServer, make_credential
from kafkalite.net.sasl.steps import Authenticated
from kafkalite.net.sasl.tokens import OAuthToken
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.scripted_sasl import ScriptedSaslBroker
from tests.story.sdk.client_rig import Story, outcome, story

PASSWORD = "correct horse, battery=staple"
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": PASSWORD,
}


def scram(number: int, password: str = PASSWORD) -> dict[str, Any]:
    return {**PLAIN, "sasl_mechanism": f"SCRAM-SHA-{number}", "sasl_password": password}


def oauth(token: Any) -> dict[str, Any]:
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_token": token}


def mechanisms() -> list[Any]:
    def validate(token: str, extensions: Any) -> Authenticated | None:
        return Authenticated("alice") if token == "valid" and extensions.get("org", "1") == "1" else None

    credentials = {each: {"alice": make_credential(each, PASSWORD)} for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")}
    return [
        PlainServer(lambda user, password: (user, password) == ("alice", PASSWORD)),
        *(ScramServer(name, users.get) for name, users in credentials.items()),
        OAuthBearerServer(validate),
    ]


class SaslStory(Story):
    """A cluster with SASL and its clients."""

    broker: ScriptedSaslBroker

    def __init__(self, nodes: int, reauthenticate_s: float | None = None) -> None:
        super().__init__(nodes)
        self.broker = ScriptedSaslBroker(mechanisms(), nodes, self.network, reauthenticate_s)

    @property
    def environment(self) -> Environment:
        return Environment(dial=self.network.dial, random=self.random)

    def secure_client(self, options: dict[str, Any], **settings: Any) -> Any:
        return self.client(security=parse_security(options), **settings)

    def producer(self, options: dict[str, Any], **more: Any) -> Producer:
        return Producer(self.broker.bootstrap, environment=self.environment, **options, **more)

    def consumer(self, options: dict[str, Any], **more: Any) -> Consumer:
        return Consumer(self.broker.bootstrap, environment=self.environment, **options, **more)


sasl_story = functools.partial(story, make=SaslStory)
SHORT_S = 10.0
short_sessions = functools.partial(story, make=functools.partial(SaslStory, reauthenticate_s=SHORT_S))


async def valid_token() -> tuple[str, float]:
    return "valid", 4e12  # as MSK's signer: a token and its expiry in ms


async def token_with_extension() -> OAuthToken:
    return OAuthToken("valid", extensions={"org": "1"})


class Custom:
    """A user-defined mechanism: PLAIN under its own hand."""

    name = "PLAIN"

    async def begin(self, host: str) -> Any:
        return self.steps()

    def steps(self) -> Any:
        assert (yield f"\0alice\0{PASSWORD}".encode()) == b""


GOOD = [PLAIN, scram(256), scram(512), oauth(valid_token), oauth(token_with_extension)]
GOOD.append({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": Custom()})
NAMES = ["plain", "scram-256", "scram-512", "token of MSK", "token with extension", "user-defined"]


@pytest.mark.parametrize("options", GOOD, ids=NAMES)
@sasl_story(nodes=2)
async def test_clients_authenticate_before_their_first_request(world: SaslStory, options: dict[str, Any]) -> None:
    world.broker.cluster.create_topic("orders", 2)
    async with world.producer(options) as producer, world.consumer(options) as consumer:
        await asyncio.gather(*(producer.send("orders", b"%d" % each, partition=each % 2) for each in range(20)))
        consumer.assign([("orders", 0), ("orders", 1)])
        consumer.seek_to_beginning()
        records = []
        while len(records) < 20:
            records += await consumer.poll(timeout=5.0)
    assert sorted(int(each.value) for each in records) == list(range(20))
    assert world.broker.forbidden == [] and set(world.broker.authenticated) == {"alice"}


@pytest.mark.parametrize("options", GOOD, ids=NAMES)
@short_sessions()
async def test_idle_connection_authenticates_again(world: SaslStory, options: dict[str, Any]) -> None:
    async with world.secure_client(options) as client:
        for _ in range(20):
            await pass_time(SHORT_S)
            await client.call(1, MetadataRequest(topics=[]))
    assert world.broker.forbidden == []
    assert 20 <= len(world.broker.authenticated) <= 24  # at 85 to 95 % of each session
    assert {each.connection for each in world.broker.requests(SaslHandshakeRequest)} == {1}


@story(make=functools.partial(SaslStory, reauthenticate_s=1.0))
async def test_requests_keep_their_order_and_none_is_lost_while_sessions_are_renewed(world: SaslStory) -> None:
    """A request leaves each millisecond; the broker resets a connection with one between two SASL messages."""
    topic = world.broker.cluster.create_topic("orders", 1)
    sent = 0
    async with world.producer(scram(256), linger_ms=0) as producer:
        while world.now < 5.0:
            producer.send("orders", b"%d" % sent)
            sent += 1
            await pass_time(0.001)
        await producer.flush()
    (log,) = topic.partitions
    assert log.values() == [b"%d" % each for each in range(sent)]
    assert world.broker.forbidden == [] and len(world.broker.authenticated) >= 5 and log.duplicates == 0
    assert {each.connection for each in world.broker.requests(ProduceRequest)} == {1}


@short_sessions()
async def test_slow_token_delays_no_request(world: SaslStory) -> None:
    calls = 0

    async def token() -> str:
        nonlocal calls
        calls += 1
        if calls > 1:
            await pass_time(0.5)
        return "valid"

    async with world.secure_client(oauth(token)) as client:
        while calls < 2:
            await pass_time(0.01)
        begin = world.now
        await client.call(1, MetadataRequest(topics=[]))
        assert world.now - begin < 0.1
        assert len(world.broker.authenticated) == 1
        await world.broker.until(lambda: len(world.broker.authenticated) == 2)


@short_sessions()
async def test_token_that_is_not_available_at_the_moment_is_requested_again(
    world: SaslStory, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def token() -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("the issuer is down")
        return "valid"

    async with world.secure_client(oauth(token)) as client:
        await pass_time(SHORT_S)
        await client.call(1, MetadataRequest(topics=[]))
    assert calls == 3 and world.broker.forbidden == [] and "no credentials to authenticate again" in caplog.text


@short_sessions()
async def test_session_that_cannot_be_renewed_ends_and_the_next_request_reports_why(world: SaslStory) -> None:
    async with world.secure_client(PLAIN) as client:
        world.broker.mechanisms[0] = PlainServer(lambda user, password: False)
        world.broker.forget_sessions()
        await pass_time(SHORT_S)
        with pytest.raises(AuthenticationError, match="rejected the credentials of PLAIN"):
            await client.call(1, MetadataRequest(topics=[]))


@sasl_story(nodes=3)
async def test_wrong_password_is_reported_once_by_start(world: SaslStory) -> None:
    for options in ({**PLAIN, "sasl_password": "wrong"}, scram(512, "wrong"), oauth(_rejected_token)):
        world.broker.log.clear()
        client = world.new_client(security=parse_security(options))
        error = await outcome(client.start())
        assert isinstance(error, AuthenticationError) and error.fatal and not error.retriable
        assert "rejected the credentials" in str(error) and "check the sasl_* settings" in str(error)
        assert len(world.broker.requests(SaslHandshakeRequest)) == 3  # once for each address
    assert world.now < 5.0


async def _rejected_token() -> str:
    return "other"


@sasl_story()
async def test_mechanism_that_the_broker_does_not_offer(world: SaslStory) -> None:
    del world.broker.mechanisms[2]
    with pytest.raises(
        error_class(KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM),
        match="does not offer the SASL mechanism SCRAM-SHA-512, it offers OAUTHBEARER, PLAIN, SCRAM-SHA-256; change",
    ):
        await world.new_client(security=parse_security(scram(512))).start()


@story()
async def test_listener_without_sasl(world: Story) -> None:
    with pytest.raises(AuthenticationError, match=r'does not serve SASL; set security_protocol to "PLAINTEXT"'):
        await world.new_client(security=parse_security(PLAIN)).start()


@sasl_story()
async def test_client_without_sasl_on_a_listener_with_sasl(world: SaslStory) -> None:
    with pytest.raises(KafkaConnectionError, match=r"does the listener require SASL \(security_protocol\)\?"):
        await world.new_client().start()


@sasl_story()
async def test_credentials_that_become_invalid_fail_records_and_polls_and_nothing_is_repeated(
    world: SaslStory,
) -> None:
    world.broker.cluster.create_topic("orders", 1)
    async with world.consumer(PLAIN) as consumer:
        producer = world.producer(PLAIN)
        await producer.start()
        await producer.send("orders", b"first")
        consumer.assign([("orders", 0)])
        consumer.seek_to_beginning()
        assert [each.value for each in await consumer.poll(timeout=5.0)] == [b"first"]
        world.broker.mechanisms[0] = PlainServer(lambda user, password: False)
        world.broker.forget_sessions()
        world.broker.nodes[1].disconnect()
        for topic in ("orders", "new"):
            with pytest.raises(AuthenticationError, match="rejected the credentials"):
                await producer.send(topic, b"second")
        with pytest.raises(AuthenticationError, match="rejected the credentials"):
            while True:
                await consumer.poll(timeout=5.0)
        await pass_time(10.0)
        attempts = len(world.broker.requests(SaslHandshakeRequest))
        await pass_time(120.0)
        assert len(world.broker.requests(SaslHandshakeRequest)) == attempts
        world.broker.mechanisms[:] = mechanisms()
        world.broker.forget_sessions()
        await producer.send("orders", b"third")  # a later attempt is not refused
        await producer.close()


@sasl_story()
async def test_credentials_that_become_invalid_end_the_reads_of_columns(world: SaslStory) -> None:
    world.broker.cluster.create_topic("orders", 1)
    options: Any = PLAIN
    async with ColumnReader(world.broker.bootstrap, environment=world.environment, **options) as reader:
        world.broker.mechanisms[0] = PlainServer(lambda user, password: False)
        world.broker.forget_sessions()
        world.broker.nodes[1].disconnect()
        began = world.now
        with pytest.raises(AuthenticationError, match="rejected the credentials"):
            await anext(reader.read("orders", 0, 0, 10))
        assert world.now - began < 10.0  # before the timeout of the read


@sasl_story()
async def test_credentials_that_become_invalid_end_the_wait_for_a_topic_of_aiokafkas_clients(world: SaslStory) -> None:
    async with world.secure_client(PLAIN) as client:
        world.broker.mechanisms[0] = PlainServer(lambda user, password: False)
        world.broker.forget_sessions()
        world.broker.nodes[1].disconnect()
        with pytest.raises(AuthenticationError, match="rejected the credentials"):
            await wait_for_topic(client, "new", 40.0)


@sasl_story()
async def test_expired_token_is_named_before_the_first_connection(world: SaslStory) -> None:
    async def expired() -> tuple[str, float]:
        return "valid", 1000.0

    with pytest.raises(AuthenticationError, match=r"returned a token that expired \d+ s ago"):
        await world.new_client(security=parse_security(oauth(expired))).start()
    assert world.broker.log == []


@sasl_story()
async def test_messages_of_the_broker_are_bounded(world: SaslStory) -> None:
    world.broker.on(SaslAuthenticateRequest, edit=lambda response: setattr(response, "auth_bytes", bytes(600_000)))
    with pytest.raises(AuthenticationError, match="a SASL message of the broker has 600000 bytes, limit 524288"):
        await world.new_client(security=parse_security(PLAIN)).start()


@pytest.mark.parametrize("wrong", [False, True], ids=["accepted", "rejected"])
@pytest.mark.parametrize("options", GOOD[:4], ids=NAMES[:4])
@short_sessions()
async def test_secrets_are_in_no_log_error_or_repr(
    world: SaslStory, options: dict[str, Any], wrong: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = f"geheim-{PASSWORD}"
    if "sasl_token" in options:
        secret = "valid" if not wrong else "tokensecret"

        async def token() -> str:
            return secret

        options = oauth(token)
    elif wrong:
        options = {**options, "sasl_password": secret}
    else:
        secret = PASSWORD
    client = world.new_client(security=parse_security(options))
    texts = [repr(client.settings), repr(client.settings.security.sasl)]
    error = await outcome(client.start())
    while isinstance(error, BaseException):
        texts += [repr(error), str(error)]
        error = error.__cause__ or error.__context__
    await pass_time(SHORT_S)
    await client.close()
    texts.append(caplog.text)
    assert not [text for text in texts if secret in text]
