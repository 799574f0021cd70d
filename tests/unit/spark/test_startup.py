"""What makes a driver and its Python workers start faster; tests/spark runs with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark_kafkalite.jobs import read_job
from pyspark_kafkalite.jobs.session import configure_start
from pyspark_kafkalite.startup import cds_archive, configure_fast_start, variables
from pyspark_kafkalite.startup.variables import KAFKALITE_WORKER_PYTHON, PYSPARK_PYTHON, SCRIPT, SPARK_SUBMIT_OPTS

from kafkalite.cli.main import main

PATHS = "import os, sys; print(*map(os.environ.get, ('PYTHONPATH', 'OMP_NUM_THREADS')), sys.argv[1:], sep='\\n')"
WRITES = """
import os, pathlib, sys
option = next(each for each in os.environ["SPARK_SUBMIT_OPTS"].split() if "ArchiveClassesAtExit" in each)
pathlib.Path(option.partition("=")[2]).write_text(os.environ["SPARK_SUBMIT_OPTS"])
"""
FAILS = f"{WRITES}\nsys.exit('the driver has failed')"
WRITES_NOTHING = "print('[warning][cds] Cannot have non-empty directory in paths')\nprint('ended')"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of Spark is set, the cache is empty, and PySpark is installed."""
    for name in (PYSPARK_PYTHON, KAFKALITE_WORKER_PYTHON, SPARK_SUBMIT_OPTS, "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for package in ("pyspark", "py4j"):
        (tmp_path / "packages" / package).mkdir(parents=True)
        (tmp_path / "packages" / package / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setattr(cds_archive.importlib.metadata, "version", lambda _: "4.2.0")


@pytest.fixture
def archive() -> Path:
    """An archive of another run."""
    path = cds_archive.archive_path()
    path.parent.mkdir()
    path.write_text("former")
    return path


def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Replace the driver that is archived."""
    (tmp_path / "packages/driver.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setattr(cds_archive, "TRAINING_RUN", "driver")


# the script


def test_worker_does_not_import_from_archives_of_spark() -> None:
    spark = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip", "/spark/jars/spark-core.jar"]
    others = ["/application", "/a b/*", "/application/python/lib/x.zip"]
    values = {
        KAFKALITE_WORKER_PYTHON: sys.executable,
        "SPARK_HOME": "/spark",
        "PYTHONPATH": ":".join([*spark, *others]),
    }
    command = [str(SCRIPT), "-c", PATHS, "a b", "*"]
    done = subprocess.run(command, env=values, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{':'.join(others)}\n1\n['a b', '*']\n"


def test_script_without_an_interpreter_names_the_variable() -> None:
    done = subprocess.run([str(SCRIPT)], env={}, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "set PYSPARK_PYTHON to an interpreter" in done.stderr


@pytest.mark.parametrize("value", [None, ""])
def test_script_is_the_interpreter_of_workers(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv(PYSPARK_PYTHON, value)
    configure_fast_start()
    assert os.environ[PYSPARK_PYTHON] == str(SCRIPT) and os.environ[KAFKALITE_WORKER_PYTHON] == sys.executable
    assert SPARK_SUBMIT_OPTS not in os.environ


def test_interpreter_that_is_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYSPARK_PYTHON, "/env/bin/python")
    configure_fast_start()
    assert os.environ[PYSPARK_PYTHON] == "/env/bin/python" and KAFKALITE_WORKER_PYTHON not in os.environ


@pytest.mark.parametrize("why", ["another Spark", "modules in a zip file", "no PySpark", "not executable"])
def test_script_is_not_used_where_workers_need_the_modules_of_spark(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "another Spark":
        monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    elif why == "not executable":
        monkeypatch.setattr(variables, "SCRIPT", tmp_path / "packages/py4j/__init__.py")
    else:
        origin = "/opt/spark/python/lib/py4j-src.zip/py4j/__init__.py" if "zip" in why else None
        monkeypatch.setattr(variables, "find_spec", lambda _: type("Spec", (), {"origin": origin}))
    configure_fast_start()
    assert os.environ[PYSPARK_PYTHON] == sys.executable and KAFKALITE_WORKER_PYTHON not in os.environ


def test_spark_home_may_be_the_installed_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "packages/pyspark"))
    configure_fast_start()
    assert os.environ[PYSPARK_PYTHON] == str(SCRIPT)


def test_job_on_a_cluster_uses_the_interpreter(tmp_path: Path) -> None:
    def start(master: str) -> str:
        file = tmp_path / "lake.toml"
        source = '[source]\nkafka.bootstrap.servers = "localhost:9092"\nsubscribe = "orders"\n'
        table = '[table]\npath = "orders"\n'
        file.write_text(f'[job]\ntype = "lake"\n{source}{table}[spark]\nmaster = "{master}"')
        configure_start(read_job(file))
        return os.environ[PYSPARK_PYTHON]

    assert start("local[2]") == str(SCRIPT)
    assert start("spark://host:7077") == sys.executable
    assert start("local[2]") == sys.executable


# the archive


def test_archive_is_used_once_and_options_of_the_user_apply_after_it(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SPARK_SUBMIT_OPTS, "-Xss4m")
    configure_fast_start()
    configure_fast_start()
    assert os.environ[SPARK_SUBMIT_OPTS] == f"{cds_archive.java_options(archive)} -Xss4m"


def test_each_java_and_each_spark_has_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [cds_archive.archive_path()]
    for part in ("bin/java", "lib/modules"):
        path = tmp_path / "jdk" / part
        path.parent.mkdir(parents=True)
        path.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    found.append(cds_archive.archive_path())
    (tmp_path / "jdk/lib/modules").write_text("of another version")
    found.append(cds_archive.archive_path())
    monkeypatch.setattr(cds_archive.importlib.metadata, "version", lambda _: "4.3.0")
    found.append(cds_archive.archive_path())
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    found.append(cds_archive.archive_path())
    assert len(set(found)) == 5 and {each.parent for each in found} == {tmp_path / "kafkalite"}


def test_pyspark_of_a_directory_in_the_path_has_an_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_package(name: str) -> str:
        raise cds_archive.importlib.metadata.PackageNotFoundError(name)

    installed = cds_archive.archive_path()
    monkeypatch.setattr(cds_archive.importlib.metadata, "version", no_package)
    assert cds_archive.archive_path() != installed


def test_cache_that_cannot_be_used_is_no_error_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    assert cds_archive.existing_archive() is None
    with pytest.raises(OSError, match="a b: Java cannot use an archive at this path; set XDG_CACHE_HOME"):
        cds_archive.archive_path()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", no_home)
    assert cds_archive.existing_archive() is None


def test_archive_is_replaced_when_the_driver_has_ended(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(monkeypatch, tmp_path, WRITES)
    monkeypatch.setenv(SPARK_SUBMIT_OPTS, "-Xss4m")
    done = CliRunner().invoke(main, ["pipeline", "cds-archive"], catch_exceptions=False)
    assert done.exit_code == 0 and f"{archive}: 0 MiB" in done.output
    assert archive.read_text().startswith("-Xss4m -XX:ArchiveClassesAtExit=")
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (FAILS, "Spark has failed: the driver has failed"),
        (WRITES_NOTHING, "Java has written no archive: .*non-empty directory"),
        ("import threading; threading.Event().wait()", "Spark has not ended within 2 s"),
    ],
    ids=["fails", "writes nothing", "hangs"],
)
def test_driver_that_fails_leaves_the_former_archive(
    code: str, reason: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(monkeypatch, tmp_path, code)
    monkeypatch.setattr(cds_archive, "TIMEOUT_S", 2 if "hangs" in reason or "not ended" in reason else 60)
    with pytest.raises(OSError, match=reason):
        cds_archive.write_archive(archive)
    assert archive.read_text() == "former" and list(archive.parent.iterdir()) == [archive]
