"""Commands whose standard streams the caller has closed, as cron and some daemons do."""

import os
import subprocess
from pathlib import Path

import pytest

from kafkalite.testing.thread import BrokerThread
from tests.kit.brokers import wait_until
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, Run

STDIN, STDOUT, STDERR = range(3)


def closed(*fds: int, args: tuple[str, ...], **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command with these of its standard streams closed."""
    shell = "exec " + " ".join(f"{fd}<&-" if fd == STDIN else f"{fd}>&-" for fd in fds) + ' "$@"'
    return subprocess.run(
        ["sh", "-c", f"{shell.removesuffix(' ')}", "sh", *COMMAND, *args],
        capture_output=True,
        text=True,
        env=ENVIRON,
        timeout=TIMEOUT_S,
        **options,  # type: ignore[call-overload]
    )


def test_produce_from_a_closed_standard_input_is_one_line(broker: BrokerThread) -> None:
    done = closed(STDIN, args=("produce", "closed", "-b", broker.address))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kafkalite: standard input is closed: give --file FILE\n"


def test_produce_from_a_file_needs_no_standard_stream(broker: BrokerThread, kafkalite: Run, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    done = closed(STDIN, STDOUT, STDERR, args=("produce", "file", "-f", str(tmp_path / "lines"), "-b", broker.address))
    assert done.returncode == 0
    assert kafkalite("consume", "file", "-e").stdout == "one\ntwo\n"


@pytest.mark.parametrize("args", [("topic", "list"), ("consume", "t", "-e"), ("group", "list")])
def test_a_closed_standard_output_is_one_line(broker: BrokerThread, args: tuple[str, ...]) -> None:
    done = closed(STDOUT, args=(*args, "-b", broker.address))
    assert done.returncode == 2
    assert done.stderr == "kafkalite: standard output is closed: redirect it to a file or to /dev/null\n"


def test_commands_work_with_closed_standard_error(kafkalite: Run, broker: BrokerThread) -> None:
    kafkalite("topic", "create", "quiet")
    done = closed(STDERR, args=("topic", "describe", "quiet", "--json", "-b", broker.address))
    assert done.returncode == 0 and '"topic": "quiet"' in done.stdout
    assert closed(STDERR, args=("topic", "describe", "nowhere", "-b", broker.address)).returncode == 2


def test_broker_without_standard_streams_has_dev_null_at_their_descriptors(tmp_path: Path) -> None:
    command = [*COMMAND, "serve", "--listen", "127.0.0.1:0"]
    shell = ["sh", "-c", 'exec <&- >&- 2>&- "$@"', "sh", *command]
    with subprocess.Popen(shell, env=ENVIRON, cwd=tmp_path) as process:
        try:
            locks = tmp_path / "data" / "kafkalite.journal"
            wait_until(locks.exists, "the broker has opened its files")
            for fd in (STDIN, STDOUT, STDERR):
                assert os.readlink(f"/proc/{process.pid}/fd/{fd}") == os.devnull
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
