"""`kafkalite token` against a broker with SASL."""

from __future__ import annotations

import json
from base64 import b64decode

from tests.story.cli.conftest import As


def test_tokens_are_created_listed_used_renewed_and_removed(as_user: As) -> None:
    created = json.loads(as_user("alice", "token", "create", "--renewer", "bob", "--lifetime", "1h", "--json").stdout)
    token_id, hmac = created["token_id"], created["hmac"]
    assert (created["owner"], created["renewers"]) == ("User:alice", ["User:bob"]) and len(b64decode(hmac)) == 64
    listed = as_user("alice", "token", "list").stdout
    assert token_id in listed and hmac not in listed and "User:bob" in listed
    assert hmac in as_user("bob", "token", "list", "--hmac", "--owner", "alice").stdout
    assert token_id not in as_user("carol", "token", "list").stdout
    login = f"sasl.mechanism=SCRAM-SHA-512 sasl.username={token_id} sasl.password={hmac} sasl.tokenauth=true"
    assert as_user(login, "topic", "list").returncode == 0
    refused = as_user(login, "token", "create", code=2).stderr
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused
    assert as_user("bob", "token", "renew", token_id, "--for", "9h").stdout == f"expires: {created['ends']}\n"
    assert as_user("alice", "token", "expire", hmac, "--in", "30m").stdout.startswith("expires: 20")
    assert "no token with this id" in as_user("carol", "token", "renew", token_id, code=2).stderr
    assert as_user("alice", "token", "expire", token_id).stdout == "removed\n"
    assert token_id not in as_user("alice", "token", "list").stdout
    assert "'9 weeks' is not a duration" in as_user("alice", "token", "create", "--lifetime", "9 weeks", code=2).stderr


def test_a_token_of_another_user_needs_a_right_that_the_error_names(as_user: As) -> None:
    refused = as_user("bob", "token", "create", "--owner", "carol", code=2).stderr
    assert "`kafkalite acl add -u bob -o create-tokens --user OWNER` grants it" in refused
    as_user("alice", "acl", "add", "-u", "bob", "-o", "create-tokens", "--user", "carol")
    created = json.loads(as_user("bob", "token", "create", "--owner", "carol", "--json").stdout)
    assert (created["owner"], created["requester"]) == ("User:carol", "User:bob")
