"""How a command ends whose measurement fails or is interrupted: with one line, and without processes of its own.

Brokers are killed by what has started them. A signal may arrive between the start of a process and the line that keeps
it, and a load may raise while it stops its processes: the rest is killed here.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click

from perf.brokers.base import BrokerError
from perf.errors import VerificationError
from perf.process import descendants
from tests.kit.jvm import JvmError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def measuring() -> Iterator[None]:
    """Within the block SIGTERM raises SystemExit, and an error of a broker or client becomes a ClickException.

    At the end all child processes are killed, and their children.
    """
    before = signal.signal(signal.SIGTERM, exit_with)
    try:
        yield
    except (VerificationError, BrokerError, JvmError, TimeoutError, *client_errors()) as error:
        raise click.ClickException(f"no figures: {error or type(error).__name__}") from error
    finally:
        kill_children()
        signal.signal(signal.SIGTERM, before)


def exit_with(number: int, _frame: FrameType | None) -> None:
    """Exit with the code of a signal."""
    sys.exit(128 + number)


def client_errors() -> tuple[type[Exception], ...]:
    """The exceptions of the client, which may not be installed, and are only raised once it is imported."""
    client = sys.modules.get("confluent_kafka")
    return () if client is None else (client.KafkaException,)


def kill_children() -> None:
    """Kill all descendants of this process; signals that would end it wait."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # all are gone
            while True:
                os.wait()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
