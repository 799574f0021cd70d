"""What makes a driver and its Python workers start faster; tests/spark runs with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark_kafkalite.startup import class_archive, quick_start
from pyspark_kafkalite.startup.quick_start import INTERPRETER, JVM_OPTIONS, SCRIPT, WORKER_PYTHON

PATHS = "import os, sys; print(os.environ['PYTHONPATH']); print(sys.argv[1:])"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of Spark is set, and the cache is empty."""
    for name in (WORKER_PYTHON, INTERPRETER, JVM_OPTIONS, "SPARK_HOME"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def write_empty_archive() -> Path:
    archive = class_archive.archive_path()
    archive.parent.mkdir()
    archive.touch()
    return archive


def test_worker_does_not_import_from_archives_of_spark() -> None:
    spark = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip", "/spark/jars/spark-core.jar"]
    kept = ["/application", "/a b/*", "/application/python/lib/x.zip"]
    variables = {INTERPRETER: sys.executable, "SPARK_HOME": "/spark", "PYTHONPATH": ":".join([*spark, *kept])}
    command = [str(SCRIPT), "-c", PATHS, "a b", "*"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{':'.join(kept)}\n['a b', '*']\n"


def test_script_is_the_interpreter_of_workers() -> None:
    quick_start()
    assert os.environ[WORKER_PYTHON] == str(SCRIPT) and os.environ[INTERPRETER] == sys.executable
    assert JVM_OPTIONS not in os.environ


def test_interpreter_that_is_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKER_PYTHON, "/env/bin/python")
    quick_start()
    assert os.environ[WORKER_PYTHON] == "/env/bin/python" and INTERPRETER not in os.environ


def test_spark_that_is_not_the_one_of_this_environment_keeps_its_own_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    quick_start()
    assert os.environ[WORKER_PYTHON] == sys.executable and INTERPRETER not in os.environ


def test_archive_is_used_once_and_options_of_the_user_apply_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_empty_archive()
    monkeypatch.setenv(JVM_OPTIONS, "-Xss4m")
    quick_start()
    quick_start()
    assert os.environ[JVM_OPTIONS] == f"{class_archive.java_options(archive)} -Xss4m"


def test_each_java_and_each_spark_has_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {class_archive.archive_path()}
    java = tmp_path / "jdk/bin/java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    found.add(class_archive.archive_path())
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    found.add(class_archive.archive_path())
    assert len(found) == 3 and {each.parent for each in found} == {tmp_path / "kafkalite"}


def test_driver_that_fails_leaves_the_former_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_empty_archive()
    monkeypatch.setattr(class_archive, "DRIVER", "no_such_module")
    with pytest.raises(OSError, match=r"no archive was written: .*no_such_module.*doctor") as raised:
        class_archive.write_archive(archive)
    assert archive.exists() and len(list(archive.parent.iterdir())) == 1, raised.value
