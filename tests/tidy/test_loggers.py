"""Loggers are one constant per module, with a name that a move of the module does not change: users configure it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".pyx"}
ASSIGNED = re.compile(r"^(\w+) = logging\.getLogger\((.+?)\)", re.MULTILINE)
REQUESTS = "kafkalite/server/requests/dispatch.py"  # has loggers of requests and of connections


def assigned_loggers(text: str) -> list[tuple[str, str]]:
    """Return variable and argument of each logger of a module."""
    return ASSIGNED.findall(text)


def test_loggers_have_one_name_and_literal_arguments() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name} = getLogger({argument})"
        for top in ("kafkalite", "sdk")
        for path in sorted((ROOT / top).rglob("*"))
        if path.suffix in SUFFIXES
        for name, argument in assigned_loggers(path.read_text())
        if not argument.startswith(('"kafkalite', '"pyspark_kafkalite'))
        or (name != "LOGGER" and str(path.relative_to(ROOT)) != REQUESTS)
    ]
    assert wrong == []


def test_logger_of_a_module_path_is_found() -> None:
    assert assigned_loggers("log = logging.getLogger(__name__)\n") == [("log", "__name__")]
