"""What a person does with topics and records on the command line."""

import asyncio
import json
import signal
import subprocess
from collections import Counter

import pytest

from kafkalite.cli.consume import BYTES_MAX
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.testing.thread import BrokerThread
from tests.kit.ports import free_port
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, Run


def one_line(text: str) -> str:
    assert text.count("\n") == 1 and text.startswith("kafkalite: "), text
    return text.removeprefix("kafkalite: ").strip()


def test_topic_is_created_altered_described_and_deleted(kafkalite: Run) -> None:
    done = kafkalite("topic", "create", "demo", "--partitions", "2", "--config", "retention.ms=86400000")
    assert done.stdout == "created demo with 2 partition(s)\n"
    listed = [json.loads(line) for line in kafkalite("topic", "list", "--json").stdout.splitlines()]
    (demo,) = [each for each in listed if each["topic"] == "demo"]
    assert (demo["partition_count"], demo["replication_factor"]) == (2, 1)
    kafkalite("topic", "alter", "demo", "-p", "3", "-c", "cleanup.policy=compact", "-u", "retention.ms")
    about = json.loads(kafkalite("topic", "describe", "demo", "--json").stdout)
    assert about["configs"] == {"cleanup.policy": "compact"}
    assert about["topic_id"] == demo["topic_id"]
    assert [each["partition"] for each in about["partitions"]] == [0, 1, 2]
    shown = kafkalite("topic", "describe", "demo").stdout
    assert "  cleanup.policy=compact\n" in shown and "  PartitionCount: 3  ReplicationFactor: 1\n" in shown
    assert ["Partition", "Leader", "LeaderEpoch", "Replicas", "Isr", "OfflineReplicas"] in map(
        str.split, shown.splitlines()
    )
    assert kafkalite("topic", "delete", "demo").stdout == "deleted demo\n"
    assert one_line(kafkalite("topic", "describe", "demo", code=2).stderr).startswith("demo: ")


def test_error_of_the_broker_is_one_line(kafkalite: Run) -> None:
    kafkalite("topic", "create", "taken")
    said = one_line(kafkalite("topic", "create", "taken", code=2).stderr)
    assert said.startswith("taken: ") and "(TOPIC_ALREADY_EXISTS); --if-not-exists " in said
    for args, code in (
        (("topic", "create", "no/name"), "INVALID_TOPIC_EXCEPTION"),
        (("topic", "create", "other", "-c", "retention.ms=soon"), "INVALID_CONFIG"),
        (("topic", "create", "other", "-r", "3"), "INVALID_REPLICATION_FACTOR"),
        (("topic", "alter", "taken", "-p", "1"), "INVALID_PARTITIONS"),
        (("consume", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        assert f"({code})" in one_line(kafkalite(*args, code=2).stderr)
    half = one_line(kafkalite("topic", "alter", "taken", "-p", "1", "-c", "retention.ms=5", code=2).stderr)
    assert half.endswith("(INVALID_PARTITIONS); the configs were altered")
    assert "retention.ms=5" in kafkalite("topic", "describe", "taken").stdout
    assert "; give another -r" in kafkalite("topic", "create", "b", "-r", "3", code=2).stderr
    done = kafkalite("topic", "delete", "taken", "nowhere", code=2)
    assert done.stdout == "deleted taken\n"
    said = one_line(done.stderr)
    assert said.startswith("nowhere: ") and said.endswith("; `kafkalite topic list` lists the topics")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_lines_are_consumed(kafkalite: Run, codec: str) -> None:
    topic = f"lines-{codec}"
    lines = [f"line {i} {'x' * (i % 50)}" for i in range(20_000)]
    done = kafkalite("produce", topic, "-z", codec, stdin="\n".join(lines))
    assert done.stderr == f"created topic {topic} with 1 partition(s)\nsent 20000 record(s) to {topic}\n"
    assert kafkalite("consume", topic, "--from-beginning").stdout.splitlines() == lines
    assert kafkalite("consume", topic, "-e", "-n", "3").stdout.splitlines() == lines[:3]
    assert kafkalite("consume", topic, "-p", "0", "-o", "19998").stdout.splitlines() == lines[19_998:]


def test_all_partitions_are_read_when_one_response_cannot_contain_them(kafkalite: Run) -> None:
    kafkalite("topic", "create", "three-answers", "-p", "3")
    lines = [f"{i:02}" + "x" * 300_000 for i in range(BYTES_MAX // 300_000 + 1)]
    for partition in ("0", "1", "2"):
        kafkalite("produce", "three-answers", "-p", partition, stdin="\n".join(lines))
    read = Counter(line[:2] for line in kafkalite("consume", "three-answers", "--from-beginning").stdout.splitlines())
    assert read == {line[:2]: 3 for line in lines}


def test_keys_choose_the_partition_and_are_shown(kafkalite: Run) -> None:
    kafkalite("topic", "create", "keyed", "-p", "4")
    lines = [f"k{i % 10}:v{i}" for i in range(200)]
    kafkalite("produce", "keyed", "-k", ":", stdin="\n".join(lines) + "\n")
    read = kafkalite("consume", "keyed", "-e", "-k", ":").stdout.splitlines()
    assert Counter(read) == Counter(lines)
    records = [json.loads(line) for line in kafkalite("consume", "keyed", "-e", "--json").stdout.splitlines()]
    topic_partitions = {(record["key"], record["partition"]) for record in records}
    assert len(topic_partitions) == 10, "a key is in one partition"
    assert len({partition for _, partition in topic_partitions}) > 1
    one = kafkalite("consume", "keyed", "-e", "-p", str(records[0]["partition"])).stdout.splitlines()
    assert len(one) == sum(record["partition"] == records[0]["partition"] for record in records)


def test_json_records_survive_produce_and_consume(kafkalite: Run) -> None:
    kafkalite("topic", "create", "json", "-p", "2", "-c", "retention.ms=-1")
    sent = [
        {
            "key": "a",
            "value": "b",
            "headers": [["h", "1"], ["h", None]],
            "partition": 1,
            "timestamp": 1_700_000_000,
        },
        {"key": None, "value": None, "headers": [], "partition": 0, "timestamp": 1_700_000_001},
        {"key": "ü", "value": {"base64": "/wD+"}, "headers": [], "partition": 0, "timestamp": 1_700_000_002},
    ]
    text = "\n".join(map(json.dumps, sent))
    kafkalite("produce", "json", "--json", stdin=text)
    first = kafkalite("consume", "json", "-e", "--json").stdout
    records = [json.loads(line) for line in first.splitlines()]
    bare = [{key: record[key] for key in sent[0]} for record in records]
    assert sorted(bare, key=lambda each: each["timestamp"]) == sent
    kafkalite("topic", "create", "copy", "-p", "2", "-c", "retention.ms=-1")
    kafkalite("produce", "copy", "--json", stdin=first)
    assert kafkalite("consume", "copy", "-e", "--json").stdout == first.replace('"json"', '"copy"')


def test_other_values_of_json_are_sent_as_json(kafkalite: Run) -> None:
    kafkalite("produce", "objects", "--json", stdin='{"value": {"x": [1, null]}, "headers": {"n": 1}}')
    (record,) = map(json.loads, kafkalite("consume", "objects", "-e", "--json").stdout.splitlines())
    assert json.loads(record["value"]) == {"x": [1, None]}
    assert record["headers"] == [["n", "1"]]


@pytest.fixture(scope="module")
def wrong(broker: BrokerThread) -> str:
    """A topic for input that is rejected."""
    broker.create_topic("wrong")
    return "wrong"


@pytest.mark.parametrize(
    ("args", "stdin", "text"),
    [
        (("--json",), '{"value": 1}\nnot json\n', "line 2 is not a JSON record: column 1: Expecting value"),
        (("--json",), '{"key": 1}\n', 'expected an object with a "value"'),
        (("--json",), '{"value": "", "timestamp": "noon"}\n', "its timestamp is 'noon'"),
        (("--json",), '{"value": "", "headers": "h"}\n', "its headers are neither"),
        (("--json",), '{"value": {"base64": "???"}}\n', "is not a JSON record"),
        (("--json",), '{"value": "", "partition": 7}\n', "has partitions 0 to 0, not 7"),
        (("--json",), '{"value": "", "vaule": 1}\n', 'unknown key "vaule"; known keys are key, value,'),
        (("--json",), '{"vaule": 1, "kye": 2}\n', 'unknown keys "kye", "vaule"; known keys are'),
        (("--json",), "[" * 100_000, "is not a JSON record"),
        (("-k", "="), "a=b\nno key\n", "line 2 has no separator '=' between key and value"),
        (("-p", "1"), "x\n", "has partitions 0 to 0, not 1"),
        (("-z", "rar"), "x\n", "'rar' is not one of"),
        (("--json", "-k", "="), "x\n", "--key-separator and --json exclude each other"),
        (("-f", "nowhere.txt"), "", "nowhere.txt"),
    ],
)
def test_wrong_input_is_one_error_line(
    kafkalite: Run, wrong: str, args: tuple[str, ...], stdin: str, text: str
) -> None:
    assert text in one_line(kafkalite("produce", wrong, *args, code=2, stdin=stdin).stderr)


def test_too_large_record_is_reported_with_the_acknowledged_count(kafkalite: Run) -> None:
    kafkalite("topic", "create", "large")
    said = one_line(kafkalite("produce", "large", code=2, stdin="small\n" + "x" * 2_000_000 + "\n").stderr)
    assert "(MESSAGE_TOO_LARGE); change it with `kafkalite topic alter TOPIC --config max.message.bytes=" in said
    assert said.endswith("; 1 record(s) were acknowledged: line 1; continue with line 2"), said
    assert kafkalite("consume", "large", "-e").stdout == "small\n"


def test_lines_are_sent_as_they_arrive(kafkalite: Run, broker: BrokerThread) -> None:
    """Neither side waits for the end of the pipe: what is typed here appears there."""
    kafkalite("topic", "create", "live", "-p", "3")
    at = ("--bootstrap-server", broker.address)
    pipes = {"env": ENVIRON, "text": True, "bufsize": 1, "stdout": subprocess.PIPE}
    reading = subprocess.Popen([*COMMAND, "consume", "live", "-e", "--follow", *at], **pipes)
    command = [*COMMAND, "produce", "live", *at]
    writing = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **pipes)
    with reading, writing:
        assert writing.stdin and reading.stdout
        try:
            for line in ("one", "two", "three", "four"):
                writing.stdin.write(f"{line}\n")
                assert reading.stdout.readline() == f"{line}\n"
            writing.send_signal(signal.SIGINT)
            assert writing.wait(TIMEOUT_S) == 130, "Ctrl-C ends a command that waits for input"
            assert (
                writing.stderr
                and "; 4 record(s) were acknowledged: lines 1 to 4; continue with line 5\n" in writing.stderr.read()
            )
            reading.send_signal(signal.SIGINT)
            assert reading.wait(TIMEOUT_S) == 130
        finally:
            reading.kill()
            writing.kill()


def test_closed_reader_of_the_output_is_not_an_error(kafkalite: Run, broker: BrokerThread) -> None:
    kafkalite("produce", "much", stdin="\n".join(map(str, range(100_000))))
    command = [*COMMAND, "consume", "much", "-e", "--bootstrap-server", broker.address]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout and reading.stderr
        assert reading.stdout.readline() == b"0\n"
        reading.stdout.close()
        assert reading.stderr.read() == b""
        assert reading.wait(TIMEOUT_S) == 141


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("topic", "list", "-b", "nowhere"), "'nowhere' is not an address; write HOST:PORT"),
        (("topic", "list", "-b", "127.0.0.1:99999"), "the port is 99999"),
        (("topic", "create", "x", "-c", "retention"), "write KEY=VALUE"),
        (("topic", "create"), "Missing argument 'TOPIC'"),
        (("topic", "alter", "x"), "nothing to alter"),
        (("consume", "x", "-o", "5"), "--offset is an offset of one partition"),
        (("consume", "x", "-o", "5", "-p", "0", "-e"), "exclude each other"),
        (("consume", "x", "-n", "0"), "'-n'"),
        (("sreve",), "No such command 'sreve'"),
    ],
)
def test_wrong_use_is_one_line(args: tuple[str, ...], text: str) -> None:
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert text in one_line(done.stderr)
    assert done.stdout == ""


def test_the_next_broker_is_tried(kafkalite: Run, broker: BrokerThread) -> None:
    kafkalite("topic", "create", "reached")
    command = [*COMMAND, "topic", "list", "-b", f"127.0.0.1:1,{broker.address}"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert done.returncode == 0 and "reached" in done.stdout
    assert "cannot connect to 127.0.0.1:1" in done.stderr


def test_a_full_output_is_named(kafkalite: Run, broker: BrokerThread) -> None:
    kafkalite("produce", "full", stdin="one\n")
    for args in (("consume", "full", "-e"), ("topic", "list")):
        with open("/dev/full", "wb") as full:
            command = [*COMMAND, *args, "-b", broker.address]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=ENVIRON, timeout=TIMEOUT_S)
        assert (done.returncode, done.stderr) == (2, b"kafkalite: standard output: No space left on device\n"), args


def test_consume_at_the_end_of_the_log_names_the_option_that_waits(kafkalite: Run) -> None:
    kafkalite("produce", "short", stdin="one\n")
    done = kafkalite("consume", "short", "--partition", "0", "--offset", "1")
    assert (done.stdout, done.stderr) == ("", "short-0 ends at offset 1: --follow waits for new records\n")


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_an_offset_outside_the_log_is_an_error_with_the_offsets_of_the_log(
    kafkalite: Run, broker: BrokerThread, follow: list[str]
) -> None:
    topic = f"outside{len(follow)}"
    kafkalite("topic", "create", topic)
    done = kafkalite("consume", topic, "-p", "0", "-o", "9", *follow, code=2)
    step = "--offset 0 --follow waits for new records"
    at = f"{topic}-0: offset 9 is outside the log"
    assert one_line(done.stderr) == f"{at} (log start offset 0, log end offset 0); {step}"
    kafkalite("produce", topic, stdin="0\n1\n2\n")
    done = kafkalite("consume", topic, "-p", "0", "-o", "9", *follow, code=2)
    step = "--offset 3 --follow waits for new records"
    assert one_line(done.stderr) == f"{at} (log start offset 0, log end offset 3); {step}"
    asyncio.run(delete_records(broker.address, topic, 2))
    done = kafkalite("consume", topic, "-p", "0", "-o", "1", *follow, code=2)
    step = "--offset 2 starts at the first record"
    at = f"{topic}-0: offset 1 is outside the log"
    assert one_line(done.stderr) == f"{at} (log start offset 2, log end offset 3); {step}"
    assert kafkalite("consume", topic, "-p", "0", "-o", "2").stdout == "2\n"


async def delete_records(address: str, topic: str, offset: int) -> None:
    """Delete the records of partition 0 below an offset."""
    partition = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])])
    host, port = address.rsplit(":", 1)
    async with ClientConnection(host, int(port)) as peer:
        assert (await peer.call(request)).topics[0].partitions[0].error_code == 0


def test_a_topic_that_produce_creates_is_reported(kafkalite: Run) -> None:
    said = kafkalite("produce", "typo").stderr
    assert said == "created topic typo with 1 partition(s)\nsent 0 record(s) to typo\n"
    assert kafkalite("produce", "typo", stdin="x").stderr == "sent 1 record(s) to typo\n"


def test_records_without_a_key_are_spread_over_the_partitions(kafkalite: Run) -> None:
    kafkalite("topic", "create", "spread", "-p", "3")
    kafkalite("produce", "spread", stdin="\n".join(map(str, range(1000))))
    read = kafkalite("consume", "spread", "-e", "--json").stdout.splitlines()
    held = Counter(json.loads(line)["partition"] for line in read)
    assert sorted(held) == [0, 1, 2] and min(held.values()) > 100, held


def test_an_advertised_name_that_does_not_resolve_is_named_as_advertised() -> None:
    settings = {"advertised.listeners": "PLAINTEXT://nohost.invalid:39545"}
    with BrokerThread(settings=settings) as broker:
        broker.create_topic("t")
        command = [*COMMAND, "consume", "t", "-e", "-b", broker.address]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert done.returncode == 2
    said = one_line(done.stderr)
    assert said.startswith("cannot connect to nohost.invalid:39545: Name or service not known")
    assert f"The cluster behind {broker.address} advertises this address; check advertised.listeners" in said


def test_keep_cr_keeps_the_carriage_return(kafkalite: Run) -> None:
    for topic, args in (("without-cr", ()), ("with-cr", ("--keep-cr",))):
        kafkalite("produce", topic, *args, stdin="one\r\ntwo\r\n")
    values = [
        [json.loads(line)["value"] for line in kafkalite("consume", topic, "-e", "--json").stdout.splitlines()]
        for topic in ("without-cr", "with-cr")
    ]
    assert values == [["one", "two"], ["one\r", "two\r"]]


@pytest.mark.parametrize("args", [("topic", "create", "early", "-p", "3"), ("group", "list"), ("produce", "early")])
def test_a_command_waits_for_a_broker_that_is_starting(args: tuple[str, ...]) -> None:
    port = free_port()
    command = [*COMMAND, *args, "-b", f"127.0.0.1:{port}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, env=ENVIRON, text=True, **pipes) as early:
        assert early.stderr
        said = early.stderr.readline()
        with BrokerThread(settings={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}):
            assert early.wait(TIMEOUT_S) == 0, early.stderr.read()
    assert said.startswith(f"kafkalite: cannot connect to 127.0.0.1:{port}: Connection refused")
    assert said.endswith("; retrying for 20 s\n")


def test_consume_in_a_group_reports_that_the_topic_was_deleted(kafkalite: Run, broker: BrokerThread) -> None:
    kafkalite("topic", "create", "deleted")
    kafkalite("produce", "deleted", stdin="one\n")
    command = [*COMMAND, "consume", "deleted", "-e", "--follow", "--group", "reads-deleted", "-b", broker.address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRON}
    with subprocess.Popen(command, **pipes) as reading:
        try:
            assert reading.stdout is not None and reading.stderr is not None
            assert reading.stdout.readline() == "one\n"
            kafkalite("topic", "delete", "deleted")
            line = reading.stderr.readline()
            reading.send_signal(signal.SIGINT)
            reading.communicate(timeout=TIMEOUT_S)
        finally:
            reading.kill()
    assert line == (
        "kafkalite: a consumer of group reads-deleted reads topic deleted: "
        "the cluster does not have it; check the name, or create the topic\n"
    )
