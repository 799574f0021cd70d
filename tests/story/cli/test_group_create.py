"""Groups whose partitions the broker deals out, on the command line: defined, joined, shown, deleted."""

import asyncio
import json
from typing import Any

import pytest

from kafkalite.net.client import ClientConnection
from kafkalite.testing.thread import BrokerThread
from tests.kit.members import commit, leave, register, starts
from tests.story.cli.conftest import Run


def ask(broker: BrokerThread, request: Any, version_max: int | None = None) -> Any:
    """The broker's answer to a request."""

    async def asked() -> Any:
        host, port = broker.address.rsplit(":", 1)
        async with ClientConnection(host, int(port)) as peer:
            return await peer.call(request, version_max=version_max)

    return asyncio.run(asked())


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_group_from_its_definition_to_its_end(broker: BrokerThread, kafkalite: Run) -> None:
    kafkalite("topic", "create", "billing-a", "--partitions", "2")
    kafkalite("produce", "billing-a", stdin="one\ntwo\nthree")
    said = kafkalite("group", "create", "billing", "--pattern", "billing-.*", "--assignor", "sticky").stdout
    assert said == "created billing, coordinated by broker 1\n"
    (listed,) = objects(kafkalite("group", "list", "--type", "registered", "--json").stdout)
    assert (listed["group"], listed["state"], listed["type"]) == ("billing", "Empty", "registered")

    answer = ask(broker, register("billing", "worker-1"))
    assert sorted(starts(answer)) == [("billing-a", 0), ("billing-a", 1)]
    done = ask(broker, commit("billing", "billing-a", {0: 0, 1: 0}, "worker-1", answer.generation_id), 9)
    assert {part.error_code for part in done.topics[0].partitions} == {0}
    (received,) = objects(kafkalite("group", "describe", "billing", "--json").stdout)
    assert (received["type"], received["state"], received["assignor"]) == ("registered", "Stable", "sticky")
    (member,) = received["members"]
    assert (member["consumer_id"], member["assignment"]) == ("worker-1", [["billing-a", 0], ["billing-a", 1]])
    assert sum(each["lag"] for each in received["partitions"]) == 3
    assert {each["consumer_id"] for each in received["partitions"]} == {"worker-1"}
    assert (
        "billing: type registered, state Stable, 1 member(s), assignor sticky"
        in kafkalite("group", "describe", "billing").stdout
    )

    (first, second) = objects(kafkalite("group", "rewind", "billing", "--to", "latest", "--json").stdout)
    assert first["new_offset"] + second["new_offset"] == 3, "while the member lives"
    assert "(NON_EMPTY_GROUP)" in kafkalite("group", "delete", "billing", code=2).stderr
    ask(broker, leave("billing", "worker-1"))
    assert kafkalite("group", "delete", "billing").stdout == "deleted billing\n"
    assert kafkalite("group", "list", "--type", "registered", "--json").stdout == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--topic", "t", "--assignor", "best"), "is not one of"),
        (
            ("--topic", "t", "--session-timeout-ms", "1"),
            "INVALID_SESSION_TIMEOUT); allowed by group.min.session.timeout.ms",
        ),
        (("--topic", "t", "--session-timeout-ms", "2147483648"), "2147483648 is not in the range"),
        (("--topic", "../t"), "INVALID_TOPIC_EXCEPTION"),
        (("--pattern", "("), "INVALID_REGULAR_EXPRESSION"),
        (("--pattern", "t", "--topic", "t"), "--topic or --pattern"),
        ((), "--topic or --pattern"),
    ],
)
def test_invalid_definition_fails_with_one_line(kafkalite: Run, args: tuple[str, ...], said: str) -> None:
    text = kafkalite("group", "create", "wrong", *args, code=2).stderr
    assert said in text and text.count("\n") == 1


def test_rejected_partitions_are_reported_and_the_others_are_shown(kafkalite: Run) -> None:
    """Of an import and of a group that is moved: the rest is done, and the exit code reports the failure."""
    kafkalite("topic", "create", "orders")
    lines = "\n".join(["orders,0,0", *(f"gone,{n},0" for n in range(7))])
    done = kafkalite("group", "offsets", "import", "--group", "billing", stdin=lines, code=2)
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [["billing", "orders", "0", "-", "0"]]
    gone = ", ".join(f"gone-{n}" for n in range(7))
    assert done.stderr.startswith(f"kafkalite: billing: {gone}: ") and "(UNKNOWN_TOPIC_OR_PARTITION)" in done.stderr
    assert done.stderr.count("\n") == 1
    assert kafkalite("group", "offsets", "export", "billing", "--csv").stdout == "orders,0,0\n"
    none = kafkalite("group", "offsets", "import", "--group", "other", stdin="gone,0,0", code=2)
    assert (none.stdout, none.stderr.count("\n")) == ("", 1)


def test_dry_run_of_an_import_rejects_the_same_lines(kafkalite: Run) -> None:
    kafkalite("topic", "create", "tried")
    lines = "tried,0,5\ntried,7,5\ngone,0,5\n"
    tried = kafkalite("group", "offsets", "import", "--group", "trial", "--dry-run", stdin=lines, code=2)
    assert "GROUP_ID_NOT_FOUND" in kafkalite("group", "describe", "trial", code=2).stderr, "nothing was committed"
    done = kafkalite("group", "offsets", "import", "--group", "trial", stdin=lines, code=2)
    assert (done.stdout, done.stderr) == (tried.stdout, tried.stderr)
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [["trial", "tried", "0", "-", "5"]]


def test_owned_partitions_without_commits_are_moved(broker: BrokerThread, kafkalite: Run) -> None:
    kafkalite("topic", "create", "unread", "--partitions", "2")
    kafkalite("produce", "unread", "--partition", "1", stdin="one\ntwo\n")
    kafkalite("group", "create", "readers", "--topic", "unread")
    none = kafkalite("group", "offsets", "export", "readers")
    assert (none.stdout, none.stderr) == ("", "readers has no committed offsets\n")
    assert kafkalite("group", "describe", "readers").stdout.splitlines()[1:] == ["the group has no committed offsets"]
    assert ask(broker, register("readers", "worker-1")).error_code == 0
    plan = kafkalite("group", "rewind", "readers", "--to", "latest", "--dry-run")
    assert [line.split() for line in plan.stdout.splitlines()[1:]] == [
        ["readers", "unread", "0", "-", "0"],
        ["readers", "unread", "1", "-", "2"],
    ]
    assert plan.stderr == "nothing was changed: --dry-run\n"
    assert kafkalite("group", "offsets", "export", "readers", "--csv").stdout == ""
    moved = kafkalite("group", "rewind", "readers", "--to", "2")
    assert moved.stdout == plan.stdout, "the log of the first partition ends at 0"
    assert moved.stderr == "offset 2 is outside the log of unread-0 (nearest: 0)\n"
    assert kafkalite("group", "offsets", "export", "readers", "--csv").stdout == "unread,0,0\nunread,1,2\n"
