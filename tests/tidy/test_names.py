"""The number of public functions whose name is a bare participle falls: converters are verbs (`describe`, `locate`)."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 360
"""The count, rounded up to ten, callbacks (`expired`, `closed`) included. Only lower it."""

VERBS = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})


def participles(text: str) -> list[str]:
    """The public functions and methods in the source `text` whose name is one word that ends in -ed."""
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return [n.name for n in functions if n.name.endswith("ed") and "_" not in n.name and n.name not in VERBS]


def sources() -> Iterator[Path]:
    """The Python modules of the packages that are shipped."""
    return (path for package in ("kafkalite", "sdk") for path in sorted((ROOT / package).rglob("*.py")))


def test_bare_participles_do_not_become_more() -> None:
    assert sum(len(participles(path.read_text())) for path in sources()) <= LIMIT


def test_participles_are_names_of_one_public_word() -> None:
    text = "class A:\n def listed(self): ...\n def _made(self): ...\n def is_closed(self): ...\ndef need(): ...\n"
    assert participles(text) == ["listed"]
