"""Checks the imports of each package against a table.

Imports go downwards only. An entry is a package or a part of one (`protocol.stored`, `_speedups.net`). A package that
is not in the table is a violation: a new package needs a row here.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.tidy.imports import imports, module_name

# Open to all packages except those of CLOSED; among themselves in this order.
OPEN = (
    "_version",
    "errors",
    "model",
    "backoff",
    "metrics",
    "callbacks",
    "clock",
    "slicing",
    "gc_pause",
    "rate_limited_log",
    "config",
)
CLOSED = {"state": ("errors", "model", "backoff"), "_speedups": ("errors",)}

ALLOWED: dict[str, tuple[str, ...]] = {
    "_speedups": (),
    "records": ("_speedups",),
    "protocol": ("_speedups",),
    "net": ("_speedups", "protocol"),
    "storage": ("_speedups", "records", "protocol.stored"),
    "state": (),
    "coordination": ("_speedups.storage.file",),
    "coordination.zookeeper": ("_speedups.storage.file", "net.tls"),
    "cluster": ("_speedups", "records", "protocol", "net", "storage", "state", "coordination"),
    "coordinators": ("_speedups", "records", "protocol", "state", "cluster"),
    "server": (
        *("_speedups", "records", "protocol", "net", "storage", "state"),
        *("coordination", "cluster", "coordinators"),
    ),
    "kafkalite_sdk": ("_speedups", "records", "protocol", "net", "state.groups.assignors"),
    "kafkalite_sdk.zk": ("_speedups", "records", "protocol", "net", "coordination"),
    "pyspark_kafkalite": ("kafkalite_sdk",),
}
LOWER = (*ALLOWED["server"], "server", "kafkalite_sdk")
ALLOWED["testing"] = ALLOWED["cli"] = LOWER
ALLOWED["cli.pipeline"] = (*LOWER, "pyspark_kafkalite")

FORBIDDEN_LIBRARIES = {
    "records": {"asyncio"},
    "protocol": {"asyncio"},
    "storage": {"asyncio"},
    "state": {"asyncio", "os", "time", "random"},
}
# A library that only these modules may name, so that everything else works without it.
CONFINED_LIBRARIES = {
    "aiozk": ("coordination.zookeeper",),
    "uvloop": ("server", "testing", "cli", "clock", "_speedups.net.epoll"),
    **dict.fromkeys(("pyspark", "pandas", "pyarrow", "deltalake", "pyiceberg"), ("pyspark_kafkalite",)),
}
# Of the packages that all others may import, those that a user of the SDK sees.
SPARK_OPEN = ("errors", "model", "metrics", "_version")
AIOKAFKA_MODULES = (
    *("__main__", "admin.client", "background", "consumer", "group_leave", "lifetime", "producer", "topics", "util"),
)
# In the SDK all modules but these are pure. Time and timers come from the event loop, `time` is for wall clocks.
SDK_LIBRARIES = {
    "asyncio": (
        "kafkalite_sdk.client",
        "kafkalite_sdk.blocking",
        "kafkalite_sdk.columns.range_reader",
        "kafkalite_sdk.interceptors",
        "kafkalite_sdk.registry",
        *(f"kafkalite_sdk.zk.{module}" for module in ("consumer", "offsets", "session")),
        *(
            f"kafkalite_sdk.consumer.{module}"
            for module in ("consumer", "driver", "fetch.decompression", "poison", "poll_loop", "queries", "streams")
        ),
        *(f"kafkalite_sdk.producer.{module}" for module in ("compression", "driver", "handler", "producer", "waiters")),
        "kafkalite_sdk.producer.transactions.calls",
        *(f"kafkalite_sdk._speedups.{module}" for module in ("accumulator", "deliveries", "loop_guard")),
        *(f"kafkalite_sdk.admin.{module}" for module in ("addresses", "driver")),
        "kafkalite_sdk.rpc.connection",
        *(f"kafkalite_sdk.zk.{module}" for module in ("bootstrap", "producer.queue", "simple_consumer", "znode_calls")),
        *(f"kafkalite_sdk.compat.aiokafka.{module}" for module in AIOKAFKA_MODULES),
    ),
    "random": ("kafkalite_sdk.client.environment", "kafkalite_sdk.compat.aiokafka.partitioner"),
    "time": (
        "kafkalite_sdk.blocking.producer",
        "kafkalite_sdk.client.environment",
        "kafkalite_sdk.compat.aiokafka.producer.message_accumulator",
    ),
    "threading": (
        "kafkalite_sdk.blocking.closing",
        "kafkalite_sdk.blocking.loop_thread",
        "kafkalite_sdk.client.ownership",
    ),
    "concurrent": (
        "kafkalite_sdk.blocking.closing",
        "kafkalite_sdk.producer.compression",
        "kafkalite_sdk.consumer.fetch.decompression",
    ),  # codecs of large batches
}
# In `client`, these are pure, too.
SDK_PURE = tuple(
    f"kafkalite_sdk.client.{module}"
    for module in ("cluster_view", "metadata_schedule", "options", "routes", "settings")
)
# The package itself names the broker for `kafkalite.Broker`; `python -m kafkalite` is the command.
ROOT_MODULES = {"kafkalite": ("_version", "server"), "kafkalite.__main__": ("cli",)}
PACKAGES = ("kafkalite", "kafkalite_sdk", "pyspark_kafkalite")
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd"}


def violations(root: Path) -> list[str]:
    """Imports under `root` (the checkout) that the table does not allow, one line each."""
    found = []
    for base in (root, root / "sdk"):
        for top in PACKAGES:
            for path in sorted((base / top).rglob("*")):
                if path.suffix in SUFFIXES:
                    found += [f"{path.relative_to(root)}:{said}" for said in _of_file(path, module_name(path, base))]
    return found


def _layer_name(module: str) -> str:
    """A module's name in the table: without `kafkalite.`, which all packages of the broker share."""
    return module.removeprefix("kafkalite.")


def _within(layer_name: str, entries: tuple[str, ...] | set[str]) -> bool:
    return any(layer_name == entry or layer_name.startswith(entry + ".") for entry in entries)


def _of_file(path: Path, module: str) -> Iterator[str]:
    package = _layer_name(module).split(".")[0]
    for line, name in imports(path, module):
        if name.startswith("include:"):
            yield f"{line}: includes {name[8:]}: use cimport"
        elif said := _check(module, package, name):
            yield f"{line}: {said}"


def _check(module: str, package: str, name: str) -> str | None:
    top = name.split(".")[0]
    if top == "tests":
        return f"{module} imports the tests ({name})"
    if top in PACKAGES:
        return _check_own(module, package, _layer_name(name))
    if top in FORBIDDEN_LIBRARIES.get(package, ()):
        return f"{package} may not import {top}"
    if package == "kafkalite_sdk" and top in SDK_LIBRARIES:
        may = _within(module, SDK_LIBRARIES[top]) and not _within(module, SDK_PURE)
        return None if may else f"{module} may not import {top}"
    if top in CONFINED_LIBRARIES and not _within(_layer_name(module), CONFINED_LIBRARIES[top]):
        return f"{top} is for {', '.join(CONFINED_LIBRARIES[top])} only"
    return None


def _check_own(module: str, package: str, layer_name: str) -> str | None:
    if module not in ROOT_MODULES and layer_name.split(".")[0] == package:
        return None
    allowed = _allowed(module, package)
    if allowed is None:
        return f"package {package} is not in the table"
    return None if _within(layer_name, allowed) else f"{package} may not import {layer_name}"


def _allowed(module: str, package: str) -> tuple[str, ...] | None:
    if module in ROOT_MODULES:
        return ROOT_MODULES[module]
    if package in OPEN:
        return OPEN[: OPEN.index(package)]
    part = next((entry for entry in ALLOWED if "." in entry and _within(_layer_name(module), (entry,))), package)
    if part not in ALLOWED:
        return None
    if part == "pyspark_kafkalite":
        return (*ALLOWED[part], *SPARK_OPEN)
    return (*ALLOWED[part], *CLOSED.get(package, OPEN))
