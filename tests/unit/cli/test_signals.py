"""Which signal ends `serve` cleanly and which ends it at once, in a process of its own whose clock the test sets."""

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
