"""Progress of queries in Spark: as consumer groups, and what the listener passes to its outputs."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark_kafkalite.ingest import ingest
from pyspark_kafkalite.progress import JsonLines, ProgressGroup, ProgressListener

from kafkalite.model import TopicPartition
from tests.spark.rig import DEADLINE_S, Collected, Rig


def committed(rig: Rig, group: str) -> dict[int, int]:
    found = rig.admin.group_offsets.list(group)[group]
    return {name.partition: each.offset for name, each in found.items() if name.topic == rig.topic}


@pytest.mark.kafkalite(partitions=2)
def test_group_shows_complete_micro_batches_of_any_sink(rig: Rig, collected: Collected) -> None:
    """Also the last one of a query that ends, and none that has failed."""
    rig.send(range(30))
    rig.send(range(5), partition=1)
    group = f"{rig.topic}-progress"
    seen: list[dict[int, int]] = []

    def fails(batch: int) -> bool:
        seen.append(committed(rig, group))
        return batch == 2

    collected.fails = fails
    stream = rig.stream(startingOffsets="earliest", maxOffsetsPerTrigger="10", progressGroup=group)
    with pytest.raises(StreamingQueryException, match="the test fails this micro-batch"):
        collected.run(stream)
    sizes = [len(batch) for batch in collected.batches]
    assert [sum(each.values()) for each in seen] == [0, sizes[0], sum(sizes)] and all(sizes)
    collected.fails = lambda batch: False
    collected.run(stream)
    assert committed(rig, group) == {0: 30, 1: 5}


def shown(path: Path, events: int) -> list[dict[str, Any]]:
    """The lines of a listener; Spark calls it some time after the query has ended."""
    limit = time.monotonic() + DEADLINE_S
    while len(lines := path.read_text().splitlines()) < events:
        assert time.monotonic() < limit, lines
    return [json.loads(line) for line in lines]


def test_listener_shows_an_ingest_and_its_lag(rig: Rig, tmp_path: Path) -> None:
    rig.send(range(40), timestamp_ms=1_000)
    path, group = tmp_path / "progress.jsonl", f"{rig.topic}-listened"
    client = {"bootstrap_servers": rig.broker.address}
    listener = ProgressListener(JsonLines(path), group=ProgressGroup(group, client), name="copy")
    rig.spark.streams.addListener(listener)
    try:
        options = {**rig.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "25"}
        query = ingest(rig.spark, tmp_path / "table", options, checkpoint=str(tmp_path / "checkpoint"), name="copy")
        query.awaitTermination(DEADLINE_S)
        first, second, ended = shown(path, 3)
    finally:
        rig.spark.streams.removeListener(listener)
        listener.close()
    assert [each["rows"] for each in (first, second)] == [25, 15]
    assert first["partitions"] == {rig.topic: {"0": {"start": 0, "end": 25, "latest": 40}}}
    assert (first["lag"], second["lag"]) == (15, 0) and second["lag_seconds"] == 0
    files = sum(each.stat().st_size for each in (tmp_path / "table").glob("*.parquet"))
    assert first["bytes"] + second["bytes"] == files and first["files"] == 1
    assert {"plan", "run", "checkpoint", "fetch", "decode", "encode", "commit"} == set(first["phases_ms"])
    assert (ended["event"], ended["query"], ended["error"]) == ("ended", "copy", None)
    assert rig.admin.group_offsets.list(group)[group][TopicPartition(rig.topic, 0)].offset == 40


def test_micro_batch_of_any_sink_has_the_bytes_of_the_log(rig: Rig, collected: Collected, tmp_path: Path) -> None:
    rig.producer.send(rig.topic, bytes(100_000))
    rig.producer.flush()
    path = tmp_path / "progress.jsonl"
    listener = ProgressListener(JsonLines(path))
    rig.spark.streams.addListener(listener)
    try:
        frame = rig.stream(startingOffsets="earliest").selectExpr("partition", "offset", "'7' as value")
        collected.run(frame)
        batch, _ = shown(path, 2)
    finally:
        rig.spark.streams.removeListener(listener)
    assert 100_000 <= batch["bytes"] < 101_000 and batch["rows"] == 1 and batch["files"] is None
