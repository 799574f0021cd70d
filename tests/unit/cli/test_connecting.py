"""The wait of a command for a broker that is starting."""

import pytest
from click.testing import CliRunner

from kafkalite.cli import connection
from kafkalite.cli.main import main
from tests.kit.ports import free_port


def test_no_broker_is_reported_at_the_first_attempt_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STARTING_S", 0.0)
    port = free_port()
    done = CliRunner().invoke(main, ["topic", "list", "-b", f"127.0.0.1:{port}"])
    error = f"kafkalite: cannot connect to 127.0.0.1:{port}: Connection refused; is a broker there?"
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [f"{error}; retrying for 0 s", error]


def test_a_name_that_does_not_resolve_fails_at_once() -> None:
    done = CliRunner().invoke(main, ["topic", "list", "-b", "nohost.invalid:9092"])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert "Name or service not known" in done.stderr
