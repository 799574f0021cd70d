"""Parts of the commands that need no broker: JSON and bytes, tables, the log's lines."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.cli.client_options import cell_text, parse_address, print_rows
from kafkalite.cli.failure import Failure
from kafkalite.cli.records.lines import json_line, plain_reader, to_bytes, to_text
from kafkalite.cli.serve import is_local, listener
from kafkalite.cli.times import time_text
from kafkalite.server.process.logging_setup import set_up_logging


@given(st.none() | st.binary(max_size=50))
def test_bytes_survive_json(data: bytes | None) -> None:
    assert to_bytes(json.loads(json.dumps(to_text(data)))) == data


def test_key_ends_at_the_first_separator() -> None:
    assert plain_reader(":")(b"a:b:c", 1)[:2] == (b"a", b"b:c")
    assert plain_reader(None)(b"a:b", 1)[:2] == (None, b"a:b")


@pytest.mark.parametrize("field", ["true", "1.5", str(2**63), '"1"'])
def test_numbers_of_json_are_checked(field: str) -> None:
    with pytest.raises(Failure, match="its partition is"):
        json_line(b'{"value": "", "partition": %s}' % field.encode(), 1)


@pytest.mark.parametrize(
    ("text", "address"),
    [("localhost:9092", ("localhost", 9092)), ("[::1]:1", ("::1", 1)), (" 10.0.0.1:65535", ("10.0.0.1", 65535))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", ":1", "::1:1", "a:b", "a:1:2", "a:1x"])
def test_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(Failure, match="is not an address; write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(("text", "port"), [("a:0", "0"), ("a:65536", "65536"), ("127.0.0.1:99999", "99999")])
def test_error_names_a_port_out_of_range(text: str, port: str) -> None:
    with pytest.raises(Failure, match=f"'{text}': the port is {port}, allowed is 1 to 65535"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:0", "PLAINTEXT://localhost:0"),
        (":9092", "PLAINTEXT://0.0.0.0:9092"),
        ("[::1]:5", "PLAINTEXT://[::1]:5"),
    ],
)
def test_listeners(text: str, expected: str) -> None:
    assert listener(text) == expected


@pytest.mark.parametrize("text", ["9092", "::1:5", "localhost:", "localhost:x"])
def test_invalid_listener_is_rejected(text: str) -> None:
    with pytest.raises(Failure, match="write HOST:PORT"):
        listener(text)


def test_listener_is_local_or_exposed() -> None:
    assert [is_local(host) for host in ("localhost", "127.0.0.5", "::1")] == [True] * 3
    assert [is_local(host) for host in ("0.0.0.0", "", "::", "10.1.2.3", "example.org", "fe80::1%eth0")] == [False] * 6


def test_tables_and_json_have_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", [1, 2], None), ("long name", [], 3), ("", [], 42)]
    print_rows(("TOPIC", "LOG-END", "LeaderEpoch"), rows, as_json=False)
    assert capsys.readouterr().out == (
        "TOPIC      LOG-END  LeaderEpoch\n"
        "a          1,2                -\n"
        "long name  -                  3\n"
        "-          -                 42\n"
    )
    print_rows(("TOPIC", "LOG-END", "LeaderEpoch"), rows, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[0] == {"topic": "a", "log_end": [1, 2], "leader_epoch": None}
    assert cell_text(0) == "0"


@pytest.mark.parametrize(("timestamp", "text"), [(-1, "-"), (0, "1970-01-01T00:00:00.000Z"), (2**62, str(2**62))])
def test_timestamps_are_printed_as_text(timestamp: int, text: str) -> None:
    assert time_text(timestamp) == text


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_client_text_cannot_forge_a_log_line(log_stream: io.StringIO) -> None:
    set_up_logging("info", stream=log_stream)
    logging.getLogger("kafkalite.test").warning("client %s", "x\n2026 ERROR forged\x1b[31m\x9b")
    (line,) = log_stream.getvalue().splitlines()
    assert line.endswith(r"WARNING kafkalite.test: client x\x0a2026 ERROR forged\x1b[31m\x9b")


def test_json_lines_carry_the_exception(log_stream: io.StringIO) -> None:
    set_up_logging("warning", as_json=True, stream=log_stream)
    logging.getLogger("kafkalite.test").info("left out")
    try:
        raise KeyError("gone")
    except KeyError:
        logging.getLogger("kafkalite.test").exception("line\nbreak")
    (line,) = log_stream.getvalue().splitlines()
    said = json.loads(line)
    assert (said["level"], said["message"]) == ("error", "line\nbreak")
    assert "KeyError: 'gone'" in said["exception"] and "Traceback" in said["exception"]
    assert said["time"].endswith("Z") and sys.exc_info() == (None, None, None)
