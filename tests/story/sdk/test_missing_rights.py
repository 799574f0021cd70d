"""An error of a missing right names the command that grants it: with these commands alone, clients work at the end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafkalite_sdk.blocking import Consumer, Producer

from kafkalite.errors import AuthorizationError, KafkaErrorCode, with_right
from kafkalite.testing.secured import SecuredBroker
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S

USER, GRANT = "alice", re.compile(r"`kafkalite acl add -u (?:USER|alice) -o (\S+) (--[^`]+)` grants it")
MORE_MAX = 6


@pytest.fixture
def broker() -> Iterator[SecuredBroker]:
    with SecuredBroker(users={USER: "a secret"}, acls=[]) as running:
        running.create_topic("orders")
        yield running


def grant(broker: SecuredBroker, text: str) -> str:
    """Run the command of an error; returns what it grants."""
    found = GRANT.search(text)
    assert found is not None and text.count("kafkalite acl add") == 1, text
    resources = [each.strip().partition(" ") for each in found[2].split("--")[1:]]
    broker.allow(USER, found[1], **{option.replace("-", "_"): name for option, _, name in resources})
    return " ".join([found[1], *(f"{option} {name}".strip() for option, _, name in resources)])


def granted_until(broker: SecuredBroker, call: Callable[[], object]) -> list[str]:
    """Grant what the errors of a call name, until it works."""
    granted: list[str] = []
    for _ in range(MORE_MAX):
        try:
            call()
        except AuthorizationError as error:
            granted.append(grant(broker, str(error)))
        else:
            return granted
    raise AssertionError(f"denied again after {granted}")


def test_producer_and_consumer_work_with_the_rights_that_errors_name(broker: SecuredBroker) -> None:
    settings = broker.client_settings()

    def produce(**more: object) -> None:
        with Producer(broker.address, **settings, **more) as producer:
            producer.send("orders", b"value").result()

    def consume() -> None:
        own = {"group": "billing", "auto_offset_reset": "earliest", **settings}
        with Consumer(broker.address, **own) as consumer:
            consumer.subscribe("orders")
            while not consumer.poll(10.0):
                pass
            consumer.commit()

    def transact() -> None:
        with Producer(broker.address, transactional_id="loader", **settings) as producer, producer.transaction():
            producer.send("orders", b"value").result()

    assert granted_until(broker, produce) == ["idempotent-write cluster", "write topic orders"]
    assert granted_until(broker, consume) == ["read group billing topic orders"]
    assert granted_until(broker, transact) == ["write transactional-id loader"]


def test_commands_name_the_right_that_they_need(broker: SecuredBroker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    lines = {"bootstrap.servers": broker.address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    lines |= {"sasl.username": USER, "sasl.password": "a secret"}
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def run(*args: str) -> list[str]:
        granted: list[str] = []
        for _ in range(MORE_MAX):
            command = [*COMMAND, *args, "--client-config", str(config)]
            options = {"capture_output": True, "text": True, "env": ENVIRON, "timeout": TIMEOUT_S}
            done = subprocess.run(command, input="a line\n", **options)
            if done.returncode == 0:
                return granted
            granted.append(grant(broker, done.stderr))
        raise AssertionError(f"{args} is denied after {granted}: {done.stderr}")

    assert run("topic", "create", "payments") == ["create topic payments"]
    assert run("acl", "list") == ["describe cluster"]
    assert run("topic", "describe", "payments") == ["describe topic payments", "describe-configs topic payments"]
    assert run("quota", "list") == ["describe-configs cluster"]
    assert run("quota", "add", "-u", "bob", "producer_byte_rate=1") == ["alter-configs cluster"]
    assert run("acl", "add", "-u", "bob", "-o", "read", "-t", "payments") == ["alter cluster"]
    assert run("config", "alter", "topic:payments", "--set", "retention.ms=1") == ["alter-configs topic payments"]
    assert run("topic", "delete", "payments") == ["delete topic payments"]
    assert run("topic", "alter", "orders", "--partitions", "2") == ["alter topic orders"]
    assert run("topic", "alter", "orders", "--config", "retention.ms=1") == ["alter-configs topic orders"]
    assert run("topic", "delete-records", "orders", "--before", "-1") == ["delete topic orders"]
    assert run("transaction", "find-hanging", "--topic", "orders") == ["read topic orders"]
    assert run("group", "reset", "billing", "--to", "earliest", "--topic", "orders") == ["read group billing"]
    sent = run("produce", "orders", "--transactional-id", "loader")
    assert sent == ["write transactional-id loader", "write topic orders"]
    assert run("transaction", "terminate", "loader", "--yes") == []


def test_other_errors_are_not_completed() -> None:
    assert with_right(KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, "text", "write", "orders") == "text"
    denied = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
    text = with_right(denied, "text", "write", "a b")
    assert text == "text; `kafkalite acl add -u USER -o write --topic 'a b'` grants it"
    assert with_right(denied, text, "read", "a b") == text
    topics = [f"topic-{number}" for number in range(9)]
    assert with_right(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED, "text", "read", "billing", topics) == (
        "text; `kafkalite acl add -u USER -o read --group billing --topic topic-0 --topic topic-1 --topic topic-2 "
        "--topic topic-3 --topic topic-4` grants it"
    )
