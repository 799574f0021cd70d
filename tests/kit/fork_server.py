"""A process that has imported what programs import, and runs each one in a fork of it.

    with ForkServer(["kafkalite_sdk"], environ, directory) as server:
        subprocess.run([*server.python, "-m", "kafkalite", "topic", "list"])

A program is a process of its own, as it would be without the server, and costs less CPU time: most of the start of
Python is imports. `fork_client` passes it the standard streams, the directory, the environment and signals; it ends if
its client ends. The server ends with the process that started it.
"""

import gc
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Self

from tests.kit import fork_client
from tests.kit.fork_client import STATUS_BYTES

READY = b"ready\n"
SAFE_IN_FORKS = {"jemalloc_bg_thd"}
"""Threads of libraries with handlers of forks: the allocator of Arrow, which starts its own again."""


class Command(NamedTuple):
    """What a client has sent.

    Attributes:
        directory: where it runs.
        ignored: signals that it ignores.
        arguments: of Python.
        environ: its variables, as `NAME=VALUE`.
        streams: descriptors for its standard streams.
    """

    directory: str
    ignored: list[int]
    arguments: list[str]
    environ: list[str]
    streams: list[int]


class ForkServer:
    """A running server.

    Arguments:
        modules: names of those that the server imports.
        environ: of the server; programs have its search path of modules.
        directory: for the socket.
    """

    def __init__(self, modules: Iterable[str], environ: Mapping[str, str], directory: Path) -> None:
        self._modules = tuple(modules)
        self._environ = environ
        self._socket = directory / "fork-server"

    @property
    def python(self) -> list[str]:
        """The start of a command line, instead of `python`."""
        return [sys.executable, "-I", "-S", fork_client.__file__, str(self._socket)]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__, str(self._socket), *self._modules]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=self._environ, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != READY:
            self._process.communicate()
            raise RuntimeError(f"the fork server ended with {self._process.returncode}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input


def main(path: str, *modules: str) -> None:
    """Serve programs until the input ends. A program returns from here in its own process, and runs."""
    preload(modules)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        os.write(1, READY)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the processes that watch programs end by themselves
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    command = start(connection)
                    break
        else:
            return
    run(command)


def preload(modules: Iterable[str]) -> None:
    """Import modules. None may start a thread: a fork has no threads, but the locks that they held."""
    for each in modules:
        import_module(each)
    threads = [Path(each).read_text().strip() for each in glob("/proc/self/task/*/comm")]
    unsafe = [each for each in threads if each not in SAFE_IN_FORKS]
    assert len(unsafe) == 1, f"an import has started a thread: {threads}"
    gc.collect()
    gc.freeze()


def start(connection: socket.socket) -> Command:
    """Fork once more: the parent watches the command and exits, the child returns it."""
    command = receive(connection)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        try:
            for each in (0, 1, 2, *command.streams):
                os.close(each)
            watch(connection, child)
        finally:
            os._exit(0)
    return command


def receive(connection: socket.socket) -> Command:
    """Read the command of a client; this process exits if the client has ended before it was sent."""
    size, streams, _, _ = socket.recv_fds(connection, STATUS_BYTES, 3)
    wanted = int.from_bytes(size, "big")
    data = connection.recv(wanted, socket.MSG_WAITALL)
    if not data or len(data) < wanted:
        os._exit(0)
    directory, ignored, count, *rest = data.decode(errors="surrogateescape").split("\0")
    end = int(count)
    return Command(directory, [int(each) for each in ignored.split()], rest[:end], rest[end:], streams)


def watch(connection: socket.socket, child: int) -> None:
    """Pass signals to a command, and its status to the client. It is killed when its client has ended."""
    descriptor = os.pidfd_open(child)
    while descriptor not in select.select([connection, descriptor], [], [])[0]:
        for number in connection.recv(1) or [signal.SIGKILL]:
            signal.pidfd_send_signal(descriptor, number)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status).to_bytes(STATUS_BYTES, "big", signed=True)
    with suppress(BrokenPipeError):  # the client has ended
        connection.send(code)


def run(command: Command) -> None:
    """Become the command, as Python does."""
    for number, each in enumerate(command.streams):
        os.dup2(each, number)
        os.close(each)
    os.chdir(command.directory)
    os.environ.clear()
    os.environ.update(each.split("=", 1) for each in command.environ)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in command.ignored:
        signal.signal(ignored, signal.SIG_IGN)
    run_python(*command.arguments)


def run_python(first: str, *others: str) -> None:
    """Run a module, after `-m`, or a file. The search path of modules begins as for Python, unless it is a safe one."""
    is_module = first == "-m"
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd() if is_module else Path(first).parent.absolute())
    if is_module:
        sys.argv = list(others)
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *others]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
