"""What a machine has to have: the systemd unit is right for it, and what is missing is named in one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.cli.failure import Failure
from kafkalite.cli.serve import BrokerFailed

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tools/systemd/kafkalite.service"
CHECK = ROOT / "tools/check_toolchain.py"


def verify(unit: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: install systemd")
    command = ["systemd-analyze", "verify", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("unit", [UNIT, UNIT.with_suffix(".socket")], ids=lambda unit: unit.name)
def test_systemd_units_are_valid(unit: Path) -> None:
    done = verify(unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_invalid_systemd_unit_is_reported(tmp_path: Path) -> None:
    wrong = tmp_path / "kafkalite.service"
    wrong.write_text(UNIT.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "WatchdogSecs" in verify(wrong).stderr


def test_systemd_unit_has_the_documented_settings() -> None:
    settings = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    assert settings["Type"] == "notify"
    assert settings["Restart"] == "on-failure"
    assert int(settings["LimitNOFILE"]) >= 100_000
    assert int(settings["WatchdogSec"]) > 0
    assert settings["NoNewPrivileges"] == "yes"


def test_systemd_starts_a_failed_broker_again_but_not_one_with_a_wrong_setting() -> None:
    settings = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    assert settings["RestartPreventExitStatus"] == str(Failure.exit_code)
    assert BrokerFailed.exit_code not in (0, Failure.exit_code)


def check(setup: str) -> str:
    """The output of the check after `setup` has run in its process."""
    code = f"import runpy, sys\n{setup}\nrunpy.run_path({str(CHECK)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == (1 if done.stderr else 0)
    return done.stderr


@pytest.mark.parametrize(
    ("setup", "package"),
    [
        ("sys.version_info = (3, 9)", "Python 3.11 or newer, this is 3.9"),
        ("sys.modules['ensurepip'] = None", "python3-venv (Debian"),
        ("import sysconfig; sysconfig.get_path = lambda name: '/nowhere'", "python3-dev (Debian) or python3-devel (Fe"),
        ("import os; os.environ['CC'] = 'no-such-cc -O2'", "no C compiler (no-such-cc): install gcc"),
    ],
)
def test_missing_tool_is_named_in_one_line(setup: str, package: str) -> None:
    (line,) = check(setup).splitlines()
    assert package in line


def test_toolchain_is_complete() -> None:
    assert check("") == ""
