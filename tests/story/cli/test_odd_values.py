"""Values that no command can use end it with one line and exit code 2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, As, Run

NO_TEXT = "\udcff"  # a byte that is not UTF-8, as Python passes it


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("topic", "describe", NO_TEXT), "'\\udcff' is not UTF-8 text"),
        (("consume", "orders", "-e", "-k", NO_TEXT), "is not UTF-8 text"),
        (("consume", "orders", "-e", "--format", f"%v{NO_TEXT}"), "is not UTF-8 text"),
        (("consume", "-g", NO_TEXT), "is not UTF-8 text"),
        (("produce", "orders", "-k", NO_TEXT), "is not UTF-8 text"),
        (("consume", "orders", "-e", "-n", "99999999999999999999"), "is not in the range"),
        (("transaction", "list", "--older-than", "nan"), "is not a number of seconds"),
        (("transaction", "find-hanging", "--older-than", "1e400"), "is not a number of seconds"),
        (("cluster", "status", "--timeout", "inf"), "is not a number of seconds"),
        (("acl", "add", "-u", "alice", "-o", "read", "-t", "t", "--deny", "--host", "127.0.0.0/8"), "no networks"),
        (("acl", "add", "-u", "alice", "-o", "read", "-t", "t", "--host", "localhost"), "is not an IP address"),
        (("acl", "add", "-u", "", "-o", "read", "-t", "t"), "expected a user such as alice"),
    ],
    ids=lambda value: " ".join(value).replace(NO_TEXT, "x") if isinstance(value, tuple) else "",
)
def test_value_is_one_line(kafkalite: Run, command: tuple[str, ...], problem: str) -> None:
    denied = kafkalite(*command, code=2)
    assert denied.stderr.startswith("kafkalite: ") and denied.stderr.count("\n") == 1
    assert problem in denied.stderr and denied.stdout == ""


@pytest.mark.parametrize("option", ["--owner", "--renewer"])
@pytest.mark.parametrize("principal", ["", ":", ":0", "User:"])
def test_principal_of_a_token_is_one_line(as_user: As, option: str, principal: str) -> None:
    denied = as_user("alice", "token", "create", option, principal, code=2).stderr
    assert denied == f"kafkalite: the principal is {principal!r}, expected a user such as alice, or TYPE:NAME\n"


@pytest.mark.parametrize(
    ("file", "command", "problem"),
    [
        ("meta.properties", ("cluster", "up"), "is the log directory of a broker"),
        ("broker-1/meta.properties", ("serve",), "it has the brokers of `kafkalite cluster up`"),
    ],
)
def test_directory_of_the_other_command(tmp_path: Path, file: str, command: tuple[str, ...], problem: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("version=1\n")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [*COMMAND, *command, "--data", str(tmp_path)], capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and problem in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
