"""The import of the SDK is quick and loads no library of the broker; its extensions need no header of one system."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kafkalite_sdk
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RUNS = 7
FORBIDDEN = {"uvloop", "aiozk", "click", "re2"}
ON_FIRST_USE = re.compile(
    r"kafkalite\.(state|protocol\.stored)\.|kafkalite\.net\.(tls|certificates|sasl\.(?!steps))|"
    r"kafkalite_sdk\.(blocking|_speedups\.shared_sends)\b|kafkalite_sdk\.membership\.(?!patterns)|"
    r"kafkalite_sdk\.consumer\.(group_requests|offsets\.(commit|auto_commit)|assignment_changes|health|streams)|"
    r"kafkalite\.records\.legacy|"
    r"(dataclasses|concurrent\.futures\.thread|aiohappyeyeballs|difflib|importlib\.metadata)\b"
)
MESSAGES = {
    f"kafkalite.protocol.messages.{name}"
    for name in (
        "api_versions",
        "fetch",
        "find_coordinator",
        "init_producer_id",
        "list_offsets",
        "metadata",
        "offset_for_leader_epoch",
        "produce",
        "sasl_authenticate",
        "sasl_handshake",
    )
}
STANDARD_LIBRARY = {"bisect", "copy", "random", "zlib"}
MODULES_MAX = 124
PORTABLE = re.compile(r"Python\.h|std(int|lib|io|def|bool|arg)\.h|(string|math|errno|limits|assert)\.h|\*")
PORTABLE_PACKAGES = ("libc.", "cpython.", "cython")

EVERYTHING = """
import importlib, pkgutil, kafkalite_sdk
for found in pkgutil.walk_packages(kafkalite_sdk.__path__, "kafkalite_sdk."):
    importlib.import_module(found.name)
"""
LOADED = "\nimport sys; print('\\n'.join(sys.modules))"
EXTENSIONS = """
import sys
for name, module in sys.modules.items():
    if "_speedups." in name and not getattr(module, "__file__", "").endswith(".py"):
        print(name)
"""
MEASURED = "import time\n{}\nbegin = time.process_time()\n{}\nprint(time.process_time() - begin)"


def run(code: str, bytecode: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if bytecode is not None:
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str) -> list[str]:
    return run(code + LOADED).splitlines()


@pytest.mark.parametrize("code", ["import kafkalite_sdk", EVERYTHING], ids=["package", "every module"])
def test_no_library_of_the_broker_is_loaded(code: str) -> None:
    assert FORBIDDEN.isdisjoint(loaded(code))
    assert {"asyncio", "uvloop"} <= set(loaded("import asyncio, uvloop")), "the check sees loaded modules"


def test_logging_is_left_to_the_application() -> None:
    code = """
import logging
loggers = [logging.root, *map(logging.getLogger, logging.root.manager.loggerDict)]
print([each.name for each in loggers if each.handlers or (each.level and each is not logging.root)])
print(logging.root.level, logging.lastResort.level)
"""
    assert run(EVERYTHING + code) == run(code.replace("import logging", "import asyncio, logging", 1))
    configured = "import logging; logging.getLogger('kafkalite_sdk').addHandler(logging.NullHandler())"
    assert run(configured + code).startswith("['kafkalite_sdk']")


def loaded_after_asyncio(code: str) -> set[str]:
    return set(loaded(f"import asyncio; {code}")) - set(loaded("import asyncio"))


def test_import_of_the_package_loads_no_other_module() -> None:
    assert loaded_after_asyncio("import kafkalite_sdk") == {"kafkalite_sdk"}


def test_import_of_producer_and_consumer_loads_no_module_of_groups_and_rare_requests() -> None:
    modules = loaded_after_asyncio("from kafkalite_sdk import Consumer, Producer")
    assert {"kafkalite_sdk.producer.producer", "kafkalite_sdk.consumer.consumer"} <= modules
    assert [name for name in sorted(modules) if ON_FIRST_USE.match(name)] == []
    assert {name for name in modules if name.startswith("kafkalite.protocol.messages.")} <= MESSAGES
    others = {name.split(".")[0] for name in modules} - {"kafkalite", "kafkalite_sdk", "cython_runtime"}
    assert {name for name in others if not name.startswith("_")} <= STANDARD_LIBRARY
    assert len(modules) <= MODULES_MAX, "the import has become slower: import on first use what it does not need"


@pytest.mark.parametrize(
    ("protocol", "module"), [("classic", "classic"), ("consumer", "consumer"), ("registered", "registered")]
)
def test_member_loads_the_machine_of_its_protocol_only(protocol: str, module: str) -> None:
    code = f"""
from kafkalite_sdk.membership.membership import member_class
assert member_class({protocol!r}).name == {protocol!r}
"""
    machines = {f"kafkalite_sdk.membership.{each}" for each in ("classic", "consumer", "registered")}
    assert machines & set(loaded(code)) == {f"kafkalite_sdk.membership.{module}"}


def seconds_after(before: str, code: str, bytecode: Path) -> float:
    """CPU time of an import with compiled bytecode, the least of some runs: the machine may be busy."""
    code = MEASURED.format(before, code)
    run(code, bytecode)
    return min(float(run(code, bytecode)) for _ in range(RUNS))


def test_import_of_producer_and_consumer_takes_at_most_twice_the_time_of_asyncio(tmp_path: Path) -> None:
    both = seconds_after("import asyncio", "from kafkalite_sdk import Consumer, Producer", tmp_path)
    assert both <= 2 * seconds_after("", "import asyncio", tmp_path)


def extensions() -> list[Path]:
    """The sources of the extensions that the SDK loads."""
    names = run(EVERYTHING + EXTENSIONS)
    return [source_of(name, ".pyx") for name in names.split()]


def source_of(name: str, suffix: str) -> Path:
    path = Path(*name.split(".")).with_suffix(suffix)
    return next(root / path for root in (ROOT, ROOT / "sdk") if (root / path).exists())


def cimported(source: Path) -> Iterator[str]:
    for first, second in re.findall(r"^(?:from ([\w.]+) cimport|cimport ([\w.]+))", source.read_text(), re.MULTILINE):
        yield first or second


def with_declarations(sources: list[Path]) -> set[Path]:
    """These sources and every .pxd that they use."""
    found: set[Path] = set()
    waiting = [*sources, *(each for source in sources if (each := source.with_suffix(".pxd")).exists())]
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            waiting += [source_of(name, ".pxd") for name in cimported(source) if name.startswith("kafkalite")]
    return found


def system_headers(source: Path) -> list[str]:
    headers = re.findall(r"extern from [\"'<]+([^\"'>]+)[\"'>]", source.read_text())
    local = [each for each in headers if (source.parent / each).exists()]
    included = [each for name in local for each in re.findall(r"#include <(.*)>", (source.parent / name).read_text())]
    others = [name for name in cimported(source) if not name.startswith(("kafkalite", *PORTABLE_PACKAGES))]
    return [each for each in (*headers, *included) if each not in local and not PORTABLE.fullmatch(each)] + others


@pytest.mark.skipif(not (ROOT / "sdk").exists(), reason="needs the sources")
def test_extensions_of_the_sdk_include_portable_headers_only() -> None:
    sources = extensions()
    assert {Path(kafkalite_sdk.__file__).parent / "_speedups" / "accumulator.pyx"} <= set(sources)
    used = with_declarations(sources)
    assert {str(each.relative_to(ROOT)): found for each in used if (found := system_headers(each))} == {}


def test_header_check_finds_the_headers_of_linux() -> None:
    epoll = ROOT / "kafkalite" / "_speedups" / "net" / "epoll.pyx"
    assert "sys/epoll.h" in system_headers(epoll)
