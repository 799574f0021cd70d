"""Errors of commands whose user lacks a right: they name user, operation, resource and the command that grants it."""

from __future__ import annotations

import json

from tests.story.cli.conftest import As

GRANT = "`kafkalite acl add -u bob -o"


def test_errors_name_the_user_of_the_login(as_user: As) -> None:
    as_user("alice", "topic", "create", "orders")
    assert f"{GRANT} describe-configs --cluster` grants it" in as_user("bob", "quota", "list", code=2).stderr
    assert f"{GRANT} delete --topic orders` grants it" in as_user("bob", "topic", "delete", "orders", code=2).stderr
    assert f"{GRANT} read --topic orders` grants it" in as_user("bob", "consume", "orders", "-n", "1", code=2).stderr


def test_the_user_of_a_token_is_not_known_to_the_command(as_user: As) -> None:
    created = json.loads(as_user("carol", "token", "create", "--json").stdout)
    login = (
        f"sasl.mechanism=SCRAM-SHA-512 sasl.username={created['token_id']} sasl.password={created['hmac']} "
        "sasl.tokenauth=true"
    )
    refused = as_user(login, "quota", "list", code=2).stderr
    assert "`kafkalite acl add -u USER -o describe-configs --cluster` grants it" in refused


def test_status_of_a_broker_that_does_not_show_its_state(as_user: As) -> None:
    found = as_user("bob", "cluster", "status", code=1)
    assert "no right" in found.stdout and "silent" not in found.stdout
    assert "does not show its state: CLUSTER_AUTHORIZATION_FAILED (31)" in found.stderr
    assert f"{GRANT} describe-configs --cluster` grants it" in found.stderr
    assert "answers" in as_user("alice", "cluster", "status").stdout
