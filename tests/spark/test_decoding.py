"""Values are decoded on their way to a table. Rows and dead letters agree after any crash."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.registry import wire
from pyspark.errors import StreamingQueryException
from pyspark_kafkalite.decoding import Decoding, drift_report
from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.ingest import ingest, query
from pyspark_kafkalite.tables import ManifestTable
from pyspark_kafkalite.tables.reading import read, read_dead_letters

from tests.kit.registry_server import schema_registry
from tests.spark.rig import DEADLINE_S, Rig

BAD = 7
"""Every value whose number is a multiple of it is bad."""


class Copied:
    """One table of the topic of a test.

    Arguments:
        rig: of the topic.
        directory: of table and checkpoint.
    """

    def __init__(self, rig: Rig, directory: Path) -> None:
        self.root, self._checkpoint, self._rig = directory / "table", directory / "checkpoint", rig

    def run(self, decoding: Decoding, **arguments: Any) -> None:
        """Copy what is in the log."""
        options = {**self._rig.options, "startingOffsets": "earliest", "minPartitions": "2"}
        table = arguments.pop("table", self.root)
        arguments = {"checkpoint": str(self._checkpoint), "decoding": decoding, **arguments}
        started = ingest(self._rig.spark, table, options, **arguments)
        try:
            started.awaitTermination(DEADLINE_S)
            assert not started.isActive
        finally:
            started.stop()


def send(rig: Rig, numbers: range) -> None:
    """Append objects of JSON, and bad values between them."""
    for number in numbers:
        value = json.dumps({"id": number, "name": f"n{number}", "other": True}).encode()
        rig.producer.send(rig.topic, value if number % BAD else value[:-1], key=b"%d" % number, headers=[("h", b"x")])
    rig.producer.flush()


def test_rows_and_dead_letters_are_in_the_table_once(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, decoding = Copied(rig, tmp_path), Decoding(value="json", key="string", schema="id int", budget=0.5)
    send(rig, range(100))
    commit = query.Committer.commit

    def failing(self: query.Committer, query_id: str, batch_id: int, written: list[Any]) -> None:
        commit(self, query_id, batch_id, written)
        raise OSError("the driver ends here")

    with monkeypatch.context() as patch, pytest.raises(StreamingQueryException, match="the driver ends here"):
        patch.setattr(query.Committer, "commit", failing)
        copied.run(decoding)
    send(rig, range(100, 130))
    copied.run(Decoding(value="json", key="string", schema="id int, name string", budget=0.5))
    bad = [number for number in range(130) if number % BAD == 0]
    rows = read(copied.root).to_table()
    assert sorted(rows["id"].to_pylist()) == sorted(set(range(130)) - set(bad))
    assert Counter(rows["name"].to_pylist()) == Counter(
        f"n{number}" if number >= 100 else None for number in range(130) if number % BAD
    )
    dead = read_dead_letters(copied.root).to_table().to_pylist()
    assert sorted(int(row["key"]) for row in dead) == bad
    assert {(row["_topic"], row["part"], row["cause"]) for row in dead} == {(rig.topic, "value", "json")}
    assert {row["_offset"] for row in dead} == set(bad) and dead[0]["headers"] == [{"key": "h", "value": b"x"}]
    frame = rig.spark.read.option("mergeSchema", "true").parquet(str(copied.root))
    assert frame.count() == 130 - len(bad)
    assert frame.where("name is not null").selectExpr("sum(id)").first()[0] == sum(  # type: ignore[index]
        number for number in range(100, 130) if number % BAD
    )
    report = drift_report(copied.root)
    assert f"BAD VALUES {len(bad)}" in report and "VALUES EXAMINED 130" in report
    with pytest.raises(SchemaMisfitError, match="column id is int, in the data string"):
        copied.run(Decoding(value="json", key="string", schema="id string"))


def test_batch_beyond_the_budget_commits_nothing(rig: Rig, tmp_path: Path) -> None:
    copied = Copied(rig, tmp_path)
    send(rig, range(1, 30))
    with pytest.raises(StreamingQueryException, match=r"4 of 29 records .* the budget 3 permits 3") as one:
        copied.run(Decoding(value="json", schema="id int", budget=3))
    assert f"{rig.topic}-0 offset 6: value: json" in str(one.value)
    table = ManifestTable(copied.root)
    assert table.commits() == [] and not (copied.root / "_dead_letters").exists()
    copied.run(Decoding(value="json", schema="id int", budget=4))
    assert read(table).count_rows() == 25 and read_dead_letters(table).count_rows() == 4


def test_text_of_json_is_a_variant_in_spark(rig: Rig, tmp_path: Path) -> None:
    copied = Copied(rig, tmp_path)
    rig.producer.send(rig.topic, b'{"a":[1,{"b":"x"}]}')
    rig.producer.send(rig.topic, b"[2]")
    rig.producer.flush()
    copied.run(Decoding(value="json"))
    frame = rig.spark.read.parquet(str(copied.root)).selectExpr("parse_json(value) as v", "_offset").orderBy("_offset")
    found = frame.selectExpr("variant_get(v, '$.a[1].b', 'string') as b", "schema_of_variant(v) as s").collect()
    assert [(row.b, row.s) for row in found] == [("x", "OBJECT<a: ARRAY<VARIANT>>"), (None, "ARRAY<BIGINT>")]


def test_dead_letters_go_to_a_topic_with_their_origin(rig: Rig, tmp_path: Path) -> None:
    copied, topic = Copied(rig, tmp_path), f"{rig.topic}-bad"
    rig.admin.topics.create(NewTopic(topic, partitions=1)).check()
    send(rig, range(10))
    copied.run(Decoding(value="json", schema="id int", budget=2, dead_letters=f"topic:{topic}"))
    assert read(copied.root).count_rows() == 8 and not (copied.root / "_dead_letters").exists()
    assert ManifestTable(copied.root).recover().removed == 0
    frame = rig.spark.read.format("kafkalite").options(**{**rig.options, "subscribe": topic, "includeHeaders": "true"})
    first, second = frame.load().orderBy("offset").collect()
    assert (bytes(first.key), bytes(second.key)) == (b"0", b"7") and bytes(first.value).startswith(b'{"id": 0, ')
    headers = {each.key: bytes(each.value) for each in second.headers}
    assert headers.pop("h") == b"x" and headers.pop("__kafkalite.dead_letter.detail").startswith(b"Expecting ','")
    assert headers.pop("__kafkalite.dead_letter.timestamp") != b""
    assert headers == {
        "__kafkalite.dead_letter.topic": rig.topic.encode(),
        "__kafkalite.dead_letter.partition": b"0",
        "__kafkalite.dead_letter.offset": b"7",
        "__kafkalite.dead_letter.part": b"value",
        "__kafkalite.dead_letter.cause": b"json",
    }


@pytest.fixture
def registry() -> Iterator[str]:
    """The URL of a schema registry in a thread."""
    loop, started, ended = asyncio.new_event_loop(), Queue[str](), asyncio.Event()

    async def serve() -> None:
        async with schema_registry() as server:
            for fields in (FIRST, [*FIRST, {"name": "name", "type": "string"}]):
                schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
                server.add("orders-value", {"schema": schema})
            started.put(server.url)
            await ended.wait()

    thread = Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        yield started.get(timeout=DEADLINE_S)
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


FIRST = [{"name": "id", "type": "long"}]


def test_columns_grow_with_the_schemas_of_a_registry(rig: Rig, tmp_path: Path, registry: str) -> None:
    copied, decoding = Copied(rig, tmp_path), Decoding(value="avro", registry_url=registry)
    for number in range(4):
        first = wire.prefix(1) + bytes([number * 2])
        second = wire.prefix(2) + bytes([number * 2 + 20, 2]) + b"n"
        for value in (first, *([second] if number >= 2 else [])):
            rig.producer.send(rig.topic, value)
    rig.producer.flush()
    copied.run(decoding)
    rows = read(copied.root).to_table().select(["id", "name"]).to_pylist()
    assert Counter((row["id"], row["name"]) for row in rows) == Counter(
        [(0, None), (1, None), (2, None), (3, None), (12, "n"), (13, "n")]
    )
    rig.producer.send(rig.topic, wire.prefix(9) + b"\0")
    rig.producer.flush()
    copied.run(decoding)
    (letter,) = read_dead_letters(copied.root).to_table().to_pylist()
    assert letter["cause"] == "schema" and "status 404" in letter["detail"]
