"""A user's application contains every public call of the SDK; mypy in strict mode checks it (`make lint`).

`typed/wrong_calls.py` has wrong calls, each of which must be a type error.
"""

import ast
from pathlib import Path

import kafkalite_sdk
import pytest
from kafkalite_sdk import blocking

APPLICATION = Path(__file__).parent / "typed" / "application.py"


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
