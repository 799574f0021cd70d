"""Job files: every wrong key or value is named before Spark starts."""

from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalite.jobs import JobError, read_job
from pyspark_kafkalite.jobs.settings.job_file import parse_job
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions

LAKE = """
[job]
type = "lake"
{job}
[source]
kafka.bootstrap.servers = "localhost:9092"
subscribe = "orders"
{source}
[table]
path = "tables/orders"
{table}
[spark]
master = "local[2]"
spark.sql.shuffle.partitions = 2
"""


def lake(directory: Path, job: str = "", source: str = "", table: str = "", more: str = "") -> Path:
    path = directory / "orders.toml"
    path.write_text(LAKE.format(job=job, source=source, table=table) + more)
    return path


def test_defaults_are_a_table_by_date_and_a_checkpoint_beside_it(tmp_path: Path) -> None:
    found = read_job(lake(tmp_path))
    assert (found.type, found.name, found.trigger) == ("lake", "orders", {"availableNow": True})
    table = found.required_table
    assert table[:4] == (str(tmp_path / "tables/orders"), "parquet", "date", ParquetOptions())
    assert found.checkpoint == f"{tmp_path}/tables/orders-checkpoint"
    assert found.source == {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    assert found.spark == {"master": "local[2]", "spark.sql.shuffle.partitions": "2"}


def test_values_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT", "ingest-1")
    path = lake(
        tmp_path,
        job='name = "copy"\ntrigger = "1 minute"\ncheckpoint = "points"',
        source='"kafka.client.id" = "${CLIENT}"\nmaxOffsetsPerTrigger = 100\nfailOnDataLoss = true',
        table='partition = "none"\ncompression = "zstd"\nlevel = 3',
    )
    found = read_job(path)
    assert (found.name, found.trigger) == ("copy", {"processingTime": "1 minute"})
    assert found.checkpoint == str(tmp_path / "points")
    assert found.source["kafka.client.id"] == "ingest-1" and found.source_options().max_offsets == 100
    assert found.required_table[2:4] == ("none", ParquetOptions("zstd", 3))


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"job": 'nme = "x"'}, "[job] nme: it does not exist; did you mean name?; allowed are type, name, trigger"),
        ({"job": 'trigger = "soon"'}, "[job] trigger: 'soon', expected \"available-now\" or an interval such as"),
        ({"job": "name = 1"}, "[job] name: 1, expected text in quotes"),
        ({"source": 'topic = "x"'}, "[source] option topic: it does not exist"),
        ({"source": 'kafka.acks = "1"'}, "[source] option kafka.acks: it is not supported"),
        ({"source": 'columns = ["key"]'}, "[source] columns: ['key'], expected text, a number, true or false"),
        ({"source": 'kafka.client.id = "${NOWHERE_SET}"'}, "the environment variable NOWHERE_SET is not set"),
        ({"table": 'partition = "hour"'}, "[table] partition: 'hour', expected date or none"),
        ({"table": 'format = "delta"\npartition = "date"'}, "[table] partition: 'date', expected none"),
        ({"table": 'compression = "gzip"'}, "[table] compression: 'gzip', expected none or snappy or lz4 or zstd"),
        ({"table": 'compression = "lz4"\nlevel = 3'}, "[table] level: it is for zstd, but compression is 'lz4'"),
        ({"table": "level = 23"}, "[table] level: 23, expected a whole number from 1 to 22"),
        ({"more": '[decoding]\nvalue = "xml"'}, "[decoding] option value: 'xml', expected one of raw, string, json"),
        ({"more": "[decoding]\nvalu = 1"}, "[decoding] valu: it does not exist; did you mean value?"),
        ({"more": '[decoding]\nbudget = "1 %"'}, "[decoding] budget: '1 %', expected a number"),
        ({"more": '[decoding]\nregistry_auth = ["me"]'}, "[decoding] registry_auth: expected a list of the user name"),
        ({"more": "[progress]\nport = 99999"}, "[progress] port: 99999, expected a whole number from 0 to 65535"),
        ({"more": "[sink]\n"}, "[sink]: a job of type lake does not have it; allowed are [job], [spark], [source]"),
        ({"more": "[job"}, "the job file is not TOML"),
    ],
)
def test_wrong_keys_and_values_are_named(tmp_path: Path, parts: dict[str, str], text: str) -> None:
    path = lake(tmp_path, **parts)
    with pytest.raises(JobError) as raised:
        read_job(path)
    assert str(raised.value).startswith(f"{path}: ") and text in str(raised.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, "[job] type: it is missing, expected lake or latest or window or audit or replay"),
        ({"job": {"type": "lakes"}}, "[job] type: 'lakes', expected lake or latest"),
        ({"job": 1}, "job is 1, expected a section [job]"),
        ({"job": {"type": "lake"}}, "[source] is missing; a job of type lake needs [job], [source], [table]"),
    ],
)
def test_missing_sections_are_named(content: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError) as raised:
        parse_job(content, "job.toml")
    assert text in str(raised.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"nothing.toml: the job file cannot be read: No such file"):
        read_job(tmp_path / "nothing.toml")


WINDOWS = {
    "job": {"type": "window"},
    "source": {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"},
    "window": {"size": "1 hour"},
    "table": {"path": "windows"},
}


def test_window_counts_rows_by_default() -> None:
    found = parse_job(WINDOWS, "job.toml").window
    assert found == ("1 hour", None, "10 minutes", "timestamp", None, {}, {"rows": "count(*)"}, "append")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"window": {}}, "[window] size: it is missing, expected such as"),
        ({"window": {"size": "1 month"}}, "[window] size: '1 month', expected a duration such as"),
        ({"window": {"size": "1 day", "by": {"a b": "key"}}}, "[window] by: 'a b' is not a name of a column"),
        ({"window": {"size": "1 day", "by": {"rows": "1"}, "aggregates": {"rows": "1"}}}, "name of another column"),
        (
            {"window": {"size": "1 day", "aggregates": {"rows": 1}}},
            "aggregates: {'rows': 1}, expected such as",
        ),
        ({"window": {"size": "1 day", "mode": "complete"}}, "[window] mode: 'complete', expected append or update"),
        ({"sink": {"topic": "x"}}, "a job of type window needs one of [table], [sink]"),
        ({"table": {"path": "x", "partition": "date"}}, "[table] partition: it does not exist"),
    ],
)
def test_wrong_windows_are_named(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError) as raised:
        parse_job({**WINDOWS, **changed}, "job.toml")
    assert text in str(raised.value)


def test_settings_of_other_jobs_are_checked() -> None:
    sink = {"kafka.bootstrap.servers": "localhost:9092", "topic": "again"}
    replay: dict[str, Any] = {"job": {"type": "replay"}, "table": {"path": "x"}, "sink": sink}
    assert parse_job(replay, "job.toml").replay == ("table", "keep", None)
    wrong = [
        ({**replay, "replay": {"partitions": "none"}}, "[replay] partitions: 'none', expected keep or key"),
        ({**replay, "sink": {"kafka.bootstrap.servers": "x:1"}}, "[sink] topic is missing"),
        ({**replay, "sink": {**sink, "kafka.ack": "1"}}, "[sink] option kafka.ack: it is not supported"),
        ({**replay, "source": {}}, "[source]: a job of type replay does not have it"),
    ]
    for content, text in wrong:
        with pytest.raises(JobError) as raised:
            parse_job(content, "job.toml")
        assert text in str(raised.value)
    latest = {**WINDOWS, "job": {"type": "latest"}, "table": {"path": "x", "buckets": 3, "null_keys": "skip"}}
    del latest["window"]
    assert parse_job(latest, "job.toml").required_table[4:] == (3, "skip")


def test_decoding_and_progress_are_read(tmp_path: Path) -> None:
    (tmp_path / "orders.avsc").write_text('"string"')
    more = '[decoding]\nvalue = "avro"\nschema_file = "orders.avsc"\nnested = true\nbudget = 0\n'
    found = read_job(lake(tmp_path, more=more + '[progress]\ngroup = "orders"\njson = "x.jsonl"\nport = 0'))
    assert (found.decoding.value, found.decoding.schema, found.decoding.nested) == ("avro", '"string"', True)
    assert found.progress == ("orders", str(tmp_path / "x.jsonl"), None, 0)
    assert found.source_options().progress_group == "orders"
