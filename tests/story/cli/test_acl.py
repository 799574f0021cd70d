"""`kafkalite acl` against a broker with an authorizer."""

import json
from collections.abc import Iterator

import pytest

from kafkalite.testing.thread import BrokerThread
from tests.story.cli.conftest import Run
from tests.story.server.test_acls import SECURED


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SECURED) as broker:
        yield broker


def test_acls_are_added_listed_checked_and_removed(kafkalite: Run) -> None:
    done = kafkalite("acl", "add", "-u", "alice", "-o", "read", "-o", "write", "-t", "orders")
    assert done.stdout == (
        "added: allow read for User:alice from * on topic literal orders\n"
        "added: allow write for User:alice from * on topic literal orders\n"
    )
    kafkalite("acl", "add", "-u", "User:*", "-o", "write", "-t", "ord", "--prefixed", "--deny", "--host", "10.0.0.7")
    kafkalite("acl", "add", "-u", "alice", "-o", "idempotent-write", "--cluster")
    listed = [json.loads(line) for line in kafkalite("acl", "list", "-u", "alice", "--json").stdout.splitlines()]
    assert [(each["operation"], each["resource"], each["name"]) for each in listed] == [
        ("read", "topic", "orders"),
        ("write", "topic", "orders"),
        ("idempotent-write", "cluster", "kafka-cluster"),
    ]
    assert kafkalite("acl", "list", "-t", "orders").stdout.count("\n") == 3
    assert kafkalite("acl", "list", "-t", "orders", "--matching").stdout.count("\n") == 4
    allowed = kafkalite("acl", "check", "-u", "alice", "-o", "describe", "-o", "write", "-t", "orders", "--json")
    assert [json.loads(line)["reason"] for line in allowed.stdout.splitlines()] == [
        "allow read for User:alice from * on topic literal orders",
        "allow write for User:alice from * on topic literal orders",
    ]
    denied = kafkalite("acl", "check", "-u", "alice", "-o", "write", "-t", "orders", "--host", "10.0.0.7", code=1)
    assert "denied  deny write for User:* from 10.0.0.7 on topic prefixed ord" in denied.stdout
    assert "denied  no ACL applies" in kafkalite("acl", "check", "-u", "bob", "-o", "read", "-g", "g", code=1).stdout
    kept = kafkalite("acl", "remove", "-u", "alice", "-t", "orders", stdin="n\n", code=2)
    assert "Remove 2 ACL(s)?" in kept.stdout and kept.stderr == "kafkalite: nothing was changed\n"
    unasked = kafkalite("acl", "remove", "-u", "alice", "-t", "orders", stdin="", code=2).stderr
    assert unasked == "kafkalite: nothing was changed: standard input has no answer; give --yes\n"
    assert kafkalite("acl", "remove", "-u", "alice", "-t", "orders", "-y").stdout.count("\n") == 3
    assert kafkalite("acl", "list", "-t", "orders").stdout.count("\n") == 1


def test_wrong_use_ends_with_one_line(kafkalite: Run) -> None:
    assert "give a resource" in kafkalite("acl", "add", "-u", "alice", "-o", "read", code=2).stderr
    assert "give at least one --operation" in kafkalite("acl", "add", "-u", "alice", "-t", "t", code=2).stderr
    assert "give a resource or a --principal" in kafkalite("acl", "remove", code=2).stderr
    assert "INVALID_REQUEST" in kafkalite("acl", "add", "-u", "alice", "-o", "read", "-t", "a/b", code=2).stderr
    assert (
        "is not one of all, read, write," in kafkalite("acl", "add", "-u", "a", "-o", "red", "-t", "t", code=2).stderr
    )
    plain = ("-Xsecurity.protocol=SASL_PLAINTEXT", "-Xsasl.mechanism=PLAIN", "-Xsasl.username=a", "-Xsasl.password=b")
    assert 'set security.protocol to "PLAINTEXT" or "SSL"' in kafkalite("acl", "list", *plain, code=2).stderr


@pytest.mark.parametrize("command", ["add", "check"])
def test_an_operation_that_a_resource_does_not_have_is_rejected(kafkalite: Run, command: str) -> None:
    denied = kafkalite("acl", command, "-u", "alice", "-o", "read", "-o", "write", "-t", "orders", "-g", "g", code=2)
    names = "all, read, delete, describe, describe-configs, alter-configs"
    assert denied.stderr == f"kafkalite: a group has no operation write; it has {names}\n"
    assert "g  " not in kafkalite("acl", "list", "-g", "g").stdout
