"""A user's application that contains every public call of the SDK passes mypy in strict mode."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import kafkalite_sdk
import pytest
from kafkalite_sdk import blocking

ROOT = Path(__file__).parents[2]
APPLICATION = Path(__file__).parent / "typed" / "application.py"


def check(directory: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run mypy in a directory of its own, without the settings of this project."""
    (directory / "application.py").write_text(source)
    (directory / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache" / "application"), "application.py"]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "sdk")))
    return subprocess.run(
        command, cwd=directory, env={**os.environ, "MYPYPATH": path}, capture_output=True, text=True, timeout=500
    )


def test_application_passes_mypy_strict(tmp_path: Path) -> None:
    done = check(tmp_path, APPLICATION.read_text())
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_calls_are_type_errors(tmp_path: Path) -> None:
    wrong = """
from kafkalite_sdk import Consumer, Producer, blocking
producer = Producer("a:9092", value_serializer=str.encode)
producer.send("orders", 1)
consumer = Consumer("a:9092", grup="g")
consumer.seek("orders", 1)
blocking.Admin("a:9092").topics.list(internl=True)
blocking.Producer("a:9092", value_serializer=str.encode).send("orders", 1)
"""
    done = check(tmp_path, wrong)
    lines = sorted({int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line})
    assert lines == [4, 5, 6, 7, 8], done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_application_contains_every_public_method(name: str) -> None:
    used = {node.attr for node in ast.walk(ast.parse(APPLICATION.read_text())) if isinstance(node, ast.Attribute)}
    public = {each for each in dir(getattr(kafkalite_sdk, name)) if not each.startswith("_")}
    assert public - used == set()


def test_application_contains_every_blocking_client() -> None:
    nodes = [node for node in ast.walk(ast.parse(APPLICATION.read_text())) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "blocking"}
    assert used == set(blocking.__all__)


def test_application_contains_every_public_name() -> None:
    used = {node.id for node in ast.walk(ast.parse(APPLICATION.read_text())) if isinstance(node, ast.Name)}
    assert set(kafkalite_sdk.__all__) - used == {"Deserializer"}
