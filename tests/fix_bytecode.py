"""Workers of pytest-xdist compile different test modules first, so that each one is compiled once.

All workers collect the modules in the same order. In a fresh checkout each of them would rewrite the assertions of each
module, at the same time as the others: 27 s of CPU time per worker. Here each begins with its own part of the modules,
and finds the bytecode of the others when it comes to them.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

CONFTEST = "conftest.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the part of this worker."""
    worker: dict[str, object] | None = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    number, count = int(str(worker["workerid"]).removeprefix("gw")), int(str(worker["workercount"]))
    for path in part_of(sorted(modules_of(session.config)), number, count):
        try:
            import_with_conftests(path.relative_to(session.config.rootpath))
        except (Exception, pytest.skip.Exception):
            return  # the collection fails at the same module, and reports it


def part_of(modules: list[Path], number: int, count: int) -> list[Path]:
    """The modules that worker `number` of `count` compiles first."""
    return modules[len(modules) * number // count : len(modules) * (number + 1) // count]


def modules_of(config: pytest.Config) -> Iterator[Path]:
    """The test modules of the arguments, without those that are not collected."""
    left_out = [config.rootpath / "tests" / name for name in import_module("tests.conftest").collect_ignore]
    for argument in config.args:
        path = config.rootpath / argument.partition("::")[0]
        for found in path.rglob("test_*.py") if path.is_dir() else [path]:
            if not any(found.is_relative_to(each) for each in left_out):
                yield found


def import_with_conftests(path: Path) -> None:
    """Import a module after the `conftest.py` of each of its folders, as pytest does."""
    for folder in reversed(path.parents[:-1]):
        if (folder / CONFTEST).exists():
            import_module(".".join([*folder.parts, CONFTEST.removesuffix(".py")]))
    import_module(".".join(path.with_suffix("").parts))
