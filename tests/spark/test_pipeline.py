"""What `make pipeline` runs, with the first flights: jobs of the command line, each in a JVM of its own."""

import os
import re
import subprocess
import sys

COUNT = 5_000


def test_pipeline_of_the_flights_prints_its_results() -> None:
    command = [sys.executable, "-m", "tools.pipeline", "--flights", str(COUNT)]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"lake lake: {COUNT} records in 1 commits" in done.stdout
    assert re.search(rf"lake: {COUNT:,} flights in \d+ files", done.stdout)
    assert re.search(r"the last flight of [\d,]+ aircraft", done.stdout)
    assert re.search(r"window: 4,\d{3} flights in \d+ complete days", done.stdout)
    assert re.search(r"Jan 2013 +4,\d{3} +[\d.]+ min +█{40}", done.stdout)
