"""Spark Connect: the source and the sink work, ingest is rejected."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk.blocking import Producer

from kafkalite.testing.thread import BrokerThread

ROOT = Path(__file__).parents[2]
COUNT = 10
RUN_S = 300


@pytest.fixture
def found(
    kafkalite_broker: BrokerThread, kafkalite_topic: str, kafkalite_producer: "Producer[Any, Any]", tmp_path: Path
) -> dict[str, Any]:
    """What a session has found in a topic with the numbers below COUNT; Spark allows one kind of session a process."""
    for number in range(COUNT):
        kafkalite_producer.send(kafkalite_topic, b"%d" % number)
    kafkalite_producer.flush()
    arguments = [kafkalite_broker.address, kafkalite_topic, str(tmp_path)]
    command = [sys.executable, "-m", "tests.spark.connect_session", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr[-6000:]
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_source_and_sink_work_in_a_session_of_spark_connect(found: dict[str, Any]) -> None:
    assert found["session"] == "pyspark.sql.connect.session"
    numbers = list(range(COUNT))
    assert found["values"] == numbers and found["streamed"] == COUNT
    assert found["written"] == [*numbers, *(1000 + number for number in numbers)]
    assert found["ingest"].startswith("ingest needs a classic session")
