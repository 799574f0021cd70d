"""Measures what a newcomer waits for: `make run` in a clean clone, and a start of the broker.

    python -m perf.startup start [ROUNDS]    exec to the answers to ApiVersions, Metadata and Produce, beside
                                             `python -c 'import asyncio'`, in turns (default: 30 rounds)
    python -m perf.startup run [DIRECTORY]   `make run` in a clone of this checkout, without .venv and build, until
                                             ApiVersions is answered; parts by the stamp files of the Makefile

CPU times are those of the whole process tree up to the answer, so that both can be read on a machine that is in use:
the sum of user and system time hardly depends on other processes. An answer is waited for by polling once per ms.
"""

import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perf.brokers.base import HOST, free_port
from perf.brokers.kafkalite import Kafkalite
from perf.process import memory
from perf.wire import api_versions, batch_of_one, call, connect, metadata_of_all, produce
from tests.kit.jvm import api_versions_answers

ROOT = Path(__file__).parents[1]
ROUNDS = 30
RUN_S_MAX = 600
STAMPS = (*(f".venv/stamp-{name}" for name in ("python", "build", "run", "kafkalite")), "build/stamp-broker")
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
Times = dict[str, float]


def import_asyncio() -> Times:
    """Wall and CPU ms of `python -c 'import asyncio'`."""
    before, began = cpu_of_children_ms(), time.monotonic()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True, env=ENVIRONMENT)
    return {"wall": (time.monotonic() - began) * 1000, "cpu": cpu_of_children_ms() - before}


def start(directory: Path) -> Times:
    """Wall ms from exec to each answer, CPU ms to the first one, and the memory in MB, of a broker without data."""
    broker = Kafkalite().start(directory)
    began = time.monotonic() - broker.start_seconds
    found = {"wall": broker.start_seconds * 1000, "cpu": cpu_ms(broker.pid)}
    try:
        with connect(broker.host, broker.port) as connection:
            call(connection, api_versions(1))
            call(connection, metadata_of_all(2))
            found["metadata"] = (time.monotonic() - began) * 1000
            call(connection, produce("missing", 0, batch_of_one(b"value", 0), 3))
            found["produce"] = (time.monotonic() - began) * 1000
        time.sleep(0.5)  # work that a start leaves for later is memory at rest, too
        found["memory"] = memory(broker.pid).resident / 1e6
    finally:
        broker.stop()
    return found


def measure_start(rounds: int) -> None:
    samples: list[tuple[Times, Times]] = []
    with tempfile.TemporaryDirectory(prefix="kafkalite-startup-") as work:
        start(Path(work) / "warm-up")
        for number in range(rounds):
            samples.append((import_asyncio(), start(Path(work) / str(number))))
    print(f"{rounds} rounds in turns; ms{'':20} minimum     median")
    for title, of, key in (
        ("import asyncio, wall", 0, "wall"),
        ("import asyncio, CPU", 0, "cpu"),
        ("serve to ApiVersions, wall", 1, "wall"),
        ("serve to ApiVersions, CPU", 1, "cpu"),
        ("serve to Metadata, wall", 1, "metadata"),
        ("serve to Produce, wall", 1, "produce"),
        ("serve at rest, MB", 1, "memory"),
    ):
        values = [sample[of][key] for sample in samples]
        print(f"{title:32} {min(values):10.1f} {statistics.median(values):10.1f}")
    for key in ("wall", "cpu"):
        least, middle = (
            choose([sample[1][key] for sample in samples]) / choose([sample[0][key] for sample in samples])
            for choose in (min, statistics.median)
        )
        print(f"ratio to import asyncio, {key:7} {least:10.2f} {middle:10.2f}")


def measure_run(directory: Path) -> None:
    clone, port = directory / "clone", free_port()
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    command = ["make", "run", f"LISTEN={HOST}:{port}", f"DATA={directory / 'data'}"]
    before, began, began_at = cpu_of_children_ms(), time.monotonic(), time.time()
    process = subprocess.Popen(command, cwd=clone, start_new_session=True)
    try:
        while not api_versions_answers(HOST, port):
            if process.poll() is not None or time.monotonic() - began > RUN_S_MAX:
                sys.exit("make run ended, or did not answer in time")
            time.sleep(0.05)
        wall = time.monotonic() - began
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    print(
        f"make run until ApiVersions is answered: {wall:.1f} s, {(cpu_of_children_ms() - before) / 1000:.1f} s of CPU"
    )
    for stamp in STAMPS:
        print(f"  {stamp:24} at {(clone / stamp).stat().st_mtime - began_at:5.1f} s")


def cpu_of_children_ms() -> float:
    """CPU time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def cpu_ms(pid: int) -> float:
    """CPU time of the threads of a process, with a resolution of nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def main(kind: str = "", argument: str = "") -> None:
    if kind == "start":
        measure_start(int(argument or ROUNDS))
    elif kind == "run":
        directory = Path(tempfile.mkdtemp(prefix="kafkalite-run-", dir=argument or None))
        try:
            measure_run(directory)
        finally:
            shutil.rmtree(directory)
    else:
        sys.exit((__doc__ or "").strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
