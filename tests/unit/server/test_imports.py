"""The modules of the server import each other in one direction, and so do its packages, also for type checkers."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import kafkalite.server

ROOT = Path(kafkalite.server.__file__).parent
FILES = [path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py"))]
MODULES = {".".join(path.with_suffix("").parts) for path in FILES}
FILES_MAX = 25  # of a package but `handlers`, which has a file per API key


def imported(path: Path) -> set[str]:
    """The modules of the server that a module imports, wherever the import is."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafkalite.server"):
            module = (node.module or "").removeprefix("kafkalite.server").lstrip(".")
            names |= {module} & MODULES or {f"{module}.{alias.name}".lstrip(".") for alias in node.names}
    return names


GRAPH = {".".join(path.with_suffix("").parts): imported(path) for path in FILES}


def package(module: str) -> str:
    return module.split(".")[0]


def test_server_modules_have_no_import_cycle() -> None:
    order = list(TopologicalSorter(GRAPH).static_order())  # raises CycleError
    assert order.index("requests.context") < order.index("requests.call") < order.index("handlers.produce")
    assert order.index("requests.dispatch") < order.index("running.running_broker")
    assert order.index("running.running_broker") < order.index("startup.startup") < order.index("broker")


def test_server_packages_have_no_import_cycle() -> None:
    packages: dict[str, set[str]] = {package(module): set() for module in GRAPH}
    for module, others in GRAPH.items():
        packages[package(module)] |= {package(each) for each in others} - {package(module)}
    order = list(TopologicalSorter(packages).static_order())  # raises CycleError
    assert order.index("configs") < order.index("requests") < order.index("running") < order.index("startup")


def test_server_packages_are_small() -> None:
    files = {
        folder: len([each for each in FILES if each.parent == folder]) for folder in {each.parent for each in FILES}
    }
    assert files.pop(Path()) == 2, "broker, and the package itself"
    assert files.pop(Path("handlers")) > FILES_MAX
    assert max(files.values()) <= FILES_MAX, files
