"""`kafkalite quota` lists, adds and removes client quotas."""

from __future__ import annotations

import json

from tests.story.cli.conftest import Run


def test_quotas_are_added_listed_and_removed(kafkalite: Run) -> None:
    done = kafkalite("quota", "add", "-u", "alice", "producer_byte_rate=1048576", "request_percentage=12.5")
    assert done.stdout.splitlines() == [
        "added: producer_byte_rate=1048576 of user alice",
        "added: request_percentage=12.5 of user alice",
    ]
    kafkalite("quota", "add", "-u", "alice", "--default-client-id", "consumer_byte_rate=7")
    kafkalite("quota", "add", "--ip", "10.0.0.7", "connection_creation_rate=10")
    listed = [json.loads(line) for line in kafkalite("quota", "list", "-u", "alice", "--json").stdout.splitlines()]
    assert [list(row.values()) for row in listed] == [
        [{"user": "alice"}, "producer_byte_rate", 1048576],
        [{"user": "alice"}, "request_percentage", 12.5],
        [{"user": "alice", "client-id": None}, "consumer_byte_rate", 7],
    ]
    table = kafkalite("quota", "list").stdout
    assert table.count("\n") == 5 and "user alice, client-id <default>" in table
    assert kafkalite("quota", "list", "--default-user").stdout.count("\n") == 1
    kafkalite("quota", "remove", "-u", "alice", "producer_byte_rate")
    removed = kafkalite("quota", "remove", "--ip", "10.0.0.7").stdout
    assert removed == "removed: all quotas of ip 10.0.0.7\n"
    assert kafkalite("quota", "list").stdout.count("\n") == 3


def test_errors_say_what_is_expected(kafkalite: Run) -> None:
    for arguments, text in [
        (("add", "-u", "alice", "producer_byte_rate=nan"), "expected producer_byte_rate=NUMBER"),
        (("add", "-u", "alice", "producer_byte_rate=-1"), "with a number above 0"),
        (("add", "-u", "alice", "bytes=1"), "unknown quota 'bytes'"),
        (("add", "producer_byte_rate=1"), "give an entity"),
        (("add", "-u", "alice", "--ip", "10.0.0.7", "producer_byte_rate=1"), "give --ip without --user"),
        (("add", "-u", "alice", "--default-user", "producer_byte_rate=1"), "give either --user or --default-user"),
        (("add", "-u", "alice", "connection_creation_rate=1"), "Invalid configuration key connection_creation_rate"),
        (("remove", "-u", "alice", "bytes"), "unknown quota 'bytes'"),
    ]:
        done = kafkalite("quota", *arguments, code=2)
        assert text in done.stderr and done.stderr.count("\n") == 1, done.stderr
