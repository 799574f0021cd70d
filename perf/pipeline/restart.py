"""The ingest that is killed and started again: `python -m perf.pipeline.restart ADDRESS TOPIC DIRECTORY`.

`measure` is the other side: it starts the job twice, and kills it after its first commits.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from perf.errors import VerificationError
from perf.pipeline.drivers import PYTHON, ROOT, environment
from perf.pipeline.job import Sample

COMMITS_BEFORE = 2
SECONDS_MAX = 120.0
PAUSE_S = 0.005  # between two looks at the directory


def main(address: str, topic: str, directory: str) -> None:
    """Copy a topic in small micro-batches until the process is killed."""
    from pyspark_kafkalite.ingest import ingest

    from perf.pipeline.driver import session

    spark = session(directory)
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    options["maxOffsetsPerTrigger"] = "1000"
    query = ingest(
        spark,
        f"{directory}/table",
        options,
        checkpoint=f"{directory}/checkpoint",
        trigger={"processingTime": "0 seconds"},
    )
    query.awaitTermination()


def measure(address: str, topic: str, directory: Path) -> Sample:
    """Return the time from the start of the process after the kill to its first commit; then with a CDS archive."""
    _run_until(address, topic, directory, COMMITS_BEFORE)
    plain_s = _run_until(address, topic, directory, _commits(directory) + 1)
    command = [PYTHON, "-m", "kafkalite", "pipeline", "cds-archive"]
    subprocess.run(command, cwd=ROOT, env=environment(directory), check=True, capture_output=True)
    return {
        "restart_s": plain_s,
        "archive_s": _run_until(address, topic, directory, _commits(directory) + 1),
    }


def _run_until(address: str, topic: str, directory: Path, commits: int) -> float:
    """Start the job, kill it when the table has so many commits; return the seconds until then."""
    started = time.perf_counter()
    with open(directory / "restart.log", "ab") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "perf.pipeline.restart", address, topic, str(directory)],
            cwd=ROOT,
            env=environment(directory),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while _commits(directory) < commits:
            if process.poll() is not None or time.perf_counter() - started > SECONDS_MAX:
                text = (directory / "restart.log").read_text()[-4000:]
                raise VerificationError(f"the job has not committed:\n{text}")
            time.sleep(PAUSE_S)
        return time.perf_counter() - started
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _commits(directory: Path) -> int:
    return len(list((directory / "table/_commits").glob("*.json")))


if __name__ == "__main__":
    main(*sys.argv[1:])
