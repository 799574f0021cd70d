"""What is shown of a micro-batch: JSON lines, metrics, a consumer group."""

import io
import json
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import TopicPartition
from kafkalite_sdk.blocking import Admin, Consumer, Producer
from pyspark_kafkalite.progress import (
    BatchProgress,
    HtmlReport,
    JsonLines,
    MetricsEndpoint,
    MetricsFile,
    ProgressBar,
    ProgressGroup,
)
from pyspark_kafkalite.progress.facts import KEPT, Facts, record, recorded_facts
from pyspark_kafkalite.progress.model import PartitionProgress, batch_progress

from kafkalite.testing.thread import BrokerThread

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSET = {"#topicIds": {"orders": "x"}}
SPARK: dict[str, Any] = {
    "id": "q",
    "runId": "r",
    "name": "copy",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchId": 7,
    "numInputRows": 12,
    "durationMs": {
        "latestOffset": 5,
        "getBatch": 1,
        "queryPlanning": 4,
        "walCommit": 20,
        "addBatch": 300,
        "commitOffsets": 30,
        "triggerExecution": 370,
    },
    "sources": [
        {
            "startOffset": json.dumps({**OFFSET, "orders": {"0": 3}}),
            "endOffset": json.dumps({**OFFSET, "orders": {"0": 10, "1": 5}}),
            "latestOffset": json.dumps({**OFFSET, "#bytes": 4096, "orders": {"0": 10, "1": 9}}),
        },
        {"startOffset": "None", "endOffset": "17", "latestOffset": "file x"},
    ],
}
FACTS = Facts(rows=11, bytes=900, files=2, bad_rows=1, phases_ms={"fetch": 1.25, "encode": 2.0, "commit": 3.0})


def test_progress_of_spark_is_read() -> None:
    found = batch_progress(SPARK, None)
    assert (found.name, found.batch_id, found.rows, found.bytes, found.files) == ("copy", 7, 12, 4096, None)
    assert found.partitions == {FIRST: (3, 10, 10), SECOND: (0, 5, 9)}
    assert (found.lag, found.ends) == (4, {FIRST: 10, SECOND: 5})
    assert found.phases_ms == {"plan": 10, "run": 300, "checkpoint": 50} and found.duration_ms == 370


def test_first_micro_batch_begins_where_its_end_says() -> None:
    """The start that Spark has of it may be `latest` of another moment."""
    end = {**OFFSET, "#start": {"orders": {"0": 8}}, "orders": {"0": 10}}
    source = {"startOffset": "null", "endOffset": json.dumps(end), "latestOffset": "null"}
    found = batch_progress({**SPARK, "name": None, "sources": [source]}, None)
    assert found.partitions == {FIRST: (8, 10, None)}
    assert (found.name, found.lag, found.bytes) == ("q", None, None)


def test_facts_of_ingest_replace_the_numbers_of_spark() -> None:
    found = batch_progress(SPARK, FACTS)
    assert (found.rows, found.bytes, found.files, found.bad_rows) == (11, 900, 2, 1)
    assert found.phases_ms == {"plan": 10, "run": 300, "checkpoint": 50, "fetch": 1.25, "encode": 2.0, "commit": 3.0}


def test_facts_of_the_last_micro_batches_are_kept() -> None:
    for batch_id in range(KEPT + 1):
        record("kept", batch_id, FACTS)
    assert recorded_facts("kept", KEPT) is FACTS and recorded_facts("kept", 1) is FACTS
    assert recorded_facts("kept", 0) is recorded_facts("other", 1) is None


@pytest.fixture
def progress() -> BatchProgress:
    return batch_progress(SPARK, FACTS)._replace(lag_seconds=2.5)


def test_json_lines_are_appended(tmp_path: Path, progress: BatchProgress) -> None:
    path = tmp_path / "progress.jsonl"
    for _ in range(2):
        lines = JsonLines(path)
        lines.batch(progress)
        lines.ended("copy", "disk full")
    batch, ended, *again = [json.loads(line) for line in path.read_text().splitlines()]
    assert batch == again[0] and len(again) == 2
    assert (batch["event"], batch["query"], batch["batch"], batch["rows"], batch["bad_rows"]) == (
        *("batch", "copy"),
        *(7, 11, 1),
    )
    assert (batch["lag"], batch["lag_seconds"], batch["phases_ms"]["fetch"]) == (4, 2.5, 1.2)
    assert batch["partitions"]["orders"]["1"] == {"start": 0, "end": 5, "latest": 9}
    assert (ended["event"], ended["query"], ended["error"]) == ("ended", "copy", "disk full")


EXPECTED = """\
kafkalite_pipeline_bad_rows_total{query="copy"} 2
kafkalite_pipeline_batch_seconds{query="copy"} 0.37
kafkalite_pipeline_batches_total{query="copy"} 2
kafkalite_pipeline_lag_records{partition="1",query="copy",topic="orders"} 4
kafkalite_pipeline_lag_seconds{query="copy"} 2.5
kafkalite_pipeline_offset{partition="0",query="copy",topic="orders"} 10
kafkalite_pipeline_phase_ms_total{phase="run",query="copy"} 600
kafkalite_pipeline_queries_failed_total{query="copy"} 1
kafkalite_pipeline_rows_total{query="copy"} 22
"""


def test_metrics_are_kept_in_a_file(tmp_path: Path, progress: BatchProgress) -> None:
    output = MetricsFile(tmp_path / "copy.prom")
    for _ in range(2):
        output.batch(progress)
    output.ended("copy", "disk full")
    text = (tmp_path / "copy.prom").read_text()
    assert set(EXPECTED.splitlines()) <= set(text.splitlines())
    assert "# TYPE kafkalite_pipeline_rows_total counter\n" in text
    assert [each.name for each in tmp_path.iterdir()] == ["copy.prom"]


def test_metrics_are_served(progress: BatchProgress) -> None:
    output = MetricsEndpoint()
    address = f"http://127.0.0.1:{output.port}"
    output.batch(progress._replace(name='a "b"\\\n'))
    with urllib.request.urlopen(f"{address}/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert r'rows_total{query="a \"b\"\\\n"} 11' in response.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404") as raised:
        urllib.request.urlopen(f"{address}/")
    raised.value.close()
    output.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/metrics")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_shows_how_much_was_read(progress: BatchProgress) -> None:
    partitions = {FIRST: PartitionProgress(10, 10, 10), SECOND: PartitionProgress(5, 9, 9)}
    later = progress._replace(batch_id=8, partitions=partitions)
    shown = {}
    for stream in (io.StringIO(), Terminal()):
        bar = ProgressBar(stream, iter((0.0, 5.0)).__next__)
        for each in (progress, later):
            bar.batch(each)
        bar.ended("copy", None)
        shown[stream.isatty()] = stream.getvalue()
    first, second, ended = shown[False].splitlines()
    assert first == "copy  [###############-----]  75%  micro-batch 7  11 rows  30 rows/s  lag 4 (2 s)"
    assert second.startswith("copy  [####################] 100%  micro-batch 8  22 rows") and ended == "copy  ended"
    assert shown[True].count("\r") == 2 and shown[True].endswith("\ncopy  ended\n")


def test_lines_without_a_terminal_are_seconds_apart_and_the_last_one_is_written(progress: BatchProgress) -> None:
    stream, now_s = io.StringIO(), iter((0.0, 4.9, 5.1, 5.2, 6.0))
    bar = ProgressBar(stream, now_s.__next__)
    for batch_id in range(5):
        bar.batch(progress._replace(batch_id=batch_id))
    bar.ended("copy", None)
    written = [line.partition("micro-batch ")[2].split()[0] for line in stream.getvalue().splitlines()[:-1]]
    assert written == ["0", "2", "4"] and stream.getvalue().endswith("\ncopy  ended\n")


def test_report_is_a_page_without_references(tmp_path: Path, progress: BatchProgress) -> None:
    report = HtmlReport(tmp_path / "report.html")
    for batch_id in range(3):
        report.batch(progress._replace(batch_id=batch_id, name="<copy>"))
    report.ended("<copy>", "a < b")
    page = (tmp_path / "report.html").read_text()
    assert "<h2>&lt;copy&gt;</h2><pre class=error>a &lt; b</pre>" in page and "<td>33<" in page
    assert page.count("<svg") == 4 and page.count("<polyline") == 3 + len(progress.phases_ms)
    assert all(each not in page for each in ("http", "src=", "<script", "@import"))
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_report_of_a_query_without_micro_batches(tmp_path: Path) -> None:
    report = HtmlReport(tmp_path / "report.html")
    report.ended("copy", None)
    assert (tmp_path / "report.html").read_text().endswith("<h2>copy</h2>")


def test_group_shows_offsets_and_the_age_of_the_oldest_record_behind(
    kafkalite_broker: BrokerThread, kafkalite_topic: str, kafkalite_producer: Producer[Any, Any]
) -> None:
    old_ms = int(time.time() * 1000) - 60_000
    for number in range(4):
        kafkalite_producer.send(kafkalite_topic, b"x", timestamp_ms=old_ms + number * 30_000)
    kafkalite_producer.flush()
    name, group = (
        TopicPartition(kafkalite_topic, 0),
        ProgressGroup("shown", {"bootstrap_servers": kafkalite_broker.address}),
    )
    group.commit({name: 1})
    assert 29 <= (group.lag_seconds() or 0) < 60
    group.commit({name: 4})
    assert group.lag_seconds() == 0
    with Admin(kafkalite_broker.address) as admin:
        assert admin.groups.lag("shown")["shown"].partitions[name].lag == 0
        admin.group_offsets.alter("shown", {name: 2}).check()
        group.commit({name: 4})  # nothing has changed for this query
        assert admin.groups.lag("shown")["shown"].total == 2


def test_group_with_members_is_named_and_does_not_end_the_query(
    kafkalite_broker: BrokerThread, kafkalite_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = ProgressGroup("used", {"bootstrap_servers": kafkalite_broker.address})
    with Consumer(kafkalite_broker.address, group="used") as consumer:
        consumer.subscribe(kafkalite_topic)
        consumer.poll(timeout=1.0)
        with caplog.at_level(logging.WARNING, "pyspark_kafkalite"):
            group.commit({TopicPartition(kafkalite_topic, 0): 3})
    assert "progress is not shown as group used until the next micro-batch" in caplog.text
    group.commit({TopicPartition(kafkalite_topic, 0): 3})
    with Admin(kafkalite_broker.address) as admin:
        assert admin.group_offsets.list("used")["used"][TopicPartition(kafkalite_topic, 0)].offset == 3
