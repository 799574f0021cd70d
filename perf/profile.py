"""Where a broker's CPU time goes under one load, by Linux `perf`."""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perf.brokers.base import Broker, BrokerError
from perf.loads import Load, Trial


def profile(broker: Broker, load: Load, *, quick: bool, lines: int, out: Path | None) -> str:
    """The head of `perf report` for one warm run of the load; out keeps the recording.

    Raises BrokerError if perf is missing or may not record, VerificationError if the load fails.
    """
    if shutil.which("perf") is None:
        raise BrokerError("not installed: perf (Debian: linux-perf)")
    if load.starts_broker:
        raise BrokerError(f"{load.name} starts its broker itself: nothing to attach to")
    for part in (broker, load):
        if (reason := part.missing()) is not None:
            raise BrokerError(f"{part.name} cannot run here: {reason}")
    with tempfile.TemporaryDirectory(prefix="kafkalite-perf-") as work:
        directory = Path(work)
        data = out or directory / "perf.data"
        running = broker.start(directory / broker.name, load.settings)
        try:
            load.prepare(Trial(broker, directory, 0, quick, running))
            load.run(Trial(broker, directory, 0, quick, running))
            with _recording(running.pid, data):
                sample = load.run(Trial(broker, directory, 1, quick, running))
        finally:
            running.stop()
        figures = "\n".join(f"{figure.title}: {sample[figure.key]:,.4g} {figure.unit}" for figure in load.figures)
        return f"{figures}\n\n{_report(data, lines)}"


@contextlib.contextmanager
def _recording(pid: int, data: Path) -> Iterator[None]:
    command = ["perf", "record", "-q", "-F", "999", "-g", "-p", str(pid), "-o", str(data)]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        _, said = recorder.communicate(timeout=60)
    if not data.exists() or data.stat().st_size == 0:
        raise BrokerError(f"perf recorded nothing: {said.strip()}")


def _report(data: Path, lines: int) -> str:
    command = ["perf", "report", "-i", str(data), "--stdio", "--no-children", "-g", "none", "--sort", "dso,symbol"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BrokerError(f"perf report failed: {done.stderr.strip()}")
    wanted = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(wanted[:lines])
