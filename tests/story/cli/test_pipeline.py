"""`kafkalite pipeline` without a JVM: plan, verify, doctor, and the errors of run."""

import json
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.jobs.audit import created_again
from pyspark_kafkalite.jobs.checks import findings
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.settings.job_file import read_job
from pyspark_kafkalite.tables import Batch, CommittedRange, ManifestTable
from pyspark_kafkalite.tables.columns import RAW_SCHEMA
from pyspark_kafkalite.tables.model import Span
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions, write_attempt

from kafkalite.testing.thread import BrokerThread
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, Run

Pipeline = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def job(tmp_path: Path, broker: BrokerThread) -> Path:
    """A job that copies the topic `copied`."""
    path = tmp_path / "lake.toml"
    source = f'kafka.bootstrap.servers = "{broker.address}"\nsubscribe = "copied"\nstartingOffsets = "earliest"'
    path.write_text(f'[job]\ntype = "lake"\n[source]\n{source}\n[table]\npath = "orders"\npartition = "none"\n')
    return path


@pytest.fixture
def pipeline() -> Pipeline:
    """Runs `kafkalite pipeline`; fails on another exit code than `code`."""

    def run(*args: object, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "pipeline", *map(str, args)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**ENVIRON, **environ}, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == code, f"{args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    return run


def commit(root: Path, count: int, *, batch: int = 0, twice: int = 0, topic_id: str | None = None) -> None:
    """Write a batch of records of a partition; some of the rows are there twice."""
    table, first = ManifestTable(root), batch * count
    rows = [
        {"_topic": "copied", "_partition": 0, "_offset": offset, "_timestamp": 0, "headers": []}
        for offset in [*range(first, first + count), *range(twice)]
    ]
    written = pyarrow.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA)
    file = write_attempt(table.attempts, f"part-{uuid.uuid4().hex}.parquet", RAW_SCHEMA, [written], ParquetOptions())
    assert file is not None
    file = file._replace(spans=(Span("copied", 0, first, first + count),))
    copied = CommittedRange("copied", 0, first, first + count, len(rows), 0, 0, topic_id)
    table.commit(Batch("q", batch, (copied,), (file,)))


def test_plan_and_verify_compare_topic_and_table(kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path) -> None:
    kafkalite("topic", "create", "copied")
    kafkalite("produce", "copied", stdin="1\n2\n3\n4\n")
    planned = pipeline("plan", job)
    assert "4 offsets" in planned.stdout and "1 micro-batch; the next one has 1 task and 1 file\n" in planned.stdout
    assert "there is no directory _commits" in pipeline("verify", job, code=2).stderr
    commit(tmp_path / "orders", 3)
    (line,) = pipeline("plan", job, "--json").stdout.splitlines()
    assert (json.loads(line)["start_offset"], json.loads(line)["log_end_offset"]) == (3, 4)
    assert "3 rows, each offset once" in pipeline("verify", job, "--full").stdout


def test_topic_that_was_created_again_is_a_problem(
    kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path
) -> None:
    """Though its offsets fit."""
    kafkalite("topic", "create", "copied", "--if-not-exists")
    kafkalite("produce", "copied", stdin="1\n2\n3\n4\n")
    commit(tmp_path / "orders", 3, topic_id="former")
    text = (
        "topic copied was deleted and created again; of the former topic, records were read: partition 0 up to offset 3"
    )
    assert text in pipeline("verify", job, code=1).stderr
    planned = pipeline("plan", job)
    assert f"lost: {text}" in planned.stderr
    assert "copied" in planned.stdout
    assert created_again(read_job(str(job)), ManifestTable(tmp_path / "orders")) == {"copied": text}


def test_lost_files_of_a_topic_without_an_id_are_not_read_again(
    kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path
) -> None:
    kafkalite("topic", "create", "copied", "--if-not-exists")
    kafkalite("produce", "copied", stdin="1\n2\n3\n4\n")
    commit(tmp_path / "orders", 3)
    (lost,) = (tmp_path / "orders").glob("*.parquet")
    lost.unlink()
    assert "it has no id of topic copied" in pipeline("repair", job, code=2).stderr


def test_lost_files_are_read_from_the_topic_again(
    kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path
) -> None:
    kafkalite("topic", "create", "copied", "--if-not-exists")
    kafkalite("produce", "copied", stdin="1\n2\n3\n4\n")
    topic_id = Cluster(read_job(str(job)).source_options()).partitions().topic_ids["copied"]
    close_clients()
    commit(tmp_path / "orders", 3, topic_id=topic_id)
    assert pipeline("repair", job).stdout == "no file is lost\n"
    (lost,) = (tmp_path / "orders").glob("*.parquet")
    lost.unlink()
    assert "kafkalite pipeline repair" in pipeline("verify", job, code=2).stderr
    expected = f"lost: {lost.name}\nread again: copied-0 offsets 0 to 2\n1 lost file replaced, 3 rows\n"
    assert pipeline("repair", job).stdout == expected
    assert "3 rows, each offset once" in pipeline("verify", job, "--full").stdout


def test_small_files_are_compacted(kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path) -> None:
    kafkalite("topic", "create", "copied", "--if-not-exists")
    for number in range(3):
        commit(tmp_path / "orders", 2, batch=number)
    done = pipeline("compact", job, "--retention-hours", "0")
    assert done.stdout.startswith("3 files replaced by 1: ")
    assert len(ManifestTable(tmp_path / "orders").files()) == 1
    job.write_text(job.read_text().replace('"lake"', '"latest"').replace("partition", "#"))
    assert "compact is for lake" in pipeline("compact", job, code=2).stderr


def test_rows_that_are_there_twice_are_a_problem(kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path) -> None:
    kafkalite("topic", "create", "copied", "--if-not-exists")
    commit(tmp_path / "orders", 3, twice=2)
    done = pipeline("verify", job, code=1)
    assert "problem: copied-0: 2 rows of the table have the offset of another row" in done.stderr


def test_doctor_names_each_problem_with_what_to_do(pipeline: Pipeline, job: Path, broker: BrokerThread) -> None:
    unknown = job.with_name("unknown.toml")
    unknown.write_text(
        job.read_text().replace('"copied"', '"nowhere"').replace("lake", "latest").replace("partition", "#")
    )
    done = pipeline("doctor", unknown, code=1, JAVA_HOME="nowhere")
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["PROBLEM  java"] == "JAVA_HOME is nowhere, which has no bin/java; install Java 17, or set JAVA_HOME"
    assert lines["PROBLEM  pyspark"].startswith("pyspark is not installed, expected at least 4.2; install the extra")
    assert "topic nowhere: this broker has no such topic" in lines["PROBLEM  topics"]
    assert "ok       disk" in lines and done.stderr == ""


def test_doctor_finds_topics_that_were_created_again(
    kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path
) -> None:
    kafkalite("topic", "create", "copied", "--if-not-exists")
    former = topic_id(kafkalite, "copied")
    commit(tmp_path / "orders", 3, topic_id=former)
    job.write_text(job.read_text().replace("[source]", "checkpoint = 'checkpoint'\n[source]"))
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    (checkpoint / "offsets" / "0").write_text(
        "v1\n{}\n" + json.dumps({"copied": {"0": 3}, "#topicIds": {"copied": former}})
    )

    def line() -> str:
        found = pipeline("doctor", job, code=1).stdout.splitlines()
        return next(each for each in found if each.split(": ")[0].endswith("topic ids"))

    assert line() == "ok       topic ids: those of the topics when they were read"
    kafkalite("topic", "delete", "copied")
    kafkalite("topic", "create", "copied")
    what = (
        "topic copied was deleted and created again; of the former topic, records were read: partition 0 up to offset 3"
    )
    said = line()
    assert said.startswith(
        f"PROBLEM  topic ids: checkpoint {checkpoint}: {what}; table {tmp_path / 'orders'}: {what}; "
    )
    assert "run with an empty checkpoint directory, --resume-from-table and --allow-gaps" in said
    shutil.rmtree(checkpoint)
    resumed = {each.check: each for each in findings(read_job(job), RunOptions(True, allow_gaps=True))}["topic ids"]
    assert resumed.problem is None and what in resumed.detail
    latest = job.with_name("latest.toml")
    latest.write_text(job.read_text().replace('"lake"', '"latest"').replace('partition = "none"\n', ""))
    refused = {each.check: each for each in findings(read_job(latest), RunOptions(True, allow_gaps=True))}["topic ids"]
    assert refused.problem is not None and refused.problem.endswith("choose another table and another checkpoint")


def topic_id(kafkalite: Run, topic: str) -> str:
    """The id of a topic as offsets have it."""
    rows = map(json.loads, kafkalite("topic", "list", "--json").stdout.splitlines())
    return next(str(each["topic_id"]) for each in rows if each["topic"] == topic)


def test_doctor_finds_a_table_that_is_partitioned_in_another_way(
    kafkalite: Run, pipeline: Pipeline, job: Path, tmp_path: Path
) -> None:
    kafkalite("topic", "create", "copied", "--if-not-exists")
    commit(tmp_path / "orders", 2)
    job.write_text(job.read_text().replace('partition = "none"', 'partition = "date"'))
    line = next(each for each in pipeline("doctor", job, code=1).stdout.splitlines() if "table: " in each)
    assert line.startswith("PROBLEM") and 'this job partitions by date; set partition to "none"' in line


@pytest.mark.parametrize(
    ("replaced", "by", "text"),
    [
        ("subscribe", "subscribed", "[source] option subscribed: it does not exist; did you mean subscribe?"),
        ("partition", "partitions", "[table] partitions: it does not exist; did you mean partition?"),
        ('"lake"', '"lakes"', "[job] type: 'lakes', expected lake or latest or window or audit or replay"),
    ],
)
def test_wrong_job_file_is_one_line(pipeline: Pipeline, job: Path, replaced: str, by: str, text: str) -> None:
    job.write_text(job.read_text().replace(replaced, by))
    done = pipeline("run", job, code=2)
    assert done.stderr.count("\n") == 1 and text in done.stderr and done.stdout == ""


def test_run_without_java_is_one_line(pipeline: Pipeline, job: Path) -> None:
    done = pipeline("run", job, code=2, JAVA_HOME="nowhere")
    assert done.stderr.startswith("kafkalite: JAVA_HOME is nowhere") and done.stderr.count("\n") == 1


def test_script_of_spark_submit_exists(pipeline: Pipeline) -> None:
    assert Path(pipeline("script").stdout.strip()).read_text().startswith('"""Runs a job in spark-submit')
