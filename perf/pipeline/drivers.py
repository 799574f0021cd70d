"""The drivers of a comparison, each a process with its Spark session for all rows."""

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from perf.errors import VerificationError
from perf.pipeline.job import Job, Sample
from tests.kit import jvm

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-spark/bin/python"
END_SECONDS_MAX = 60.0


def environment(directory: Path) -> dict[str, str]:
    """The environment of a driver, without what the user has set for Spark, and without a CDS archive of the user."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "SPARK_HOME")}
    return {**kept, "XDG_CACHE_HOME": str(directory)}


def missing() -> str | None:
    """Why no driver can run here, or None."""
    if not PYTHON.exists():
        return ".venv-spark does not exist: run `make .venv-spark/stamp`"
    return jvm.java_missing()


class Driver:
    """A driver, from the start of its process to the end of the `with` block.

    Arguments:
        directory: for its files and those of its jobs.
        connector: the session has `format("kafka")`.
    """

    def __init__(self, directory: Path, *, connector: bool) -> None:
        directory.mkdir()
        self._directory = directory
        jars = ",".join(map(str, jvm.spark_connector_jars())) if connector else ""
        self._log = (directory / "driver.log").open("wb")
        self._process = subprocess.Popen(
            [PYTHON, "-m", "perf.pipeline.driver", jars, str(directory)],
            cwd=ROOT,
            env=environment(directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> "Driver":
        self._answer()  # the session is ready
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()
            self._log.close()

    def run(self, job: Job) -> Sample:
        """Run a job. Raises VerificationError."""
        assert self._process.stdin
        directory = tempfile.mkdtemp(dir=None if job.on_disk else self._directory)
        self._process.stdin.write(replace(job, directory=directory).to_json() + os.linesep)
        self._process.stdin.flush()
        try:
            return self._answer()
        finally:
            shutil.rmtree(directory)

    def _answer(self) -> Sample:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            log = (self._directory / "driver.log").read_text(errors="replace")[-4000:]
            raise VerificationError(f"the driver has ended with {self._process.wait()}:\n{log}")
        answer = json.loads(line)
        if "error" in answer:
            raise VerificationError(answer["error"])
        return answer
