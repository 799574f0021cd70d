"""`kafkalite transaction`, and transactions in `topic describe` and `group describe`, against either broker."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException
from kafkalite_sdk.blocking import Admin

from kafkalite.cli.main import main
from kafkalite.errors import InvalidRequestError, TransactionalIdNotFoundError
from kafkalite.model import TopicPartition
from tests.compat.conftest import MakeTopic, topic_maker, unused_name
from tests.kit.brokers import Broker, broker_under_test, wait_until
from tests.kit.clients import Confluent, Record
from tests.kit.clients.model import DEADLINE_S
from tests.kit.clients.sdk import read_to_end
from tests.kit.clients.transactional import hang, transactional_producer
from tests.kit.isolated import Isolated

SETTINGS = {
    "transaction.partition.verification.enable": "false",  # a late batch begins a transaction that hangs
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PRODUCER_IDS = itertools.count(1_000_000)  # of producers that no coordinator knows
Kafkalite = Callable[..., Result]
Start = Callable[[str], Isolated]
Produce = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that does not verify transactional batches."""
    with broker_under_test(tmp_path_factory.mktemp("transactions"), SETTINGS) as running:
        yield running


@pytest.fixture
def kafkalite(broker: Broker) -> Kafkalite:
    """Runs the command: `kafkalite("transaction", "list", code=0)`."""

    def run(*args: str, code: int = 0, stdin: str | None = None) -> Result:
        done = CliRunner().invoke(main, [*args, "--bootstrap-server", broker.address], input=stdin)
        assert done.exit_code == code, (args, done.output, done.exception)
        return done

    return run


@pytest.fixture
def new_topic(broker: Broker, request: pytest.FixtureRequest) -> MakeTopic:
    """Make a topic at this broker."""
    return topic_maker(broker.address, request.node.originalname)


@pytest.fixture
def start(broker: Broker) -> Iterator[Start]:
    """Start a transactional producer; all are ended with the test."""
    with_all: list[Isolated] = []

    def begin(transactional_id: str) -> Isolated:
        with_all.append(transactional_producer(broker.address, transactional_id))
        return with_all[-1]

    yield begin
    for each in with_all:
        each.close()


@pytest.fixture
def produce(broker: Broker) -> Produce:
    """Runs `kafkalite produce` in a process of its own, which has a standard input; returns its standard error."""

    def run(*args: str, stdin: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "kafkalite", "produce", *args, "--bootstrap-server", broker.address]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == code, done.stderr
        return done.stderr

    return run


def objects(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def names(done: Result) -> list[str]:
    return [each["transactional_id"] for each in objects(done)]


def error_line(done: Result) -> str:
    (line,) = done.stderr.splitlines()
    return line


def test_transactions_are_listed_by_state_producer_pattern_age_and_partition(
    kafkalite: Kafkalite, new_topic: MakeTopic, start: Start
) -> None:
    topic, stem = new_topic(2), unused_name("listed")
    first, second = f"{stem}-a", f"{stem}-b"
    open_one, ended = start(first), start(second)
    ended.send(topic, b"0", begin=True)
    ended.commit()
    open_one.send(topic, b"1", begin=True, partition=1)

    def listed(*args: str) -> list[str]:
        return [name for name in names(kafkalite("transaction", "list", "--json", *args)) if name.startswith(stem)]

    wait_until(lambda: listed("--state", "CompleteCommit") == [second], "the end of the transaction")
    assert listed() == [first, second]
    assert listed("--state", "ongoing") == [first]
    assert listed("--pattern", f"{stem}-[b-z]") == [second]
    assert listed("--pattern", stem) == [], "the whole id matches"
    assert listed("--older-than", "3600") == []
    wait_until(lambda: listed("--older-than", "0.01") == [first], "an age of 10 ms")
    assert listed("--topic", f"{topic}:1") == [first] == listed("--topic", topic)
    assert listed("--topic", f"{topic}:0") == []
    found = {each["transactional_id"]: each for each in objects(kafkalite("transaction", "list", "--json"))}
    producer_id = found[first]["producer_id"]
    assert listed("--producer-id", str(producer_id)) == [first]
    table = kafkalite("transaction", "list", "--pattern", f"{stem}.*").stdout.splitlines()
    assert table[0].split() == ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"]
    assert table[1].split() == [first, str(found[first]["coordinator"]), str(producer_id), "Ongoing"]
    open_one.abort()


def test_transactions_are_described(kafkalite: Kafkalite, new_topic: MakeTopic, start: Start) -> None:
    topic, name = new_topic(2), unused_name("described")
    producer = start(name)
    producer.send(topic, b"0", begin=True)
    producer.send(topic, b"1", partition=1)
    (shown,) = objects(kafkalite("transaction", "describe", name, "--json"))
    assert (shown["transactional_id"], shown["state"], shown["timeout_ms"]) == (name, "Ongoing", 60_000)
    assert shown["partitions"] == [[topic, 0], [topic, 1]]
    assert 0 <= shown["age_seconds"] < 60
    head, row = kafkalite("transaction", "describe", name).stdout.splitlines()
    assert head.split()[-1] == "PARTITIONS" and row.split()[-1] == f"{topic}-0,{topic}-1"
    producer.commit()
    wait_until(lambda: "CompleteCommit" in kafkalite("transaction", "describe", name).stdout, "the commit")
    (shown,) = objects(kafkalite("transaction", "describe", name, "--json"))
    assert (shown["partitions"], shown["age_seconds"]) == ([], None)
    refused = error_line(kafkalite("transaction", "describe", name, "nobody", code=2))
    assert refused.endswith(
        "nobody: there is no such transactional id (TRANSACTIONAL_ID_NOT_FOUND); "
        "`kafkalite transaction list` lists the transactional ids"
    )


def test_topic_describe_shows_last_stable_offset_and_oldest_transaction(
    kafkalite: Kafkalite, new_topic: MakeTopic, start: Start
) -> None:
    topic, name = new_topic(2), unused_name("oldest")
    producer = start(name)
    producer.send(topic, b"0", b"1", begin=True)
    producer.commit()
    producer.send(topic, b"2", begin=True)

    def described() -> tuple[dict[str, Any], dict[str, Any]]:
        (found,) = objects(kafkalite("topic", "describe", topic, "--offsets", "--json"))
        first, second = found["partitions"]
        return first, second

    first, second = described()
    assert (first["log_start_offset"], first["last_stable_offset"], first["log_end_offset"]) == (0, 3, 4)
    oldest = first["oldest_transaction"]
    assert (oldest["start_offset"], oldest["transactional_id"], oldest["state"]) == (3, name, "Ongoing")
    assert not oldest["hanging"]
    assert (second["last_stable_offset"], second["oldest_transaction"]) == (0, None)
    text = kafkalite("topic", "describe", topic, "-o").stdout
    assert f"{topic}-0: transaction of producer {oldest['producer_id']} epoch" in text
    assert "from offset 3 on, last batch " in text and f"transactional id {name}, state Ongoing\n" in text
    producer.abort()
    wait_until(lambda: described()[0]["last_stable_offset"] == 5, "the abort marker")
    assert described()[0]["oldest_transaction"] is None


def test_group_describe_shows_pending_offsets_and_lag_to_last_stable_offset(
    kafkalite: Kafkalite, broker: Broker, new_topic: MakeTopic, start: Start
) -> None:
    topic, group, name = new_topic(), unused_name("pending"), unused_name("sender")
    Confluent().write(broker.address, topic, [Record(b"x") for _ in range(3)])
    kafkalite("group", "reset", group, "--to", "1", "--topic", topic)
    producer = start(name)

    def described() -> dict[str, Any]:
        (found,) = objects(kafkalite("group", "describe", group, "--json"))
        (partition,) = found["partitions"]
        return {
            key: partition[key]
            for key in ("current_offset", "lag", "last_stable_offset", "stable_lag", "pending_offset")
        }

    assert described() == {
        "current_offset": 1, "lag": 2, "last_stable_offset": 3, "stable_lag": 2, "pending_offset": False
    }  # fmt: skip
    assert "PENDING-OFFSET" not in kafkalite("group", "describe", group).stdout
    producer.send(topic, b"3", begin=True)
    producer.send_offset(group, topic, 2)
    assert described() == {
        "current_offset": 1, "lag": 3, "last_stable_offset": 3, "stable_lag": 2, "pending_offset": True
    }  # fmt: skip
    _, head, row = kafkalite("group", "describe", group).stdout.splitlines()
    assert head.split()[-3:] == ["LAST-STABLE-OFFSET", "STABLE-LAG", "PENDING-OFFSET"]
    assert row.split()[-3:] == ["3", "2", "yes"]
    producer.commit()
    wait_until(
        lambda: (
            described()
            == {"current_offset": 2, "lag": 3, "last_stable_offset": 5, "stable_lag": 3, "pending_offset": False}
        ),
        "the commit of the offset",
    )


def test_hanging_transaction_is_found_and_aborted(
    kafkalite: Kafkalite, broker: Broker, new_topic: MakeTopic, start: Start
) -> None:
    topic, name, producer_id = new_topic(2), unused_name("alive"), next(PRODUCER_IDS)
    producer = start(name)
    producer.send(topic, b"open", begin=True)
    hang(broker.address, topic, producer_id)
    hang(broker.address, topic, producer_id, partition=1)

    def hanging(*args: str) -> list[tuple[int, int, int]]:
        found = objects(kafkalite("transaction", "find-hanging", "--older-than", "0", "--json", *args))
        return [
            (each["partition"], each["producer_id"], each["start_offset"]) for each in found if each["topic"] == topic
        ]

    both = [(0, producer_id, 1), (1, producer_id, 0)]
    wait_until(lambda: hanging() == both, "an age above 0")
    assert hanging("--topic", f"{topic}:1") == both[1:]
    brokers = kafkalite("transaction", "find-hanging", "--broker", "99", code=2)
    assert "broker 99: not in the cluster" in error_line(brokers)
    assert kafkalite("transaction", "find-hanging", "--topic", topic).stdout.splitlines()[1:] == [], (
        "younger than 900 s"
    )
    shown = kafkalite("transaction", "find-hanging", "--topic", topic, "--older-than", "0")
    assert shown.stdout.split()[:3] == ["TOPIC", "PARTITION", "PRODUCER-ID"]
    command = f"`kafkalite transaction abort {topic}:0 --start-offset 1`"
    assert error_line(shown) == f"2 transaction(s) hang; {command} ends the first one"
    text = kafkalite("topic", "describe", topic, "-o").stdout
    assert "; no coordinator knows it\n" in text

    abort = ("transaction", "abort", f"{topic}:0")
    assert "has 2 open transactions; give --start-offset, one of 0, 1" in error_line(kafkalite(*abort, code=2))
    known = error_line(kafkalite(*abort, "--start-offset", "0", "--yes", code=2))
    assert f"`kafkalite transaction terminate {name}` aborts it in all partitions" in known
    assert "open ones begin at 0, 1" in error_line(kafkalite(*abort, "--start-offset", "7", code=2))
    unanswered = kafkalite(*abort, "--start-offset", "1", code=2, stdin="")
    assert "nothing was changed: standard input has no answer; give --yes" in unanswered.stderr
    declined = kafkalite(*abort, "--start-offset", "1", code=2, stdin="n\n")
    assert "nothing was changed" in declined.stderr
    assert f"transaction of producer {producer_id} epoch 0 from offset 1 on" in declined.stdout
    assert hanging() == both
    done = kafkalite(*abort, "--start-offset", "1", stdin="y\n")
    assert done.stdout.endswith(f"aborted the transaction from offset 1 on in {topic}-0\n")
    assert kafkalite("transaction", "abort", f"{topic}:1", "--yes").exit_code == 0, "the only one"
    assert hanging() == []
    assert f"{topic}-1 has no open transaction" in error_line(
        kafkalite("transaction", "abort", f"{topic}:1", "--yes", code=2)
    )
    producer.commit()
    wait_until(lambda: len(read_to_end(broker.address, topic, "read_committed")) == 1, "the commit")
    assert [each.value for each in read_to_end(broker.address, topic, "read_committed")] == [b"open"]


def test_transaction_is_terminated(kafkalite: Kafkalite, broker: Broker, new_topic: MakeTopic, start: Start) -> None:
    topic, name = new_topic(), unused_name("terminated")
    producer = start(name)
    producer.send(topic, b"never", begin=True)
    declined = kafkalite("transaction", "terminate", name, code=2, stdin="n\n")
    assert f"{name}: producer " in declined.stdout and f", in {topic}-0\n" in declined.stdout
    assert "abort its transaction?" in declined.stdout and "nothing was changed" in declined.stderr
    done = kafkalite("transaction", "terminate", name, stdin="y\n")
    assert f"terminated {name}: producer " in done.stdout and "is fenced below epoch" in done.stdout
    with pytest.raises(KafkaException) as raised:
        producer.commit()
    assert raised.value.args[0].fatal()
    assert read_to_end(broker.address, topic, "read_committed") == []
    again = start(name)
    again.send(topic, b"next", begin=True)
    again.commit()
    wait_until(lambda: len(read_to_end(broker.address, topic, "read_committed")) == 1, "the commit")
    done = kafkalite("transaction", "terminate", name, "--yes")
    assert "state CompleteCommit" in done.stdout
    refused = error_line(kafkalite("transaction", "terminate", "nobody", "--yes", code=2))
    assert "(TRANSACTIONAL_ID_NOT_FOUND); `kafkalite transaction list`" in refused
    assert "nobody" not in names(kafkalite("transaction", "list", "--json")), "it was not created"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "--state", "Open"], "'Open' is not one of"),
        (["list", "--producer-id", "-1"], "is not in the range"),
        (["list", "--older-than", "-1"], "is not in the range"),
        (["list", "--pattern", "("], "INVALID_REGULAR_EXPRESSION"),
        (["list", "--topic", "orders:x"], "does not name partitions"),
        (["list", "--topic", "nowhere"], "(UNKNOWN_TOPIC_OR_PARTITION); `kafkalite topic list`"),
        (["describe"], "Missing argument 'TRANSACTIONAL-ID'"),
        (["abort", "orders", "--yes"], "write TOPIC:PARTITION, for example orders:0"),
        (["abort", "orders:0,1", "--yes"], "does not name one partition"),
        (["abort", "nowhere:0", "--yes"], "(UNKNOWN_TOPIC_OR_PARTITION)"),
        (["find-hanging", "--older-than", "soon"], "'soon' is not a valid float"),
        (["terminate"], "Missing argument 'TRANSACTIONAL-ID'"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(kafkalite: Kafkalite, arguments: list[str], text: str) -> None:
    assert text in error_line(kafkalite("transaction", *arguments, code=2))


def test_blocking_admin_reads_and_ends_transactions(
    kafkalite: Kafkalite, broker: Broker, new_topic: MakeTopic, start: Start
) -> None:
    topic, name, producer_id = new_topic(), unused_name("blocking"), next(PRODUCER_IDS)
    producer = start(name)
    producer.send(topic, b"open", begin=True)
    hang(broker.address, topic, producer_id)
    at = TopicPartition(topic, 0)
    with Admin(broker.address) as admin:
        described = admin.transactions.describe(name)[name]
        assert described.is_open and described.coordinator in broker.ids
        (listed,) = admin.transactions.list(pattern=name, states=["Ongoing"])
        assert (listed.producer_id, listed.coordinator) == (described.producer_id, described.coordinator)
        with pytest.raises(InvalidRequestError, match="does not know the states 'Open'"):
            admin.transactions.list(states=["Open"])
        producers = admin.transactions.describe_producers([at])[at]
        assert {each.producer_id for each in producers} == {producer_id, described.producer_id}
        known, lost = admin.transactions.find_open([at])[at]
        assert (known.transactional_id, known.is_hanging, known.start_offset) == (name, False, 0)
        assert (lost.transactional_id, lost.is_hanging, lost.producer_id) == (None, True, producer_id)
        assert abs(known.last_timestamp_ms - time.time() * 1000) < 60_000
        assert admin.transactions.find_hanging([at], older_than_ms=10**15).results == {}
        (found,) = admin.transactions.find_hanging([at], older_than_ms=0)[at]
        admin.transactions.abort(found)
        assert admin.transactions.find_hanging([at], older_than_ms=0).results == {}
        fenced = admin.transactions.fence_producers(name, f"{name}-new").check()
        assert fenced[name].producer_id == described.producer_id
        assert fenced[name].producer_epoch > described.producer_epoch
        assert admin.transactions.describe(f"{name}-new")[f"{name}-new"].state == "Empty"
        assert admin.transactions.terminate(name).producer_epoch > fenced[name].producer_epoch
        with pytest.raises(TransactionalIdNotFoundError):
            admin.transactions.terminate("nobody")
        assert read_to_end(broker.address, topic, "read_committed") == []


def test_produce_commits_lines_in_transactions(broker: Broker, new_topic: MakeTopic, produce: Produce) -> None:
    topic, name = new_topic(), unused_name("loader")

    def committed() -> list[bytes | None]:
        return [each.value for each in read_to_end(broker.address, topic, "read_committed")]

    stderr = produce(topic, "--transactional-id", name, "--commit-every", "2", stdin="1\n2\n3\n4\n5\n")
    assert stderr == f"committed 5 record(s) to {topic} in 3 transaction(s)\n"
    wait_until(lambda: len(committed()) == 5, "the last marker")
    lines = "".join(f'{{"value": "{each}"}}\n' for each in "abc") + "{bad\n"
    stderr = produce(topic, "--json", "--transactional-id", name, "--commit-every", "2", stdin=lines, code=2)
    assert stderr.startswith("kafkalite: line 4 is not a JSON record")
    assert stderr.endswith("; 2 record(s) were committed: lines 1 to 2; continue with line 3\n")
    large = "x" * 1_100_000
    stderr = produce(topic, "--transactional-id", name, stdin=f"6\n{large}\n7\n", code=2)
    assert "kafkalite: line 2: " in stderr and "MESSAGE_TOO_LARGE" in stderr
    assert stderr.endswith("; 0 record(s) were committed; continue with line 1\n")
    assert produce(topic, "--transactional-id", name, stdin="8\n9\n").endswith("in 1 transaction(s)\n")
    wait_until(lambda: len(committed()) == 9, "the last marker")
    assert committed() == [b"1", b"2", b"3", b"4", b"5", b"a", b"b", b"8", b"9"]


def test_bad_options_of_produce_in_transactions(new_topic: MakeTopic, produce: Produce) -> None:
    topic = new_topic()
    assert "--commit-every needs --transactional-id" in produce(topic, "--commit-every", "2", stdin="", code=2)
    assert "--transactional-id is empty" in produce(topic, "--transactional-id", "", stdin="", code=2)
    options = (topic, "--transactional-id", unused_name("wrong"))
    assert "is not in the range x>=1" in produce(*options, "--commit-every", "0", stdin="", code=2)
    assert "transactional_id needs acks" in produce(*options, "-X", "acks=1", stdin="", code=2)
    timeout = produce(*options, "-X", "transaction.timeout.ms=900001", stdin="1\n", code=2)
    assert "INVALID_TRANSACTION_TIMEOUT" in timeout and len(timeout.splitlines()) == 1
