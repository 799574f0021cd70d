"""Imports follow the table of `layering`, which detects a violation of each type."""

from pathlib import Path

import pytest

from tests.tidy.imports import imports
from tests.tidy.layering import violations

ROOT = Path(__file__).resolve().parents[2]


def test_imports_follow_the_table() -> None:
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("kafkalite/records/batch.py", "import asyncio", "1: records may not import asyncio"),
        ("kafkalite/net/tls.py", "def f():\n    import kafkalite.storage.log", "2: net may not import storage.log"),
        ("kafkalite/net/__init__.py", "from .. import state", "net may not import state"),
        ("kafkalite/coordination/embedded.py", "import aiozk", "aiozk is for coordination.zookeeper only"),
        ("sdk/kafkalite_sdk/membership/x.py", "import asyncio", "kafkalite_sdk.membership.x may not import asyncio"),
        ("sdk/kafkalite_sdk/client/settings.py", "import asyncio", "client.settings may not import asyncio"),
        ("sdk/kafkalite_sdk/client/channel.py", "import random", "client.channel may not import random"),
        (
            "sdk/pyspark_kafkalite/x.py",
            "import kafkalite.server.broker",
            "pyspark_kafkalite may not import server.broker",
        ),
        ("sdk/pyspark_kafkalite/x.py", "import kafkalite.config.keys", "pyspark_kafkalite may not import config.keys"),
        ("sdk/kafkalite_sdk/x.py", "import pyspark.sql", "pyspark is for pyspark_kafkalite only"),
        ("kafkalite/cli/serve.py", "import tests.kit.brokers", "imports the tests"),
        ("kafkalite/helpers/x.py", "import kafkalite.errors", "package helpers is not in the table"),
        ("kafkalite/_speedups/log.pyx", "from kafkalite.storage cimport x", "_speedups may not import storage.x"),
    ],
)
def test_violation_is_reported(tmp_path: Path, path: str, text: str, message: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    (violation,) = violations(tmp_path)
    assert violation.startswith(f"{path}:") and message in violation


def test_kit_imports_no_other_test_package() -> None:
    """Tests import the kit, and so does perf; only the oracles are below it."""
    files = (ROOT / "tests/kit").rglob("*.py")
    found = {each.name for path in files for each in imports(path, "tests.kit.x") if each.name.startswith("tests.")}
    assert [name for name in sorted(found) if not name.startswith(("tests.kit", "tests.oracles"))] == []
