"""What `make pipeline` runs, with the first flights: jobs of the command line, each in a JVM of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

COUNT = 5_000
INTERRUPTED = 130


def test_pipeline_of_the_flights_prints_its_results() -> None:
    command = [sys.executable, "-m", "tools.pipeline", "--flights", str(COUNT)]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"lake lake: {COUNT} new records in 1 commit; " in done.stdout
    assert re.search(rf"lake: {COUNT:,} flights in \d+ files", done.stdout)
    assert re.search(r"the last flight of [\d,]+ aircraft", done.stdout)
    assert re.search(r"window: 4,\d{3} flights in \d+ complete days", done.stdout)
    assert re.search(r"Jan 2013 +4,\d{3} +[\d.]+ min +█{40}", done.stdout)


def test_interrupted_run_shows_progress_and_ends_with_one_line(
    kafkalite_broker: Any, kafkalite_topic: str, kafkalite_producer: Any, tmp_path: Path
) -> None:
    for number in range(1000):
        kafkalite_producer.send(kafkalite_topic, b"%d" % number)
    kafkalite_producer.flush()
    source = f'kafka.bootstrap.servers = "{kafkalite_broker.address}"\nsubscribe = "{kafkalite_topic}"\n'
    source += 'startingOffsets = "earliest"\nmaxOffsetsPerTrigger = 10'
    job = tmp_path / "lake.toml"
    job.write_text(
        f'[job]\ntype = "lake"\ntrigger = "1 second"\n[source]\n{source}\n[table]\npath = "orders"\n'
        '[spark]\nmaster = "local[2]"\n'
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    command = [sys.executable, "-m", "kafkalite", "pipeline", "run", str(job)]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        try:
            assert any("  micro-batch 0  10 rows" in line for line in process.stderr)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the JVM and the workers, too
            rest = process.stderr.read().splitlines()
            assert process.wait(60) == INTERRUPTED
        finally:
            process.kill()
    assert [line for line in rest if not line.startswith("lake  ")] == [
        "kafkalite: interrupted; the next run continues after the last commit"
    ]
