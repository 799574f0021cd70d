"""What `consume` selects and how it prints it: positions, several topics, isolation, formats, groups."""

import array
import asyncio
import fcntl
import json
import signal
import subprocess
import termios
import time
from datetime import UTC, datetime
from typing import IO

import pytest
from kafkalite_sdk import Admin
from kafkalite_sdk.blocking import Producer

from kafkalite.testing.thread import BrokerThread
from tests.kit.brokers import wait_until
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, Run

HEADERS = [["h", "x"], ["n", None]]
SESSION_S = 6.0
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}
NOON_MS = int(datetime(2013, 7, 1, 12, tzinfo=UTC).timestamp() * 1000)


def record(value: str, minute: int, **fields: object) -> str:
    return json.dumps({"value": value, "timestamp": NOON_MS + 60_000 * minute, **fields})


@pytest.fixture(scope="module")
def orders(broker: BrokerThread) -> str:
    """Two partitions with five records each, one per minute."""
    broker.create_topic("orders", partitions=2, configs={"retention.ms": "-1"})
    lines = [
        record(f"p{partition} r{number}", number, partition=partition, key=f"k{number}", headers=HEADERS)
        for partition in (0, 1)
        for number in range(5)
    ]
    command = [*COMMAND, "produce", "orders", "--json", "-b", broker.address]
    subprocess.run(command, input="\n".join(lines), text=True, check=True, env=ENVIRON, timeout=TIMEOUT_S)
    return "orders"


def lines(kafkalite: Run, *args: str) -> list[str]:
    return sorted(kafkalite("consume", *args).stdout.splitlines())


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("-2", ["p0 r3", "p0 r4", "p1 r3", "p1 r4"]),
        ("+4", ["p0 r4", "p1 r4"]),
        ("2013-07-01T12:03:00Z", ["p0 r3", "p0 r4", "p1 r3", "p1 r4"]),
        (f"@{NOON_MS + 1}", [f"p{partition} r{number}" for partition in (0, 1) for number in range(1, 5)]),
        ("2013-07-02", []),
        ("end", []),
    ],
)
def test_start_of_each_partition(kafkalite: Run, orders: str, position: str, expected: list[str]) -> None:
    assert lines(kafkalite, orders, "--offset", position) == expected


def test_the_last_records_of_one_partition(kafkalite: Run, orders: str) -> None:
    assert kafkalite("consume", orders, "-p", "1", "-o", "-3", "-n", "2").stdout == "p1 r2\np1 r3\n"


def test_several_topics_and_a_pattern(kafkalite: Run, orders: str) -> None:
    for topic in ("several-a", "several-b"):
        kafkalite("produce", topic, stdin=f"of {topic}\n")
    both = ["of several-a", "of several-b"]
    assert lines(kafkalite, "several-a", "several-b", "-e") == both
    assert lines(kafkalite, "--pattern", "several-.*", "-e") == both
    assert "no topic matches 'other-.*'" in kafkalite("consume", "--pattern", "other-.*", "-e", code=2).stderr
    for more in ((), ("--group", "billing")):
        assert "--pattern '(': RE2 rejects it" in kafkalite("consume", "--pattern", "(", "-e", *more, code=2).stderr
    assert "give TOPIC or --pattern, not both" in kafkalite("consume", orders, "--pattern", "x", code=2).stderr


def test_formats(kafkalite: Run, orders: str) -> None:
    first = (orders, "-p", "0", "-e", "-n", "1")
    form = r"%t-%p@%o %T %k(%K)=%s(%S) [%h] 100%%\t\x41\n"
    said = f"orders-0@0 {NOON_MS} k0(2)=p0 r0(5) [h=x,n] 100%\tA\n"
    assert kafkalite("consume", *first, "--format", form).stdout == said
    shown = kafkalite("consume", *first, "--timestamps", "--headers", "-k", ":").stdout
    assert shown == "2013-07-01T12:00:00.000Z\th=x,n\tk0:p0 r0\n"
    for options, text in (
        (("--format", "%q"), "%q is unknown"),
        (("--format", r"\q"), r"\q is unknown"),
        (("--format", "%s", "--headers"), "--format excludes"),
        (("--json", "--timestamps"), "--json excludes"),
    ):
        assert text in kafkalite("consume", *first, *options, code=2).stderr


def test_read_uncommitted_is_accepted(kafkalite: Run, orders: str) -> None:
    assert len(lines(kafkalite, orders, "-e", "--isolation", "read_uncommitted")) == 10


def committed(kafkalite: Run, group: str) -> int:
    """The sum of the committed offsets of a group."""
    exported = kafkalite("group", "offsets", "export", group, "--csv").stdout
    return sum(int(line.rpartition(",")[2]) for line in exported.splitlines())


def test_a_member_commits_what_it_has_printed(kafkalite: Run, orders: str) -> None:
    first = lines(kafkalite, orders, "--group", "counting", "-e", "-n", "4")
    assert committed(kafkalite, "counting") == 4
    second = lines(kafkalite, orders, "--group", "counting", "-n", "6")
    assert sorted(first + second) == lines(kafkalite, orders, "-e")
    described = json.loads(kafkalite("group", "describe", "counting", "--json").stdout)
    assert (described["state"], described["members"]) == ("Empty", []), "the member has left"
    for options in (("-o", "1", "-p", "0"), ("-p", "0")):
        assert "leave out --offset and --partition" in kafkalite("consume", orders, "-g", "g", *options, code=2).stderr
    assert "UNKNOWN_TOPIC_OR_PARTITION" in kafkalite("consume", "nowhere", "-g", "g", code=2).stderr


def test_a_member_ends_at_the_end_of_the_log(kafkalite: Run, orders: str) -> None:
    """The second call continues at the committed offsets."""
    every = kafkalite("consume", orders, "-e").stdout.split()
    assert sorted(kafkalite("consume", orders, "-e", "--group", "until-now").stdout.split()) == sorted(every)
    kafkalite("produce", orders, "-p", "0", stdin="new\n")
    assert kafkalite("consume", orders, "-e", "--group", "until-now").stdout == "new\n"
    assert kafkalite("consume", orders, "-e", "--group", "until-now").stdout == ""


def test_a_member_of_an_empty_topic_ends(kafkalite: Run) -> None:
    kafkalite("topic", "create", "empty", "-p", "2")
    assert kafkalite("consume", "empty", "-e", "--group", "of-an-empty-topic").stdout == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_member_commits_and_leaves(
    kafkalite: Run, broker: BrokerThread, number: signal.Signals, code: int
) -> None:
    topic = group = f"interrupted-{number.name.lower()}"
    kafkalite("produce", topic, stdin="one\ntwo\n")
    command = [*COMMAND, "consume", "--pattern", f"{topic}.*", "-g", group, "-e", "-f", "-b", broker.address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=ENVIRON, text=True, bufsize=1, **pipes) as member:
        assert member.stdout and member.stderr
        try:
            assert [member.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
            member.send_signal(number)
            assert member.wait(TIMEOUT_S) == code
            assert member.stderr.read() == ""
        finally:
            member.kill()
    assert committed(kafkalite, group) == 2
    assert kafkalite("group", "describe", group).stdout.startswith(f"{group}: type consumer, state Empty, 0 member(s)")


def unread(pipe: IO[str]) -> int:
    """Bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


async def assert_one_member(address: str, group: str, seconds: float) -> None:
    """Assert that a group has the same member all this time."""
    ends_at = time.monotonic() + seconds
    async with Admin(address) as admin:
        first = (await admin.groups.describe(group))[group].members
        while time.monotonic() < ends_at:
            found = (await admin.groups.describe(group))[group].members
            assert [each.member_id for each in found] == [first[0].member_id]


def test_a_member_stays_in_its_group_while_its_output_is_not_read() -> None:
    """An interrupt meanwhile waits for the rest of the write: what is committed was printed."""
    sent = "".join(f"{number:099}\n" for number in range(10_000))
    with BrokerThread(settings=SHORT_SESSIONS) as broker:
        broker.create_topic("slow")
        at, options = ("slow", "-b", broker.address), {"env": ENVIRON, "text": True}
        subprocess.run([*COMMAND, "produce", *at], input=sent, check=True, timeout=TIMEOUT_S, **options)
        command = [*COMMAND, "consume", *at, "-g", "slow", "-e"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, **options) as member:
            pipe = member.stdout
            assert pipe is not None
            try:
                capacity = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
                wait_until(lambda: unread(pipe) == capacity, "the pipe is full")
                asyncio.run(assert_one_member(broker.address, "slow", 1.4 * SESSION_S))
                member.send_signal(signal.SIGTERM)
                printed = pipe.read()
                assert member.wait(TIMEOUT_S) == 143
            finally:
                member.kill()
        assert len(printed) > capacity and printed == sent[: len(printed)]
        export = [*COMMAND, "group", "offsets", "export", "slow", "--csv", "-b", broker.address]
        exported = subprocess.run(export, capture_output=True, check=True, timeout=TIMEOUT_S, **options).stdout
        assert exported == f"slow,0,{printed.count(chr(10))}\n"


def test_records_behind_an_open_transaction_are_reported(kafkalite: Run, broker: BrokerThread) -> None:
    broker.create_topic("invoices")
    kafkalite("produce", "invoices", stdin="before\n")
    with Producer(broker.address, transactional_id="open") as producer:
        producer.begin_transaction()
        producer.send("invoices", b"open").result()
        kafkalite("produce", "invoices", stdin="behind\n")
        done = kafkalite("consume", "invoices", "--from-beginning")
        assert done.stdout == "before\n"
        assert done.stderr.startswith("not printed: invoices-0 from offset 1 on, where an open transaction begins; ")
        assert "`kafkalite topic describe invoices --offsets`" in done.stderr
        described = kafkalite("topic", "describe", "invoices", "--offsets").stdout
        assert "transactional id open, state Ongoing" in described
        for options in (("-n", "1"), ("--isolation", "read_uncommitted")):
            assert not kafkalite("consume", "invoices", "--from-beginning", *options).stderr
        producer.commit_transaction()
    done = kafkalite("consume", "invoices", "--from-beginning")
    assert done.stdout == "before\nopen\nbehind\n" and not done.stderr
