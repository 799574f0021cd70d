"""A command of a fork server is a process of its own, with the streams, the end and the signals of its client."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fork_server import ForkServer

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/sdk"}
    with ForkServer(["kafkalite.cli.topic"], environ, tmp_path_factory.mktemp("server")) as started:
        yield started


def program(directory: Path, text: str) -> str:
    file = directory / "program.py"
    file.write_text(f"import atexit, os, signal, sys, threading\n{text}")
    return str(file)


def test_streams_directory_variables_and_arguments_are_those_of_the_client(server: ForkServer, tmp_path: Path) -> None:
    text = "print(os.environ['NAME'], os.getcwd(), sys.argv[1:], sys.path[0], input(), file=sys.stderr)"
    command = [*server.python, program(tmp_path, text), "a b", ""]
    environ = {**os.environ, "NAME": "x=\xe4"}
    done = subprocess.run(command, input="in\n", capture_output=True, text=True, cwd="/", env=environ)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"x=\xe4 / ['a b', ''] {tmp_path} in\n"


def test_code_is_that_of_the_command_after_its_threads_and_handlers(server: ForkServer, tmp_path: Path) -> None:
    text = "atexit.register(print, 'end')\nthreading.Timer(0.01, print, ['thread']).start()\nsys.exit(3)"
    done = subprocess.run([*server.python, program(tmp_path, text)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "thread\nend\n")


def test_signals_reach_the_command(server: ForkServer, tmp_path: Path) -> None:
    text = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('started', flush=True)\nsignal.pause()"
    with subprocess.Popen([*server.python, program(tmp_path, text)], stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None and client.stdout.readline() == b"started\n"
            client.terminate()
            assert client.wait(DEADLINE_S) == 7
        finally:
            client.kill()


def test_signal_that_ends_the_command_ends_the_client(server: ForkServer, tmp_path: Path) -> None:
    text = "os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([*server.python, program(tmp_path, text)]).returncode == -signal.SIGKILL


def test_command_ends_with_its_client(server: ForkServer, tmp_path: Path) -> None:
    text = "print('started', flush=True)\nsignal.pause()"
    with subprocess.Popen([*server.python, program(tmp_path, text)], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None and client.stdout.readline() == b"started\n"
        client.kill()
        assert client.stdout.read() == b""  # the command has its end of the pipe, too


def test_modules_are_run_as_by_python(server: ForkServer) -> None:
    command = ["-m", "kafkalite", "topic", "--help"]
    pythons = (server.python, [sys.executable])
    forked, started = (subprocess.run([*each, *command], capture_output=True) for each in pythons)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)
    assert b"kafkalite topic" in forked.stdout
