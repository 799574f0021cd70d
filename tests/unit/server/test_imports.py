"""The modules of the server import each other in one direction, imports for type checkers included."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import kafkalite.server

ROOT = Path(kafkalite.server.__file__).parent


def imported(path: Path) -> set[str]:
    """The modules of the server that a module imports, wherever the import is."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafkalite.server"):
            module = (node.module or "").removeprefix("kafkalite.server").lstrip(".")
            names |= {module} if module else {alias.name for alias in node.names}
    return names


def test_server_modules_have_no_import_cycle() -> None:
    graph = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): imported(path) for path in sorted(ROOT.rglob("*.py"))
    }
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert order.index("context") < order.index("call") < order.index("handlers.produce")
    assert order.index("dispatch") < order.index("running_broker") < order.index("startup") < order.index("broker")
