"""Which signal ends `serve` cleanly and which ends it at once, in a process of its own whose clock the test sets.

A signal that is repeated while the interpreter ends, when it has restored the default actions, changes no exit code.
"""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, signal, sys, types
from kafkalite.cli import serve

times = iter(map(float, sys.argv[2:]))
serve.time = types.SimpleNamespace(monotonic=lambda: next(times))

async def main():
    asked = serve.asked_to_end(asyncio.get_running_loop())
    for _ in sys.argv[2:]:
        signal.raise_signal(getattr(signal, sys.argv[1]))
    await asked.wait()
    print("shut down cleanly")

asyncio.run(main())
"""


def signals(name: str, *seconds: float) -> subprocess.CompletedProcess[str]:
    """Send the signal at each of these times."""
    command = [sys.executable, "-c", SCRIPT, name, *map(str, seconds)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_within_half_a_second_are_one_request(name: str) -> None:
    done = signals(name, 0.0, 0.001, 0.499)
    assert (done.returncode, done.stdout) == (0, "shut down cleanly\n"), done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_after_half_a_second_exits_immediately(name: str) -> None:
    done = signals(name, 0.0, 0.001, 0.5)
    assert (done.returncode, done.stdout) == (-getattr(signal, name), "")


# Modules are cleared after the default actions of signals were restored.
REPEATED_AT_THE_END = """
import os

class Repeated:
    kill, process, number = os.kill, os.getpid(), getattr(signal, sys.argv[1])
    def __del__(self):
        self.kill(self.process, self.number)

repeated = Repeated()
"""
COMMAND = """
import asyncio, signal, sys
from kafkalite.cli.signals import cancel_on_sigterm, interruptible

async def work():
    cancel_on_sigterm()
    signal.raise_signal(getattr(signal, sys.argv[1]))
    await asyncio.Event().wait()

try:
    asyncio.run(interruptible(work()))
except asyncio.CancelledError:
    print("interrupted")
    sys.exit(7)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_repeated_while_the_interpreter_ends_keeps_the_exit_code_of_a_command(name: str) -> None:
    script = "import signal, sys\n" + REPEATED_AT_THE_END + COMMAND
    done = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (7, "interrupted\n"), done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_repeated_while_the_interpreter_ends_keeps_the_exit_code_of_serve(name: str) -> None:
    script = "import signal, sys\n" + REPEATED_AT_THE_END + SCRIPT
    done = subprocess.run([sys.executable, "-c", script, name, "0", "0"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "shut down cleanly\n"), done.stderr
