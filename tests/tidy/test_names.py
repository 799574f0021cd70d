"""The number of public functions that return a value and are named by a bare participle falls: converters are verbs
(`describe`, `locate`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 9
"""The count. Only lower it."""

VERBS = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})


def is_state(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a property: `closed`, `expired`, `owned` are adjectives of the object."""
    return any(isinstance(each, ast.Name) and "property" in each.id for each in function.decorator_list)


def is_callback(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function returns nothing: it is called when something has happened (`joined`, `closed`)."""
    return isinstance(function.returns, ast.Constant) and function.returns.value is None


def participles(text: str) -> list[str]:
    """The public functions and methods in the source `text` that return a value and whose name is one word that ends in
    -ed.
    """
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    named = (n for n in functions if n.name.endswith("ed") and "_" not in n.name and n.name not in VERBS)
    return [n.name for n in named if not is_state(n) and not is_callback(n)]


def sources() -> Iterator[Path]:
    """The Python modules of the packages that are shipped."""
    return (path for package in ("kafkalite", "sdk") for path in sorted((ROOT / package).rglob("*.py")))


def test_bare_participles_do_not_become_more() -> None:
    assert sum(len(participles(path.read_text())) for path in sources()) == LIMIT


def test_participles_are_names_of_one_public_word() -> None:
    text = "class A:\n def listed(self): ...\n def _made(self): ...\n def is_closed(self): ...\ndef need(): ...\n"
    assert participles(text) == ["listed"]


def test_callbacks_and_states_may_be_participles() -> None:
    text = "class A:\n @property\n def closed(self) -> bool: ...\n def joined(self) -> None: ...\n"
    assert participles(text + " def sorted(self) -> list[int]: ...\n") == ["sorted"]
