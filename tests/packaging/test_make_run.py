"""`make run` starts the broker before the extensions of the SDK are compiled; its pip is that of Python's own wheel."""

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.brokers import wait_until

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 60
# The command of a checkout whose SDK is not compiled yet.
COMMAND = """
import sys
class NotBuilt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith("kafkalite_sdk._speedups."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotBuilt)
from kafkalite.cli.main import run
run()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", COMMAND, *arguments]


def test_broker_runs_without_the_extensions_of_the_sdk(tmp_path: Path) -> None:
    serve = command("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path))
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        address = ready.rpartition(" ")[2].strip()
        done = subprocess.run(
            command("topic", "create", "orders", "--bootstrap-server", address),
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=RUN_S)
    assert done.stdout == "created orders with 1 partition(s)\n", done.stderr
    assert process.returncode == 0, log


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_command_names_an_extension_that_is_not_built(name: str) -> None:
    done = subprocess.run(command(name, "orders"), input="a\n", capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 2, done.stderr
    expected = r"kafkalite: the extension kafkalite_sdk\._speedups\.\w+ is not built \(yet\): run `make build` .+\n"
    assert re.fullmatch(expected, done.stderr)


def test_make_run_compiles_only_the_broker_before_it_starts() -> None:
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(
        ["make", "-nB", "run"], cwd=ROOT, env=own, capture_output=True, text=True, timeout=RUN_S, check=True
    )
    compiling = [line for line in done.stdout.splitlines() if "build_ext" in line]
    assert compiling == ["KAFKALITE_PART=broker .venv/bin/python setup.py -q build_ext --inplace"]
    assert done.stdout.splitlines()[-1].endswith("-s build & exec .venv/bin/kafkalite serve  --data ./data")


def test_build_in_place_waits_for_that_of_make_run() -> None:
    (ROOT / "build").mkdir(exist_ok=True)
    own = {**os.environ, "KAFKALITE_ONLY": "none"}
    with open(ROOT / "build/in-place.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build = subprocess.Popen([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=ROOT, env=own)
        waiting = re.compile(rf"-> FLOCK .* {build.pid} ")

        def waits() -> bool:
            assert build.poll() is None, "the build has not waited"
            return waiting.search(Path("/proc/locks").read_text()) is not None

        wait_until(waits, "the build waits for the lock", RUN_S)
    assert build.wait(timeout=RUN_S) == 0


def test_environment_without_pip_gets_that_of_python(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=RUN_S)
    install = ["tools/run_pip.py", "--with-pip", "install", "-q", "--no-compile", "--no-index"]
    subprocess.run([environment / "bin/python", *install], cwd=ROOT, env=clean(), check=True, timeout=RUN_S)
    version = subprocess.run([environment / "bin/pip", "--version"], capture_output=True, text=True, timeout=RUN_S)
    assert str(environment) in version.stdout, version.stderr


def clean() -> dict[str, str]:
    """The environment of this process without settings of pip."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
