"""What users write for partitions, positions and offsets, and what is refused in one line."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from kafkalite_sdk.admin import Committed

from kafkalite.cli.client_options import SHOWN_MAX, check, next_steps
from kafkalite.cli.failure import Failure
from kafkalite.cli.group.commands import ASSIGNORS
from kafkalite.cli.group.offset_lines import by_group, csv_lines, json_lines, read_lines, znode_lines
from kafkalite.cli.group.reset_offsets import say_outside
from kafkalite.cli.main import main
from kafkalite.cli.positions import EARLIEST, LATEST, Position, parse_to, parse_topics
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.groups.assignors import ASSIGNORS as KNOWN


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", Position(None, EARLIEST)),
        ("latest", Position(None, LATEST)),
        ("LATEST", Position(None, LATEST)),
        ("start", Position(None, EARLIEST)),
        ("End", Position(None, LATEST)),
        ("+10", Position(None, EARLIEST, 10)),
        ("+0", Position(None, EARLIEST)),
        ("-10", Position(None, LATEST, -10)),
        ("0", Position(0)),
        ("9223372036854775807", Position(2**63 - 1)),
        ("@1372636800000", Position(None, 1_372_636_800_000)),
        ("2013-07-01", Position(None, 1_372_636_800_000)),
        ("2013-07-01T02:00:00+02:00", Position(None, 1_372_636_800_000)),
        ("2013-07-01T00:00:00.250Z", Position(None, 1_372_636_800_250)),
    ],
)
def test_positions(text: str, meant: Position) -> None:
    assert parse_to(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-",
        "+",
        "+1.5",
        "--1",
        "-x",
        "@",
        "@-5",
        "1.5",
        "-9223372036854775808",
        "9223372036854775808",
        "1969-12-31",
        "²",
        "9" * 5000,
    ],
)
def test_invalid_positions(text: str) -> None:
    with pytest.raises(Failure):
        parse_to(text)


def test_partitions() -> None:
    assert parse_topics(["a", "b:0", "c:2,0", "b:1"]) == {"a": None, "b": [0, 1], "c": [0, 2]}
    assert parse_topics(["a:1", "a"]) == {"a": None} == parse_topics(["a", "a:1"])
    for text in ("", ":0", "a:", "a:x", "a:0,", "a:-1", f"a:{'9' * 5000}"):
        with pytest.raises(Failure):
            parse_topics([text])


def test_produced_lines_are_consumed() -> None:
    odd = {TopicPartition('to"pic,', 3): Committed(7, ""), TopicPartition("t", 0): Committed(0, "")}
    noted = {TopicPartition("t", 0): Committed(1, "was here\n")}
    assert by_group(read_lines(json_lines({"g": odd, "h": noted})), None) == {"g": odd, "h": noted}
    assert by_group(read_lines(csv_lines({"g": odd, "h": {**odd}})), None) == {"g": odd, "h": odd}
    assert by_group(read_lines(csv_lines({"g": odd})), "other") == {"other": odd}
    assert by_group(read_lines(znode_lines({"g": {TopicPartition("t", 0): Committed(2**62, "lost")}})), None) == {
        "g": {TopicPartition("t", 0): Committed(2**62, "")}
    }
    assert by_group(read_lines(["", " \n", "t,0,1\r\n", "t,0,2\n"]), "g") == {
        "g": {TopicPartition("t", 0): Committed(2, "")}
    }


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"a":' * 100_000,
        '{"topic": "t", "partition": 0}',
        '{"topic": "t", "partition": true, "offset": 1}',
        '{"topic": "t", "partition": 2147483648, "offset": 1}',
        '{"topic": "t", "partition": 0, "offset": -1}',
        '{"topic": "t", "partition": 0, "offset": 1.0}',
        '{"topic": "", "partition": 0, "offset": 1}',
        '{"topic": "t", "partition": 0, "offset": 1, "group": 5}',
        '{"topic": "t", "partition": 0, "offset": 1, "metadata": null}',
        "t",
        "t,0",
        "t,zero,0",
        "a,b,t,0,1",
    ],
)
def test_lines_that_are_no_offsets(line: str) -> None:
    with pytest.raises(Failure, match="line 2 is not a committed offset"):
        list(read_lines(["g,t,0,1", line]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hello", "it has 1 column(s), expected topic,partition,offset or group,topic,partition,offset"),
        ("a,b,t,0,1", "it has 5 column(s)"),
        ("topic,partition,offset", "its partition is 'partition', expected an integer from 0 to 2147483647"),
        ("t,0,-1", "its offset is -1, expected an integer from 0 to 9223372036854775807"),
        ("t,0,1_0", "its offset is '1_0', expected an integer"),
        (f"t,0,{'9' * 5000}", "its offset is '999"),
        ('{"topic": ', "invalid JSON: Expecting value at character 11"),
    ],
)
def test_invalid_line_fails_with_its_reason(line: str, said: str) -> None:
    with pytest.raises(Failure) as failed:
        list(read_lines([line]))
    assert failed.value.message.startswith(f"line 1 is not a committed offset: {said}")


def test_all_invalid_lines_are_named() -> None:
    with pytest.raises(Failure) as failed:
        list(read_lines(["t,0,1", "x", "t,0,1", "{", *["y"] * SHOWN_MAX]))
    assert failed.value.message.startswith("line 2 is not a committed offset: it has 1 column(s)")
    assert "; line 4 is not a committed offset: invalid JSON" in failed.value.message
    assert failed.value.message.endswith("; and 2 more")


@pytest.mark.parametrize("group", ["a/b", "a\nb"])
def test_a_group_that_zookeeper_cannot_have_has_no_znode_lines(group: str) -> None:
    with pytest.raises(Failure, match="not the name of a znode"):
        list(znode_lines({group: {TopicPartition("t", 0): Committed(1)}}))


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    """With a mark at its begin, which belongs to no topic, and with its ends of lines."""
    (tmp_path / "offsets.csv").write_bytes(b"\xef\xbb\xbf{broken\r\n")
    done = CliRunner().invoke(main, ["group", "offsets", "import", str(tmp_path / "offsets.csv")])
    assert "invalid JSON" in done.stderr, "the brace is the first character"


def test_errors_end_with_the_next_step() -> None:
    gone, full, other = Error.GROUP_ID_NOT_FOUND, Error.NON_EMPTY_GROUP, Error.INVALID_RECORD
    with pytest.raises(Failure, match=r"^g: .*\(GROUP_ID_NOT_FOUND\); `kafkalite group list` lists"):
        check(gone, None, "g")
    with pytest.raises(Failure, match=r"\(INVALID_RECORD\)$"):
        check(other, None, "g")
    assert next_steps([gone, full, other, gone]) == next_steps([gone]) + next_steps([full])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("create", "g"), "give --topic or --pattern"),
        (("create", "g", "-t", "a", "--pattern", "b"), "give --topic or --pattern"),
        (("reset", "g"), "--to"),
        (("offsets", "import", "/no/such/file"), "No such file"),
    ],
)
def test_wrong_uses_take_one_line(args: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, ["group", *args, "-b", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("gruop", "list"), "No such command 'gruop'. Did you mean 'group'? See kafkalite --help."),
        (("group", "lsit"), "No such command 'lsit'. Did you mean 'list'? See kafkalite group --help."),
        (("nonsense",), "No such command 'nonsense'. See kafkalite --help."),
        (
            ("group", "list", "--sate", "x"),
            "Did you mean one of: '--state', '--type'? See kafkalite group list --help.",
        ),
        (("group", "describe"), "Missing argument 'GROUP'. See kafkalite group describe --help."),
    ],
)
def test_invalid_arguments_fail_with_one_line(args: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, args, prog_name="kafkalite")
    assert done.exit_code == 2
    assert done.stderr.endswith(f"{said}\n") and done.stderr.count("\n") == 1


def test_the_assignors_are_those_of_the_broker() -> None:
    assert sorted(ASSIGNORS) == sorted(KNOWN)


def test_an_offset_outside_the_log_is_reported_with_partitions_and_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    after = {TopicPartition("t", 0): 7, TopicPartition("t", 1): 5}
    say_outside(7, after)
    assert capsys.readouterr().err == "offset 7 is outside the log of t-1 (nearest: 5)\n"
    say_outside(1_372_636_800_000, after)
    hint = "a time in milliseconds is written @1372636800000"
    text = f"offset 1372636800000 is outside the log of t-0 (nearest: 7), t-1 (nearest: 5); {hint}\n"
    assert capsys.readouterr().err == text
    say_outside(7, {TopicPartition("t", 0): 7})
    assert capsys.readouterr().err == ""
    say_outside(9, {TopicPartition("t", index): 1 for index in range(SHOWN_MAX + 2)})
    said = capsys.readouterr().err
    assert f"t-{SHOWN_MAX - 1} (nearest: 1) and 2 more\n" in said and f"t-{SHOWN_MAX} " not in said
