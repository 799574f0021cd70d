"""The doctor finds each cause of a failure, and an error of Spark is one line."""

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.jobs import JobError, checkpoint, environment, read_job
from pyspark_kafkalite.jobs.checks import LEAST_FREE_BYTES, disk_finding, findings
from pyspark_kafkalite.jobs.errors import explain_error, root_cause
from pyspark_kafkalite.jobs.main import main
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.session import master_problem
from pyspark_kafkalite.options import SourceOptions, source_options
from pyspark_kafkalite.startup.java import java_command

from kafkalite._version import VERSION
from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, error_for

ROOT = Path(__file__).parents[3]
WORKER = {
    "host": "node-1",
    "executable": "/env/bin/python",
    "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
    "kafkalite": VERSION,
    "pyspark": "4.2.0",
    "pyarrow": "26.0.1",
    "pandas": "2.3.3",
}


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_java_is_found_and_its_version_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_17 = program(tmp_path / "java17", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    java_8 = program(tmp_path / "java8", "echo 'java version \"1.8.0\"' >&2")
    broken = program(tmp_path / "broken", "echo 'no libjvm.so' >&2; exit 1")
    assert environment.java_problem(java_17) is None
    assert (
        environment.java_problem(java_8) == f"{java_8} is version 1, expected at least 17; set JAVA_HOME to a newer one"
    )
    assert "no libjvm.so; install Java 17" in str(environment.java_problem(broken))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_command() is None
    assert environment.java_problem(None) == (
        f"JAVA_HOME is {tmp_path}, which has no bin/java; install Java 17, or set JAVA_HOME"
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.java_problem(java_command()) == ("there is no java in PATH; install Java 17, or set JAVA_HOME")


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("pyspark", None, "pyspark is not installed, expected at least 4.2"),
        ("pyspark", "4.1.4", "pyspark is version 4.1.4, expected at least 4.2"),
        ("pandas", "3.0.0", "pandas is version 3.0.0, expected at least 2.2 and below 3"),
        ("pyarrow", "17.0.0", "pyarrow is version 17.0.0, expected at least 18 and below 27"),
        ("pyarrow", "27.0.0", "pyarrow is version 27.0.0"),
    ],
)
def test_wrong_versions_are_named_with_the_extra(name: str, version: str | None, text: str) -> None:
    problem = environment.package_problem(name, version)
    assert problem is not None and problem.startswith(text) and "pip install 'kafkalite[spark]'" in problem


def test_supported_versions_are_those_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    found = []
    for name, (least, beyond) in environment.REQUIRED.items():
        dotted = [".".join(map(str, each)) for each in (least, beyond) if each is not None]
        found.append(f"{name}>={dotted[0]}" + (f",<{dotted[1]}" if beyond else ""))
        assert environment.package_problem(name, dotted[0]) is None
    assert found == extras


@pytest.mark.parametrize(
    ("differs", "text"),
    [
        ({}, None),
        ({"python": "3.9"}, "is version 3.9, the driver's is"),
        ({"kafkalite": None, "error": "No module named 'pyspark_kafkalite'"}, "cannot import kafkalite: No module"),
        ({"kafkalite": "0.0.1"}, f"has kafkalite 0.0.1, the driver has {VERSION}"),
        ({"pandas": "3.0.1"}, "pandas is version 3.0.1, expected at least 2.2 and below 3"),
    ],
)
def test_workers_that_differ_are_named(differs: dict[str, Any], text: str | None) -> None:
    problem = environment.worker_problem({**WORKER, **differs})
    if text is None:
        assert problem is None
    else:
        assert problem is not None and "Python /env/bin/python on node-1" in problem and text in problem


def test_probe_runs_in_another_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "sdk")]))
    found = environment.local_worker(sys.executable)
    assert (found["kafkalite"], found["python"]) == (VERSION, WORKER["python"])
    bare = program(tmp_path / "python", f'exec {sys.executable} -I -S "$@"')
    assert "No module named" in str(environment.worker_problem(environment.local_worker(bare)))
    with pytest.raises(ValueError, match="fails: gone"):
        environment.local_worker(program(tmp_path / "broken", "echo gone >&2; exit 1"))


def test_full_disk_is_found_before_the_directory_exists(tmp_path: Path) -> None:
    directory = str(tmp_path / "a" / "b")
    asked = []

    def free(path: str) -> int:
        asked.append(path)
        return LEAST_FREE_BYTES - 1

    problem = disk_finding(directory, free).problem
    assert problem == f"{directory}: 63 MiB are free, expected at least 64; free space, or choose another directory"
    assert asked == [str(tmp_path)]
    assert disk_finding(directory, lambda _: LEAST_FREE_BYTES).problem is None


def test_errors_of_the_cluster_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lake.toml"
    source = '[source]\nkafka.bootstrap.servers = "localhost:9092"\nsubscribe = "orders"\n'
    file.write_text(f'[job]\ntype = "lake"\n{source}[table]\npath = "orders"')

    def refused(_: object) -> None:
        raise error_for(KafkaErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid username or password")

    monkeypatch.setattr("pyspark_kafkalite.cluster.Cluster.partitions", refused)
    found = {each.check: each.problem for each in findings(read_job(file), RunOptions())}
    assert "Invalid username or password" in str(found["topics"])
    assert found["table"] is None and found["checkpoint"] is None


def test_interpreter_of_the_workers_is_needed_by_the_driver_of_a_cluster_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lake.toml"
    source = '[source]\nkafka.bootstrap.servers = "localhost:9092"\nsubscribe = "orders"\n'
    file.write_text(f'[job]\ntype = "lake"\n{source}[table]\npath = "orders"\n[spark]\nmaster = "spark://host:7077"')

    def planner() -> str | None:
        return next(each.problem for each in findings(read_job(file), RunOptions()) if each.check == "driver python")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    assert "mkdir env && tar -xzf env.tar.gz -C env" in str(planner())
    (tmp_path / "env/bin").mkdir(parents=True)
    program(tmp_path / "env/bin/python", "true")
    assert planner() is None


def test_spark_submit_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.toml")]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith("kafkalite: ") and "the job file cannot be read" in shown.err


# checkpoints


def options(subscribe: str = "orders") -> SourceOptions:
    return source_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": subscribe}, streaming=True)


def written(directory: Path, *sources: str, query_id: str = "a-b") -> str:
    (directory / "offsets").mkdir(parents=True)
    (directory / "metadata").write_text(json.dumps({"id": query_id}))
    (directory / "offsets" / "9").write_text("v1\n{}\nwrong")
    (directory / "offsets" / "10").write_text("\n".join(["v1", "{}", *sources]))
    return str(directory)


def test_checkpoint_of_another_query_is_rejected(tmp_path: Path) -> None:
    mine = written(tmp_path / "mine", '{"#topicIds":{"orders":"x"},"orders":{"0":3}}')
    checkpoint.check_topics(mine, options())
    checkpoint.check_topics(mine, options("orders,more"))
    checkpoint.check_owner(mine, "lake", "a-b", resume=False)
    checkpoint.check_owner(mine, "lake", None, resume=False)
    with pytest.raises(JobError, match=r"that of query a-b, but query c-d writes to table lake; use the checkpoint of"):
        checkpoint.check_owner(mine, "lake", "c-d", resume=True)
    with pytest.raises(JobError, match="that of a query which reads orders, but this job reads payments"):
        checkpoint.check_topics(mine, options("payments"))
    with pytest.raises(JobError, match="that of a query with 2 sources"):
        checkpoint.check_topics(written(tmp_path / "two", "{}", "{}"), options())
    for number, source in enumerate(("17", "0-offset", '{"path":"x"}')):
        with pytest.raises(JobError, match="a query with a source that is not a topic"):
            checkpoint.check_topics(written(tmp_path / str(number), source), options())


def test_deleted_checkpoint_needs_to_resume(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(JobError, match="it is empty, but table lake has commits of query c-d; start with --res"):
        checkpoint.check_owner(missing, "lake", "c-d", resume=False)
    checkpoint.check_owner(missing, "lake", "c-d", resume=True)
    checkpoint.check_topics(missing, options())


def test_deleted_checkpoint_of_windows_cannot_be_resumed(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(JobError, match=r"it is empty, but query c-d writes to table lake; .* or choose another table"):
        checkpoint.check_owner(missing, "lake", "c-d", resume=False, resumable=False)
    checkpoint.check_owner(missing, "lake", None, resume=False, resumable=False)


def test_directory_that_is_no_checkpoint_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "photo.jpeg").write_text("")
    with pytest.raises(JobError, match="the directory has other files; choose an empty one"):
        checkpoint.query_id(str(tmp_path))
    with pytest.raises(JobError, match="it is not a checkpoint of Spark"):
        checkpoint.query_id(str(tmp_path / "photo.jpeg"))


# errors

WORKER_ERROR = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR]
Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/env/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
pyspark.errors.exceptions.captured.PythonException: \n  An exception was thrown from the Python worker.
Traceback (most recent call last):
  File "/env/pyspark_kafkalite/task.py", line 66, in batches
    raise DataLossError(f"{error}; {HINT}") from error
pyspark_kafkalite.errors.DataLossError: orders-0: offsets 0 to 9 were deleted
\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:581)
 SQLSTATE: 39000 SQLSTATE: XXKST
"""
JAVA_ERROR = """An error occurred while calling o47.start.
: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


def test_innermost_python_error_is_the_cause() -> None:
    assert root_cause(WORKER_ERROR) == "orders-0: offsets 0 to 9 were deleted"
    assert (
        root_cause("[TABLE_NOT_FOUND] The table `x` cannot be found. SQLSTATE: 42P01")
        == "The table `x` cannot be found."
    )
    assert root_cause("a\nCaused by: java.io.IOException: first\nCaused by: java.lang.Error: last") == "last"


def test_errors_are_one_line_and_defects_keep_their_traceback() -> None:
    class Captured(Exception):
        __module__ = "pyspark.errors.exceptions.captured"

    step = "; free space on the disk of the table, the checkpoint or spark.local.dir, and run the job again"
    assert explain_error(Captured(JAVA_ERROR)) == f"No space left on device{step}"
    assert (
        explain_error(OSError(28, "No space left on device", "lake/x.json"))
        == f"lake/x.json: No space left on device{step}"
    )
    assert explain_error(KafkaConnectionError("cannot connect\nto x")) == "cannot connect to x"
    assert explain_error(OptionError("subscribe", "it is empty")) == "option subscribe: it is empty"
    assert explain_error(JobError("job.toml: wrong")) == "job.toml: wrong"
    assert explain_error(AssertionError("x")) is None


@pytest.mark.parametrize(
    "address", ["local", "local[2]", "local[*]", "local[*,3]", "spark://a:7077,b:7077", "yarn", "k8s://h:1"]
)
def test_master_of_a_form_that_spark_knows_is_accepted(address: str) -> None:
    assert master_problem(address) is None


@pytest.mark.parametrize("address", ["locl[2]", "local[x]", "local[2", "localhost", "spark:7077", "http://a:1", ""])
def test_wrong_master_is_a_problem_before_spark_starts(tmp_path: Path, address: str) -> None:
    expected = f"[spark] master is {address!r}, expected local[N], local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT"
    assert master_problem(address) == expected
    if address:  # an empty one in a file is the default
        path = tmp_path / "lake.toml"
        source = 'kafka.bootstrap.servers = "localhost:1"\nsubscribe = "orders"\nstartingOffsets = "earliest"'
        spark = f'[spark]\nmaster = "{address}"'
        path.write_text(f'[job]\ntype = "lake"\n[source]\n{source}\n[table]\npath = "orders"\n{spark}\n')
        found = list(findings(read_job(path), RunOptions()))
        assert [each.problem for each in found if each.check == "master"] == [expected]
        assert not any(each.check in ("workers", "topics") for each in found), "nothing is started with it"
