"""Makes `import aiokafka` load this package, its submodules and its version.

Names that aiokafka has and this package lacks raise an error that names them.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder, PackagePath
from os import PathLike
from types import ModuleType

VERSION = "0.14.0"
"""The version of aiokafka whose interface this is."""

PACKAGE = "kafkalite_sdk.compat.aiokafka"
MODULES = (
    "abc",
    "admin",
    "admin.client",
    "admin.config_resource",
    "admin.new_partitions",
    "admin.new_topic",
    "admin.records_to_delete",
    "client",
    "cluster",
    "consumer",
    "consumer.consumer",
    "coordinator",
    "coordinator.assignors",
    "coordinator.assignors.abstract",
    "coordinator.assignors.range",
    "coordinator.assignors.roundrobin",
    "coordinator.assignors.sticky",
    "coordinator.assignors.sticky.sticky_assignor",
    "coordinator.protocol",
    "errors",
    "helpers",
    "partitioner",
    "producer",
    "producer.message_accumulator",
    "producer.producer",
    "structs",
    "util",
)


def missing(name: str) -> AttributeError:
    """The error for a name of aiokafka that this package lacks."""
    return AttributeError(f"{name} is not part of {PACKAGE}; docs/aiokafka.md lists what replaces it")


class _Finder(DistributionFinder):
    """Finds aiokafka's version, and rejects its modules that this package lacks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("aiokafka."):
            raise ModuleNotFoundError(str(missing(fullname)), name=fullname)
        return None

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        name = None if context is None else context.name
        return [_Version()] if name == "aiokafka" else []


class _Version(Distribution):
    """The metadata of aiokafka that programs read: name and version."""

    def read_text(self, filename: str) -> str | None:
        if filename not in ("METADATA", "PKG-INFO"):
            return None
        return f"Metadata-Version: 2.1\nName: aiokafka\nVersion: {VERSION}\n"

    def locate_file(self, path: str | PathLike[str]) -> PackagePath:
        return PackagePath(path)


def install() -> None:
    """Let every later `import aiokafka` in this process load this package. A second call does nothing.

    Raises:
        ImportError: a module has imported the other aiokafka before.
    """
    found = sys.modules.get("aiokafka")
    if found is not None and found.__name__ != PACKAGE:
        raise ImportError("aiokafka is imported already; call install() before the first module that imports it")
    if found is not None:
        return
    modules = {f"aiokafka.{name}": import_module(f"{PACKAGE}.{name}") for name in MODULES}
    sys.modules.update(modules, aiokafka=sys.modules[PACKAGE])
    sys.meta_path.insert(0, _Finder())
