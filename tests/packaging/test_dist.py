"""The wheel and the source distribution are complete, and an installed broker serves produce and fetch."""

import os
import re
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite._version import VERSION

pytestmark = [pytest.mark.xdist_group("dist"), pytest.mark.timeout(1100)]
ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "kafkalite/_speedups", ROOT / "sdk/kafkalite_sdk/_speedups")
START_TIMEOUT_S = 120

# Nothing of the checkout or of this run's environment reaches the clean one.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KAFKALITE_", "LD_PRELOAD"))}


def run(*command: str | Path, cwd: Path, input: str | None = None, **environ: str) -> str:
    """Run `command` in `cwd` and return its output; a failure shows all of it. `environ`: added variables."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**CLEAN, **environ},
        input=input,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def sources(*suffixes: str) -> list[Path]:
    """The sources of the extensions with these suffixes."""
    return [path for root in SOURCES for suffix in suffixes for path in root.rglob(f"*.{suffix}")]


def installed(path: Path) -> str:
    """The name in the wheel of a file of the checkout."""
    return str(path.relative_to(ROOT)).removeprefix("sdk/")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "-q", "--no-isolation", "--sdist", "-o", out, ".", cwd=ROOT)
    (found,) = out.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, so that both are proven to be complete.

    `.ci/run` keeps the output of Cython and the compiler, so what has the same input is not built again; else it is not
    optimized, to save time.
    """
    out = tmp_path_factory.mktemp("wheel")
    options = ["-q", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", out]
    kept = os.environ.get("KAFKALITE_CC")
    variables = {"KAFKALITE_CC": kept} if kept else {"KAFKALITE_CFLAGS": "-O0"}
    run(sys.executable, "-m", "pip", "wheel", *options, sdist, cwd=out, **variables)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the wheel and its dependencies only."""
    venv_dir = tmp_path_factory.mktemp("clean")
    venv.create(venv_dir / "venv", with_pip=True)
    run(venv_dir / "venv/bin/pip", "install", "-q", wheel, cwd=venv_dir)
    return venv_dir / "venv/bin"


def test_the_source_distribution_is_complete(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(path.relative_to(ROOT)) for path in sources("pyx", "pxd", "pyi")} <= names
    assert {"LICENSE", "README.md", "setup.py", "kafkalite/py.typed", "sdk/kafkalite_sdk/py.typed"} <= names
    assert not [name for name in names if name.endswith(".so") or name.startswith(("build/", "tests/kit/"))]


def test_the_wheel_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {installed(path) for path in sources("pxd", "pyi")} <= names
    for path in sources("pyx"):
        module = re.escape(installed(path.with_suffix("")))
        assert [name for name in names if re.fullmatch(rf"{module}\.[^/]+\.so", name)]
    assert {"kafkalite/py.typed", "kafkalite_sdk/py.typed", "pyspark_kafkalite/py.typed"} <= names
    modules = {installed(path) for path in (ROOT / "sdk/pyspark_kafkalite").rglob("*.py")}
    assert modules and modules <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops <= {"kafkalite", "kafkalite_sdk", "pyspark_kafkalite", f"kafkalite-{VERSION}.dist-info"}


def test_installed_script_of_spark_workers_is_executable(clean: Path) -> None:
    code = "from pyspark_kafkalite.startup import variables; print(variables.SCRIPT)"
    script = run(clean / "python", "-c", code, cwd=clean).strip()
    values = {"KAFKALITE_WORKER_PYTHON": str(clean / "python"), "SPARK_HOME": "/spark"}
    assert run(script, "-c", "print('started')", cwd=clean, **values) == "started\n"


def test_installed_command_prints_its_version(clean: Path) -> None:
    assert run(clean / "kafkalite", "--version", cwd=clean) == f"kafkalite {VERSION}\n"


def test_every_listed_command_has_help(clean: Path) -> None:
    commands = re.findall(r"^  (\w+)  ", run(clean / "kafkalite", "--help", cwd=clean), re.MULTILINE)
    assert {"serve", "topic", "produce"} <= set(commands) and "perf" not in commands
    for command in commands:
        assert run(clean / "kafkalite", command, "--help", cwd=clean).startswith(f"Usage: kafkalite {command}")


def test_every_module_imports(clean: Path) -> None:
    code = (
        "import importlib, pkgutil, kafkalite, kafkalite_sdk\n"
        "for found in [*pkgutil.walk_packages(kafkalite.__path__, 'kafkalite.'),\n"
        "              *pkgutil.walk_packages(kafkalite_sdk.__path__, 'kafkalite_sdk.')]:\n"
        "    needs_pytest = found.name in {'kafkalite.testing.plugin', 'kafkalite.testing.async_fixtures'}\n"
        "    if found.name != 'kafkalite.__main__' and not needs_pytest:\n"
        "        importlib.import_module(found.name)\n"
        "print(kafkalite.__file__)"
    )
    assert str(clean.parent) in run(clean / "python", "-c", code, cwd=clean)


@contextmanager
def serving(clean: Path, data: Path) -> Iterator[str]:
    """A broker of the clean environment on a free port; answers its address, stops it and checks the clean end."""
    command = [clean / "kafkalite", "serve", "--listen", "127.0.0.1:0", "--data", data]
    with subprocess.Popen(command, cwd=clean, env=CLEAN, stdout=subprocess.PIPE, text=True) as broker:
        try:
            yield _address(broker)
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(START_TIMEOUT_S) == 0
        finally:
            broker.kill()


def _address(broker: subprocess.Popen[str]) -> str:
    assert broker.stdout is not None
    for line in broker.stdout:
        if found := re.search(r"kafkalite ready on (\S+:\d+)", line):
            return found[1]
    raise AssertionError("the broker ended before it was ready")


def test_installed_broker_serves_produce_and_fetch(clean: Path, tmp_path: Path) -> None:
    with serving(clean, tmp_path / "data") as address:
        at = ("--bootstrap-server", address)
        run(clean / "kafkalite", "topic", "create", "orders", *at, cwd=tmp_path)
        run(clean / "kafkalite", "produce", "orders", *at, cwd=tmp_path, input="one\ntwo\n")
        read = run(clean / "kafkalite", "consume", "orders", "--from-beginning", "-n", "2", *at, cwd=tmp_path)
    assert read.splitlines() == ["one", "two"]


USES_THE_PLUGIN = """
import subprocess, sys
from pathlib import Path

def kafkalite(*arguments, broker, input=None):
    command = [sys.executable, "-m", "kafkalite", *arguments, "--bootstrap-server", broker.address]
    return subprocess.run(command, input=input, capture_output=True, text=True, check=True, timeout=60).stdout

def check(broker, topic):
    kafkalite("produce", topic, broker=broker, input="one\\ntwo\\n")
    assert kafkalite("consume", topic, "--from-beginning", broker=broker) == "one\\ntwo\\n"
    with Path("brokers").open("a") as said:
        said.write(broker.address + "\\n")

def test_a(kafkalite_broker, kafkalite_topic):
    check(kafkalite_broker, kafkalite_topic)

def test_b(kafkalite_broker, kafkalite_topic):
    check(kafkalite_broker, kafkalite_topic)
"""


@pytest.fixture(scope="module")
def pytest_there(clean: Path) -> Path:
    """The clean environment with pytest, as a user of the plugin has it."""
    run(clean / "pip", "install", "-q", "pytest", "pytest-xdist", cwd=clean)
    return clean / "python"


@pytest.mark.parametrize(("processes", "brokers"), [(0, 1), (2, 2)])
def test_the_pytest_plugin_serves_tests(pytest_there: Path, tmp_path: Path, processes: int, brokers: int) -> None:
    """pytest finds the plugin as pip registered it; each process of pytest-xdist has its own broker."""
    (tmp_path / "test_it.py").write_text(USES_THE_PLUGIN)
    options = ["-q", "-W", "error", "-n", str(processes), "--dist", "each" if processes else "no"]
    said = run(pytest_there, "-m", "pytest", *options, "test_it.py", cwd=tmp_path)
    assert f"{2 * brokers} passed" in said
    assert len(set((tmp_path / "brokers").read_text().split())) == brokers
