"""Secrets in options appear in no plan, error, progress, log, commit or checkpoint of Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark_kafkalite.decoding import Decoding
from pyspark_kafkalite.ingest import ingest

from tests.spark.rig import Rig

SECRET = "TOPSECRET"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{LOGIN} required username="u" password="{SECRET}";',
    "kafka.default.api.timeout.ms": "2000",
}


def files_with_secret(*directories: Path) -> list[Path]:
    found = [path for each in directories for path in each.rglob("*") if path.is_file()]
    return [path for path in found if SECRET.encode() in path.read_bytes()]


def test_plan_and_error_of_a_batch_have_no_password(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    frame = rig.read(**SASL)
    frame.explain(mode="extended")
    frame.filter("offset > 3").explain(mode="formatted")
    with pytest.raises(PySparkException) as raised:  # the broker has no listener with SASL
        frame.collect()
    with pytest.raises(PySparkException) as written:
        rows = rig.spark.range(1).selectExpr("cast(id as string) as value")
        rows.write.format("kafkalite").options(
            **{"kafka.bootstrap.servers": rig.broker.address, "topic": rig.topic, **SASL}
        ).mode("append").save()
    printed = capfd.readouterr()
    assert "== Physical Plan ==" in printed.out
    assert SECRET not in "".join((printed.out, printed.err, str(raised.value), str(written.value)))


def test_stream_and_table_have_no_password(rig: Rig, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rig.send(range(3))
    query = rig.stream(**SASL).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "stream")).start()
    texts: list[Any] = []
    with pytest.raises(PySparkException) as raised:
        query.awaitTermination()
    texts += [str(raised.value), str(query.exception()), str(query.status), json.dumps(query.lastProgress, default=str)]
    address = f"http://u:{SECRET}@127.0.0.1:1"
    for decoding in (Decoding(value="json", registry_url=address), Decoding(value="avro", registry_url=address)):
        table, checkpoint = tmp_path / decoding.value, tmp_path / f"{decoding.value}-checkpoint"
        options = {**rig.options, "startingOffsets": "earliest"}
        copied = ingest(rig.spark, str(table), options, checkpoint=str(checkpoint), decoding=decoding)
        try:
            copied.awaitTermination()
        except PySparkException as error:
            texts.append(str(error))
        texts += [str(copied.exception()), json.dumps(copied.lastProgress, default=str)]
    assert list((tmp_path / "json/_commits").glob("*.json"))
    printed = capfd.readouterr()
    assert SECRET not in "".join((*texts, printed.out, printed.err))
    assert files_with_secret(tmp_path) == []
